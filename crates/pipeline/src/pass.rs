//! Passes: runs over the same table at the same time share what is read of it.
//!
//! Cooperative scans (Zukowski et al., *Cooperative Scans: Dynamic Bandwidth Sharing in a DBMS*, VLDB 2007) without a leader
//! and without a plan. Runs that have to read go on where any of them asked last, each with a row group that it has not
//! seen, and wrap around at the end of the table. What is read for one of them is offered to all others, which take it
//! before anything else, so that each reads about its part of what all need. Together they read no more ahead than one would by itself: whoever finds
//! that much on its way waits for that, too. Who comes later joins where they are. What a
//! run has seen is a set and not a position: it may miss any number of offers, because it is slower, or its client does not
//! read; it then reads these row groups itself, later, and nobody waits for it.
//!
//! Values are kept for a rider up to [`limits::READ_AHEAD_BYTES`](farpool_model::limits::READ_AHEAD_BYTES), as those that it
//! has read itself. What nobody keeps leaves memory as the cache decides.
//!
//! Runs that need their own order are not riders, but what they read is offered, too.

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

/// What the programs of a tenant share.
#[derive(Debug, Default)]
pub struct Passes {
    by_table: Mutex<HashMap<TableName, Weak<Pass>>>,
    judgements: Judgements,
}

/// What a run shares with others.
#[derive(Debug)]
pub struct Company {
    passes: Arc<Passes>,
    /// Those over the same table, where it may have to be read.
    pub(crate) pass: Option<Arc<Pass>>,
    /// Those with the same filter.
    pub(crate) judgement: Option<Arc<Judgement>>,
    account: Account,
}

/// Runs that tell each other of row groups: those over one table, whichever versions of it they read.
#[derive(Default)]
pub(crate) struct Pass {
    /// The position behind the row group that was taken last.
    hand: AtomicUsize,
    riders: Mutex<Vec<Weak<Run>>>,
}

impl Passes {
    /// What a run of `program` shares with others of the same tenant, whose memory is reserved from `account`.
    pub fn company(self: &Arc<Self>, program: &BoundProgram, account: &Account) -> Company {
        let columns = program.columns();
        let has_handles = |group: &RowGroup| columns.iter().any(|column| group.chunks[*column].is_handle());
        let may_read = program.table().row_groups.iter().any(|group| has_handles(group));
        let pass = may_read.then(|| self.over(&program.prepared().effective.table));
        let judgement = self.judgements.of(program);
        Company { passes: self.clone(), pass, judgement, account: account.clone() }
    }

    /// Bytes of the memory for work that is taken by which rows pass filters.
    pub fn bytes_held(&self) -> usize {
        self.judgements.bytes_held()
    }

    /// Forgets which rows pass of row groups that no table has any more.
    pub fn forget_gone(&self) {
        self.judgements.forget_gone();
    }

    /// The pass over a table, which exists as long as somebody has it.
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
    /// Has `run` hear of the row groups that others have read or judged.
    pub(crate) fn add(&self, run: &Weak<Run>) {
        let of_filter = self.judgement.as_ref().map(|judgement| &judgement.company);
        self.pass.as_deref().into_iter().chain(of_filter).for_each(|pass| pass.add(run.clone()));
    }

    /// What is judged together now, if anything is.
    pub(crate) fn judging(&self) -> Option<&Judgement> {
        self.judgement.as_deref().filter(|judgement| judgement.is_wanted())
    }

    /// Notes which rows of `group`, at `place`, pass the filter of `run`, and tells all others that have it.
    pub(crate) fn note(&self, run: &Run, place: usize, group: &Arc<RowGroup>, bits: Arc<[u64]>) {
        let Some(judgement) = &self.judgement else { return };
        self.passes.judgements.note(judgement, group, bits, &self.account);
        judgement.company.tell(run, |other| other.offered_judged(place, group));
    }
}

impl Pass {
    /// The position from which the next row group is taken.
    pub(crate) fn hand(&self) -> usize {
        self.hand.load(Ordering::Relaxed)
    }

    pub(crate) fn move_hand(&self, place: usize) {
        self.hand.store(place, Ordering::Relaxed);
    }

    /// The row groups that others than `run` wait for, by their positions, with their bytes.
    pub(crate) fn awaited(&self, run: &Run) -> BTreeMap<usize, usize> {
        let awaited = Mutex::new(BTreeMap::new());
        self.tell(run, |rider| rider.add_awaited(&mut awaited.lock()));
        awaited.into_inner()
    }

    /// Has `run` get what others read.
    pub(crate) fn add(&self, run: Weak<Run>) {
        let mut riders = self.riders.lock();
        riders.retain(|rider| rider.strong_count() > 0);
        riders.push(run);
    }

    /// Offers the row group at `place`, of which `run` has read values, to all others.
    pub(crate) fn offer(&self, run: &Run, place: usize, group: &Arc<RowGroup>, kept: Option<&Kept>) {
        self.tell(run, |rider| rider.offered(place, group, kept));
    }

    /// Calls `tell` with all but `run`.
    fn tell(&self, run: &Run, tell: impl Fn(&Run)) {
        // Outside of the lock, since riders are called.
        let riders: Vec<Arc<Run>> = self.riders.lock().iter().filter_map(Weak::upgrade).collect();
        riders.iter().filter(|rider| !std::ptr::eq(&***rider, run)).for_each(|rider| tell(rider));
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("hand", &self.hand).finish_non_exhaustive()
    }
}
