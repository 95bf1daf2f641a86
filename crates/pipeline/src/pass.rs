//! Passes: concurrent runs over the same table share reads.
//!
//! Cooperative scans (Zukowski et al., *Cooperative Scans: Dynamic Bandwidth Sharing in a DBMS*, VLDB 2007) without a
//! leader or a schedule. Runs that must read continue at the position where any of them read last, each with a row
//! group that it has not processed, and wrap around at the end of the table. Values read for one run are offered to all
//! others, which take offers first, so that each run reads about its share of what all need. Together they read no
//! further ahead than a single run would: a run that finds that much in flight waits for it, too. A run that starts
//! later joins at the current position. The row groups that a run has processed are a set, not a position: a run may
//! miss any number of offers, because it is slower or its client does not read. It reads these row groups itself,
//! later, and no other run waits for it.
//!
//! Values are held for a rider up to [`limits::READ_AHEAD_BYTES`](farpool_model::limits::READ_AHEAD_BYTES), like those
//! that it has read itself. The cache decides when values that no run holds are evicted.
//!
//! Runs that need their own order are not riders, but the values that they read are offered, too.

use crate::bound::BoundProgram;
use crate::judgement::{Judgement, Judgements};
use crate::run::Run;
use farpool_columns::{Kept, RowGroup};
use farpool_memory::Account;
use farpool_model::TableName;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// State shared by the programs of a tenant.
#[derive(Debug, Default)]
pub struct Passes {
    by_table: Mutex<HashMap<TableName, Weak<Pass>>>,
    judgements: Judgements,
}

/// State that a run shares with others.
#[derive(Debug)]
pub struct Company {
    passes: Arc<Passes>,
    /// Runs over the same table; `None` if its values are always in memory.
    pub(crate) pass: Option<Arc<Pass>>,
    /// Runs with the same filter.
    pub(crate) judgement: Option<Arc<Judgement>>,
    account: Account,
}

/// Runs that notify each other of row groups: those over one table, in whichever version.
#[derive(Default)]
pub(crate) struct Pass {
    /// Position behind the row group that was taken last.
    hand: AtomicUsize,
    riders: Mutex<Vec<Weak<Run>>>,
}

impl Passes {
    /// Returns the state that a run of `program` shares with other runs of the tenant. Memory is reserved from
    /// `account`.
    pub fn company(self: &Arc<Self>, program: &BoundProgram, account: &Account) -> Company {
        let columns = program.columns();
        let has_handles = |group: &RowGroup| columns.iter().any(|column| group.chunks[*column].is_handle());
        let may_read = program.table().row_groups.iter().any(|group| has_handles(group));
        let pass = may_read.then(|| self.over(&program.prepared().effective.table));
        let judgement = self.judgements.of(program);
        Company { passes: self.clone(), pass, judgement, account: account.clone() }
    }

    /// Returns the bytes of working memory that judgements take.
    pub fn bytes_held(&self) -> usize {
        self.judgements.bytes_held()
    }

    /// Removes judgements of row groups that no table has any more.
    pub fn forget_gone(&self) {
        self.judgements.forget_gone();
    }

    /// Returns the pass over a table, which exists while a run holds it.
    fn over(&self, table: &TableName) -> Arc<Pass> {
        let mut passes = self.by_table.lock();
        if let Some(pass) = passes.get(table).and_then(Weak::upgrade) {
            return pass;
        }
        passes.retain(|_, pass| pass.strong_count() > 0);
        let pass = Arc::new(Pass::default());
        passes.insert(table.clone(), Arc::downgrade(&pass));
        pass
    }
}

impl Company {
    /// Makes `run` receive offers of row groups that others have read or judged.
    pub(crate) fn add(&self, run: &Weak<Run>) {
        let of_filter = self.judgement.as_ref().map(|judgement| &judgement.company);
        self.pass.as_deref().into_iter().chain(of_filter).for_each(|pass| pass.add(run.clone()));
    }

    /// Returns the judgement that is being recorded, if any.
    pub(crate) fn judging(&self) -> Option<&Judgement> {
        self.judgement.as_deref().filter(|judgement| judgement.is_wanted())
    }

    /// Records which rows of `group`, at `place`, pass the filter of `run`, and notifies all other runs with that
    /// filter.
    pub(crate) fn note(&self, run: &Run, place: usize, group: &Arc<RowGroup>, bits: Arc<[u64]>) {
        let Some(judgement) = &self.judgement else { return };
        self.passes.judgements.note(judgement, group, bits, &self.account);
        judgement.company.tell(run, |other| other.offered_judged(place, group));
    }
}

impl Pass {
    /// Returns the position at which to look for the next row group.
    pub(crate) fn hand(&self) -> usize {
        self.hand.load(Ordering::Relaxed)
    }

    pub(crate) fn move_hand(&self, place: usize) {
        self.hand.store(place, Ordering::Relaxed);
    }

    /// Returns the row groups that runs other than `run` wait for, by position, with their bytes.
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

    /// Offers the row group at `place`, of which `run` has read values, to all others.
    pub(crate) fn offer(&self, run: &Run, place: usize, group: &Arc<RowGroup>, kept: Option<&Kept>) {
        self.tell(run, |rider| rider.offered(place, group, kept));
    }

    /// Calls `tell` with all riders except `run`.
    fn tell(&self, run: &Run, tell: impl Fn(&Run)) {
        // Called outside the lock, since riders may take the lock themselves.
        let riders: Vec<Arc<Run>> = self.riders.lock().iter().filter_map(Weak::upgrade).collect();
        riders.iter().filter(|rider| !std::ptr::eq(&***rider, run)).for_each(|rider| tell(rider));
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("hand", &self.hand).finish_non_exhaustive()
    }
}
