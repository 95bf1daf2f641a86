//! Files as streams of record batches: Parquet, CSV and TSV, JSON, Arrow IPC (file and stream). Files are on this
//! machine or, named by URLs, on a network that the caller provides ([`Remotes`]).
//!
//! A source is one file or several files that are read as one table. Opening it reads only metadata and, if column
//! types are guessed, the first rows. Reading it reads only the requested columns: one batch after the other
//! ([`Source::batches`]), or in tasks for several threads ([`Source::tasks`]).
//!
//! Invariant: every error names the file it is about, and no file, however corrupted, makes the reader panic.

#![forbid(unsafe_code)]

mod ahead;
mod calendar;
mod compressed;
mod convert;
mod csv;
mod encoding;
mod files;
mod framing;
mod hive;
mod input;
mod ipc;
mod json;
mod lanes;
mod names;
mod parquet;
mod progress;
mod remote;
mod schemas;
mod selection;
mod stream;
mod tasks;
mod urls;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use compressed::Bytes;
use farpool_model::{Error, FileCompression, ReadOptions, Result};
use files::Format;
use input::Place;
use progress::Progress;
use remote::Remoted;
use selection::Selection;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub use remote::{Fetch, Remote, RemoteFile, Remotes};
pub use stream::{Stream, of_rows, open_stream};
pub use tasks::{Task, Tasks, of_batches};
pub use urls::is_url;

/// Opens a file, the files that a pattern such as `trips-*.parquet` matches, or those of a folder, with default
/// options.
///
/// # Errors
/// Errors of [`open_all`].
pub fn open(pattern: &str) -> Result<Source> {
    open_all(&[pattern], &ReadOptions::default(), None)
}

/// Opens the files at several paths, patterns and folders as one source, in the order given; URLs are opened through
/// `remotes`. The format is taken from `options`, else from the extension (`.parquet`, `.csv`, `.tsv`, `.json`,
/// `.jsonl`, `.ndjson`, `.arrow`, `.arrows`, `.feather`, `.ipc`; for CSV and JSON optionally followed by `.gz` or
/// `.zst`), else from the first bytes.
///
/// # Errors
/// `NotFound` if there is no such file; `Invalid` if it is empty, of an unknown format, not of the format that its name
/// says, or has columns that differ from those of another file; `Corrupt` if it is corrupted.
pub fn open_all(patterns: &[&str], options: &ReadOptions, remotes: Option<&dyn Remotes>) -> Result<Source> {
    let (mut places, held) = (Vec::new(), Arc::default());
    for pattern in patterns {
        match remotes {
            Some(remotes) if is_url(pattern) && !Path::new(pattern).exists() => {
                places.extend(urls::resolve(pattern, remotes)?.into_iter().map(|found| Place {
                    path: found.path,
                    remote: Some(Remoted::new(found.file, Arc::clone(&held))),
                }));
            }
            _ => places.extend(files::resolve(pattern)?.into_iter().map(|path| Place { path, remote: None })),
        }
    }
    if places.is_empty() {
        return Err(Error::invalid("there is no file to read"));
    }
    let mut files = open_places(&places, options)?;
    let schema = schemas::agreed(&mut files, options)?;
    let schema = hive::with_partitions(&mut files, schema, options);
    let schema = hive::with_paths(&mut files, schema, options)?;
    let paths = places.into_iter().map(|place| place.path).collect();
    Ok(Source { paths, files, schema, held, limit: None, progress: Arc::default() })
}

/// Opens files. For remote files, the beginnings or ends of the next files are requested in advance.
fn open_places(places: &[Place], options: &ReadOptions) -> Result<Vec<InputFile>> {
    let (mut files, mut asked) = (Vec::with_capacity(places.len()), 0);
    for (i, place) in places.iter().enumerate() {
        let until = (i + FILES_AHEAD).min(places.len());
        for next in &places[asked.max(i)..until] {
            if let Some(remote) = &next.remote {
                remote.ask_early(files::has_footer(&next.path, options));
            }
        }
        asked = until;
        files.push(InputFile::open(place, options)?);
        if let Some(remote) = place.remote.as_ref().filter(|_| places.len() > FILES_AHEAD) {
            remote.release();
        }
    }
    Ok(files)
}

/// Maximum number of remote files whose beginning or end is requested in advance, and kept until it is read. Reason:
/// the requests overlap, and each file keeps at most 256 KiB in memory.
const FILES_AHEAD: usize = 32;

/// Opened files that have not been read yet.
pub struct Source {
    paths: Vec<PathBuf>,
    files: Vec<InputFile>,
    schema: SchemaRef,
    /// Bytes of remote files that are in memory or requested.
    held: Arc<AtomicU64>,
    limit: Option<usize>,
    progress: Arc<AtomicU64>,
}

struct InputFile {
    place: Place,
    bytes: u64,
    rows: Option<u64>,
    /// The columns stored in the file.
    schema: SchemaRef,
    /// For each column of the source that files store, the index of this file's column; `None` if the file lacks it.
    stored: Vec<Option<usize>>,
    /// Values of the following columns of the source: those of the partition folders in the file's path, and the path.
    partitions: Vec<Option<String>>,
    format: Opened,
}

enum Opened {
    Parquet(parquet::Footer),
    Csv(csv::Dialect, FileCompression),
    Json(json::Form, FileCompression),
    Ipc(ipc::Kind),
}

impl Opened {
    /// Returns whether column types are guessed, as for text formats.
    fn is_text(&self) -> bool {
        match self {
            Opened::Csv(..) | Opened::Json(..) => true,
            Opened::Parquet(_) | Opened::Ipc(_) => false,
        }
    }
}

/// Iterator over the batches of one or several files.
pub type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

impl Source {
    /// Returns the columns of the source, with unique names. Strings of Parquet, CSV and JSON files are views.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the number of rows; `None` if the metadata of the files do not state it.
    pub fn rows_hint(&self) -> Option<u64> {
        self.files.iter().map(|file| file.rows).sum()
    }

    /// Returns the total size of the files in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Returns whether column types were guessed from some of the rows.
    pub fn is_guessed(&self) -> bool {
        self.files.iter().any(|file| file.format.is_text())
    }

    /// Limits the number of rows. Readers stop when they have that many.
    #[must_use]
    pub fn with_limit(mut self, rows: usize) -> Self {
        self.limit = Some(rows);
        self
    }

    /// Returns the files, in the order in which they are read.
    pub fn files(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Returns for each remote file a text that differs after the file was changed; empty for files on this machine.
    pub fn stamps(&self) -> impl Iterator<Item = String> + '_ {
        self.files
            .iter()
            .map(|file| file.place.remote.as_ref().map_or_else(String::new, |remote| remote.stamp()))
    }

    /// Returns the counter of bytes read so far. Columns that are skipped count as read, so that the counter reaches
    /// [`Source::bytes`] at the end.
    pub fn progress(&self) -> Arc<AtomicU64> {
        self.progress.clone()
    }

    /// Sets the counter to which the bytes that are read are added. Several sources can share it.
    #[must_use]
    pub fn with_progress(mut self, progress: Arc<AtomicU64>) -> Self {
        self.progress = progress;
        self
    }

    /// Reads the files one after another: the columns at the indexes `columns` in that order, or all. The iterator ends
    /// after the first error.
    pub fn batches(self, columns: Option<&[usize]>) -> Batches {
        let Source { files, schema, progress, limit, .. } = self;
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let columns = columns.unwrap_or(&all).to_vec();
        if let Err(error) = schema.project(&columns) {
            return Box::new(std::iter::once(Err(Error::invalid(error.to_string()))));
        }
        let batches = files.into_iter().flat_map(move |file| file.read(&schema, &columns, limit, &progress));
        let mut batches = tasks::up_to_error(Box::new(batches));
        let Some(mut left) = limit else { return batches };
        Box::new(std::iter::from_fn(move || {
            let batch = if left > 0 { batches.next()? } else { return None };
            Some(batch.map(|batch| {
                let batch = batch.slice(0, left.min(batch.num_rows()));
                left -= batch.num_rows();
                batch
            }))
        }))
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source")
            .field("files", &self.paths)
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl InputFile {
    fn open(place: &Place, options: &ReadOptions) -> Result<Self> {
        let path = place.path.as_path();
        let (mut file, bytes) = place.open()?;
        let (format, compression) = place.guarded(|| files::format(path, &mut file, options))?;
        let text = || -> Result<Bytes> {
            let (file, _) = place.open()?;
            let bytes =
                compressed::read(path, file, compression, Arc::new(Progress::new(0, Arc::default())))?;
            Ok(encoding::decoded(bytes, options.encoding))
        };
        let (schema, rows, format) = place.guarded(|| {
            Ok(match format {
                Format::Parquet => {
                    let (schema, rows, footer) = parquet::open(path, &file)?;
                    (schema, Some(rows), Opened::Parquet(footer))
                }
                Format::Csv { tabs } => {
                    let (schema, dialect) = csv::open(path, text, tabs, options)?;
                    (schema, None, Opened::Csv(dialect, compression))
                }
                Format::Json => {
                    let schema = json::open(path, text()?, options)?;
                    (schema, None, Opened::Json(json::Form::of(options), compression))
                }
                Format::Ipc(kind) => {
                    let (schema, rows) = ipc::open(path, file, bytes, kind)?;
                    (schema, Some(rows), Opened::Ipc(kind))
                }
            })
        })?;
        schemas::bounded(path, schema.fields().len())?;
        let (schema, place) = (names::with_unique_names(schema), place.clone());
        Ok(InputFile { place, bytes, rows, schema, stored: Vec::new(), partitions: Vec::new(), format })
    }

    fn read(
        self,
        schema: &SchemaRef,
        columns: &[usize],
        limit: Option<usize>,
        progress: &Arc<AtomicU64>,
    ) -> Batches {
        let selection = Arc::new(Selection::new(schema, columns, &self));
        let progress = Arc::new(Progress::new(self.bytes, progress.clone()));
        let place = self.place.clone();
        let batches = match place.guarded(|| self.batches(&selection.read, limit, &progress)) {
            Ok(batches) => batches,
            Err(error) => return Box::new(std::iter::once(Err(error))),
        };
        Box::new(Guarded { batches: Some(batches), selection, place, progress: Some(progress) })
    }

    fn batches(&self, columns: &[usize], limit: Option<usize>, progress: &Arc<Progress>) -> Result<Batches> {
        let (file, _) = self.place.open()?;
        let (path, progress) = (&self.place.path, progress.clone());
        match &self.format {
            Opened::Parquet(footer) => parquet::read(path, file, footer, columns, limit, progress),
            Opened::Csv(dialect, compression) => {
                let from = compressed::read(path, file, *compression, progress)?;
                let from = encoding::decoded(from, dialect.encoding);
                csv::read(path, from, &self.schema, dialect, columns)
            }
            Opened::Json(form, compression) => {
                let from = compressed::read(path, file, *compression, progress)?;
                let from = encoding::decoded(from, form.encoding);
                json::read(path, from, &self.schema, form, columns)
            }
            Opened::Ipc(kind) => ipc::read(path, file, *kind, columns, progress),
        }
    }
}

/// The batches of one file. Adds the file's name to errors, and turns panics of the reader into errors.
struct Guarded {
    batches: Option<Batches>,
    selection: Arc<Selection>,
    place: Place,
    /// `None` if the batches are only a part of the file.
    progress: Option<Arc<Progress>>,
}

impl Iterator for Guarded {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batches = self.batches.as_mut()?;
        let next = self.place.guarded(|| batches.next().transpose());
        match next {
            Ok(Some(batch)) => {
                Some(self.selection.apply(&batch).map_err(|e| e.at(self.place.path.display())))
            }
            Ok(None) => {
                self.batches = None;
                self.progress.iter().for_each(|progress| progress.complete());
                None
            }
            Err(error) => {
                self.batches = None;
                Some(Err(error))
            }
        }
    }
}

/// Runs a reader and turns a panic into an error, because the readers are third-party code that validates most input
/// but panics on some.
fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(damaged(path, "its parts do not fit together")))
}

fn damaged(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("{}: {what}", path.display()))
        .advise("the file is damaged or cut off: get it again")
}

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unions;
