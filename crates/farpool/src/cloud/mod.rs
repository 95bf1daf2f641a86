//! Files in object stores and on web servers: `s3://`, `gs://`, `az://` (`abfs://`, `abfss://`), `http://` and
//! `https://`.
//!
//! All code here runs in the engine's process. A node opens no files, and therefore no URLs either.
//!
//! Invariants: an object is written completely or not at all; no message contains the query of a URL, which may contain
//! a signature, or a password.

mod errors;
mod reading;
mod stores;
mod vault;
mod writing;

use reading::Entry;
pub(crate) use reading::WebFiles;
pub(crate) use vault::{Vault, VaultWriter};
pub(crate) use writing::Upload;

use farpool_model::{Error, Result};
use std::future::Future;
use std::sync::OnceLock;
use std::sync::mpsc;
use tokio::runtime::{Builder, Runtime};

/// Number of threads that send requests and receive responses.
const THREADS: usize = 2;

/// Returns the runtime for all requests. They proceed on its threads while the caller's threads, of any runtime, wait
/// or compute.
fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    let made = RUNTIME.get_or_init(|| {
        Builder::new_multi_thread().worker_threads(THREADS).thread_name("farpool-web").enable_all().build()
    });
    made.as_ref().map_err(|error| Error::over_limit(format!("cannot start threads: {error}")))
}

/// A running operation. Dropping this cancels it.
struct Running<T> {
    result: mpsc::Receiver<T>,
    abort: tokio::task::AbortHandle,
}

impl<T: Send + 'static> Running<T> {
    fn start(work: impl Future<Output = T> + Send + 'static) -> Result<Self> {
        let (sender, result) = mpsc::sync_channel(1);
        let task = runtime()?.spawn(async move {
            // The receiver is gone if nothing waits for the operation any more.
            let _ = sender.try_send(work.await);
        });
        Ok(Running { result, abort: task.abort_handle() })
    }

    /// Blocks until the operation is complete. May be called on any thread, also on those of a runtime.
    fn wait(self) -> Result<T> {
        self.result.recv().map_err(|_| Error::internal("a request has stopped"))
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

/// Runs `work` and blocks until it is complete.
fn blocking<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<T> {
    Running::start(work)?.wait()
}
