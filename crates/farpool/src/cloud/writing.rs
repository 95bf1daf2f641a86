//! Writing of an object in parts, which are sent while later parts are written.
//!
//! Invariant: the object is visible, as a whole, when [`Upload::finish`] has returned `Ok`; until then, and after a
//! failure, the previous object is. A process that crashes leaves parts without an object, which stores remove if they
//! are configured to.

use super::errors::explained;
use super::stores::{Place, is_written, of_url};
use super::{Running, blocking};
use bytes::{Bytes, BytesMut};
use farpool_model::{Error, Result};
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes per part. Reason: a store accepts 10,000 parts, so that an object can have up to 160 GB.
const PART_BYTES: usize = 16 << 20;

/// Maximum number of parts that are being sent at the same time. Reason: parts are in memory until they have been sent.
const PARTS_MAX: usize = 3;

/// An object that is being written. Dropping it discards the written parts.
pub(crate) struct Upload {
    place: Place,
    buffer: BytesMut,
    parts: Option<Box<dyn MultipartUpload>>,
    under_way: VecDeque<Running<object_store::Result<()>>>,
    is_finished: bool,
    /// The first error of the store, kept because the writer of the format reduces it to text.
    failure: Option<Error>,
}

/// An upload that is shared with a format writer (Parquet, CSV, …). The writer is dropped before the upload is
/// finished.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<Upload>>);

impl Upload {
    /// Starts to write the object of a URL.
    ///
    /// # Errors
    /// The errors of [`of_url`] and [`is_written`].
    pub fn begin(url: &str) -> Result<Upload> {
        is_written(url)?;
        let place = of_url(url)?;
        if place.path.as_ref().is_empty() || url.ends_with('/') {
            return Err(Error::invalid(format!("{url} names no file"))
                .advise("name a file in it, such as rows.parquet"));
        }
        Ok(Upload::at(place))
    }

    /// Starts to write an object.
    pub fn at(place: Place) -> Upload {
        let (buffer, under_way) = (BytesMut::new(), VecDeque::new());
        Upload { place, buffer, parts: None, under_way, is_finished: false, failure: None }
    }

    /// Makes the object visible; returns its entity tag, if it has one.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn finish(&mut self) -> Result<String> {
        let rest = self.buffer.split().freeze();
        let Some(mut parts) = self.parts.take() else {
            let (store, path) = (self.place.store.clone(), self.place.path.clone());
            let put = blocking(async move { store.put(&path, PutPayload::from(rest)).await })?;
            self.is_finished = true;
            return put.map(|put| put.e_tag.unwrap_or_default()).map_err(|error| self.explained(&error));
        };
        let sent = match rest.is_empty() {
            true => Ok(()),
            false => self.send(&mut parts, rest),
        };
        let sent = sent.and_then(|()| self.settle(0));
        if let Err(error) = sent {
            self.parts = Some(parts);
            return Err(error);
        }
        let completed = blocking(async move { parts.complete().await })?;
        self.is_finished = true;
        completed.map(|put| put.e_tag.unwrap_or_default()).map_err(|error| self.explained(&error))
    }

    fn send(&mut self, parts: &mut Box<dyn MultipartUpload>, part: Bytes) -> Result<()> {
        self.settle(PARTS_MAX - 1)?;
        self.under_way.push_back(Running::start(parts.put_part(PutPayload::from(part)))?);
        Ok(())
    }

    /// Blocks until at most `parts` parts are being sent.
    fn settle(&mut self, parts: usize) -> Result<()> {
        while self.under_way.len() > parts {
            let Some(oldest) = self.under_way.pop_front() else { break };
            oldest.wait()?.map_err(|error| self.explained(&error))?;
        }
        Ok(())
    }

    fn write_part(&mut self) -> Result<()> {
        let mut parts = match self.parts.take() {
            Some(parts) => parts,
            None => {
                let (store, path) = (self.place.store.clone(), self.place.path.clone());
                let begun = blocking(async move { store.put_multipart(&path).await })?;
                begun.map_err(|error| self.explained(&error))?
            }
        };
        let part = self.buffer.split_to(PART_BYTES).freeze();
        let sent = self.send(&mut parts, part);
        self.parts = Some(parts);
        sent
    }

    fn explained(&self, error: &object_store::Error) -> Error {
        explained(&self.place, &self.place.url(), error)
    }

    /// Returns the store's error that caused `error`, an error of the format writer; `error` itself if the store had no
    /// error.
    pub fn cause(&self, error: Error) -> Error {
        self.failure.clone().unwrap_or(error)
    }

    /// Returns the upload in the form that can be shared with a writer.
    pub fn shared(self) -> Shared {
        Shared(Arc::new(Mutex::new(self)))
    }
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        while self.buffer.len() > PART_BYTES {
            self.write_part().map_err(|error| {
                let text = error.message.clone();
                self.failure.get_or_insert(error);
                io::Error::other(text)
            })?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    /// Returns the store's error that has caused `error`, an error of the format writer.
    pub fn cause(&self, error: Error) -> Error {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).cause(error)
    }

    /// Finishes the upload, as [`Upload::finish`].
    ///
    /// # Errors
    /// The errors of [`Upload::finish`].
    pub fn finish(&self) -> Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).finish().map(|_| ())
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.under_way.clear();
        if let Some(mut parts) = self.parts.take().filter(|_| !self.is_finished) {
            // If the store cannot be reached, it may keep the parts, which belong to no object.
            let _ = blocking(async move { parts.abort().await });
        }
    }
}
