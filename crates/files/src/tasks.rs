//! Reading in tasks for several threads. The caller runs the tasks on its own threads, and puts the results in the
//! order in which the tasks were taken. This crate starts no threads.
//!
//! Invariant: the batches of all tasks, one task after the other, have the rows of [`Source::batches`] in the same
//! order, and the same first error.

use super::input::Place;
use super::progress::Progress;
use super::selection::Selection;
use super::{Batches, Guarded, InputFile, Opened, Source, compressed, csv, encoding, json, parquet};
use farpool_model::{Error, Result};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A part of the reading, such as parsing, that turns some of the rows into batches. It may run on any thread.
pub type Task = Box<dyn FnOnce() -> Batches + Send>;

/// Tasks in the order of their rows. Taking a task reads at most the bytes of the task.
pub type Tasks = Box<dyn Iterator<Item = Task> + Send>;

/// Returns a task whose only result is an error.
pub(super) fn failing(error: Error) -> Task {
    Box::new(|| Box::new(std::iter::once(Err(error))))
}

/// Wraps each batch in a task that only returns it. Ends after the first error.
pub fn of_batches(batches: Batches) -> Tasks {
    Box::new(up_to_error(batches).map(|batch| -> Task { Box::new(|| Box::new(std::iter::once(batch))) }))
}

/// Runs all tasks on the calling thread, one after the other, and returns their batches. Ends after the first error.
pub(super) fn in_order(tasks: Tasks) -> Batches {
    up_to_error(Box::new(tasks.flat_map(|task| task())))
}

pub(super) fn up_to_error(batches: Batches) -> Batches {
    let mut is_done = false;
    Box::new(batches.take_while(move |batch| !std::mem::replace(&mut is_done, batch.is_err())))
}

impl Source {
    /// Reads the same rows as [`Source::batches`], in tasks. With a limit, batches are read when tasks are taken, and
    /// the tasks only return them, because few rows are needed.
    pub fn tasks(self, columns: Option<&[usize]>) -> Tasks {
        if self.limit.is_some() {
            return of_batches(self.batches(columns));
        }
        let Source { files, schema, held, progress, .. } = self;
        let is_early =
            |file: &InputFile| file.place.remote.is_some() && matches!(file.format, Opened::Parquet(_));
        let are_early = files.iter().any(is_early);
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let columns = columns.unwrap_or(&all).to_vec();
        if let Err(error) = schema.project(&columns) {
            return Box::new(std::iter::once(failing(Error::invalid(error.to_string()))));
        }
        let tasks: Tasks = Box::new(files.into_iter().flat_map(move |file| {
            let selection = Arc::new(Selection::new(&schema, &columns, &file));
            let progress = Arc::new(Progress::new(file.bytes, progress.clone()));
            file.tasks(selection, progress)
        }));
        if are_early { Box::new(Early { tasks, early: VecDeque::new(), held }) } else { tasks }
    }
}

/// Takes tasks of remote files in advance, because taking one requests its bytes.
struct Early {
    tasks: Tasks,
    early: VecDeque<Task>,
    held: Arc<AtomicU64>,
}

/// Maximum number of tasks of remote files that are taken in advance, and bytes in memory or requested above which none
/// is.
const TASKS_EARLY: usize = 8;
const BYTES_EARLY: u64 = 64 << 20;

impl Iterator for Early {
    type Item = Task;

    fn next(&mut self) -> Option<Task> {
        let first = self.early.pop_front().or_else(|| self.tasks.next())?;
        while self.early.len() < TASKS_EARLY && self.held.load(Ordering::Relaxed) < BYTES_EARLY {
            match self.tasks.next() {
                Some(task) => self.early.push_back(task),
                None => break,
            }
        }
        Some(first)
    }
}

impl InputFile {
    fn tasks(self, selection: Arc<Selection>, progress: Arc<Progress>) -> Tasks {
        let place = self.place.clone();
        let mut tasks = match place.guarded(|| self.open_tasks(&selection, &progress)) {
            Ok(tasks) => Some(tasks),
            Err(error) => return Box::new(std::iter::once(failing(error))),
        };
        Box::new(std::iter::from_fn(move || {
            match place.guarded(|| Ok(tasks.as_mut().and_then(Iterator::next))) {
                Ok(Some(task)) => Some(selected(task, selection.clone(), place.clone())),
                Ok(None) => {
                    tasks = None;
                    progress.complete();
                    None
                }
                Err(error) => {
                    tasks = None;
                    Some(failing(error))
                }
            }
        }))
    }

    fn open_tasks(&self, selection: &Selection, progress: &Arc<Progress>) -> Result<Tasks> {
        let (path, columns) = (&self.place.path, selection.read.as_slice());
        let bytes = |compression| {
            let (file, _) = self.place.open()?;
            compressed::read(path, file, compression, progress.clone())
        };
        match &self.format {
            Opened::Parquet(footer) => Ok(parquet::tasks(&self.place, footer, columns, progress)),
            Opened::Csv(dialect, compression) => {
                // If no column is requested, only the lines are checked, not the values.
                let columns = if selection.is_empty() { &[] } else { columns };
                let bytes = encoding::decoded(bytes(*compression)?, dialect.encoding);
                csv::tasks(path, bytes, &self.schema, dialect, columns)
            }
            Opened::Json(form, compression) => {
                let bytes = encoding::decoded(bytes(*compression)?, form.encoding);
                json::tasks(path, bytes, &self.schema, form, columns)
            }
            Opened::Ipc(_) => Ok(of_batches(self.batches(columns, None, progress)?)),
        }
    }
}

/// Wraps a task such that its batches have the columns of the result, errors have the file's name, and panics become
/// errors.
fn selected(task: Task, selection: Arc<Selection>, place: Place) -> Task {
    Box::new(move || match place.guarded(|| Ok(task())) {
        Ok(batches) => Box::new(Guarded { batches: Some(batches), selection, place, progress: None }),
        Err(error) => Box::new(std::iter::once(Err(error))),
    })
}
