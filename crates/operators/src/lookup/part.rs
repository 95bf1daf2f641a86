//! Parts of a table that is being built, each by one thread at a time.

use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, Ordering};

/// A part of the work. Invariant: a thread holds the lock only while it works. Otherwise two threads that merely look
/// for work could each take the other for one that works, and both wait.
#[derive(Default)]
pub(super) struct Part<T> {
    is_done: AtomicBool,
    work: Mutex<T>,
}

/// Outcome of [`Part::claim`].
pub(super) enum Claim<'a, T> {
    Mine(MutexGuard<'a, T>),
    /// Another thread works on it.
    Busy,
    Done,
}

impl<T> Part<T> {
    pub(super) fn new(work: T) -> Part<T> {
        Part { is_done: AtomicBool::new(false), work: Mutex::new(work) }
    }

    /// Takes the part, unless it is done or another thread has it. Whoever has it works on it, and calls [`Part::finish`]
    /// before giving it back if nothing is left to be done.
    pub(super) fn claim(&self) -> Claim<'_, T> {
        if self.is_done() {
            return Claim::Done;
        }
        match self.work.try_lock() {
            // Another thread may have finished it meanwhile.
            Some(_) if self.is_done() => Claim::Done,
            Some(work) => Claim::Mine(work),
            None if self.is_done() => Claim::Done,
            None => Claim::Busy,
        }
    }

    fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    /// Marks the part as done.
    pub(super) fn finish(&self) {
        self.is_done.store(true, Ordering::Release);
    }

    /// Returns the work when no thread works on it.
    pub(super) fn work(&self) -> MutexGuard<'_, T> {
        self.work.lock()
    }
}
