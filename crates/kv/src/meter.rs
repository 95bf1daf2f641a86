//! Counts the memory of the pool that a tenant's keys take, and enforces its limit (`maxmemory`).

use farpool_model::{Error, Result};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the bytes of pool memory that a tenant's keys take, that is, of whole slab pages and segments of indexes, and
/// has their limit (`maxmemory`).
///
/// The limit is checked before memory is allocated and not atomically with the allocation. So each thread may exceed
/// the limit by one allocation: 64 KiB for small entries, 256 KiB for an index.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    used: AtomicUsize,
    /// Maximum bytes in use (`maxmemory`); 0 for no limit.
    most: AtomicUsize,
}

impl Meter {
    /// Returns the bytes of pool memory in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the limit in bytes; `None` if there is none.
    pub fn most(&self) -> Option<usize> {
        Some(self.most.load(Ordering::Relaxed)).filter(|most| *most > 0)
    }

    /// Sets the limit in bytes; 0 for none.
    pub fn set_most(&self, bytes: usize) {
        self.most.store(bytes, Ordering::Relaxed);
    }

    /// Returns whether usage exceeds the limit, as after the limit was lowered.
    pub fn is_over(&self) -> bool {
        self.most().is_some_and(|most| self.used() > most)
    }

    /// Checks that `bytes` more may be allocated.
    ///
    /// # Errors
    /// `OverLimit` if usage would exceed the limit.
    pub fn check(&self, bytes: usize) -> Result<()> {
        match self.most() {
            Some(most) if self.used().saturating_add(bytes) > most => Err(Error::over_limit(format!(
                "keys and values take {} of the {most} bytes that 'maxmemory' allows",
                self.used()
            ))),
            _ => Ok(()),
        }
    }

    pub fn took(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn gave(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}
