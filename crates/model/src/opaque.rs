//! Values that threads can share, without a look into their types.
//!
//! Reason: for each method of an asynchronous trait, the compiler learns whether its future can be sent to another thread.
//! The compiler follows all types in it down, and those of the engine lead into the syntax trees of statements: seconds for each
//! method, where a dozen of them are. It learns it once for an [`Opaque`], where one is made.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A shared value of a type that is not looked into.
pub struct Opaque<T>(Arc<dyn Holds<T>>);

trait Holds<T>: Send + Sync {
    fn held(&self) -> &T;
}

impl<T: Send + Sync> Holds<T> for T {
    fn held(&self) -> &T {
        self
    }
}

impl<T: Send + Sync + 'static> Opaque<T> {
    /// Shares `value`.
    pub fn new(value: T) -> Self {
        Opaque(Arc::new(value))
    }
}

impl<T> Clone for Opaque<T> {
    fn clone(&self) -> Self {
        Opaque(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Opaque<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opaque")
    }
}

impl<T> Deref for Opaque<T> {
    type Target = T;

    fn deref(&self) -> &T {
        <dyn Holds<T>>::held(&*self.0)
    }
}

impl<T: Default + Send + Sync + 'static> Default for Opaque<T> {
    fn default() -> Self {
        Opaque::new(T::default())
    }
}
