//! Usage and limit of the pool memory that a tenant's keys take.

use farpool_model::{Error, Result};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts bytes of the pool: whole slab pages and index segments, when they are allocated and freed.
///
/// The limit is checked before memory is allocated, not atomically with it. Each thread may exceed it by one
/// allocation: 64 KiB for small entries, 256 KiB for an index.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    used: AtomicUsize,
    /// Limit in bytes; 0 for none.
    most: AtomicUsize,
}

impl Meter {
    /// Returns the bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the limit, if there is one.
    pub fn most(&self) -> Option<usize> {
        Some(self.most.load(Ordering::Relaxed)).filter(|most| *most > 0)
    }

    /// Sets the limit; 0 for none.
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
    /// `OverLimit` if not.
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
