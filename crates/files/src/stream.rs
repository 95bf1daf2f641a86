//! Reading of a stream from beginning to end, once: CSV or JSON, perhaps compressed, or Arrow IPC in either framing.
//!
//! Invariant: memory is bounded by one batch and, at the beginning, the bytes from which CSV types are guessed.

use super::schemas::settled;
use super::selection::valued;
use super::tasks::{Task, Tasks, in_order, of_batches};
use super::{Batches, calendar, compressed, csv, encoding, framing, guarded, ipc, json, names};
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_ipc::reader::StreamReader;
use arrow_schema::SchemaRef;
use farpool_model::{Error, FileCompression, FileFormat, ReadOptions, Result, limits};
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

/// Bytes at the beginning from whose rows the types of CSV columns are guessed.
const HEAD_BYTES: usize = 4 << 20;

/// The first bytes of an Arrow IPC file. More zeros follow, and then the same bytes as in an Arrow IPC stream.
const ARROW_FILE: &[u8] = b"ARROW1\0\0";

/// A stream that was opened, so that its columns are known.
pub struct Stream {
    /// The columns.
    pub schema: SchemaRef,
    /// The rows, in tasks for several threads.
    pub tasks: Tasks,
}

impl Stream {
    /// Returns the rows, on the calling thread. Ends after the first error.
    pub fn batches(self) -> Batches {
        in_order(self.tasks)
    }
}

/// Creates a stream of batches that have the schema already, such as those of a data frame. Columns of type Null become
/// strings.
///
/// # Errors
/// `Invalid` if there is no column; `OverLimit` if there are too many.
pub fn of_rows(name: &str, schema: &SchemaRef, batches: Batches) -> Result<Stream> {
    if schema.fields().is_empty() {
        return Err(Error::invalid(format!("{name} has no columns")).advise("a table has one at least"));
    }
    super::schemas::bounded(Path::new(name), schema.fields().len())?;
    let schema = settled(schema);
    let task: Task = Box::new(move || batches);
    Ok(Stream { tasks: settled_tasks(schema.clone(), Box::new(std::iter::once(task))), schema })
}

/// Detects the format of the stream `from` and prepares to read it. `name` identifies it in errors.
///
/// # Errors
/// `Invalid` if the stream is empty or of an unknown format; `Corrupt` if it is corrupted.
pub fn open_stream(name: &str, from: impl Read + Send + 'static, options: &ReadOptions) -> Result<Stream> {
    let path = PathBuf::from(name);
    let mut from = from;
    let mut head = Vec::new();
    read_up_to(&path, &mut from, &mut head, ARROW_FILE.len())?;
    if head.is_empty() {
        return Err(Error::invalid(format!("{name} is empty")));
    }
    if head.starts_with(b"PAR1") {
        return Err(Error::invalid(format!("{name} is a Parquet file, which cannot be read as a stream"))
            .advise("give the file by its name"));
    }
    if head == ARROW_FILE {
        let first = after_padding(&path, &mut from)?;
        return guarded(&path.clone(), || arrow(path, Cursor::new(first).chain(from)));
    }
    if head.starts_with(&[0xff; 4]) {
        return guarded(&path.clone(), || arrow(path, Cursor::new(head).chain(from)));
    }
    let compression = options.compression.unwrap_or_else(|| compressed::of_head(&head));
    let whole = Cursor::new(head).chain(from);
    if compression == FileCompression::None && options.encoding.is_none() {
        return text(&path, whole, options);
    }
    let bytes = compressed::decompressed(whole, compression);
    let bytes = bytes.map_err(|error| super::files::unreadable(&path, &error))?;
    text(&path, encoding::decoded(bytes, options.encoding), options)
}

fn text(path: &Path, mut from: impl Read + Send + 'static, options: &ReadOptions) -> Result<Stream> {
    let mut head = Vec::new();
    read_up_to(path, &mut from, &mut head, HEAD_BYTES)?;
    if head.contains(&0) {
        let message = format!("{} is neither CSV, JSON nor Arrow IPC", path.display());
        return Err(Error::invalid(message).advise("pipe CSV with a header, JSON, or an Arrow IPC stream"));
    }
    let looks_like_json = || matches!(head.trim_ascii_start().first(), Some(b'{' | b'['));
    let is_json = match options.format {
        Some(format) => format == FileFormat::Json,
        None => looks_like_json(),
    };
    let is_whole = head.len() < HEAD_BYTES;
    if is_json {
        return objects(path, head, is_whole, from, options);
    }
    comma_separated(path, head, is_whole, from, options)
}

fn objects(
    path: &Path,
    head: Vec<u8>,
    is_whole: bool,
    from: impl Read + Send + 'static,
    options: &ReadOptions,
) -> Result<Stream> {
    let schema = settled(&*json::open_head(path, &head, is_whole, options)?);
    let columns: Vec<usize> = (0..schema.fields().len()).collect();
    let whole = compressed::decompressed(Cursor::new(head).chain(from), FileCompression::None);
    let whole = whole.map_err(|error| super::files::unreadable(path, &error))?;
    let tasks = json::tasks(path, whole, &schema, &json::Form::of(options), &columns)?;
    Ok(Stream { tasks: settled_tasks(schema.clone(), tasks), schema })
}

fn read_up_to(path: &Path, from: &mut impl Read, head: &mut Vec<u8>, bytes: usize) -> Result<()> {
    let missing = bytes.saturating_sub(head.len()) as u64;
    from.take(missing).read_to_end(head).map_err(|error| super::files::unreadable(path, &error))?;
    Ok(())
}

/// Skips the zeros that pad a file's header, and returns the first byte after them.
fn after_padding(path: &Path, from: &mut impl Read) -> Result<Vec<u8>> {
    for _ in 0..limits::IPC_PADDING_BYTES_MAX {
        let mut byte = Vec::new();
        read_up_to(path, from, &mut byte, 1)?;
        if byte != [0] {
            return Ok(byte);
        }
    }
    Err(super::damaged(path, "there is nothing behind the head of an Arrow IPC file"))
}

fn arrow(path: PathBuf, mut from: impl Read + Send + 'static) -> Result<Stream> {
    let first = framing::first_message(&mut from).map_err(|error| ipc::failure(&path, error))?;
    let from = Cursor::new(first).chain(from);
    let damaged = |error: arrow_schema::ArrowError| {
        Error::corrupt(format!("{} is not readable as Arrow IPC: {error}", path.display()))
    };
    let mut reader = StreamReader::try_new_buffered(from, None).map_err(damaged)?;
    super::schemas::bounded(&path, reader.schema().fields().len())?;
    let schema = names::with_unique_names(reader.schema());
    let name = path.clone();
    let schema = settled(&schema);
    let next = move || {
        let next = guarded(&name, || reader.next().transpose().map_err(|error| super::damaged(&name, error)));
        next.transpose()
    };
    let tasks = of_batches(Box::new(std::iter::from_fn(next)));
    Ok(Stream { tasks: settled_tasks(schema.clone(), tasks), schema })
}

fn comma_separated(
    path: &Path,
    head: Vec<u8>,
    is_whole: bool,
    from: impl Read + Send + 'static,
    options: &ReadOptions,
) -> Result<Stream> {
    // If the head ends within a line, this line is left out, because it would have too few fields.
    let whole = match is_whole {
        true => head.len(),
        false => head.iter().rposition(|byte| *byte == b'\n').map_or(head.len(), |end| end + 1),
    };
    let (schema, dialect) = csv::open_head(path, &head[..whole], options)?;
    let schema = settled(&schema);
    let columns: Vec<usize> = (0..schema.fields().len()).collect();
    let all = std::io::BufReader::new(Cursor::new(head).chain(from));
    let tasks = csv::tasks(path, all, &schema, &dialect, &columns)?;
    Ok(Stream { tasks: settled_tasks(schema.clone(), tasks), schema })
}

/// Converts the batches of `tasks` to the columns of `schema`.
fn settled_tasks(schema: SchemaRef, tasks: Tasks) -> Tasks {
    Box::new(tasks.map(move |task| -> Task {
        let schema = schema.clone();
        Box::new(move || Box::new(task().map(move |batch| in_schema(&schema, &batch?))))
    }))
}

fn in_schema(schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| {
        let column = valued(column, field.data_type());
        calendar::check(field.name(), &column).map(|()| column)
    });
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema.clone(), columns.collect::<Result<_>>()?, &options)
        .map_err(|error| Error::corrupt(error.to_string()))
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("schema", &self.schema).finish_non_exhaustive()
    }
}
