//! Memory that a profile lacks and somebody waits for: in line with others, for a bounded time in all, however often
//! the profile lacks some.

use crate::admission::{PATIENCE, cannot_wait, waited};
use farpool_memory::{Account, Reservation};
use farpool_model::Result;
use farpool_store::AwaitedProfile;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

/// See the file's comment. Dropped, nobody waits any more.
pub(crate) struct ProfileMemory(Arc<Waited>);

struct Waited {
    account: Account,
    /// What waits; where there is none, nobody can.
    runtime: Option<Handle>,
    /// Called when something has come of waiting.
    wake: Box<dyn Fn() + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Until when it may wait, once it has.
    deadline: Option<Instant>,
    waits: Option<AbortHandle>,
    /// What has come of it.
    outcome: Option<Result<Reservation>>,
}

impl ProfileMemory {
    /// Memory from `account`, for which `runtime` waits.
    pub fn new(account: Account, runtime: Option<Handle>, wake: Box<dyn Fn() + Send + Sync>) -> Self {
        ProfileMemory(Arc::new(Waited { account, runtime, wake, state: Mutex::default() }))
    }

    /// Whether [`ProfileMemory::give_to`] has something to say.
    pub fn has_come(&self) -> bool {
        self.0.state.lock().outcome.is_some()
    }

    /// Gives `profile` what has come of waiting.
    ///
    /// # Errors
    /// `OverLimit`, with sizes, when it was in vain.
    pub fn give_to(&self, profile: &AwaitedProfile) -> Result<()> {
        let outcome = self.0.state.lock().outcome.take();
        outcome.transpose()?.into_iter().for_each(|memory| profile.give(memory));
        Ok(())
    }

    /// Waits for so many bytes, unless it does already.
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

impl Waited {
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
