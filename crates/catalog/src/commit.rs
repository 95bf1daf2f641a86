//! Changes that are visible to the caller's checks but may not be durable yet.

use super::Catalog;
use farpool_model::Result;
use std::sync::Arc;

/// Result of a change, which must be acknowledged to the client only when the change is durable. A change of a catalog
/// in memory is durable at once.
#[derive(Debug)]
#[must_use = "a change is acknowledged when it is durable"]
pub struct Commit<T> {
    value: T,
    catalog: Arc<Catalog>,
    /// Sequence number of the change's record in the log; `None` if it is durable already.
    number: Option<u64>,
}

impl<T> Commit<T> {
    pub(super) fn new(value: T, catalog: &Arc<Catalog>, number: Option<u64>) -> Commit<T> {
        if number.is_some() {
            catalog.tidy();
        }
        Commit { value, catalog: catalog.clone(), number }
    }

    /// Creates the result of a change that is durable already, or that needs no record.
    pub fn durable(value: T, catalog: &Arc<Catalog>) -> Commit<T> {
        Commit { value, catalog: catalog.clone(), number: None }
    }

    pub(super) fn number(&self) -> Option<u64> {
        self.number
    }

    /// Returns the value, and the commit without the value.
    pub(super) fn split(self) -> (T, Commit<()>) {
        let Commit { value, catalog, number } = self;
        (value, Commit { value: (), catalog, number })
    }

    /// Returns the commit with another value.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> Commit<U> {
        let Commit { value, catalog, number } = self;
        Commit { value: map(value), catalog, number }
    }

    /// Blocks until the change is durable, and returns the value.
    ///
    /// # Errors
    /// `Unavailable` if the disk failed. Whether the change was made is known only when the directory is opened again.
    pub fn wait(self) -> Result<T> {
        match self.number {
            Some(number) => self.catalog.commit(number).map(|()| self.value),
            None => Ok(self.value),
        }
    }

    /// Calls `then` when the change is durable, on the thread that made it durable; at once if it is durable already.
    /// Does not block.
    pub fn then(self, then: impl FnOnce(Result<T>) + Send + 'static)
    where
        T: Send + 'static,
    {
        let Commit { value, catalog, number } = self;
        match number {
            Some(number) => {
                catalog.when_durable(number, Box::new(move |durable| then(durable.map(|()| value))))
            }
            None => then(Ok(value)),
        }
    }
}
