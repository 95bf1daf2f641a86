//! A program that a pool has looked at and keeps.

use farpool_model::Prepared;
use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A prepared program, and what its pool keeps for it: until the last clone is dropped, the version of the table that
/// it was prepared for is there to be read. It may be lost all the same, with a connection or for want of room;
/// running it then gives an error of kind `Stale`, if it cannot be prepared once more.
#[derive(Clone)]
pub struct Handle(Arc<Kept>);

struct Kept {
    prepared: Arc<Prepared>,
    by_pool: Box<dyn Any + Send + Sync>,
}

impl Handle {
    /// A handle of a pool that finds `by_pool` in it again; for implementations of [`crate::Pool`].
    pub fn new(prepared: impl Into<Arc<Prepared>>, by_pool: impl Any + Send + Sync) -> Self {
        Handle(Arc::new(Kept { prepared: prepared.into(), by_pool: Box::new(by_pool) }))
    }

    /// What the pool said of the program.
    pub fn prepared(&self) -> &Arc<Prepared> {
        &self.0.prepared
    }

    /// What the pool keeps, if it is a `T`.
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
