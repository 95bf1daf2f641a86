//! Group commit of the appends to one table (as in DeWitt et al., *Implementation Techniques for Main Memory Database
//! Systems*, SIGMOD 1984). Appends are queued, and the first of them (the leader) creates one version with the rows of
//! all that are queued. Appends that arrive in the meantime form the next version together. An append never waits for
//! others to arrive.
//!
//! Rows of small appends are encoded only when their version is created, and then as one row group. An append reports
//! its version only when its rows are visible, which means durable in a catalog with a log. An append that does not fit
//! the table fails alone; if there is not enough memory for all, each is tried alone.
//!
//! Other changes of the table can block the queue ([`AppendQueue::hold`]).
//!
//! Invariants: the rows of an append stay together and in their order; a queue has one leader at a time, and a leader
//! that panics fails the appends that it had taken.

use super::changes::{Change, ChangeKind, Splice};
use super::durable::fits_key;
use super::load::{check_agree, check_nulls};
use super::{Catalog, Commit, Current};
use arrow_schema::SchemaRef;
use farpool_columns::{Encoder, PlainGroup, RowGroup};
use farpool_memory::Reservation;
use farpool_model::{Error, ErrorKind, LoadId, Result, TableInfo, TableName, TenantName, limits};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The queue of appends to one table.
#[derive(Debug, Default)]
pub(super) struct AppendQueue {
    state: Mutex<AppendQueueState>,
    /// Notified when an append may have its outcome, or when a version can be created.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct AppendQueueState {
    waiting: VecDeque<Arc<QueuedAppend>>,
    has_leader: bool,
    /// Number of other changes of the table that wait for the leader to finish. They take precedence over the next
    /// appends.
    holding: usize,
}

/// An append in the queue.
struct QueuedAppend {
    rows: Rows,
    /// Reservation of the working memory (outside the pool) that the rows take.
    _outside: Option<Reservation>,
    /// The outcome; taken by [`Append::try_commit`].
    outcome: Mutex<Option<Result<TableInfo>>>,
    /// Whether the outcome was set. Stays true after the outcome was taken.
    is_settled: AtomicBool,
    /// Sequence number of the log record of the version that has the append; empty until the version is created.
    recorded: OnceLock<u64>,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// The rows of an append.
pub(super) struct Rows {
    pub schema: SchemaRef,
    /// Encoded row groups; empty for a small append.
    pub groups: Vec<Arc<RowGroup>>,
    /// The unencoded rows of a small append; `None` for other appends.
    pub small: Option<PlainGroup>,
    /// The id of the load; `None` if the client gave none.
    pub load: Option<LoadId>,
}

/// An append whose rows are complete and queued, to become visible with the table's next version. If it is dropped
/// before the outcome is known, the rows may or may not become visible.
#[derive(Debug)]
pub struct Append {
    catalog: Arc<Catalog>,
    tenant: TenantName,
    name: TableName,
    queue: Arc<AppendQueue>,
    entry: Arc<QueuedAppend>,
}

impl Append {
    /// Adds rows to the queue of the table `name`. `wake` is called when [`Append::try_commit`] may return an outcome
    /// or has work to do.
    ///
    /// # Errors
    /// `NotFound` if the table was dropped.
    pub(super) fn stand_in_line(
        catalog: Arc<Catalog>,
        tenant: TenantName,
        name: TableName,
        rows: Rows,
        outside: Option<Reservation>,
        wake: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Append> {
        let queue = catalog.newest(&tenant, &name)?.append_queue;
        let entry = Arc::new(QueuedAppend {
            rows,
            _outside: outside,
            outcome: Mutex::default(),
            is_settled: AtomicBool::new(false),
            recorded: OnceLock::new(),
            wake,
        });
        queue.state.lock().waiting.push_back(entry.clone());
        Ok(Append { catalog, tenant, name, queue, entry })
    }

    /// Returns whether [`Append::try_commit`] would do something: create a version, or return the outcome.
    pub fn has_step(&self) -> bool {
        let may_lead = self.entry.recorded.get().is_none() && !self.queue.state.lock().is_busy();
        may_lead || self.entry.outcome.lock().is_some()
    }

    /// Removes the append from the queue, unless a leader has taken it. Returns whether it was removed.
    pub fn leave(&self) -> bool {
        let mut state = self.queue.state.lock();
        let count = state.waiting.len();
        state.waiting.retain(|entry| !Arc::ptr_eq(entry, &self.entry));
        let has_left = state.waiting.len() < count;
        drop(state);
        if has_left {
            // The append that is now the first in the queue may have been waiting for this one to lead.
            self.queue.call_next();
        }
        has_left
    }

    /// Returns whether the append is still in the queue, which means that no leader has taken it.
    pub fn is_waiting(&self) -> bool {
        self.queue.state.lock().waiting.iter().any(|entry| Arc::ptr_eq(entry, &self.entry))
    }

    /// Creates a version with the rows of all queued appends, unless another thread is creating one. Returns the
    /// outcome of this append, only once; `None` if there is none yet. Does not wait for the disk.
    ///
    /// # Errors
    /// `NotFound` or `Invalid` if the table was dropped or got other columns in the meantime; `OverLimit` if memory is
    /// short. None of the append's rows is visible then.
    pub fn try_commit(&self) -> Option<Result<TableInfo>> {
        let taken = {
            let mut state = self.queue.state.lock();
            if let Some(outcome) = self.entry.outcome.lock().take() {
                return Some(outcome);
            }
            if state.is_busy() || self.entry.recorded.get().is_some() {
                return None;
            }
            state.take()
        };
        self.leader(&taken);
        self.entry.outcome.lock().take()
    }

    /// Commits the append, and blocks until the appends before this one have committed and its own rows are visible.
    ///
    /// # Errors
    /// As [`Append::try_commit`].
    pub fn commit(self) -> Result<TableInfo> {
        loop {
            if let Some(outcome) = self.try_commit() {
                return outcome;
            }
            if let Some(number) = self.entry.recorded.get() {
                // The outcome is set before `commit` returns.
                self.catalog.commit(*number)?;
                continue;
            }
            let mut state = self.queue.state.lock();
            let is_open = || self.entry.recorded.get().is_none() && self.entry.outcome.lock().is_none();
            if state.is_busy() && is_open() {
                self.queue.changed.wait(&mut state);
            }
        }
    }

    fn leader(&self, taken: &[Arc<QueuedAppend>]) {
        let _lead = AppendLeader { queue: &self.queue, taken };
        self.commit_all(taken);
    }

    /// Commits `entries` as one version, or one by one if that fails, and sets the outcome of each.
    fn commit_all(&self, entries: &[Arc<QueuedAppend>]) {
        match self.publish(entries) {
            Ok(()) => {}
            // If committing all entries together failed, perhaps the rows of only one entry cannot be encoded or find
            // no memory.
            Err(_) if entries.len() > 1 => {
                entries.iter().for_each(|entry| self.commit_all(std::slice::from_ref(entry)))
            }
            Err(error) => entries.iter().for_each(|entry| entry.settle(Err(error.clone()))),
        }
    }

    /// Appends the rows of `entries` to the newest version, and tries again if another change has swapped the table
    /// first. Sets the outcome of entries that do not fit the table and, unless an error is returned, of all others.
    fn publish(&self, entries: &[Arc<QueuedAppend>]) -> Result<()> {
        let mut fitting: Vec<_> = entries.iter().filter(|entry| !entry.is_settled()).cloned().collect();
        loop {
            let current = self.catalog.newest(&self.tenant, &self.name)?;
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
            if let Some(made) = self.publish_behind(&current, &fitting)? {
                self.settle(made, fitting);
                return Ok(());
            }
        }
    }

    /// Sets the outcome of `entries`, which became part of one version, when that version is durable.
    fn settle(&self, made: Commit<TableInfo>, entries: Vec<Arc<QueuedAppend>>) {
        if let Some(number) = made.number() {
            for entry in &entries {
                // The record number is set only once, because an entry becomes part of one version only.
                let _ = entry.recorded.set(number);
            }
        }
        let is_recorded = made.number().is_some();
        let queue = self.queue.clone();
        made.then(move |durable| {
            for entry in &entries {
                entry.settle(durable.clone());
            }
            // If the version was not recorded, the leader wakes the waiting entries.
            if is_recorded {
                entries.iter().for_each(|entry| (entry.wake)());
                queue.changed.notify_all();
            }
        });
    }

    /// Publishes a version with the rows appended to `current`, the newest state. Returns `None` if the table was
    /// swapped since `current` was read.
    fn publish_behind(
        &self,
        current: &Current,
        entries: &[Arc<QueuedAppend>],
    ) -> Result<Option<Commit<TableInfo>>> {
        let pool = self.catalog.pool().clone();
        let encoder = Encoder::new(pool, self.tenant.clone(), current.table.schema.clone());
        let encoder = encoder.encrypting(current.table.cipher());
        let (mut small, mut groups) = (Vec::new(), Vec::new());
        for entry in entries {
            small.extend(&entry.rows.small);
            if entry.rows.small.is_none() {
                groups.extend(encode_small(&encoder, &mut small)?);
                groups.extend(entry.rows.groups.iter().cloned());
            }
        }
        groups.extend(encode_small(&encoder, &mut small)?);
        let splices = vec![Splice { first_row: current.table.rows, rows: 0, groups }];
        let kind = ChangeKind::Rows { name: self.name.clone(), splices };
        let loads = entries.iter().filter_map(|entry| entry.rows.load).collect();
        let change = Change { loads, ..Change::new(&self.tenant, kind) };
        let planned = self.catalog.plan(change, Some(current), None)?;
        self.catalog.make(planned, |_| Ok(true))?.map(Commit::announced).transpose()
    }
}

/// Encodes the rows of small appends as one row group, if there are any, and clears `small`.
fn encode_small(encoder: &Encoder, small: &mut Vec<&PlainGroup>) -> Result<Option<Arc<RowGroup>>> {
    if small.is_empty() {
        return Ok(None);
    }
    let group = PlainGroup::join(small);
    small.clear();
    encoder.encode(&group).map(|group| Some(Arc::new(group)))
}

impl AppendQueue {
    /// Blocks until the current leader has finished, and then keeps appends from being committed until the guard is
    /// dropped. Otherwise a change that takes longer than an append would find a newer version each time it is ready.
    pub fn hold(&self) -> AppendLeader<'_> {
        let mut state = self.state.lock();
        state.holding += 1;
        while state.has_leader {
            self.changed.wait(&mut state);
        }
        state.holding -= 1;
        state.has_leader = true;
        AppendLeader { queue: self, taken: &[] }
    }

    /// Notifies the first append in the queue that it can become the leader, if there is no leader.
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

impl AppendQueueState {
    /// Returns whether appends must wait, because there is a leader or another change waits to become it.
    fn is_busy(&self) -> bool {
        self.has_leader || self.holding > 0
    }

    /// Takes the appends that become one version, oldest first: at least one if there is one, and no more small ones
    /// than can be encoded in about a millisecond. The caller becomes the leader.
    fn take(&mut self) -> Vec<Arc<QueuedAppend>> {
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

/// Leadership of a queue, which ends on drop. The holder publishes the appends in `taken`, or another change of the
/// table.
pub(super) struct AppendLeader<'a> {
    queue: &'a AppendQueue,
    taken: &'a [Arc<QueuedAppend>],
}

impl Drop for AppendLeader<'_> {
    fn drop(&mut self) {
        for entry in self.taken {
            // All entries have their outcome, or get it when their version is durable, unless the leader panicked.
            if entry.recorded.get().is_none() {
                entry.settle(Err(Error::internal("a defect stopped an append")));
            }
        }
        self.queue.state.lock().has_leader = false;
        self.taken.iter().for_each(|entry| (entry.wake)());
        self.queue.call_next();
    }
}

impl QueuedAppend {
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
    /// Checks that the rows fit the table's columns and their nullability.
    fn check(&self, name: &TableName, current: &Current) -> Result<()> {
        check_agree(name, &current.table.schema, &self.schema)?;
        let mut chunks = self.groups.iter().flat_map(|group| &group.chunks);
        if current.table.cipher().is_some() && !chunks.all(|chunk| chunk.is_encrypted()) {
            let message =
                format!("table {:?} has become an encrypted one since the load began", name.as_str());
            return Err(Error::new(ErrorKind::Stale, message).advise("load the rows again"));
        }
        let mut chunks = self.groups.iter().flat_map(|group| &group.chunks);
        if !chunks.all(|chunk| fits_key(chunk, current.key.as_ref())) {
            let message = format!(
                "table {:?} was replaced since the load began, and its rows were written under the old one's key",
                name.as_str()
            );
            return Err(Error::new(ErrorKind::Stale, message).advise("load the rows again"));
        }
        check_nulls(name, &current.table.schema, |column| {
            let encoded = self.groups.iter().any(|group| group.chunks[column].null_count() > 0);
            encoded || self.small.as_ref().is_some_and(|small| small.has_nulls(column))
        })
    }
}

impl fmt::Debug for QueuedAppend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuedAppend").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

impl Drop for Append {
    fn drop(&mut self) {
        // If a leader has taken the append already, its rows become visible although it is dropped.
        if !self.leave() {
            self.queue.call_next();
        }
    }
}
