//! Waits for memory for a profile (statistics of a table) that a client waits for. Several waits of the same profile
//! share one time limit.

use crate::admission::{PATIENCE, cannot_wait, waited};
use farpool_catalog::AwaitedProfile;
use farpool_memory::{Account, Reservation};
use farpool_model::Result;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

/// The waits for memory of one profile. Dropping this ends a wait in progress.
pub(crate) struct ProfileMemory(Arc<MemoryWait>);

struct MemoryWait {
    account: Account,
    /// The async runtime on which waits run; with `None`, waiting fails.
    runtime: Option<Handle>,
    /// Callback that tells the profile's task that a wait has ended.
    wake: Box<dyn Fn() + Send + Sync>,
    state: Mutex<MemoryWaitState>,
}

#[derive(Default)]
struct MemoryWaitState {
    /// Deadline of all waits together, set when the first begins.
    deadline: Option<Instant>,
    waits: Option<AbortHandle>,
    /// Result of a finished wait, until [`ProfileMemory::give_to`] takes it.
    outcome: Option<Result<Reservation>>,
}

impl ProfileMemory {
    /// Creates the waits of a profile for memory from `account`, to be run on `runtime`; `wake` is called when a wait
    /// has ended.
    pub fn new(account: Account, runtime: Option<Handle>, wake: Box<dyn Fn() + Send + Sync>) -> Self {
        ProfileMemory(Arc::new(MemoryWait { account, runtime, wake, state: Mutex::default() }))
    }

    /// Returns whether a wait for memory has ended whose result [`ProfileMemory::give_to`] has not passed on yet.
    pub fn has_come(&self) -> bool {
        self.0.state.lock().outcome.is_some()
    }

    /// Passes the memory of a finished wait to `profile`; does nothing if no wait has ended.
    ///
    /// # Errors
    /// `OverLimit`, with sizes in the message, when the wait timed out.
    pub fn give_to(&self, profile: &AwaitedProfile) -> Result<()> {
        let outcome = self.0.state.lock().outcome.take();
        outcome.transpose()?.into_iter().for_each(|memory| profile.give(memory));
        Ok(())
    }

    /// Starts a wait for `bytes` bytes, unless a wait is in progress. Does not block.
    pub fn wait_for(&self, bytes: usize) {
        let mut state = self.0.state.lock();
        if state.waits.is_some() || state.outcome.is_some() {
            return;
        }
        let Some(runtime) = &self.0.runtime else {
            state.outcome = Some(Err(cannot_wait()));
            drop(state);
            return (self.0.wake)();
        };
        let waited = self.0.clone();
        state.waits = Some(runtime.spawn(async move { waited.wait(bytes).await }).abort_handle());
    }
}

impl MemoryWait {
    async fn wait(&self, bytes: usize) {
        let deadline = *self.state.lock().deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
        let outcome = match timeout_at(deadline, self.account.reserve(bytes)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(waited(&self.account, bytes)),
        };
        {
            let mut state = self.state.lock();
            (state.waits, state.outcome) = (None, Some(outcome));
        }
        (self.wake)();
    }
}

impl Drop for ProfileMemory {
    fn drop(&mut self) {
        if let Some(waits) = self.0.state.lock().waits.take() {
            waits.abort();
        }
    }
}
