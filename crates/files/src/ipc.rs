//! Arrow IPC in its two framings: a file with a footer (also called Feather version 2), and a stream.

use super::input::Input;
use super::progress::{Counting, Progress};
use super::{Batches, damaged, files, framing};
use arrow_array::RecordBatch;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{ArrowError, SchemaRef};
use farpool_model::{Error, Result};
use std::io::{BufReader, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

/// The framing of an IPC file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Stream,
}

/// Returns the columns and the number of rows of a file of `bytes` bytes.
pub(super) fn open(path: &Path, mut file: Input, bytes: u64, kind: Kind) -> Result<(SchemaRef, u64)> {
    let rows = framing::walk(&mut file, bytes, kind).map_err(|error| failure(path, error))?;
    file.seek(SeekFrom::Start(0)).map_err(|error| files::unreadable(path, &error))?;
    let schema = match kind {
        Kind::File => FileReader::try_new_buffered(file, None).map(|reader| reader.schema()),
        Kind::Stream => StreamReader::try_new_buffered(file, None).map(|reader| reader.schema()),
    };
    Ok((schema.map_err(|error| failure(path, error))?, rows))
}

/// Reads the columns at the indexes `columns`, which must be in ascending order.
pub(super) fn read(
    path: &Path,
    file: Input,
    kind: Kind,
    columns: &[usize],
    progress: Arc<Progress>,
) -> Result<Batches> {
    let reader = BufReader::new(Counting { inner: file, progress });
    let columns = Some(columns.to_vec());
    let named = {
        let path = path.to_path_buf();
        move |batch: Result<RecordBatch, ArrowError>| batch.map_err(|error| failure(&path, error))
    };
    Ok(match kind {
        Kind::File => {
            let reader = FileReader::try_new(reader, columns).map_err(|error| failure(path, error))?;
            Box::new(reader.map(named))
        }
        Kind::Stream => {
            let reader = StreamReader::try_new(reader, columns).map_err(|error| failure(path, error))?;
            Box::new(reader.map(named))
        }
    })
}

pub(super) fn failure(path: &Path, error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, io) if io.kind() != std::io::ErrorKind::UnexpectedEof => {
            files::unreadable(path, &io)
        }
        ArrowError::NotYetImplemented(what) => Error::invalid(format!("{}: {what}", path.display()))
            .advise("this part of Arrow is not read: write it again without, or as Parquet"),
        other => damaged(path, format_args!("not readable as Arrow IPC: {other}")),
    }
}
