//! What is done behind loads and that nobody waits for: the store has no threads for it.

use super::merge::Merging;
use super::tap::{Gathering, Stepped};
use farpool_model::TenantName;
use std::fmt;
use std::sync::Arc;

/// Who does it.
pub trait Background: fmt::Debug + Send + Sync {
    /// `chore` has something to do, and is to be worked on ([`Chore::step`]) when nothing else is to be done.
    fn submit(&self, chore: Chore);

    /// The rows of a load come in, as fast as they can: the rest of the background waits.
    fn rows_came(&self);
}

/// Work of the background on one table.
#[derive(Clone, Debug)]
pub enum Chore {
    /// A profile.
    Profile(Arc<Gathering>),
    /// Small row groups become larger ones.
    Merge(Arc<Merging>),
}

impl Chore {
    /// Which comes first of the chores of a tenant, and names it: merges, which make room and whose results are
    /// profiled, then profiles in the order in which their loads began.
    pub fn order(&self) -> (bool, u64) {
        match self {
            Chore::Merge(merging) => (false, merging.number()),
            Chore::Profile(gathering) => (true, gathering.number()),
        }
    }

    /// Whose table it is.
    pub fn tenant(&self) -> &TenantName {
        match self {
            Chore::Merge(merging) => merging.tenant(),
            Chore::Profile(gathering) => gathering.tenant(),
        }
    }

    /// Works on it as long as `go_on`, and by a column at least.
    pub fn step(&self, go_on: &dyn Fn() -> bool) -> Stepped {
        match self {
            Chore::Merge(merging) => merging.step(go_on),
            Chore::Profile(gathering) => gathering.step(go_on),
        }
    }

    /// Whoever was given it has let go of it, for there was nothing to do. It is submitted again when there is.
    pub fn leave(&self) {
        match self {
            Chore::Merge(merging) => merging.leave(),
            Chore::Profile(gathering) => gathering.leave(),
        }
    }
}
