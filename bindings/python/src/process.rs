//! What belongs to the process that made it: a fork has none of the threads that work on it.
//!
//! Invariant: in a fork, nothing of the parent's is touched, nor dropped: its sockets and its epoll instance are the same
//! ones as those of the parent, which closing and deregistering would change there, too.

use crate::runtime;
use farpool::{Error, Result};

/// A value of this process, unavailable in forks of it.
pub struct Owned<T> {
    value: Option<T>,
    process: u32,
}

impl<T> Owned<T> {
    pub fn new(value: T) -> Self {
        Owned { value: Some(value), process: std::process::id() }
    }

    /// Returns the value unless it was taken.
    ///
    /// # Errors
    /// In a fork of the process that made the value.
    pub fn get(&self) -> Result<Option<&T>> {
        self.check().map(|()| self.value.as_ref())
    }

    /// Takes the value.
    ///
    /// # Errors
    /// As those of [`Owned::get`].
    pub fn take(&mut self) -> Result<Option<T>> {
        self.check().map(|()| self.value.take())
    }

    /// Puts a value back that was taken.
    pub fn put(&mut self, value: T) {
        self.value = Some(value);
    }

    fn check(&self) -> Result<()> {
        match self.is_ours() {
            true => Ok(()),
            false => {
                Err(Error::invalid("this was opened before the process forked, and works in the parent only")
                    .advise("open a pool in each process, or start processes by spawn in place of fork"))
            }
        }
    }

    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        match self.is_ours() {
            true => {
                // What cancels a query tells the runtime.
                let _entered = runtime::entered();
                self.value = None;
            }
            false => std::mem::forget(self.value.take()),
        }
    }
}
