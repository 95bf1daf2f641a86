//! Errands: waits for room in the pool and for the disk, done by other threads for a load.
//!
//! The thread that works on the load takes the outcomes ([`super::Load::next_piece`]). A row group that waits for room
//! occupies one of the reading threads briefly and then queues again behind other reads, so that reads never wait until
//! all such row groups are placed or have given up.

use super::background::Background;
use super::durable::Patience;
use super::pieces::{PieceDone, PieceOutcome, Placement};
use farpool_model::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};

/// The errands of one load.
#[derive(Default)]
pub(super) struct Errands {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// Numbers of those under way.
    for_room: usize,
    for_disk: usize,
    /// Outcomes of ended errands, until they are taken.
    outcomes: VecDeque<Result<PieceDone>>,
    wake: Option<Arc<dyn Fn() + Send + Sync>>,
}

/// Event that an errand waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Room in the pool.
    Room,
    /// The disk: a segment is made durable.
    Disk,
}

/// An errand on its way. It fails where it is dropped before it has ended.
pub(super) struct Errand {
    errands: Weak<Errands>,
    purpose: Purpose,
    outcome: Option<Result<PieceDone>>,
}

impl Errands {
    /// Has `wake` called whenever an errand ends.
    pub fn set_wake(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.state.lock().wake = Some(wake);
    }

    /// Begins an errand.
    pub fn begin(self: &Arc<Self>, purpose: Purpose) -> Errand {
        *self.state.lock().count(purpose) += 1;
        Errand { errands: Arc::downgrade(self), purpose, outcome: None }
    }

    /// Takes the outcome of one that has ended.
    pub fn take(&self) -> Option<Result<PieceDone>> {
        self.state.lock().outcomes.pop_front()
    }

    /// Returns whether [`Errands::take`] has something to return.
    pub fn have_news(&self) -> bool {
        !self.state.lock().outcomes.is_empty()
    }

    /// Returns the number of errands for `purpose` that have not ended.
    pub fn under_way(&self, purpose: Purpose) -> usize {
        *self.state.lock().count(purpose)
    }

    /// Returns whether any has not ended, or its outcome was not taken.
    pub fn are_left(&self) -> bool {
        let state = self.state.lock();
        state.for_room + state.for_disk > 0 || !state.outcomes.is_empty()
    }

    /// Waits until one has ended; returns false where none is under way.
    pub fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while state.outcomes.is_empty() && state.for_room + state.for_disk > 0 {
            self.ended.wait(&mut state);
        }
        !state.outcomes.is_empty()
    }
}

impl State {
    fn count(&mut self, purpose: Purpose) -> &mut usize {
        match purpose {
            Purpose::Room => &mut self.for_room,
            Purpose::Disk => &mut self.for_disk,
        }
    }
}

impl fmt::Debug for Errands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { for_room, for_disk, .. } = &*self.state.lock();
        f.debug_struct("Errands")
            .field("for_room", for_room)
            .field("for_disk", for_disk)
            .finish_non_exhaustive()
    }
}

impl Errand {
    /// Returns whether the load still exists.
    pub fn is_wanted(&self) -> bool {
        self.errands.strong_count() > 0
    }

    /// Returns whether something that the load waits for is about to free memory of the pool.
    pub fn frees_memory(&self) -> bool {
        self.errands.upgrade().is_some_and(|errands| errands.under_way(Purpose::Disk) > 0)
    }

    /// Ends the errand.
    pub fn end(mut self, outcome: Result<PieceDone>) {
        self.outcome = Some(outcome);
    }
}

/// A row group that waits for room in the pool.
pub(super) struct Waiting {
    pub placement: Placement,
    pub errand: Errand,
    pub background: Arc<dyn Background>,
    pub patience: Patience,
}

impl Waiting {
    /// Retries placing the row group after a delay, until there is room, the load was dropped, or the retries are
    /// exhausted.
    pub fn go_on(mut self) {
        self.patience.count_wait();
        let background = self.background.clone();
        background.read_later(Box::new(move || self.try_again()));
    }

    fn try_again(self) {
        if !self.errand.is_wanted() {
            return;
        }
        match self.placement.run() {
            Ok(PieceDone(PieceOutcome::Crowded(_, error)))
                if !self.errand.frees_memory() && !self.patience.is_left() =>
            {
                self.errand.end(Err(error));
            }
            Ok(PieceDone(PieceOutcome::Crowded(placement, _))) => Waiting { placement, ..self }.go_on(),
            outcome => self.errand.end(outcome),
        }
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        let Some(errands) = self.errands.upgrade() else { return };
        let outcome = self.outcome.take();
        let outcome = outcome.unwrap_or_else(|| Err(Error::internal("a defect stopped a part of a load")));
        let wake = {
            let mut state = errands.state.lock();
            *state.count(self.purpose) -= 1;
            state.outcomes.push_back(outcome);
            state.wake.clone()
        };
        errands.ended.notify_all();
        // Called outside the lock, since the callback may take other locks.
        if let Some(wake) = wake {
            wake();
        }
    }
}
