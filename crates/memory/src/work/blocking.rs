//! Blocking waits for memory, on a thread that has nothing else to do: that of an engine which uses a pool in
//! its own process.

use super::{Account, Reservation};
use farpool_model::Result;
use parking_lot::{Condvar, Mutex};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// A blocked thread, and whether it was woken.
#[derive(Default)]
struct Sleeper {
    is_woken: Mutex<bool>,
    woken: Condvar,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        *self.is_woken.lock() = true;
        self.woken.notify_one();
    }
}

impl Account {
    /// Reserves `bytes` as soon as they are available; blocks the calling thread until then, in the queue
    /// with other waiters, but for no longer than `patience`.
    ///
    /// # Errors
    /// `OverLimit`, with sizes, after `patience`, or at once if that many bytes can never be granted.
    pub fn reserve_blocking(&self, bytes: usize, patience: Duration) -> Result<Reservation> {
        let sleeper = Arc::new(Sleeper::default());
        let waker = Waker::from(sleeper.clone());
        let mut waiting = pin!(self.reserve(bytes));
        loop {
            if let Poll::Ready(outcome) = waiting.as_mut().poll(&mut Context::from_waker(&waker)) {
                return outcome;
            }
            let mut is_woken = sleeper.is_woken.lock();
            let slept = sleeper.woken.wait_while_for(&mut is_woken, |is_woken| !*is_woken, patience);
            *is_woken = false;
            if slept.timed_out() {
                return Err(self.refused_after(patience, bytes));
            }
        }
    }
}
