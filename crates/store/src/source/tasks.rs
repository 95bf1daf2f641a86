//! Reading in tasks that several threads can do: the caller runs them on its own threads and puts the results
//! in the order in which the tasks were taken. This crate starts no threads.
//!
//! Invariant: the batches of all tasks, one task after the other, have the rows of [`Source::batches`] in the
//! same order, and the same first error.

use super::progress::Progress;
use super::selection::Selection;
use super::{Batches, Guarded, InputFile, Opened, Source, compressed, csv, files, guarded, json, parquet};
use farpool_model::{Error, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// The work to turn a part of the rows into batches, such as parsing.
pub type Task = Box<dyn FnOnce() -> Batches + Send>;

/// Tasks in the order of their rows; to take one reads no more than its bytes.
pub type Tasks = Box<dyn Iterator<Item = Task> + Send>;

/// A task that returns nothing but an error.
pub(super) fn failing(error: Error) -> Task {
    Box::new(|| Box::new(std::iter::once(Err(error))))
}

/// Wraps each batch in a task that only returns it. Ends after the first error.
pub fn of_batches(batches: Batches) -> Tasks {
    Box::new(up_to_error(batches).map(|batch| -> Task { Box::new(|| Box::new(std::iter::once(batch))) }))
}

/// Runs all tasks on the calling thread and returns their batches. Ends after the first error.
pub(super) fn in_order(tasks: Tasks) -> Batches {
    up_to_error(Box::new(tasks.flat_map(|task| task())))
}

pub(super) fn up_to_error(batches: Batches) -> Batches {
    let mut is_done = false;
    Box::new(batches.take_while(move |batch| !std::mem::replace(&mut is_done, batch.is_err())))
}

impl Source {
    /// Reads as [`Source::batches`] does, in tasks. With a limit, batches are read while tasks are taken and
    /// the tasks only return them, since few rows are needed.
    pub fn tasks(self, columns: Option<&[usize]>) -> Tasks {
        if self.limit.is_some() {
            return of_batches(self.batches(columns));
        }
        let Source { files, schema, progress, .. } = self;
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let columns = columns.unwrap_or(&all).to_vec();
        if let Err(error) = schema.project(&columns) {
            return Box::new(std::iter::once(failing(Error::invalid(error.to_string()))));
        }
        Box::new(files.into_iter().flat_map(move |file| {
            let selection = Arc::new(Selection::new(&schema, &columns, &file));
            let progress = Arc::new(Progress::new(file.bytes, progress.clone()));
            file.tasks(selection, progress)
        }))
    }
}

impl InputFile {
    fn tasks(self, selection: Arc<Selection>, progress: Arc<Progress>) -> Tasks {
        let path = self.path.clone();
        let mut tasks = match guarded(&path, || self.open_tasks(&selection, &progress)) {
            Ok(tasks) => Some(tasks),
            Err(error) => return Box::new(std::iter::once(failing(error))),
        };
        Box::new(std::iter::from_fn(move || {
            match guarded(&path, || Ok(tasks.as_mut().and_then(Iterator::next))) {
                Ok(Some(task)) => Some(selected(task, selection.clone(), path.clone())),
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
        let (path, columns) = (&self.path, selection.read.as_slice());
        let bytes = |compression| {
            let (file, _) = files::open(path)?;
            compressed::read(path, file, compression, progress.clone())
        };
        match &self.format {
            Opened::Parquet(footer) => Ok(parquet::tasks(path, footer, columns, progress)),
            Opened::Csv(dialect, compression) => {
                // Only lines are checked, not values.
                let columns = if selection.is_empty() { &[] } else { columns };
                csv::tasks(path, bytes(*compression)?, &self.schema, dialect, columns)
            }
            Opened::Json(typed, compression) => {
                json::tasks(path, bytes(*compression)?, &self.schema, typed, columns)
            }
            Opened::Ipc(_) => Ok(of_batches(self.batches(columns, None, progress)?)),
        }
    }
}

/// Wraps a task: its batches get the columns of the result, errors the file's name, and panics become errors.
fn selected(task: Task, selection: Arc<Selection>, path: PathBuf) -> Task {
    Box::new(move || match guarded(&path, || Ok(task())) {
        Ok(batches) => Box::new(Guarded { batches: Some(batches), selection, path, progress: None }),
        Err(error) => Box::new(std::iter::once(Err(error))),
    })
}
