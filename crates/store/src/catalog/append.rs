//! Appends to one table stand in line, and whoever comes first makes a version of all that wait (group commit, as in
//! DeWitt et al., *Implementation Techniques for Main Memory Database Systems*, SIGMOD 1984): appends that come while a
//! version is being made become the next one together. Nobody waits for others to come.
//!
//! Rows of small appends are not encoded before that, and then as one row group. Each append is told of the version
//! only when its rows are visible. One that does not fit the table fails alone; where there is no memory for all, each
//! is tried alone.
//!
//! Who changes the table in another way may hold the line meanwhile ([`Line::hold`]).
//!
//! Invariants: the rows of an append stay together and in their order; a line has one leader at a time, and one that
//! panics fails those that it had taken.

use super::load::{check_agree, check_nulls};
use super::{Catalog, Current};
use arrow_schema::SchemaRef;
use farpool_columns::{PlainGroup, RowGroup, TableBuilder};
use farpool_memory::Reservation;
use farpool_model::{Error, Result, TableInfo, TableName, TenantName, limits};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The appends to one table that wait.
#[derive(Debug, Default)]
pub(super) struct Line {
    state: Mutex<LineState>,
    /// Signals threads that wait that there may be an outcome, or a version to make.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LineState {
    waiting: VecDeque<Arc<Entry>>,
    has_leader: bool,
    /// Changes that are to come before the next appends.
    holding: usize,
}

/// An append in line.
struct Entry {
    rows: Rows,
    /// For what they take outside the pool.
    _outside: Option<Reservation>,
    /// Until it is told.
    outcome: Mutex<Option<Result<TableInfo>>>,
    /// Whether there is an outcome, or was.
    is_settled: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// The rows of an append.
pub(super) struct Rows {
    pub schema: SchemaRef,
    /// Encoded already, for they are many.
    pub groups: Vec<Arc<RowGroup>>,
    /// Those that are not: all of them, or none.
    pub small: Option<PlainGroup>,
}

/// An append whose rows are all there, and are visible once it has a version. Dropped before that, it may become
/// visible or not.
#[derive(Debug)]
pub struct Append {
    catalog: Arc<Catalog>,
    tenant: TenantName,
    name: TableName,
    line: Arc<Line>,
    entry: Arc<Entry>,
}

impl Append {
    /// Puts rows in line for the table of this name. `wake` is called when [`Append::try_commit`] may have more to say.
    ///
    /// # Errors
    /// `NotFound` when the table was dropped.
    pub(super) fn stand_in_line(
        catalog: Arc<Catalog>,
        tenant: TenantName,
        name: TableName,
        rows: Rows,
        outside: Option<Reservation>,
        wake: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Append> {
        let line = catalog.current(&tenant, &name)?.line;
        let entry = Arc::new(Entry {
            rows,
            _outside: outside,
            outcome: Mutex::default(),
            is_settled: AtomicBool::new(false),
            wake,
        });
        line.state.lock().waiting.push_back(entry.clone());
        Ok(Append { catalog, tenant, name, line, entry })
    }

    /// Whether [`Append::try_commit`] would do something, or has an outcome.
    pub fn has_step(&self) -> bool {
        !self.line.state.lock().is_busy() || self.entry.outcome.lock().is_some()
    }

    /// Has the rows not become visible, if nobody has begun to make a version of them; whether that is so.
    pub fn leave(&self) -> bool {
        let mut state = self.line.state.lock();
        let count = state.waiting.len();
        state.waiting.retain(|entry| !Arc::ptr_eq(entry, &self.entry));
        let has_left = state.waiting.len() < count;
        drop(state);
        if has_left {
            // The next one may have waited for this one to lead.
            self.line.call_next();
        }
        has_left
    }

    /// Whether nobody has begun to make a version of the rows.
    pub fn is_waiting(&self) -> bool {
        self.line.state.lock().waiting.iter().any(|entry| Arc::ptr_eq(entry, &self.entry))
    }

    /// Makes a version of all appends that wait, unless somebody else is at it. The outcome of this one, which is told
    /// once; `None` as long as others are at it.
    ///
    /// # Errors
    /// `NotFound` or `Invalid` when the table was dropped or got other columns meanwhile; `OverLimit` when memory is
    /// short. Nothing of the append is visible then.
    pub fn try_commit(&self) -> Option<Result<TableInfo>> {
        let taken = {
            let mut state = self.line.state.lock();
            if let Some(outcome) = self.entry.outcome.lock().take() {
                return Some(outcome);
            }
            if state.is_busy() {
                return None;
            }
            state.take()
        };
        self.lead(&taken);
        self.entry.outcome.lock().take()
    }

    /// Commits, and blocks the thread until the appends before this one have committed.
    ///
    /// # Errors
    /// As [`Append::try_commit`].
    pub fn commit(self) -> Result<TableInfo> {
        loop {
            if let Some(outcome) = self.try_commit() {
                return outcome;
            }
            let mut state = self.line.state.lock();
            if state.is_busy() && self.entry.outcome.lock().is_none() {
                self.line.changed.wait(&mut state);
            }
        }
    }

    fn lead(&self, taken: &[Arc<Entry>]) {
        let _lead = Lead { line: &self.line, taken };
        self.commit_all(&taken.iter().map(|entry| &**entry).collect::<Vec<_>>());
    }

    /// Gives each of these its outcome.
    fn commit_all(&self, entries: &[&Entry]) {
        match self.publish(entries) {
            Ok(()) => {}
            // It may be the rows of one of them only that cannot be encoded, or that there is no memory for.
            Err(_) if entries.len() > 1 => entries.iter().for_each(|entry| self.commit_all(&[entry])),
            Err(error) => entries.iter().for_each(|entry| entry.settle(Err(error.clone()))),
        }
    }

    /// Puts the rows of these behind those of the newest version, as often as another change is faster. Those that do
    /// not fit it have their outcome then, and so have the others, if there is no error.
    fn publish(&self, entries: &[&Entry]) -> Result<()> {
        let mut fitting: Vec<&Entry> = entries.iter().filter(|entry| !entry.is_settled()).copied().collect();
        loop {
            let current = self.catalog.current(&self.tenant, &self.name)?;
            fitting.retain(|entry| match entry.rows.check(&self.name, &current) {
                Ok(()) => true,
                Err(error) => {
                    entry.settle(Err(error));
                    false
                }
            });
            if fitting.is_empty() {
                return Ok(());
            }
            current.merges.help(&current);
            if let Some(info) = self.publish_behind(&current, &fitting)? {
                fitting.iter().for_each(|entry| entry.settle(Ok(info.clone())));
                return Ok(());
            }
        }
    }

    /// Publishes the rows behind `current`; `None` if that is not the newest version any more.
    fn publish_behind(&self, current: &Current, entries: &[&Entry]) -> Result<Option<TableInfo>> {
        let pool = self.catalog.pool().clone();
        let mut builder = TableBuilder::append_to(pool, &current.table, self.tenant.clone(), None)?;
        let mut small = Vec::new();
        for entry in entries {
            small.extend(&entry.rows.small);
            if entry.rows.small.is_none() {
                add_small(&mut builder, &mut small)?;
                entry.rows.groups.iter().try_for_each(|group| builder.add_row_group(group.clone()))?;
            }
        }
        add_small(&mut builder, &mut small)?;
        let table = self.catalog.holding(&self.tenant, builder.finish()?)?;
        Ok(self.catalog.put_behind(&self.tenant, &self.name, current, table))
    }
}

/// Encodes the rows of small appends as one row group.
fn add_small(builder: &mut TableBuilder, small: &mut Vec<&PlainGroup>) -> Result<()> {
    if small.is_empty() {
        return Ok(());
    }
    let group = PlainGroup::join(small);
    small.clear();
    let group = builder.encoder().encode(&group)?;
    builder.add_row_group(Arc::new(group))
}

impl Line {
    /// Has appends wait, once those are done that somebody is at, until the guard is dropped: so that a change of the table
    /// which takes longer than an append does not find a newer version each time.
    pub fn hold(&self) -> Lead<'_> {
        let mut state = self.state.lock();
        state.holding += 1;
        while state.has_leader {
            self.changed.wait(&mut state);
        }
        state.holding -= 1;
        state.has_leader = true;
        Lead { line: self, taken: &[] }
    }

    /// Has the first one in line lead, if nobody does.
    fn call_next(&self) {
        let next = {
            let state = self.state.lock();
            state.waiting.front().filter(|_| !state.is_busy()).cloned()
        };
        self.changed.notify_all();
        if let Some(entry) = next {
            (entry.wake)();
        }
    }
}

impl LineState {
    /// Whether those in line have to wait for somebody.
    fn is_busy(&self) -> bool {
        self.has_leader || self.holding > 0
    }

    /// Those that become a version together, oldest first: one at least, if any waits, and of small ones no more than are
    /// encoded in about a millisecond. Their taker leads.
    fn take(&mut self) -> Vec<Arc<Entry>> {
        self.has_leader = true;
        let (mut rows, mut bytes, mut count) = (0, 0, 0);
        for small in self.waiting.iter().map(|entry| &entry.rows.small) {
            rows += small.as_ref().map_or(0, PlainGroup::rows);
            bytes += small.as_ref().map_or(0, PlainGroup::bytes_held);
            let fits = rows <= limits::BATCH_ROWS && bytes <= limits::SMALL_APPEND_BYTES;
            if !fits && count > 0 {
                break;
            }
            count += 1;
        }
        self.waiting.drain(..count).collect()
    }
}

/// Whoever makes a version of what was taken out of the line, or of something else.
pub(super) struct Lead<'a> {
    line: &'a Line,
    taken: &'a [Arc<Entry>],
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        for entry in self.taken {
            // All have their outcome, unless a defect has stopped this.
            entry.settle(Err(Error::internal("a defect stopped an append")));
        }
        self.line.state.lock().has_leader = false;
        self.taken.iter().for_each(|entry| (entry.wake)());
        self.line.call_next();
    }
}

impl Entry {
    fn settle(&self, outcome: Result<TableInfo>) {
        let mut told = self.outcome.lock();
        if !self.is_settled.swap(true, Ordering::Relaxed) {
            *told = Some(outcome);
        }
    }

    fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Relaxed)
    }
}

impl Rows {
    /// Whether they fit the table.
    fn check(&self, name: &TableName, current: &Current) -> Result<()> {
        check_agree(name, &current.table.schema, &self.schema)?;
        check_nulls(name, &current.table.schema, |column| {
            let encoded = self.groups.iter().any(|group| group.chunks[column].null_count() > 0);
            encoded || self.small.as_ref().is_some_and(|small| small.has_nulls(column))
        })
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

impl Drop for Append {
    fn drop(&mut self) {
        // Whoever has taken it makes it visible all the same.
        if !self.leave() {
            self.line.call_next();
        }
    }
}
