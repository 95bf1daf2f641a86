//! Cancellation of requests.

use farpool_model::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Flag by which a caller cancels a request. All clones share the flag, which is never cleared.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Creates a flag that is not set.
    pub fn new() -> Self {
        Cancel::default()
    }

    /// Sets the flag.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns true if the flag is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns an error if the flag is set.
    ///
    /// # Errors
    /// `Cancelled` if the flag is set.
    pub fn check(&self) -> Result<()> {
        if self.is_set() { Err(Error::cancelled()) } else { Ok(()) }
    }
}
