//! Values that only the process that created them may use. A process forked from it has none of the threads that work
//! on them.
//!
//! Invariant: in a forked process, values of the parent are neither used nor dropped. Sockets and the epoll instance
//! are shared with the parent, so that closing and deregistering would affect the parent as well.

use crate::runtime;
use farpool::{Error, Result};

/// A value that only the process that created it may use.
pub struct Owned<T> {
    value: Option<T>,
    process: u32,
}

impl<T> Owned<T> {
    pub fn new(value: T) -> Self {
        Owned { value: Some(value), process: std::process::id() }
    }

    /// Returns the value; `None` if it was taken.
    ///
    /// # Errors
    /// Fails in a forked process.
    pub fn get(&self) -> Result<Option<&T>> {
        self.check().map(|()| self.value.as_ref())
    }

    /// Takes the value; `None` if it was taken before.
    ///
    /// # Errors
    /// The errors of [`Owned::get`].
    pub fn take(&mut self) -> Result<Option<T>> {
        self.check().map(|()| self.value.take())
    }

    /// Puts back a value that was taken.
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
                // Dropping a query cancels it, which notifies the runtime.
                let _entered = runtime::entered();
                self.value = None;
            }
            false => std::mem::forget(self.value.take()),
        }
    }
}
