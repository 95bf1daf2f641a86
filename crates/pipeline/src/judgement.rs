//! Which rows pass a filter, known from another program with the same one.
//!
//! The statements of a dashboard often differ in what they compute and not in their filter. Once a second program comes with
//! a filter that was seen lately, the programs that have it note for each row group which rows pass, a bit for each row, and
//! whoever comes to the row group later does not evaluate the filter again. Row groups never change, so what is known of one
//! stays true for all versions of its table that have it (Schmidt et al., *Predicate Caching*, SIGMOD 2024, keep ranges of
//! rows in this way).
//!
//! Programs that run at the same time begin with different row groups, and each tells the others what it has found out, so
//! that nobody judges what another is judging at that moment.
//!
//! Nothing is noted of tables that are encrypted in memory, since the bits would tell of their values, and of live ones,
//! whose row groups are made anew.

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

/// Bytes that a row group takes beside its bits.
const ENTRY_BYTES: usize = 128;

/// The filters of a tenant's programs that were seen lately, the latest last.
#[derive(Debug, Default)]
pub(crate) struct Judgements(Mutex<Vec<Arc<Judgement>>>);

/// What is known of one filter.
pub(crate) struct Judgement {
    table: TableName,
    filter: Expr,
    /// Whether several programs have it.
    is_shared: AtomicBool,
    known: Mutex<Known>,
    /// The programs that have it now.
    pub company: Pass,
}

#[derive(Default)]
struct Known {
    /// By the address of the row group.
    groups: HashMap<usize, Passing>,
    bytes: usize,
}

/// The rows of a row group that pass.
struct Passing {
    /// Keeps the address from being that of another row group.
    group: Weak<RowGroup>,
    bits: Arc<[u64]>,
    _reservation: Reservation,
}

impl Judgements {
    /// The judgement of a program's filter; `None` for a program whose filter is not worth it or may not be known.
    pub fn of(&self, program: &BoundProgram) -> Option<Arc<Judgement>> {
        let (prepared, table) = (program.prepared(), program.table());
        let filter = prepared.effective.filter.as_ref()?;
        if program.is_narrowed() || table.cipher().is_some() || table.live_rows().is_some() {
            return None;
        }
        // Comparing long ones with others takes its time.
        program::check_size([filter]).ok().filter(|bytes| *bytes <= limits::JUDGED_FILTER_BYTES_MAX)?;
        let name = &prepared.effective.table;
        let mut judgements = self.0.lock();
        let same = judgements.iter().position(|known| known.table == *name && known.filter == *filter);
        if let Some(place) = same {
            // The latest is last.
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

    /// Bytes that are reserved for what is known.
    pub fn bytes_held(&self) -> usize {
        self.0.lock().iter().map(|judgement| judgement.known.lock().bytes).sum()
    }

    /// Forgets row groups that no table has any more.
    pub fn forget_gone(&self) {
        self.0.lock().iter().for_each(|judgement| _ = judgement.forget_gone());
    }

    /// Notes which rows of `group` pass, as far as the memory for that has room or others that were not used lately make it.
    pub fn note(&self, judgement: &Judgement, group: &Arc<RowGroup>, bits: Arc<[u64]>, account: &Account) {
        let bytes = size_of_val(&*bits) + ENTRY_BYTES;
        let most = limits::JUDGED_BYTES_MAX.min(account.memory().limit() / limits::JUDGED_PART);
        // One at a time, so that all keep to it together.
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

/// Forgets what is known of filters other than `of`, those first that were seen longest ago, until all take at most `bytes`.
/// Returns whether they do.
fn make_room(judgements: &[Arc<Judgement>], of: &Judgement, bytes: usize) -> bool {
    let mut all: usize = judgements.iter().map(|judgement| judgement.known.lock().bytes).sum();
    // One that has left the list while its program runs.
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
    /// Whether it is to be noted which rows of row groups pass.
    pub fn is_wanted(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// Which rows of `group` pass, if that is known.
    pub fn passing(&self, group: &Arc<RowGroup>) -> Option<Arc<[u64]>> {
        if !self.is_wanted() {
            return None;
        }
        self.known.lock().groups.get(&(Arc::as_ptr(group) as usize)).map(|passing| passing.bits.clone())
    }

    /// Forgets row groups that no table has any more. Returns their bytes.
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
