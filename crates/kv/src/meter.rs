//! How much of the pool the keys of a tenant take, and how much they may.

use farpool_model::{Error, Result};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts bytes of the pool: whole slab pages and segments of indexes, as they are taken and given back.
///
/// The limit is looked at before memory is taken, and not taken with it: each thread may exceed it by what it takes at that
/// moment, 64 KiB for small entries, 256 KiB for an index.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    used: AtomicUsize,
    /// 0 is no limit.
    most: AtomicUsize,
}

impl Meter {
    /// Bytes that are in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The limit, if there is one.
    pub fn most(&self) -> Option<usize> {
        Some(self.most.load(Ordering::Relaxed)).filter(|most| *most > 0)
    }

    /// Sets the limit; 0 is none.
    pub fn set_most(&self, bytes: usize) {
        self.most.store(bytes, Ordering::Relaxed);
    }

    /// Whether more is in use than may be, as when the limit was lowered.
    pub fn is_over(&self) -> bool {
        self.most().is_some_and(|most| self.used() > most)
    }

    /// Whether so many bytes more may be taken.
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
