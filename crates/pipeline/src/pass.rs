//! Passes: runs over the same table at the same time share what is read of it.
//!
//! Cooperative scans (Zukowski et al., *Cooperative Scans: Dynamic Bandwidth Sharing in a DBMS*, VLDB 2007) without a leader
//! and without a plan. Runs that have to read go on where any of them asked last, each with a row group that it has not
//! seen, and wrap around at the end of the table. What is read for one of them is offered to all others, which take it
//! before anything else, so that each reads about its part of what all need. Who comes later joins where they are. What a
//! run has seen is a set and not a position: it may miss any number of offers, because it is slower, or its client does not
//! read; it then reads these row groups itself, later, and nobody waits for it.
//!
//! Values are kept for a rider up to [`limits::READ_AHEAD_BYTES`](farpool_model::limits::READ_AHEAD_BYTES), as those that it
//! has read itself. What nobody keeps leaves memory as the cache decides.
//!
//! Runs that need their own order are not riders, but what they read is offered, too.

use crate::run::Run;
use farpool_columns::{Kept, RowGroup};
use farpool_model::TableName;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// The passes over a tenant's tables.
#[derive(Debug, Default)]
pub struct Passes(Mutex<HashMap<TableName, Weak<Pass>>>);

/// What the runs over one table share, whichever versions of it they read.
#[derive(Default)]
pub struct Pass {
    /// The position behind the row group that was asked for last.
    hand: AtomicUsize,
    riders: Mutex<Vec<Weak<Run>>>,
}

impl Passes {
    /// The pass over a table, which exists as long as somebody has it.
    pub fn over(&self, table: &TableName) -> Arc<Pass> {
        let mut passes = self.0.lock();
        if let Some(pass) = passes.get(table).and_then(Weak::upgrade) {
            return pass;
        }
        passes.retain(|_, pass| pass.strong_count() > 0);
        let pass = Arc::new(Pass::default());
        passes.insert(table.clone(), Arc::downgrade(&pass));
        pass
    }
}

impl Pass {
    /// The position from which the next row group is read.
    pub(crate) fn hand(&self) -> usize {
        self.hand.load(Ordering::Relaxed)
    }

    pub(crate) fn move_hand(&self, place: usize) {
        self.hand.store(place, Ordering::Relaxed);
    }

    /// Has `run` get what others read.
    pub(crate) fn add(&self, run: Weak<Run>) {
        let mut riders = self.riders.lock();
        riders.retain(|rider| rider.strong_count() > 0);
        riders.push(run);
    }

    /// Offers the row group at `place`, of which `run` has read values, to all others.
    pub(crate) fn offer(&self, run: &Run, place: usize, group: &Arc<RowGroup>, kept: Option<&Kept>) {
        // Outside of the lock, since riders are called.
        let riders: Vec<Arc<Run>> = self.riders.lock().iter().filter_map(Weak::upgrade).collect();
        let others = riders.iter().filter(|rider| !std::ptr::eq(&***rider, run));
        others.for_each(|rider| rider.offered(place, group, kept));
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("hand", &self.hand).finish_non_exhaustive()
    }
}
