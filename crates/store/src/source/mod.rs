//! Files as streams of record batches: Parquet, CSV and TSV, JSON, Arrow IPC (file and stream).
//!
//! A source is one file or several that agree in their columns. It is opened first, which reads only what
//! the files say about themselves, and read later, only the columns that are asked for: one batch after the other
//! ([`Source::batches`]), or in tasks for several threads ([`Source::tasks`]).
//!
//! Invariant: every error names the file it is about, and no file, however damaged, makes the reader panic.

mod ahead;
mod compressed;
mod convert;
mod csv;
mod files;
mod framing;
mod hive;
mod ipc;
mod json;
mod names;
mod parquet;
mod progress;
mod schemas;
mod selection;
mod stream;
mod tasks;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use compressed::Bytes;
use farpool_model::{Error, FileCompression, ReadOptions, Result};
use files::Format;
use progress::Progress;
use selection::Selection;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub use stream::{Stream, open_stream};
pub use tasks::{Task, Tasks, of_batches};

/// Opens the file at a path, or the files that a pattern such as `trips-*.parquet` stands for, or those of a folder,
/// with nothing said about how they are read.
///
/// # Errors
/// Those of [`open_all`].
pub fn open(pattern: &str) -> Result<Source> {
    open_all(&[pattern], &ReadOptions::default())
}

/// Opens the files at several paths, patterns and folders as one source, in the order given. The format
/// goes by the extension (`.parquet`, `.csv`, `.tsv`, `.json`, `.jsonl`, `.ndjson`, `.arrow`, `.arrows`, `.feather`,
/// `.ipc`; of CSV and JSON with `.gz` or `.zst` behind it), else by the first bytes, unless `options` say it.
///
/// # Errors
/// `NotFound` when there is no such file; `Invalid` when it is empty, of an unknown format,
/// not what its name says, or differs from another file in its columns; `Corrupt` when it is damaged.
pub fn open_all(patterns: &[&str], options: &ReadOptions) -> Result<Source> {
    let mut paths = Vec::new();
    for pattern in patterns {
        paths.extend(files::resolve(pattern)?);
    }
    if paths.is_empty() {
        return Err(Error::invalid("there is no file to read"));
    }
    let mut files = paths.iter().map(|path| InputFile::open(path, options)).collect::<Result<Vec<_>>>()?;
    let schema = schemas::agreed(&mut files)?;
    let schema = hive::with_partitions(&mut files, schema, options);
    Ok(Source { paths, files, schema, limit: None, progress: Arc::default() })
}

/// Files that were opened and not yet read.
pub struct Source {
    paths: Vec<PathBuf>,
    files: Vec<InputFile>,
    schema: SchemaRef,
    limit: Option<usize>,
    progress: Arc<AtomicU64>,
}

struct InputFile {
    path: PathBuf,
    bytes: u64,
    rows: Option<u64>,
    /// The columns that stand in the file.
    schema: SchemaRef,
    /// What the folders in which it lies say, a value for each column behind these.
    partitions: Vec<Option<String>>,
    format: Opened,
}

enum Opened {
    Parquet(parquet::Footer),
    Csv(csv::Dialect, FileCompression),
    /// With the names of the columns whose types were said.
    Json(Vec<String>, FileCompression),
    Ipc(ipc::Kind),
}

impl Opened {
    /// Whether the types are guessed.
    fn is_text(&self) -> bool {
        match self {
            Opened::Csv(..) | Opened::Json(..) => true,
            Opened::Parquet(_) | Opened::Ipc(_) => false,
        }
    }
}

/// The batches of one file or of several.
pub type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

impl Source {
    /// The columns of the files, each under a name of its own. Strings of Parquet, CSV and JSON files are views.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows, where the files say it.
    pub fn rows_hint(&self) -> Option<u64> {
        self.files.iter().map(|file| file.rows).sum()
    }

    /// Bytes of the files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Whether types of columns were guessed from a part of the rows.
    pub fn is_guessed(&self) -> bool {
        self.files.iter().any(|file| file.format.is_text())
    }

    /// Reads no more rows than these; readers know before they read further.
    #[must_use]
    pub fn with_limit(mut self, rows: usize) -> Self {
        self.limit = Some(rows);
        self
    }

    /// The files, in the order in which they are read.
    pub fn files(&self) -> &[PathBuf] {
        &self.paths
    }

    /// How many bytes of the files were read so far, or would have been if no column was left out: when
    /// all is read it is [`Source::bytes`].
    pub fn progress(&self) -> Arc<AtomicU64> {
        self.progress.clone()
    }

    /// Adds the bytes that are read to `progress`, a counter that several sources can share.
    #[must_use]
    pub fn with_progress(mut self, progress: Arc<AtomicU64>) -> Self {
        self.progress = progress;
        self
    }

    /// Reads the files, one after another: the columns at `columns` in that order, or all. Ends after the
    /// first error.
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
    fn open(path: &Path, options: &ReadOptions) -> Result<Self> {
        let (file, bytes) = files::open(path)?;
        let (format, compression) = files::format(path, &file, options)?;
        let text = || -> Result<Bytes> {
            let (file, _) = files::open(path)?;
            compressed::read(path, file, compression, Arc::new(Progress::new(0, Arc::default())))
        };
        let (schema, rows, format) = guarded(path, || {
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
                    (schema, None, Opened::Json(options.typed(), compression))
                }
                Format::Ipc(kind) => {
                    let (schema, rows) = ipc::open(path, file, bytes, kind)?;
                    (schema, Some(rows), Opened::Ipc(kind))
                }
            })
        })?;
        schemas::bounded(path, schema.fields().len())?;
        let (schema, path) = (names::with_unique_names(schema), path.to_path_buf());
        Ok(InputFile { path, bytes, rows, schema, partitions: Vec::new(), format })
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
        let path = self.path.clone();
        let batches = match guarded(&path, || self.batches(&selection.read, limit, &progress)) {
            Ok(batches) => batches,
            Err(error) => return Box::new(std::iter::once(Err(error))),
        };
        Box::new(Guarded { batches: Some(batches), selection, path, progress: Some(progress) })
    }

    fn batches(&self, columns: &[usize], limit: Option<usize>, progress: &Arc<Progress>) -> Result<Batches> {
        let (file, _) = files::open(&self.path)?;
        let (path, progress) = (&self.path, progress.clone());
        match &self.format {
            Opened::Parquet(footer) => parquet::read(path, file, footer, columns, limit, progress),
            Opened::Csv(dialect, compression) => {
                let from = compressed::read(path, file, *compression, progress)?;
                csv::read(path, from, &self.schema, dialect, columns)
            }
            Opened::Json(typed, compression) => {
                let from = compressed::read(path, file, *compression, progress)?;
                json::read(path, from, &self.schema, typed, columns)
            }
            Opened::Ipc(kind) => ipc::read(path, file, *kind, columns, progress),
        }
    }
}

/// The batches of one file, with the file's name on errors, and panics of the reader turned into errors.
struct Guarded {
    batches: Option<Batches>,
    selection: Arc<Selection>,
    path: PathBuf,
    /// None where they are not all of the file.
    progress: Option<Arc<Progress>>,
}

impl Iterator for Guarded {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batches = self.batches.as_mut()?;
        let next = guarded(&self.path, || batches.next().transpose());
        match next {
            Ok(Some(batch)) => Some(self.selection.apply(&batch).map_err(|e| e.at(self.path.display()))),
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

/// The readers are other people's and mostly check what they read; where they do not, they panic.
fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(damaged(path, "its parts do not fit together")))
}

fn damaged(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("{}: {what}", path.display()))
        .advise("the file is damaged or cut off: get it again")
}

#[cfg(test)]
mod tests;
