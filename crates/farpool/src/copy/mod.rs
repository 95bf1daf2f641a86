//! COPY TO: writes rows to files on this machine or in an object store. Parts of the rows are encoded on all processors
//! (`encode.rs`) and written in order by one thread.
//!
//! Invariant: rows are written to a temporary file next to the target, which is renamed to the target when all rows are
//! written, so that no incomplete file is ever visible. Objects in stores become visible as a whole, too. Directories
//! are not created, and only regular files are replaced.

mod csv;
mod encode;
mod format;
mod parts;

use crate::cloud::Upload;
use crate::terminal_text::TerminalText;
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use async_trait::async_trait;
pub use csv::{csv_header, csv_lines};
use encode::{Encoded, Encoder};
use farpool_datafusion::{CopyTarget, FileWriter};
use farpool_files::is_url;
use farpool_model::{Error, Result};
use farpool_transfer::BatchStream;
use format::Settings;
use futures::StreamExt;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::NamedTempFile;
use tokio::sync::mpsc::{Receiver, channel};

/// Maximum number of encoded parts that wait for the writing thread. Reason: bounds memory if writing is slower than
/// encoding.
const PARTS_AHEAD: usize = 4;

/// A writer of CSV, JSON, Parquet and Arrow files, for [`crate::Session::set_file_writer`].
#[derive(Clone, Copy, Debug)]
pub struct CopyFiles;

/// A message to the writing thread.
enum Message {
    Part(Encoded),
    /// All parts have been sent. If the channel closes without this message, the temporary file is deleted.
    End,
}

#[async_trait]
impl FileWriter for CopyFiles {
    fn check(&self, target: &CopyTarget) -> Result<()> {
        Settings::of(target)?;
        match target.path.as_deref() {
            Some(url) if is_url(url) => Upload::begin(url).map(|_| ()),
            Some(path) => folder(Path::new(path)).map(|_| ()),
            None => Ok(()),
        }
    }

    async fn write(&self, target: &CopyTarget, schema: SchemaRef, batches: BatchStream) -> Result<u64> {
        let settings = Settings::of(target)?;
        let path = target.path.clone().map(PathBuf::from);
        let place = path.clone();
        let at_place = move |error: Error| match &place {
            Some(path) => at(path, error),
            None => error.at("standard output"),
        };
        let encoder = Arc::new(Encoder::new(&settings, &schema).map_err(&at_place)?);
        let (sender, receiver) = channel(PARTS_AHEAD);
        let writing = tokio::task::spawn_blocking(move || match path {
            Some(path) => match path.to_str().filter(|path| is_url(path)) {
                Some(url) => to_store(url, &settings, &schema, receiver),
                None => to_file(&path, &settings, &schema, receiver),
            },
            None => to_stdout(&settings, &schema, receiver),
        });
        let mut parts = pin!(parts::encoded(batches, encoder, at_place));
        let mut rows = 0;
        while let Some(part) = parts.next().await {
            let (part, part_rows) = part?;
            rows += part_rows;
            if sender.send(Message::Part(part)).await.is_err() {
                break;
            }
        }
        let _ = sender.send(Message::End).await;
        drop(sender);
        writing.await.map_err(|error| Error::internal(format!("writing stopped: {error}")))??;
        Ok(rows)
    }
}

fn to_store(url: &str, settings: &Settings, schema: &SchemaRef, rows: Receiver<Message>) -> Result<()> {
    let upload = Upload::begin(url)?.shared();
    let written = settings.write(Box::new(upload.clone()), schema, rows);
    if written.map_err(|error| upload.cause(error))? { upload.finish() } else { Ok(()) }
}

fn to_file(path: &Path, settings: &Settings, schema: &SchemaRef, rows: Receiver<Message>) -> Result<()> {
    // A symbolic link is kept: the file that it points to is replaced.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let failed = |error: &std::io::Error| failure(&path, error);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let partial = tempfile::Builder::new()
        .prefix(&format!(".{name}."))
        .suffix(".part")
        // The mode of any new file: the process's umask applies.
        .permissions(std::fs::Permissions::from_mode(0o666))
        .tempfile_in(folder(&path)?)
        .map_err(|error| failed(&error))?;
    let copy = partial.reopen().map_err(|error| failed(&error))?;
    if settings.write(Box::new(copy), schema, rows).map_err(|error| at(&path, error))? {
        keep(partial, &path).map_err(|error| failed(&error))?;
    }
    Ok(())
}

fn keep(partial: NamedTempFile, path: &Path) -> std::io::Result<()> {
    partial.as_file().sync_all()?;
    partial.persist(path).map(|_| ()).map_err(|error| error.error)
}

fn to_stdout(settings: &Settings, schema: &SchemaRef, rows: Receiver<Message>) -> Result<()> {
    let is_closed = Arc::new(AtomicBool::new(false));
    let out = Stdout { out: std::io::stdout(), is_closed: is_closed.clone() };
    let is_terminal = std::io::stdout().is_terminal();
    let out: Box<dyn Write + Send> = match settings.escapes() {
        Some(style) => Box::new(TerminalText::new(out, style, is_terminal)),
        None => Box::new(out),
    };
    match settings.write(out, schema, rows) {
        // The reader has closed the output, which is not an error.
        Err(_) if is_closed.load(Ordering::Relaxed) => Ok(()),
        outcome => outcome.map(|_| ()).map_err(|error| error.at("standard output")),
    }
}

/// Standard output. It records that its reader has closed it, because encoders reduce errors to text.
struct Stdout {
    out: std::io::Stdout,
    is_closed: Arc<AtomicBool>,
}

impl Stdout {
    fn noting<T>(&self, outcome: std::io::Result<T>) -> std::io::Result<T> {
        if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe) {
            self.is_closed.store(true, Ordering::Relaxed);
        }
        outcome
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let outcome = self.out.write(bytes);
        self.noting(outcome)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let outcome = self.out.flush();
        self.noting(outcome)
    }
}

/// Returns the folder of `path`, if a file can be written there.
fn folder(path: &Path) -> Result<PathBuf> {
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => {
            return Err(Error::invalid(format!("{} is a directory", path.display()))
                .advise("name a file in it, such as rows.parquet"));
        }
        Ok(metadata) if !metadata.is_file() => {
            return Err(Error::invalid(format!("{} is no regular file", path.display()))
                .advise("COPY … TO STDOUT writes to standard output"));
        }
        Ok(_) | Err(_) => {}
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        return Err(Error::not_found(format!(
            "there is no folder {} for {}",
            folder.display(),
            path.display()
        ))
        .advise("make it first (mkdir -p), or check the path"));
    }
    Ok(folder.to_path_buf())
}

fn failure(path: &Path, error: &std::io::Error) -> Error {
    let advice = match error.kind() {
        ErrorKind::PermissionDenied => "check who may write to its folder",
        ErrorKind::StorageFull => "make room, or write to another place",
        _ => "check the path",
    };
    at(path, Error::invalid(error.to_string())).advise(advice)
}

fn at(path: &Path, error: Error) -> Error {
    error.at(format_args!("{} cannot be written", path.display()))
}

/// Converts nested columns to text, for formats that cannot represent them: a list becomes `[1, 2]`.
///
/// # Errors
/// `Invalid` if a value has no text.
pub fn textual(batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = batch.schema();
    if !schema.fields().iter().any(|field| field.data_type().is_nested()) {
        return Ok(batch.clone());
    }
    let invalid = |error: arrow::error::ArrowError| Error::invalid(error.to_string());
    let columns = batch.columns().iter().map(|column| match column.data_type().is_nested() {
        true => text(column).map_err(invalid),
        false => Ok(column.clone()),
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let fields = schema.fields().iter().map(|field| match field.data_type().is_nested() {
        true => Field::new(field.name(), DataType::Utf8, true),
        false => field.as_ref().clone(),
    });
    RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), columns).map_err(invalid)
}

fn text(column: &ArrayRef) -> arrow::error::Result<ArrayRef> {
    let options = FormatOptions::default().with_null("NULL");
    let formatter = ArrayFormatter::try_new(column, &options)?;
    let texts = (0..column.len()).map(|row| match column.is_null(row) {
        true => Ok(None),
        false => formatter.value(row).try_to_string().map(Some),
    });
    Ok(Arc::new(texts.collect::<arrow::error::Result<StringArray>>()?))
}

/// The destination of the encoded rows.
type Out = Box<dyn Write + Send>;
