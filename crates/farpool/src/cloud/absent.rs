//! Replacements for object stores and web servers in a program that was built without them. Every operation fails.

use farpool_files::{RemoteFile, Remotes};
use farpool_model::{Error, Result};
use std::io::{self, Read, Write};

fn absent() -> Error {
    Error::invalid("this program was built without object stores and web servers").advise(
        "build it with them: cargo build --release --workspace --bin farpool --features farpool/cloud",
    )
}

/// Opener of URLs that opens none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WebFiles;

impl Remotes for WebFiles {
    fn file(&self, _: &str) -> Result<RemoteFile> {
        Err(absent())
    }

    fn list(&self, _: &str, _: bool) -> Result<Vec<RemoteFile>> {
        Err(absent())
    }
}

/// An upload that cannot be created.
#[derive(Clone)]
pub(crate) struct Upload;

impl Upload {
    pub fn begin(_: &str) -> Result<Upload> {
        Err(absent())
    }

    pub fn shared(self) -> Upload {
        self
    }

    pub fn cause(&self, error: Error) -> Error {
        error
    }

    pub fn finish(&self) -> Result<()> {
        Err(absent())
    }
}

impl Write for Upload {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A vault without files.
pub(crate) struct Vault;

/// A writer that cannot be created.
pub(crate) struct VaultWriter;

impl Vault {
    pub fn at(_: &str) -> Result<Vault> {
        Err(absent())
    }

    pub fn check_written(&self) -> Result<()> {
        Err(absent())
    }

    pub fn list(&self) -> Result<Vec<(String, u64, String)>> {
        Err(absent())
    }

    pub fn open(&self, _: &str) -> Result<Box<dyn Read + Send>> {
        Err(absent())
    }

    pub fn create(&self, _: &str) -> Result<VaultWriter> {
        Err(absent())
    }

    pub fn remove(&self, _: &str) -> Result<()> {
        Err(absent())
    }
}

impl VaultWriter {
    pub fn write(&mut self, _: &[u8]) -> Result<()> {
        Err(absent())
    }

    pub fn finish(self) -> Result<(usize, String)> {
        Err(absent())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_refused_with_what_to_do() {
        let error = WebFiles.file("s3://bucket/x").unwrap_err();
        assert!(error.message.contains("built without") && error.advice.unwrap().contains("farpool/cloud"));
        assert!(Vault::at("s3://bucket").is_err() && Upload::begin("s3://bucket/x").is_err());
    }
}
