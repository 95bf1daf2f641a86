//! The outcomes of loads that have an id, for clients that lost the answer because the connection broke. Keeps, for
//! each tenant, the loads in progress and the latest loads that have ended.
//!
//! An id is used for one load (idempotency key). A second load with the same id is not executed and gets the outcome of
//! the first, and so does a request for the outcome. A request for the outcome also says that the client will not
//! continue the load: a load whose rows have not all arrived is ended, and a load that has not begun can no longer
//! begin. Example:
//!
//! 1. A client sends load 7, and its connection breaks before the answer.
//! 2. It reconnects and asks for the outcome of load 7. The bytes from the first connection are still buffered, so load
//!    7 has not begun; the answer is "not loaded".
//! 3. The client sends the rows again as load 8. When load 7 is read from the buffer, it must be refused; otherwise the
//!    rows would be in the table twice.
//!
//! Invariants: as long as an id is remembered, it makes at most one version of its table. If a load is reported as not
//! loaded, none of its rows is or becomes visible. The memory for outcomes is part of the tenant's memory for work, and
//! old outcomes are dropped only for newer ones of the same tenant. The newest version whose load was dropped is
//! remembered, so that a client can tell: a load that is not remembered, and would have made a later version, was never
//! received.

use farpool_catalog::Loads;
use farpool_memory::{Account, Reservation};
use farpool_model::limits::{
    LOAD_OUTCOME_BYTES, LOAD_OUTCOME_MS, LOAD_OUTCOME_TEXT_BYTES_MAX, LOAD_OUTCOME_WAITERS_MAX,
    LOAD_OUTCOMES_MAX, RETRY_AFTER_MS,
};
use farpool_model::{Error, LoadId, LoadOutcome, Result, Version};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;

/// The outcomes of one tenant's loads, by id.
#[derive(Default)]
pub(crate) struct Outcomes(Mutex<OutcomesState>);

#[derive(Default)]
struct OutcomesState {
    records: BTreeMap<LoadId, Arc<Record>>,
    /// Loads that have ended, the oldest first, with the time of their end in nanoseconds of the node's clock.
    ended: VecDeque<(u64, LoadId)>,
    /// The newest table version made by a load whose outcome was dropped; 0 if no outcome was dropped.
    forgotten: u64,
}

/// The state of one load: in progress, or ended with an outcome.
pub(crate) struct Record(Mutex<RecordState>);

struct RecordState {
    stage: LoadStage,
    held: Reservation,
}

enum LoadStage {
    UnderWay {
        /// Callback that ends the load if its rows have not all arrived.
        end: Box<dyn Fn() + Send + Sync>,
        waiters: Vec<Waiter>,
    },
    Ended(LoadOutcome),
}

/// A callback that is called once, with the outcome of a load.
type Waiter = Box<dyn FnOnce(&LoadOutcome) + Send>;

/// Result of registering the id of a load.
pub(crate) enum LoadRegistration {
    /// The id is new: the load may proceed, and reports its outcome to the recorder.
    New(OutcomeRecorder),
    /// A load with this id was registered before; this is its record.
    Known(Arc<Record>),
}

/// The handle with which the code that executes a load reports its outcome. If it is dropped before an outcome was set,
/// the outcome is [`LoadOutcome::NotLoaded`].
pub(crate) struct OutcomeRecorder {
    outcomes: Arc<Outcomes>,
    id: LoadId,
    record: Arc<Record>,
    now_ns: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl Outcomes {
    /// Registers a load, or returns the record of an earlier load with the same id. `end` must end the load if its rows
    /// have not all arrived; it is called when a client asks for the outcome, perhaps more than once. `held` is the
    /// reservation of [`LOAD_OUTCOME_BYTES`] for the record; with `None`, they are reserved from `account`.
    ///
    /// # Errors
    /// `OverLimit` when there is no memory to remember the outcome.
    pub fn begin(
        self: &Arc<Self>,
        id: LoadId,
        (account, held): (&Account, Option<Reservation>),
        now_ns: impl Fn() -> u64 + Send + Sync + 'static,
        end: Box<dyn Fn() + Send + Sync>,
    ) -> Result<LoadRegistration> {
        let mut state = self.0.lock();
        state.forget_old(now_ns());
        if let Some(record) = state.records.get(&id) {
            return Ok(LoadRegistration::Known(record.clone()));
        }
        let held = held.map_or_else(|| state.reserve(account), Ok)?;
        let stage = LoadStage::UnderWay { end, waiters: Vec::new() };
        let record = Arc::new(Record(Mutex::new(RecordState { stage, held })));
        state.records.insert(id, record.clone());
        Ok(LoadRegistration::New(OutcomeRecorder {
            outcomes: self.clone(),
            id,
            record,
            now_ns: Box::new(now_ns),
        }))
    }

    /// Calls `then` with the outcome of a load and the newest version whose load's outcome was dropped; at once if the
    /// load has ended, otherwise at its end. Does not block. Ends a load whose rows have not all arrived, and prevents
    /// an unknown load from beginning.
    ///
    /// # Errors
    /// `Busy` when too many requests wait for this outcome; `OverLimit` when there is no memory to remember that the
    /// load must not begin.
    pub fn ask(
        &self,
        id: LoadId,
        account: &Account,
        now_ns: u64,
        then: impl FnOnce(LoadOutcome, Version) + Send + 'static,
    ) -> Result<()> {
        let (record, forgotten) = {
            let mut state = self.0.lock();
            state.forget_old(now_ns);
            let record = match state.records.get(&id) {
                Some(record) => record.clone(),
                None => {
                    // If the request to load arrives later, it finds this record and is refused.
                    let (held, stage) = (state.reserve(account)?, LoadStage::Ended(LoadOutcome::NotLoaded));
                    let record = Arc::new(Record(Mutex::new(RecordState { stage, held })));
                    state.records.insert(id, record.clone());
                    state.ended.push_back((now_ns, id));
                    record
                }
            };
            (record, Version(state.forgotten))
        };
        record.wait(Box::new(move |outcome| then(outcome.clone(), forgotten)))?;
        record.end();
        Ok(())
    }

    /// Adds the outcomes of loads that a data directory has recorded, as if the loads had just ended. Called at the
    /// start of the node.
    pub fn restore(&self, loads: &Loads, account: &Account, now_ns: u64) {
        let mut state = self.0.lock();
        state.forgotten = loads.forgotten;
        for (id, made) in &loads.latest {
            // Without memory for the outcome of a load, this outcome counts as dropped, with all earlier versions.
            let Ok(held) = state.reserve(account) else {
                state.forgotten = state.forgotten.max(made.version.0);
                continue;
            };
            let stage = LoadStage::Ended(LoadOutcome::Loaded(*made));
            state.records.insert(*id, Arc::new(Record(Mutex::new(RecordState { stage, held }))));
            state.ended.push_back((now_ns, *id));
        }
    }

    /// Returns the bytes of memory that are reserved for the outcomes.
    pub fn bytes_held(&self) -> usize {
        self.0.lock().records.values().map(|record| record.0.lock().held.bytes()).sum()
    }

    /// Drops outcomes of loads that ended more than [`LOAD_OUTCOME_MS`] ago, and the oldest beyond
    /// [`LOAD_OUTCOMES_MAX`].
    pub fn forget_old(&self, now_ns: u64) {
        self.0.lock().forget_old(now_ns);
    }

    fn ended(&self, id: LoadId, now_ns: u64) {
        let mut state = self.0.lock();
        state.ended.push_back((now_ns, id));
        state.forget_old(now_ns);
    }
}

impl OutcomesState {
    fn reserve(&mut self, account: &Account) -> Result<Reservation> {
        loop {
            match account.try_reserve(LOAD_OUTCOME_BYTES) {
                Err(_) if !self.ended.is_empty() => self.forget_oldest(),
                outcome => return outcome,
            }
        }
    }

    fn forget_old(&mut self, now_ns: u64) {
        let is_over = |ended_ns: u64| now_ns.saturating_sub(ended_ns) > LOAD_OUTCOME_MS * 1_000_000;
        while self.ended.len() > LOAD_OUTCOMES_MAX
            || self.ended.front().is_some_and(|(ended_ns, _)| is_over(*ended_ns))
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let oldest = self.ended.pop_front().and_then(|(_, id)| self.records.remove(&id));
        if let Some(LoadOutcome::Loaded(made)) = oldest.and_then(|record| record.outcome()) {
            self.forgotten = self.forgotten.max(made.version.0);
        }
    }
}

impl Record {
    /// Returns the outcome; `None` if the load has not ended.
    pub fn outcome(&self) -> Option<LoadOutcome> {
        match &self.0.lock().stage {
            LoadStage::Ended(outcome) => Some(outcome.clone()),
            LoadStage::UnderWay { .. } => None,
        }
    }

    /// Returns whether the load has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.0.lock().stage, LoadStage::Ended(_))
    }

    /// Calls `waiter` with the outcome: at once if the load has ended, otherwise at its end. Does not block.
    ///
    /// # Errors
    /// `Busy` when [`LOAD_OUTCOME_WAITERS_MAX`] callbacks wait already.
    pub fn wait(&self, waiter: Waiter) -> Result<()> {
        let outcome = match &mut self.0.lock().stage {
            LoadStage::UnderWay { waiters, .. } if waiters.len() >= LOAD_OUTCOME_WAITERS_MAX => {
                let message =
                    format!("{LOAD_OUTCOME_WAITERS_MAX} requests wait for the outcome of this load");
                return Err(Error::busy(message, *RETRY_AFTER_MS.start()));
            }
            LoadStage::UnderWay { waiters, .. } => {
                waiters.push(waiter);
                return Ok(());
            }
            LoadStage::Ended(outcome) => outcome.clone(),
        };
        waiter(&outcome);
        Ok(())
    }

    fn end(&self) {
        // Called after the lock is released, because `end` may end the load, which takes the lock again.
        let end = match &mut self.0.lock().stage {
            LoadStage::UnderWay { end, .. } => mem::replace(end, Box::new(|| {})),
            LoadStage::Ended(_) => return,
        };
        end();
    }

    /// Sets the outcome and calls the waiting callbacks with it; returns false, with nothing changed, if an outcome was
    /// set before.
    fn settle(&self, outcome: LoadOutcome) -> bool {
        let (outcome, waiters) = {
            let mut state = self.0.lock();
            if matches!(state.stage, LoadStage::Ended(_)) {
                return false;
            }
            let outcome = shortened(outcome, &mut state.held);
            let waiters = match mem::replace(&mut state.stage, LoadStage::Ended(outcome.clone())) {
                LoadStage::UnderWay { waiters, .. } => waiters,
                LoadStage::Ended(_) => Vec::new(),
            };
            (outcome, waiters)
        };
        waiters.into_iter().for_each(|waiter| waiter(&outcome));
        true
    }
}

/// Returns the outcome with the error's message and advice truncated, and adds their length to the reservation `held`.
fn shortened(outcome: LoadOutcome, held: &mut Reservation) -> LoadOutcome {
    let LoadOutcome::Failed(error) = outcome else { return outcome };
    let short = |text: &str| text[..text.floor_char_boundary(LOAD_OUTCOME_TEXT_BYTES_MAX)].to_string();
    let (message, advice) = (short(&error.message), error.advice.as_deref().map(short));
    let bytes = message.len() + advice.as_ref().map_or(0, String::len);
    LoadOutcome::Failed(match held.try_grow(bytes) {
        Ok(()) => Error { message, advice, ..error },
        Err(_) => Error::new(error.kind, "the load has failed; there was no memory to remember why"),
    })
}

impl OutcomeRecorder {
    /// Sets the outcome of the load, and calls the callbacks that wait for it.
    pub fn settle(&self, outcome: LoadOutcome) {
        if self.record.settle(outcome) {
            self.outcomes.ended(self.id, (self.now_ns)());
        }
    }
}

impl Drop for OutcomeRecorder {
    fn drop(&mut self) {
        self.settle(LoadOutcome::NotLoaded);
    }
}

#[cfg(test)]
mod tests;
