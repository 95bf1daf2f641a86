//! Files as streams of record batches: Parquet, CSV and TSV, Arrow IPC (file and stream).
//!
//! A source is one file or several that agree in their columns. It is opened first, which reads only what
//! the files say about themselves, and read later, only the columns that are asked for.
//!
//! Invariant: every error names the file it is about, and no file, however damaged, makes the reader panic.

mod csv;
mod files;
mod framing;
mod ipc;
mod parquet;
mod progress;
mod stream;

use arrow_array::{RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use farpool_model::{Error, Result};
use files::Format;
use progress::Progress;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub use stream::{Stream, open_stream};

/// Opens the file at a path, or the files that a pattern such as `trips-*.parquet` stands for. The format
/// goes by the extension (`.parquet`, `.csv`, `.tsv`, `.arrow`, `.arrows`, `.feather`, `.ipc`), else by
/// the first bytes.
///
/// # Errors
/// `NotFound` when there is no such file; `Invalid` when it is a directory, empty, of an unknown format,
/// not what its name says, or differs from another file in its columns; `Corrupt` when it is damaged.
pub fn open(pattern: &str) -> Result<Source> {
    open_all(&[pattern])
}

/// Opens the files at several paths and patterns as one source, in the order given.
///
/// # Errors
/// Those of [`open`].
pub fn open_all(patterns: &[&str]) -> Result<Source> {
    let mut paths = Vec::new();
    for pattern in patterns {
        paths.extend(files::resolve(pattern)?);
    }
    if paths.is_empty() {
        return Err(Error::invalid("there is no file to read"));
    }
    let mut files = paths.iter().map(|path| InputFile::open(path)).collect::<Result<Vec<_>>>()?;
    let schema = agreed_schema(&mut files)?;
    Ok(Source { paths, files, schema, progress: Arc::default() })
}

/// Files that were opened and not yet read.
pub struct Source {
    paths: Vec<PathBuf>,
    files: Vec<InputFile>,
    schema: SchemaRef,
    progress: Arc<AtomicU64>,
}

struct InputFile {
    path: PathBuf,
    bytes: u64,
    rows: Option<u64>,
    schema: SchemaRef,
    format: Opened,
}

enum Opened {
    Parquet(parquet::Footer),
    Csv(csv::Dialect),
    Ipc(ipc::Kind),
}

/// The batches of one file or of several.
pub type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

impl Source {
    /// The columns of the files. Strings of Parquet and CSV files are views.
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
        let Source { files, schema, progress, .. } = self;
        let selection = match Selection::new(&schema, columns) {
            Ok(selection) => Arc::new(selection),
            Err(error) => return Box::new(std::iter::once(Err(error))),
        };
        let mut failed = false;
        let batches = files.into_iter().flat_map(move |file| file.read(&selection, &progress));
        Box::new(batches.take_while(move |batch| !std::mem::replace(&mut failed, batch.is_err())))
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
    fn open(path: &Path) -> Result<Self> {
        let (file, bytes) = files::open(path)?;
        let format = files::format(path, &file)?;
        let (schema, rows, format) = guarded(path, || {
            Ok(match format {
                Format::Parquet => {
                    let (schema, rows, footer) = parquet::open(path, &file)?;
                    (schema, Some(rows), Opened::Parquet(footer))
                }
                Format::Csv { tabs } => {
                    let (schema, dialect) = csv::open(path, file, tabs)?;
                    (schema, None, Opened::Csv(dialect))
                }
                Format::Ipc(kind) => {
                    let (schema, rows) = ipc::open(path, file, bytes, kind)?;
                    (schema, Some(rows), Opened::Ipc(kind))
                }
            })
        })?;
        Ok(InputFile { path: path.to_path_buf(), bytes, rows, schema, format })
    }

    fn read(self, selection: &Arc<Selection>, progress: &Arc<AtomicU64>) -> Batches {
        let selection = selection.clone();
        let progress = Arc::new(Progress::new(self.bytes, progress.clone()));
        let path = self.path.clone();
        let batches = match guarded(&path, || self.batches(&selection.read, &progress)) {
            Ok(batches) => batches,
            Err(error) => return Box::new(std::iter::once(Err(error))),
        };
        Box::new(Guarded { batches: Some(batches), selection, path, progress })
    }

    fn batches(&self, columns: &[usize], progress: &Arc<Progress>) -> Result<Batches> {
        let (file, _) = files::open(&self.path)?;
        match &self.format {
            Opened::Parquet(footer) => parquet::read(&self.path, file, footer, columns, progress.clone()),
            Opened::Csv(dialect) => {
                csv::read(&self.path, file, &self.schema, *dialect, columns, progress.clone())
            }
            Opened::Ipc(kind) => ipc::read(&self.path, file, *kind, columns, progress.clone()),
        }
    }
}

/// Which columns are read, and how the result is made of them.
struct Selection {
    /// Positions in the file, ascending, each once; at least one, because readers differ in what they make
    /// of none.
    read: Vec<usize>,
    /// For each column of the result its position in `read`.
    order: Vec<usize>,
    schema: SchemaRef,
}

impl Selection {
    fn new(schema: &SchemaRef, columns: Option<&[usize]>) -> Result<Self> {
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let columns = columns.unwrap_or(&all);
        let projected = schema.project(columns).map_err(|e| Error::invalid(e.to_string()))?;
        let mut read = columns.to_vec();
        read.sort_unstable();
        read.dedup();
        if read.is_empty() {
            read.push(0);
        }
        let position = |column| read.binary_search(column).expect("read holds every column");
        let order = columns.iter().map(position).collect();
        Ok(Selection { order, read, schema: Arc::new(projected) })
    }

    fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = self.order.iter().zip(self.schema.fields()).map(|(&i, field)| {
            let column = batch.column(i);
            match column.data_type() {
                // A column without any value, which the schema gives a type that can be held.
                DataType::Null => new_null_array(field.data_type(), column.len()),
                _ => column.clone(),
            }
        });
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns.collect(), &options)
            .map_err(|error| Error::corrupt(error.to_string()))
    }
}

/// The batches of one file, with the file's name on errors, and panics of the reader turned into errors.
struct Guarded {
    batches: Option<Batches>,
    selection: Arc<Selection>,
    path: PathBuf,
    progress: Arc<Progress>,
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
                self.progress.complete();
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

/// The columns on which all files agree. CSV files, whose types are guessed, may differ by whole against
/// fractional numbers and by columns that are empty in one of them.
fn agreed_schema(files: &mut [InputFile]) -> Result<SchemaRef> {
    let (first, rest) = files.split_first().expect("a source has a file");
    let mut agreed = first.schema.clone();
    for other in rest {
        agreed = agree(&first.path, &agreed, other)?;
    }
    let agreed = settled(&agreed);
    for file in files.iter_mut().filter(|file| matches!(file.format, Opened::Csv(_))) {
        file.schema = agreed.clone();
    }
    Ok(agreed)
}

/// A column without any value is one of strings.
fn settled(schema: &Schema) -> SchemaRef {
    let settle = |field: &Arc<Field>| match field.data_type() {
        DataType::Null => Arc::new(Field::new(field.name(), DataType::Utf8View, true)),
        _ => field.clone(),
    };
    Arc::new(Schema::new(schema.fields().iter().map(settle).collect::<Fields>()))
}

fn agree(first_path: &Path, first: &SchemaRef, other: &InputFile) -> Result<SchemaRef> {
    let differ = |what: String| {
        Error::invalid(format!("{} and {} differ: {what}", first_path.display(), other.path.display()))
            .advise("files of one table need the same columns in the same order; load these as two tables")
    };
    let (left, right) = (first.fields(), other.schema.fields());
    if left.len() != right.len() {
        return Err(differ(format!("{} columns against {}", left.len(), right.len())));
    }
    let guessed = matches!(other.format, Opened::Csv(_));
    let fields = left.iter().zip(right).map(|(l, r)| {
        if l.name() != r.name() {
            return Err(differ(format!("column {:?} against {:?}", l.name(), r.name())));
        }
        let data_type = common_type(l.data_type(), r.data_type(), guessed).ok_or_else(|| {
            differ(format!("column {:?} has type {} against {}", l.name(), l.data_type(), r.data_type()))
        })?;
        Ok(Field::new(l.name(), data_type, l.is_nullable() || r.is_nullable()))
    });
    Ok(Arc::new(Schema::new(fields.collect::<Result<Fields>>()?)))
}

fn common_type(left: &DataType, right: &DataType, guessed: bool) -> Option<DataType> {
    use DataType::{Float64, Int64, Null};
    match (left, right) {
        _ if left == right => Some(left.clone()),
        (Null, other) | (other, Null) if guessed => Some(other.clone()),
        (Int64, Float64) | (Float64, Int64) if guessed => Some(Float64),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
