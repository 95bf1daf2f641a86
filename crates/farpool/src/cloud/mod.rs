//! Files in object stores and on web servers: `s3://`, `gs://`, `az://` (`abfs://`, `abfss://`), `http://` and `https://`.
//!
//! Everything here runs where the engine runs. A node opens no files, and so no URLs either.
//!
//! Invariants: what is written is there as a whole or not at all; no message contains a query of a URL, where signatures
//! are, or a password.

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

/// Threads that send requests and take in what comes.
const THREADS: usize = 2;

/// The runtime of all requests: they go on while a caller's threads, of whatever runtime, wait or compute.
fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    let made = RUNTIME.get_or_init(|| {
        Builder::new_multi_thread().worker_threads(THREADS).thread_name("farpool-web").enable_all().build()
    });
    made.as_ref().map_err(|error| Error::over_limit(format!("cannot start threads: {error}")))
}

/// Something that is under way, and ends when this is dropped.
struct Running<T> {
    result: mpsc::Receiver<T>,
    abort: tokio::task::AbortHandle,
}

impl<T: Send + 'static> Running<T> {
    fn start(work: impl Future<Output = T> + Send + 'static) -> Result<Self> {
        let (sender, result) = mpsc::sync_channel(1);
        let task = runtime()?.spawn(async move {
            // Nobody waits any more.
            let _ = sender.try_send(work.await);
        });
        Ok(Running { result, abort: task.abort_handle() })
    }

    /// Blocks until it is done; on any thread, also one of a runtime.
    fn wait(self) -> Result<T> {
        self.result.recv().map_err(|_| Error::internal("a request has stopped"))
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

/// Does `work` and blocks until it is done.
fn blocking<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<T> {
    Running::start(work)?.wait()
}
