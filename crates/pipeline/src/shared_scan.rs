//! Shared scans: concurrent runs (executions of programs) over the same table share their reads.
//!
//! These are cooperative scans (Zukowski et al., *Cooperative Scans: Dynamic Bandwidth Sharing in a DBMS*, VLDB 2007)
//! without a leader or a schedule. A run that must read continues at the position where any run read last, with a row
//! group that it has not processed itself, and starts again at the beginning after the end of the table. Values that
//! were read for one run are offered to all others, which take offers first. So each run reads about its share of what
//! all of them need. Together they read no further ahead than a single run would: a run that finds that much being read
//! waits for it, too. A run that starts later joins at the current position. The row groups that a run has processed
//! are a set, not a position, so that a run may miss any number of offers, because it is slow or its client does not
//! read. It reads these row groups itself, later, and no other run waits for it.
//!
//! Values are kept in memory for a rider (a run that takes part in a shared scan) up to
//! [`limits::READ_AHEAD_BYTES`](farpool_model::limits::READ_AHEAD_BYTES), like those that it has read itself. The
//! cache decides when values that no run keeps are evicted.
//!
//! Runs that need their own order of row groups are not riders. But the values that they read are offered to riders,
//! too.

use crate::bound::BoundProgram;
use crate::predicate_cache::{PredicateCache, PredicateCacheEntry};
use crate::run::Run;
use farpool_columns::{HeldValues, RowGroup};
use farpool_memory::Account;
use farpool_model::TableName;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Shared scans and cached filter results of a tenant's programs.
#[derive(Debug, Default)]
pub struct SharedScans {
    by_table: Mutex<HashMap<TableName, Weak<SharedScan>>>,
    predicate_cache: PredicateCache,
}

/// State that a run shares with other runs.
#[derive(Debug)]
pub struct RunSharing {
    shared_scans: Arc<SharedScans>,
    /// Shared scan of the table; `None` if its values are always in memory.
    pub(crate) shared_scan: Option<Arc<SharedScan>>,
    /// Cached results of the filter; `None` if there are none.
    pub(crate) cache_entry: Option<Arc<PredicateCacheEntry>>,
    account: Account,
}

/// Runs that notify each other of row groups: those over one table, in any version, or those with the same filter.
#[derive(Default)]
pub(crate) struct SharedScan {
    /// Position in the table after the row group that a run took last.
    hand: AtomicUsize,
    riders: Mutex<Vec<Weak<Run>>>,
}

impl SharedScans {
    /// Returns what a run of `program` shares with other runs of the tenant. Memory for cached filter results is
    /// reserved from `account`.
    pub fn sharing(self: &Arc<Self>, program: &BoundProgram, account: &Account) -> RunSharing {
        let columns = program.columns();
        let has_handles = |group: &RowGroup| columns.iter().any(|column| group.chunks[*column].is_handle());
        let may_read = program.table().row_groups.iter().any(|group| has_handles(group));
        let shared_scan = may_read.then(|| self.over(&program.prepared().effective.table));
        let cache_entry = self.predicate_cache.of(program);
        RunSharing { shared_scans: self.clone(), shared_scan, cache_entry, account: account.clone() }
    }

    /// Returns the bytes of memory that cached filter results take.
    pub fn bytes_held(&self) -> usize {
        self.predicate_cache.bytes_held()
    }

    /// Removes cached filter results of row groups that no table has any more.
    pub fn forget_gone(&self) {
        self.predicate_cache.forget_gone();
    }

    /// Returns the shared scan of a table, which exists as long as a run holds it.
    fn over(&self, table: &TableName) -> Arc<SharedScan> {
        let mut shared_scans = self.by_table.lock();
        if let Some(shared_scan) = shared_scans.get(table).and_then(Weak::upgrade) {
            return shared_scan;
        }
        shared_scans.retain(|_, shared_scan| shared_scan.strong_count() > 0);
        let shared_scan = Arc::new(SharedScan::default());
        shared_scans.insert(table.clone(), Arc::downgrade(&shared_scan));
        shared_scan
    }
}

impl RunSharing {
    /// Makes `run` receive offers of row groups that others have read or filtered.
    pub(crate) fn add(&self, run: &Weak<Run>) {
        let of_filter = self.cache_entry.as_ref().map(|cache_entry| &cache_entry.runs);
        self.shared_scan
            .as_deref()
            .into_iter()
            .chain(of_filter)
            .for_each(|shared_scan| shared_scan.add(run.clone()));
    }

    /// Returns the cache entry of the filter if its results should be recorded; otherwise `None`.
    pub(crate) fn judging(&self) -> Option<&PredicateCacheEntry> {
        self.cache_entry.as_deref().filter(|cache_entry| cache_entry.is_wanted())
    }

    /// Records which rows of `group`, at index `place`, pass the filter of `run`, and notifies all other runs with that
    /// filter.
    pub(crate) fn note(&self, run: &Run, place: usize, group: &Arc<RowGroup>, bits: Arc<[u64]>) {
        let Some(cache_entry) = &self.cache_entry else { return };
        self.shared_scans.predicate_cache.note(cache_entry, group, bits, &self.account);
        cache_entry.runs.tell(run, |other| other.offered_judged(place, group));
    }
}

impl SharedScan {
    /// Returns the position in the table from which to look for the next row group to read.
    pub(crate) fn hand(&self) -> usize {
        self.hand.load(Ordering::Relaxed)
    }

    pub(crate) fn move_hand(&self, place: usize) {
        self.hand.store(place, Ordering::Relaxed);
    }

    /// Returns the row groups whose values runs other than `run` wait for, by index in the table, with their bytes.
    pub(crate) fn awaited(&self, run: &Run) -> BTreeMap<usize, usize> {
        let awaited = Mutex::new(BTreeMap::new());
        self.tell(run, |rider| rider.add_awaited(&mut awaited.lock()));
        awaited.into_inner()
    }

    /// Makes `run` receive offers of what others read.
    pub(crate) fn add(&self, run: Weak<Run>) {
        let mut riders = self.riders.lock();
        riders.retain(|rider| rider.strong_count() > 0);
        riders.push(run);
    }

    /// Offers the row group at index `place`, of which `run` has read values, to all other riders.
    pub(crate) fn offer(&self, run: &Run, place: usize, group: &Arc<RowGroup>, kept: Option<&HeldValues>) {
        self.tell(run, |rider| rider.offered(place, group, kept));
    }

    /// Calls `tell` with all riders except `run`.
    fn tell(&self, run: &Run, tell: impl Fn(&Run)) {
        // Called outside the lock, since riders may take the lock themselves.
        let riders: Vec<Arc<Run>> = self.riders.lock().iter().filter_map(Weak::upgrade).collect();
        riders.iter().filter(|rider| !std::ptr::eq(&***rider, run)).for_each(|rider| tell(rider));
    }
}

impl fmt::Debug for SharedScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedScan").field("hand", &self.hand).finish_non_exhaustive()
    }
}
