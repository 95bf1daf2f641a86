//! Waits of a load for room in the pool and for the disk. Other threads wait on behalf of the load, so that no
//! thread that works on it blocks.
//!
//! The thread that works on the load takes the outcomes of its waits ([`super::Load::next_piece`]). A row group
//! that waits for room occupies one of the reading threads briefly and is then queued again after other reads. So
//! reads do not have to wait until all such row groups are placed or have given up.
//!
//! A *segment* is a file of column chunks in the data directory.

use super::background::Background;
use super::durable::RetryBudget;
use super::pieces::{PieceDone, PieceOutcome, Placement};
use farpool_model::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};

/// The waits of one load.
#[derive(Default)]
pub(super) struct LoadWaits {
    state: Mutex<LoadWaitState>,
    ended: Condvar,
}

#[derive(Default)]
struct LoadWaitState {
    /// Numbers of waits that have not ended, by reason.
    for_room: usize,
    for_disk: usize,
    /// Outcomes of ended waits that were not taken yet.
    outcomes: VecDeque<Result<PieceDone>>,
    wake: Option<Arc<dyn Fn() + Send + Sync>>,
}

/// Reason why a load waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitReason {
    /// Room in the pool for a row group.
    Room,
    /// The disk, until a segment is durable.
    Disk,
}

/// A wait that has not ended. If it is dropped, it ends with an error.
pub(super) struct LoadWait {
    waits: Weak<LoadWaits>,
    reason: WaitReason,
    outcome: Option<Result<PieceDone>>,
}

impl LoadWaits {
    /// Sets the callback that is called whenever a wait ends.
    pub fn set_wake(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.state.lock().wake = Some(wake);
    }

    /// Begins a wait.
    pub fn begin(self: &Arc<Self>, reason: WaitReason) -> LoadWait {
        *self.state.lock().count(reason) += 1;
        LoadWait { waits: Arc::downgrade(self), reason, outcome: None }
    }

    /// Takes the outcome of a wait that has ended; `None` if there is none.
    pub fn take(&self) -> Option<Result<PieceDone>> {
        self.state.lock().outcomes.pop_front()
    }

    /// Returns whether [`LoadWaits::take`] has something to return.
    pub fn have_news(&self) -> bool {
        !self.state.lock().outcomes.is_empty()
    }

    /// Returns the number of waits for `reason` that have not ended.
    pub fn under_way(&self, reason: WaitReason) -> usize {
        *self.state.lock().count(reason)
    }

    /// Returns whether a wait has not ended, or an outcome was not taken.
    pub fn are_left(&self) -> bool {
        let state = self.state.lock();
        state.for_room + state.for_disk > 0 || !state.outcomes.is_empty()
    }

    /// Blocks until a wait has ended; returns false without blocking if there is none.
    pub fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while state.outcomes.is_empty() && state.for_room + state.for_disk > 0 {
            self.ended.wait(&mut state);
        }
        !state.outcomes.is_empty()
    }
}

impl LoadWaitState {
    fn count(&mut self, reason: WaitReason) -> &mut usize {
        match reason {
            WaitReason::Room => &mut self.for_room,
            WaitReason::Disk => &mut self.for_disk,
        }
    }
}

impl fmt::Debug for LoadWaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LoadWaitState { for_room, for_disk, .. } = &*self.state.lock();
        f.debug_struct("LoadWaits")
            .field("for_room", for_room)
            .field("for_disk", for_disk)
            .finish_non_exhaustive()
    }
}

impl LoadWait {
    /// Returns whether the load still exists.
    pub fn is_wanted(&self) -> bool {
        self.waits.strong_count() > 0
    }

    /// Returns whether the load waits for a segment to become durable, after which chunks of the load can be evicted
    /// from the pool.
    pub fn frees_memory(&self) -> bool {
        self.waits.upgrade().is_some_and(|waits| waits.under_way(WaitReason::Disk) > 0)
    }

    /// Ends the wait.
    pub fn end(mut self, outcome: Result<PieceDone>) {
        self.outcome = Some(outcome);
    }
}

/// A row group that waits for room in the pool.
pub(super) struct WaitingGroup {
    pub placement: Placement,
    pub wait: LoadWait,
    pub background: Arc<dyn Background>,
    pub retries: RetryBudget,
}

impl WaitingGroup {
    /// Tries again after a delay to place the row group, until there is room, the load was dropped, or the number of
    /// retries is exhausted.
    pub fn go_on(mut self) {
        self.retries.count_wait();
        let background = self.background.clone();
        background.read_later(Box::new(move || self.try_again()));
    }

    fn try_again(self) {
        if !self.wait.is_wanted() {
            return;
        }
        match self.placement.run() {
            Ok(PieceDone(PieceOutcome::Crowded(_, error)))
                if !self.wait.frees_memory() && !self.retries.is_left() =>
            {
                self.wait.end(Err(error));
            }
            Ok(PieceDone(PieceOutcome::Crowded(placement, _))) => WaitingGroup { placement, ..self }.go_on(),
            outcome => self.wait.end(outcome),
        }
    }
}

impl Drop for LoadWait {
    fn drop(&mut self) {
        let Some(waits) = self.waits.upgrade() else { return };
        let outcome = self.outcome.take();
        let outcome = outcome.unwrap_or_else(|| Err(Error::internal("a defect stopped a part of a load")));
        let wake = {
            let mut state = waits.state.lock();
            *state.count(self.reason) -= 1;
            state.outcomes.push_back(outcome);
            state.wake.clone()
        };
        waits.ended.notify_all();
        // Called outside the lock, since the callback may take other locks.
        if let Some(wake) = wake {
            wake();
        }
    }
}
