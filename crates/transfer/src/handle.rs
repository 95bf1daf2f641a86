//! The handle of a program that a pool has prepared and keeps.

use farpool_model::Prepared;
use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A prepared program, and the state that its pool keeps for it: until the last clone is dropped, the table
/// version that it was prepared for can be read. The state may still be lost, with a connection or for lack
/// of memory; running the program then fails as `Stale`, unless it can be prepared again.
#[derive(Clone)]
pub struct Handle(Arc<Kept>);

struct Kept {
    prepared: Arc<Prepared>,
    by_pool: Box<dyn Any + Send + Sync>,
}

impl Handle {
    /// Creates a handle with the private state `by_pool` of its pool; for implementations of [`crate::Pool`].
    pub fn new(prepared: impl Into<Arc<Prepared>>, by_pool: impl Any + Send + Sync) -> Self {
        Handle(Arc::new(Kept { prepared: prepared.into(), by_pool: Box::new(by_pool) }))
    }

    /// Returns the pool's answers and the program that it will run.
    pub fn prepared(&self) -> &Arc<Prepared> {
        &self.0.prepared
    }

    /// Returns the pool's private state, if it is a `T`.
    pub fn kept<T: Any>(&self) -> Option<&T> {
        self.0.by_pool.downcast_ref()
    }
}

impl Deref for Handle {
    type Target = Prepared;

    fn deref(&self) -> &Prepared {
        &self.0.prepared
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.0.prepared).finish()
    }
}
