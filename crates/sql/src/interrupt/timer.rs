//! A thread that wakes the futures of scopes (statements and other units of work that can be stopped) whose deadline
//! has passed. The timers of an async runtime would not do, because its worker threads drive them, and all of those may
//! be computing.

use super::Scope;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Duration of idleness after which the thread ends.
const IDLE: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Watched {
    /// The scopes by deadline, and by address, which distinguishes scopes of the same deadline.
    scopes: BTreeMap<(Instant, usize), Weak<Scope>>,
    /// The id of the process in which the thread was started; `None` without a thread. Threads do not survive a fork,
    /// so that a child process needs a new one.
    process: Option<u32>,
}

static WATCHED: Mutex<Watched> = Mutex::new(Watched { scopes: BTreeMap::new(), process: None });
static EARLIER: Condvar = Condvar::new();

/// Makes the thread wake the future that waits for `scope` at the time `at`; starts the thread if there is none.
pub(super) fn watch(at: Instant, scope: &Arc<Scope>) {
    let process = std::process::id();
    let mut watched = WATCHED.lock();
    let is_first = watched.scopes.first_key_value().is_none_or(|((first, _), _)| at < *first);
    watched.scopes.insert((at, Arc::as_ptr(scope).addr()), Arc::downgrade(scope));
    if watched.process != Some(process) {
        let started = std::thread::Builder::new().name("farpool-timer".into()).spawn(wait);
        // If the thread cannot be started, deadlines are still enforced by checks, and when futures are polled.
        watched.process = started.is_ok().then_some(process);
    } else if is_first {
        EARLIER.notify_one();
    }
}

/// Removes the scope with this deadline and address.
pub(super) fn forget(at: Instant, address: usize) {
    WATCHED.lock().scopes.remove(&(at, address));
}

fn wait() {
    let mut watched = WATCHED.lock();
    loop {
        let now = Instant::now();
        let mut due = Vec::new();
        while let Some(first) = watched.scopes.first_entry().filter(|first| first.key().0 <= now) {
            due.push(first.remove());
        }
        if !due.is_empty() {
            // The lock is released meanwhile, because dropping the last reference to a scope takes it.
            parking_lot::MutexGuard::unlocked(&mut watched, || {
                due.iter().filter_map(Weak::upgrade).for_each(|scope| scope.wake());
            });
            continue;
        }
        let first = watched.scopes.first_key_value().map(|((at, _), _)| *at);
        let timed_out = EARLIER.wait_until(&mut watched, first.unwrap_or(now + IDLE)).timed_out();
        if first.is_none() && timed_out && watched.scopes.is_empty() {
            watched.process = None;
            return;
        }
    }
}
