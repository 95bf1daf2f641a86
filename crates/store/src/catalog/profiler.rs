//! Who makes the profiles that nobody waits for: the store has no threads for it.

use super::tap::Gathering;
use std::fmt;
use std::sync::Arc;

/// See the file's comment.
pub trait Profiler: fmt::Debug + Send + Sync {
    /// `gathering` has something to do, and is to be worked on ([`Gathering::step`]) when nothing else is to be done.
    fn submit(&self, gathering: Arc<Gathering>);

    /// Rows come in: profiles rest.
    fn rows_came(&self);
}
