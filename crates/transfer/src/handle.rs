//! The handle of a prepared program: a program that a pool has checked and compiled, and keeps ready for execution (as
//! databases do with prepared statements).

use farpool_model::Prepared;
use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A prepared program, and the state that its pool keeps for it. As long as a clone of the handle exists, the table
/// version that the program was prepared for can be read. The pool may still lose the state, when a connection breaks
/// or memory is short; running the program then fails as `Stale`, unless the pool can prepare it again.
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

    /// Returns what the pool answered when it prepared the program: what it will do of each operator, and the program
    /// that it will run.
    pub fn prepared(&self) -> &Arc<Prepared> {
        &self.0.prepared
    }

    /// Returns the pool's private state if it has the type `T`; otherwise `None`.
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
