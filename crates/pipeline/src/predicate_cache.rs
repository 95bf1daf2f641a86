//! Predicate cache: records which rows pass a filter, for other programs with the same filter.
//!
//! The statements of a dashboard often have the same filter and compute different things. When a second program has a
//! filter that was seen recently, programs with that filter record for each row group which rows pass, as a bitmap.
//! Programs that process the row group later use the bitmap instead of evaluating the filter. Row groups are immutable,
//! so an entry is valid for all versions of the table that have the row group (Schmidt et al., *Predicate Caching*,
//! SIGMOD 2024, cache ranges of rows in this way).
//!
//! Example: program 1 records the bitmap of row group A. A change replaces A by B, and program 2 reads the new version.
//! It finds no entry for B, because entries are identified by row group, and evaluates the filter.
//!
//! Programs that run at the same time begin with different row groups, and each notifies the others of its results, so
//! that no two of them evaluate the filter on the same row group.
//!
//! Nothing is cached for tables that are encrypted in memory, because the bitmaps would reveal information on their
//! values, and for live tables, because their row groups are generated for each execution.

use crate::bound::BoundProgram;
use crate::shared_scan::SharedScan;
use farpool_columns::RowGroup;
use farpool_memory::{Account, Reservation};
use farpool_model::{Expr, TableName, limits, program};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Bytes counted for the entry of a row group in addition to its bitmap.
const ENTRY_BYTES: usize = 128;

/// Filters that programs of a tenant used recently, the latest last.
#[derive(Debug, Default)]
pub(crate) struct PredicateCache(Mutex<Vec<Arc<PredicateCacheEntry>>>);

/// Cached results of one filter.
pub(crate) struct PredicateCacheEntry {
    table: TableName,
    filter: Expr,
    /// Whether more than one program has used the filter, so that recording results may pay.
    is_shared: AtomicBool,
    known: Mutex<CachedGroups>,
    /// Current executions of programs with this filter.
    pub runs: SharedScan,
}

#[derive(Default)]
struct CachedGroups {
    /// Bitmap by the address of the row group.
    groups: HashMap<usize, PassingRows>,
    bytes: usize,
}

/// Bitmap of the rows of one row group that pass the filter.
struct PassingRows {
    /// Keeps the address of the row group from being used for another one.
    group: Weak<RowGroup>,
    bits: Arc<[u64]>,
    _reservation: Reservation,
}

impl PredicateCache {
    /// Returns the cache entry of a program's filter; `None` if the program has none, if caching would not pay, or if
    /// it is not allowed for the table.
    pub fn of(&self, program: &BoundProgram) -> Option<Arc<PredicateCacheEntry>> {
        let (prepared, table) = (program.prepared(), program.table());
        let filter = prepared.effective.filter.as_ref()?;
        if program.is_narrowed() || table.cipher().is_some() || table.live_rows().is_some() {
            return None;
        }
        // Only short filters are cached, because comparing a long one with those of other programs is expensive.
        program::check_size([filter]).ok().filter(|bytes| *bytes <= limits::JUDGED_FILTER_BYTES_MAX)?;
        let name = &prepared.effective.table;
        let mut predicate_cache = self.0.lock();
        let same = predicate_cache.iter().position(|known| known.table == *name && known.filter == *filter);
        if let Some(place) = same {
            // The entry is moved to the end, because the list is ordered by last use.
            let cache_entry = predicate_cache.remove(place);
            cache_entry.is_shared.store(true, Ordering::Relaxed);
            predicate_cache.push(cache_entry.clone());
            return Some(cache_entry);
        }
        let cache_entry = Arc::new(PredicateCacheEntry {
            table: name.clone(),
            filter: filter.clone(),
            is_shared: AtomicBool::new(false),
            known: Mutex::default(),
            runs: SharedScan::default(),
        });
        predicate_cache.push(cache_entry.clone());
        let oldest = (predicate_cache.len() > limits::JUDGED_FILTERS_MAX).then(|| predicate_cache.remove(0));
        drop(predicate_cache);
        drop(oldest);
        Some(cache_entry)
    }

    /// Returns the bytes reserved for cached results.
    pub fn bytes_held(&self) -> usize {
        self.0.lock().iter().map(|cache_entry| cache_entry.known.lock().bytes).sum()
    }

    /// Removes the bitmaps of row groups that no table has any more.
    pub fn forget_gone(&self) {
        self.0.lock().iter().for_each(|cache_entry| _ = cache_entry.forget_gone());
    }

    /// Records the bitmap of the rows of `group` that pass, if there is memory for it. If memory is short, first
    /// removes bitmaps of the filters that were used least recently.
    pub fn note(
        &self,
        cache_entry: &PredicateCacheEntry,
        group: &Arc<RowGroup>,
        bits: Arc<[u64]>,
        account: &Account,
    ) {
        let bytes = size_of_val(&*bits) + ENTRY_BYTES;
        let most = limits::JUDGED_BYTES_MAX.min(account.memory().limit() / limits::JUDGED_PART);
        // The lock is held throughout, so that concurrent calls together keep within the limit.
        let predicate_cache = self.0.lock();
        if !make_room(&predicate_cache, cache_entry, most.saturating_sub(bytes)) {
            return;
        }
        let Ok(reservation) = account.try_reserve(bytes) else { return };
        let passing = PassingRows { group: Arc::downgrade(group), bits, _reservation: reservation };
        let mut known = cache_entry.known.lock();
        let before = known.groups.insert(Arc::as_ptr(group) as usize, passing);
        known.bytes += bytes;
        known.bytes -= before.as_ref().map_or(0, PassingRows::bytes);
    }
}

/// Removes bitmaps of filters other than `of`, least recently used first, until all bitmaps take at most `bytes`
/// together. Returns whether they do.
fn make_room(predicate_cache: &[Arc<PredicateCacheEntry>], of: &PredicateCacheEntry, bytes: usize) -> bool {
    let mut all: usize = predicate_cache.iter().map(|cache_entry| cache_entry.known.lock().bytes).sum();
    // The filter may have been removed from the list while its program runs.
    if !predicate_cache.iter().any(|cache_entry| std::ptr::eq(&**cache_entry, of)) {
        return false;
    }
    if all > bytes {
        all -= predicate_cache.iter().map(|cache_entry| cache_entry.forget_gone()).sum::<usize>();
    }
    for cache_entry in predicate_cache.iter().filter(|cache_entry| !std::ptr::eq(&***cache_entry, of)) {
        if all > bytes {
            all -= std::mem::take(&mut *cache_entry.known.lock()).bytes;
        }
    }
    all <= bytes
}

impl PredicateCacheEntry {
    /// Returns whether bitmaps should be recorded, because several programs have used the filter.
    pub fn is_wanted(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// Returns the bitmap of the rows of `group` that pass; `None` if it is not known.
    pub fn passing(&self, group: &Arc<RowGroup>) -> Option<Arc<[u64]>> {
        if !self.is_wanted() {
            return None;
        }
        self.known.lock().groups.get(&(Arc::as_ptr(group) as usize)).map(|passing| passing.bits.clone())
    }

    /// Removes the bitmaps of row groups that no table has any more. Returns the bytes that this freed.
    fn forget_gone(&self) -> usize {
        let mut known = self.known.lock();
        let before = known.bytes;
        known.groups.retain(|_, passing| passing.group.strong_count() > 0);
        known.bytes = known.groups.values().map(PassingRows::bytes).sum();
        before - known.bytes
    }
}

impl PassingRows {
    fn bytes(&self) -> usize {
        size_of_val(&*self.bits) + ENTRY_BYTES
    }
}

impl fmt::Debug for PredicateCacheEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PredicateCacheEntry").field("filter", &self.filter).finish_non_exhaustive()
    }
}
