//! Judgements: which rows pass a filter, reused by other programs with the same filter.
//!
//! The statements of a dashboard often share a filter and differ in what they compute. Once a second program has a
//! filter that was seen recently, the programs with that filter record for each row group which rows pass, one bit for
//! each row, and programs that process the row group later do not evaluate the filter again. Row groups are immutable,
//! so that a judgement holds for all versions of the table that have the row group (Schmidt et al., *Predicate
//! Caching*, SIGMOD 2024, cache ranges of rows in this way).
//!
//! Example: row group A is judged by program 1. A change replaces A by B, and program 2 reads the new version. It finds
//! no judgement of B, since judgements are keyed by row group and hold a weak reference, and evaluates the filter.
//!
//! Programs that run at the same time begin with different row groups, and each notifies the others of its judgements,
//! so that no two of them judge the same row group.
//!
//! Tables that are encrypted in memory have no judgements, since the bits would reveal their values. Neither have live
//! tables, whose row groups are generated for each run.

use crate::bound::BoundProgram;
use crate::pass::Pass;
use farpool_columns::RowGroup;
use farpool_memory::{Account, Reservation};
use farpool_model::{Expr, TableName, limits, program};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Bytes of a judgement in addition to its bits.
const ENTRY_BYTES: usize = 128;

/// Filters of a tenant's programs that were seen recently, latest last.
#[derive(Debug, Default)]
pub(crate) struct Judgements(Mutex<Vec<Arc<Judgement>>>);

/// Judgements of one filter.
pub(crate) struct Judgement {
    table: TableName,
    filter: Expr,
    /// True if several programs have the filter.
    is_shared: AtomicBool,
    known: Mutex<Known>,
    /// Runs with this filter at present.
    pub company: Pass,
}

#[derive(Default)]
struct Known {
    /// Keyed by the address of the row group.
    groups: HashMap<usize, Passing>,
    bytes: usize,
}

/// Rows of a row group that pass.
struct Passing {
    /// Keeps the address from being reused for another row group.
    group: Weak<RowGroup>,
    bits: Arc<[u64]>,
    _reservation: Reservation,
}

impl Judgements {
    /// Returns the judgement of a program's filter; `None` if the filter is not worth it or must not be recorded.
    pub fn of(&self, program: &BoundProgram) -> Option<Arc<Judgement>> {
        let (prepared, table) = (program.prepared(), program.table());
        let filter = prepared.effective.filter.as_ref()?;
        if program.is_narrowed() || table.cipher().is_some() || table.live_rows().is_some() {
            return None;
        }
        // Comparing a long filter with others is expensive.
        program::check_size([filter]).ok().filter(|bytes| *bytes <= limits::JUDGED_FILTER_BYTES_MAX)?;
        let name = &prepared.effective.table;
        let mut judgements = self.0.lock();
        let same = judgements.iter().position(|known| known.table == *name && known.filter == *filter);
        if let Some(place) = same {
            // The list is ordered by last use.
            let judgement = judgements.remove(place);
            judgement.is_shared.store(true, Ordering::Relaxed);
            judgements.push(judgement.clone());
            return Some(judgement);
        }
        let judgement = Arc::new(Judgement {
            table: name.clone(),
            filter: filter.clone(),
            is_shared: AtomicBool::new(false),
            known: Mutex::default(),
            company: Pass::default(),
        });
        judgements.push(judgement.clone());
        let oldest = (judgements.len() > limits::JUDGED_FILTERS_MAX).then(|| judgements.remove(0));
        drop(judgements);
        drop(oldest);
        Some(judgement)
    }

    /// Returns the bytes reserved for judgements.
    pub fn bytes_held(&self) -> usize {
        self.0.lock().iter().map(|judgement| judgement.known.lock().bytes).sum()
    }

    /// Removes judgements of row groups that no table has any more.
    pub fn forget_gone(&self) {
        self.0.lock().iter().for_each(|judgement| _ = judgement.forget_gone());
    }

    /// Records which rows of `group` pass, if there is memory for that, if necessary after removing the judgements used
    /// longest ago.
    pub fn note(&self, judgement: &Judgement, group: &Arc<RowGroup>, bits: Arc<[u64]>, account: &Account) {
        let bytes = size_of_val(&*bits) + ENTRY_BYTES;
        let most = limits::JUDGED_BYTES_MAX.min(account.memory().limit() / limits::JUDGED_PART);
        // The lock is held throughout, so that concurrent calls observe the limit together.
        let judgements = self.0.lock();
        if !make_room(&judgements, judgement, most.saturating_sub(bytes)) {
            return;
        }
        let Ok(reservation) = account.try_reserve(bytes) else { return };
        let passing = Passing { group: Arc::downgrade(group), bits, _reservation: reservation };
        let mut known = judgement.known.lock();
        let before = known.groups.insert(Arc::as_ptr(group) as usize, passing);
        known.bytes += bytes;
        known.bytes -= before.as_ref().map_or(0, Passing::bytes);
    }
}

/// Removes the judgements of filters other than `of`, least recently used first, until all take at most `bytes`.
/// Returns whether they do.
fn make_room(judgements: &[Arc<Judgement>], of: &Judgement, bytes: usize) -> bool {
    let mut all: usize = judgements.iter().map(|judgement| judgement.known.lock().bytes).sum();
    // The filter may have left the list while its program runs.
    if !judgements.iter().any(|judgement| std::ptr::eq(&**judgement, of)) {
        return false;
    }
    if all > bytes {
        all -= judgements.iter().map(|judgement| judgement.forget_gone()).sum::<usize>();
    }
    for judgement in judgements.iter().filter(|judgement| !std::ptr::eq(&***judgement, of)) {
        if all > bytes {
            all -= std::mem::take(&mut *judgement.known.lock()).bytes;
        }
    }
    all <= bytes
}

impl Judgement {
    /// Returns true if judgements must be recorded.
    pub fn is_wanted(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// Returns the rows of `group` that pass, if known.
    pub fn passing(&self, group: &Arc<RowGroup>) -> Option<Arc<[u64]>> {
        if !self.is_wanted() {
            return None;
        }
        self.known.lock().groups.get(&(Arc::as_ptr(group) as usize)).map(|passing| passing.bits.clone())
    }

    /// Removes judgements of row groups that no table has any more. Returns the freed bytes.
    fn forget_gone(&self) -> usize {
        let mut known = self.known.lock();
        let before = known.bytes;
        known.groups.retain(|_, passing| passing.group.strong_count() > 0);
        known.bytes = known.groups.values().map(Passing::bytes).sum();
        before - known.bytes
    }
}

impl Passing {
    fn bytes(&self) -> usize {
        size_of_val(&*self.bits) + ENTRY_BYTES
    }
}

impl fmt::Debug for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judgement").field("filter", &self.filter).finish_non_exhaustive()
    }
}
