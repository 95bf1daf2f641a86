//! The certificate authorities that a client trusts by default: those of the operating system, which an administrator
//! can change for all programs at once.

use farpool_model::{Error, Result};
use farpool_wire::ClientTls;
use std::sync::OnceLock;
use tokio::task::spawn_blocking;

/// Returns the system's certificate authorities. They are read once per process, which takes a few milliseconds.
///
/// # Errors
/// `Invalid` if the system trusts no certificate authority.
pub(super) async fn of_system() -> Result<ClientTls> {
    static READ: OnceLock<ClientTls> = OnceLock::new();
    if let Some(tls) = READ.get() {
        return Ok(tls.clone());
    }
    let read = spawn_blocking(|| {
        let found = rustls_native_certs::load_native_certs();
        ClientTls::trusting_those_of(found.certs)
    });
    let tls = read.await.map_err(|error| Error::internal(error.to_string()))??;
    Ok(READ.get_or_init(|| tls).clone())
}
