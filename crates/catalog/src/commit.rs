//! Changes that were made and may not be durable yet.

use super::Catalog;
use farpool_model::Result;
use std::sync::Arc;

/// Result of a change, to be acknowledged once the change is durable; at once, if the catalog is in memory only.
#[derive(Debug)]
#[must_use = "a change is acknowledged when it is durable"]
pub struct Commit<T> {
    value: T,
    catalog: Arc<Catalog>,
    /// The number of the change's record in the log.
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

    /// Returns the value, and the same change without it.
    pub(super) fn split(self) -> (T, Commit<()>) {
        let Commit { value, catalog, number } = self;
        (value, Commit { value: (), catalog, number })
    }

    /// Returns the same change with another value.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> Commit<U> {
        let Commit { value, catalog, number } = self;
        Commit { value: map(value), catalog, number }
    }

    /// Blocks the thread until the change is durable.
    ///
    /// # Errors
    /// `Unavailable` where the disk failed: whether the change was made shows when the directory is opened again.
    pub fn wait(self) -> Result<T> {
        match self.number {
            Some(number) => self.catalog.commit(number).map(|()| self.value),
            None => Ok(self.value),
        }
    }

    /// Calls `then` when the change is durable, on the thread that made it so, or at once.
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
