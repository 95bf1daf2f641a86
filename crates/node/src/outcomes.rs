//! Outcomes of loads that have an id, for clients that lost the answer: for each tenant, the loads in progress and the
//! latest ones that have ended.
//!
//! An id is used once. A second load with the same id gets the outcome of the first, whatever that was, and so does a
//! request for the outcome. Such a request says that the load will not be continued: a load whose rows have not all
//! arrived is ended, and one that has not begun can no longer begin. Example:
//!
//! 1. A client sends load 7, and its connection breaks before the answer.
//! 2. It reconnects and asks for the outcome of load 7. The first connection's bytes are still buffered, so the load
//!    has not begun; the answer is "not loaded".
//! 3. The client sends the rows again as load 8. When the buffered load 7 is read, it must be refused, or the rows
//!    would be in the table twice.
//!
//! Invariants: an id makes at most one version, as long as it is remembered; if a load is reported as not loaded, none
//! of its rows are or will become visible. Outcomes are reserved from the tenant's memory for work and evict only
//! outcomes of the same tenant. The newest version whose load was evicted is remembered: a load that is not remembered,
//! and would have made a later version, was never received.

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

/// The outcomes of one tenant's loads.
#[derive(Default)]
pub(crate) struct Outcomes(Mutex<OutcomesState>);

#[derive(Default)]
struct OutcomesState {
    records: BTreeMap<LoadId, Arc<Record>>,
    /// Loads that have ended, the oldest first, with the time when they did.
    ended: VecDeque<(u64, LoadId)>,
    /// The newest version whose load is forgotten; 0 when none is.
    forgotten: u64,
}

/// The state and outcome of one load.
pub(crate) struct Record(Mutex<RecordState>);

struct RecordState {
    stage: LoadStage,
    held: Reservation,
}

enum LoadStage {
    UnderWay {
        /// Ends the load if its rows have not all arrived.
        end: Box<dyn Fn() + Send + Sync>,
        waiters: Vec<Waiter>,
    },
    Ended(LoadOutcome),
}

/// A callback that gets an outcome, once.
type Waiter = Box<dyn FnOnce(&LoadOutcome) + Send>;

/// Result of registering a load's id.
pub(crate) enum LoadRegistration {
    /// The id is new: the load may proceed, and reports its outcome here.
    New(OutcomeRecorder),
    /// A load with this id was begun before.
    Known(Arc<Record>),
}

/// The record of a load in progress, held by the code that carries it out. If it is dropped before an outcome was set,
/// the outcome is that nothing was loaded.
pub(crate) struct OutcomeRecorder {
    outcomes: Arc<Outcomes>,
    id: LoadId,
    record: Arc<Record>,
    now_ns: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl Outcomes {
    /// Registers a load. `end` is called, perhaps more than once, to end it while its rows have not all arrived. `held`
    /// are the [`LOAD_OUTCOME_BYTES`] of its record, if the load has reserved them before.
    ///
    /// # Errors
    /// `OverLimit` when there is no memory to remember its outcome.
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

    /// Calls `then` with the outcome of a load, once it has ended, and the newest version whose load is
    /// forgotten. A load whose rows have not all arrived is ended.
    ///
    /// # Errors
    /// `Busy` when too many wait for it; `OverLimit` when there is no memory to remember that it must not
    /// begin.
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
                    // If the load's request arrives later, it finds this record.
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

    /// Takes over the loads that a data directory remembers, as if they had just ended.
    pub fn restore(&self, loads: &Loads, account: &Account, now_ns: u64) {
        let mut state = self.0.lock();
        state.forgotten = loads.forgotten;
        for (id, made) in &loads.latest {
            // A load that finds no memory is forgotten, together with all earlier ones.
            let Ok(held) = state.reserve(account) else {
                state.forgotten = state.forgotten.max(made.version.0);
                continue;
            };
            let stage = LoadStage::Ended(LoadOutcome::Loaded(*made));
            state.records.insert(*id, Arc::new(Record(Mutex::new(RecordState { stage, held }))));
            state.ended.push_back((now_ns, *id));
        }
    }

    /// Returns the bytes of memory reserved for the outcomes.
    pub fn bytes_held(&self) -> usize {
        self.0.lock().records.values().map(|record| record.0.lock().held.bytes()).sum()
    }

    /// Drops outcomes that have been kept for long enough.
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
    /// Returns the outcome, if the load has ended.
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

    /// Calls `waiter` with the outcome, at once or when the load ends.
    ///
    /// # Errors
    /// `Busy` when too many wait.
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
        // Called outside the lock, since it may end the load and so take the lock again.
        let end = match &mut self.0.lock().stage {
            LoadStage::UnderWay { end, .. } => mem::replace(end, Box::new(|| {})),
            LoadStage::Ended(_) => return,
        };
        end();
    }

    /// Sets the outcome and calls the waiters; false if one was set before.
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

/// Returns the outcome with its texts truncated; `held` grows by their length.
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
    /// Sets the outcome of the load.
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
