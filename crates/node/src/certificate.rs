//! Reads the TLS certificate of a node and its private key from files.

use crate::follow::open_regular;
use farpool_model::{Error, Result, limits};
use farpool_wire::ServerTls;
use std::io::Read;
use std::path::Path;

/// Reads the certificate chain and its private key from PEM files; returns the TLS configuration for connections of
/// clients.
///
/// # Errors
/// `Invalid`, with the name of the file, if a file cannot be read or has unexpected contents, or if the key does not
/// belong to the certificate.
pub fn read(certificate: &Path, key: &Path) -> Result<ServerTls> {
    let chain = ServerTls::chain(&bytes(certificate)?).map_err(|error| error.at(certificate.display()))?;
    let private = ServerTls::key(&bytes(key)?).map_err(|error| error.at(key.display()))?;
    ServerTls::new(chain, private)
        .map_err(|error| error.at(format_args!("{} and {}", certificate.display(), key.display())))
}

fn bytes(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path).and_then(|file| file.take(limits::PEM_BYTES_MAX).read_to_end(&mut bytes)).map_err(
        |error| {
            Error::invalid(format!("cannot read {}: {error}", path.display()))
                .advise("check the name of the file, and whether the node may read it")
        },
    )?;
    Ok(bytes)
}
