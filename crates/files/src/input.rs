//! A file to be read: on this machine, or on a network.

use super::files;
use super::lanes::Lanes;
use super::remote::{RemoteReader, Remoted};
use bytes::Bytes;
use farpool_model::{Error, Result};
use parquet::errors::Result as ParquetResult;
use parquet::file::reader::{ChunkReader, Length};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

/// Location of a file: its name, and its reader if it is not on this machine.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub path: PathBuf,
    pub remote: Option<Arc<Remoted>>,
}

impl Place {
    /// Opens the file; returns it and its size in bytes.
    ///
    /// # Errors
    /// `Invalid` if the file is empty; errors of the file system or the network.
    pub(super) fn open(&self) -> Result<(Input, u64)> {
        let Some(remote) = &self.remote else {
            let (file, bytes) = files::open(&self.path)?;
            return Ok((Input::Local(file), bytes));
        };
        match remote.bytes() {
            0 => Err(Error::invalid(format!("{} is empty", self.path.display()))),
            bytes => Ok((Input::Remote(RemoteReader::new(remote.clone())), bytes)),
        }
    }

    /// Runs a reader as [`super::guarded`] does. If there was a network error, reports it in place of the reader's
    /// error.
    pub(super) fn guarded<T>(&self, read: impl FnOnce() -> Result<T>) -> Result<T> {
        super::guarded(&self.path, read).map_err(|error| self.cause(error))
    }

    pub(super) fn cause(&self, error: Error) -> Error {
        self.remote.as_ref().and_then(|remote| remote.failure()).unwrap_or(error)
    }
}

/// An open file.
pub(super) enum Input {
    Local(File),
    Remote(RemoteReader),
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Input::Local(file) => file.read(buffer),
            Input::Remote(reader) => reader.read(buffer),
        }
    }
}

impl Seek for Input {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        match self {
            Input::Local(file) => file.seek(position),
            Input::Remote(reader) => reader.seek(position),
        }
    }
}

/// Column chunks of a Parquet file.
pub(super) enum Chunks {
    Local(File),
    Remote(Lanes),
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        match self {
            Chunks::Local(file) => Length::len(file),
            Chunks::Remote(lanes) => lanes.len(),
        }
    }
}

impl ChunkReader for Chunks {
    type T = ChunkRead;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(match self {
            Chunks::Local(file) => ChunkRead::Local(file.get_read(start)?),
            Chunks::Remote(lanes) => ChunkRead::Remote(lanes.get_read(start)?),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        match self {
            Chunks::Local(file) => file.get_bytes(start, length),
            Chunks::Remote(lanes) => lanes.get_bytes(start, length),
        }
    }
}

/// Reads the bytes of [`Chunks`].
pub(super) enum ChunkRead {
    Local(BufReader<File>),
    Remote(<Lanes as ChunkReader>::T),
}

impl Read for ChunkRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            ChunkRead::Local(file) => file.read(buffer),
            ChunkRead::Remote(reader) => reader.read(buffer),
        }
    }
}
