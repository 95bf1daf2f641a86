//! The files of a backup in an object store or, for a restore, on a web server.

use super::errors::explained;
use super::stores::{Place, is_written, of_url};
use super::{Entry, Upload, WebFiles, blocking};
use bytes::Bytes;
use farpool_files::{Fetch, Remote, Remotes};
use farpool_model::{Error, Result};
use object_store::ObjectStoreExt;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::Arc;

/// Bytes per request, and maximum number of concurrent requests ahead of the reader.
const READ_BYTES: u64 = 4 << 20;
const READS_AHEAD: usize = 4;

/// A prefix of an object store.
pub(crate) struct Vault {
    prefix: Place,
    url: String,
}

/// An object that is being written.
pub(crate) struct VaultWriter {
    upload: Upload,
    bytes: usize,
}

impl Vault {
    /// Creates a vault for a prefix, without a request.
    pub fn at(url: &str) -> Result<Vault> {
        Ok(Vault { prefix: of_url(url)?, url: url.to_string() })
    }

    /// Checks that the URL names a store that can be written to.
    pub fn check_written(&self) -> Result<()> {
        is_written(&self.url)
    }

    fn place(&self, name: &str) -> Place {
        self.prefix.at(self.prefix.path.clone().join(name))
    }

    /// Returns the names, sizes and entity tags of the files.
    pub fn list(&self) -> Result<Vec<(String, u64, String)>> {
        let entries = Entry::list(&self.prefix, false)?.into_iter();
        let named = |entry: Entry| {
            let name = entry.meta.location.filename()?.to_string();
            Some((name, entry.meta.size, entry.meta.e_tag.unwrap_or_default()))
        };
        Ok(entries.filter_map(named).collect())
    }

    /// Opens a file.
    pub fn open(&self, name: &str) -> Result<Box<dyn Read + Send>> {
        let (base, query) =
            self.url.split_once('?').map_or((self.url.as_str(), None), |(base, query)| (base, Some(query)));
        let url = format!("{}/{name}", base.trim_end_matches('/'));
        let url = query.map_or_else(|| url.clone(), |query| format!("{url}?{query}"));
        let file = WebFiles.file(&url)?.file;
        Ok(Box::new(Ranged { file, asked: 0, coming: VecDeque::new(), current: Bytes::new() }))
    }

    /// Starts to write a file.
    pub fn create(&self, name: &str) -> Result<VaultWriter> {
        Ok(VaultWriter { upload: Upload::at(self.place(name)), bytes: 0 })
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) -> Result<()> {
        let place = self.place(name);
        blocking(async move {
            place.store.delete(&place.path).await.map_err(|error| explained(&place, &place.url(), &error))
        })?
    }
}

impl VaultWriter {
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len();
        let written = self.upload.write_all(bytes);
        written.map_err(|error| self.upload.cause(Error::unavailable(error.to_string())))
    }

    /// Makes the file visible; returns its size in bytes and its entity tag.
    pub fn finish(mut self) -> Result<(usize, String)> {
        let tag = self.upload.finish()?;
        Ok((self.bytes, tag))
    }
}

/// A sequential reader of a file, which requests some ranges in advance.
struct Ranged {
    file: Arc<dyn Remote>,
    asked: u64,
    coming: VecDeque<Fetch>,
    current: Bytes,
}

impl Read for Ranged {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            while self.coming.len() < READS_AHEAD && self.asked < self.file.bytes() {
                let end = (self.asked + READ_BYTES).min(self.file.bytes());
                self.coming.push_back(self.file.fetch(self.asked..end));
                self.asked = end;
            }
            match self.coming.pop_front() {
                Some(fetch) => {
                    self.current = fetch.wait().map_err(|error| io::Error::other(error.message))?
                }
                None => return Ok(0),
            }
        }
        let count = self.current.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.current.split_to(count));
        Ok(count)
    }
}
