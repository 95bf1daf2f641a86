//! Blocking waits for work memory (memory that a process uses outside its pool), for threads that have nothing else
//! to do: those of an engine that uses a pool in its own process.

use super::{Account, Reservation};
use farpool_model::Result;
use parking_lot::{Condvar, Mutex};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Waker of a blocked thread: whether the thread was woken.
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
    /// Waits in the queue until `bytes` are available, and reserves them. Blocks the calling thread, at most for
    /// `patience`.
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
