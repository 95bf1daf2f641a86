//! Reads the values of tables into memory after a start, as long as nothing else needs that.
//!
//! One row group after the other, beside what queries ask for: large scans then find memory full of what was there before
//! the start, and small ones need not wait for a disk. It ends when three quarters of the pool are in use. Pinned tables come
//! first, however full the pool is.

use crate::catalog::Catalog;
use farpool_columns::{Kept, Reader, RowGroup, fetch};
use farpool_model::Result;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// The part of the pool, in quarters, that may be in use.
const QUARTERS: u64 = 3;

/// What is left to be read.
struct WarmUp {
    catalog: Weak<Catalog>,
    groups: VecDeque<Weak<RowGroup>>,
    /// Number of them, the first ones, that are of pinned tables.
    pinned: usize,
}

impl Catalog {
    /// Begins to read what is not in memory: small tables first, since more queries of the next minutes will find all that
    /// they need.
    pub fn warm_up(self: &Arc<Self>) {
        if self.durable.get().is_none() {
            return;
        }
        let names = self.state.read().visible.clone();
        let mut tables: Vec<_> = names.tables.values().flat_map(|tables| tables.values()).collect();
        tables.sort_by_key(|current| (!current.is_pinned, current.table.bytes_encoded));
        let pinned = tables.iter().filter(|current| current.is_pinned);
        let pinned = pinned.map(|current| current.table.row_groups.len()).sum();
        let groups = tables.iter().flat_map(|current| current.table.row_groups.iter()).map(Arc::downgrade);
        WarmUp { catalog: Arc::downgrade(self), groups: groups.collect(), pinned }.go_on();
    }
}

impl WarmUp {
    /// Has the next row group read that is not in memory.
    fn go_on(mut self) {
        loop {
            let Some(catalog) = self.catalog.upgrade() else { return };
            let usage = catalog.pool.usage();
            if catalog.durable.get().is_none_or(|durable| durable.is_closed())
                || self.pinned == 0 && usage.bytes_used > usage.bytes_limit / 4 * QUARTERS
            {
                return;
            }
            let Some(group) = self.groups.pop_front() else { return };
            self.pinned = self.pinned.saturating_sub(1);
            let absent = group.upgrade().map(|group| {
                group.chunks.iter().filter(|chunk| chunk.is_absent()).cloned().collect::<Vec<_>>()
            });
            if let Some(absent) = absent.filter(|absent| !absent.is_empty()) {
                return fetch(absent, Box::new(self));
            }
        }
    }
}

impl Reader for WarmUp {
    fn is_waiting(&self) -> bool {
        self.catalog.strong_count() > 0
    }

    fn arrived(self: Box<Self>, outcome: Result<Kept>) {
        // What cannot be read is told to whoever asks for it.
        drop(outcome);
        self.go_on();
    }
}
