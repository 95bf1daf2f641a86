//! The threads that work on profiles when no other thread of the machine wants the core, and no rows come in.
//!
//! No other threads of the core outlive the call that starts them. Invariant: these are there only while there is
//! something to do, and a moment longer.

use super::gathering::{Gathering, Worker};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Threads beyond which a crew does not grow: each holds a profile of every column.
const SIZE_MAX: usize = 8;

/// What a thread waits for more to do, so that a load of small row groups does not start one for each.
const LINGER: Duration = Duration::from_millis(500);

/// How long nothing works on profiles after rows have come in: longer than a load waits for more, unless its source
/// is slow. Even on a core of their own the threads would slow a load down, by a third on two cores, because they use
/// the same memory and caches.
const REST: Duration = Duration::from_millis(20);

/// Rests before one row group is looked at all the same: where rows always come in from somewhere, profiles are made
/// too, a row group a second.
const RESTS_MAX: usize = 50;

/// See the file's comment.
#[derive(Debug)]
pub(in crate::catalog) struct Crew {
    size: usize,
    /// Calls that take rows in.
    arriving: AtomicUsize,
    /// How many such calls have ended, and after which of these nothing had come for a while.
    arrivals: AtomicU64,
    quiet_at: AtomicU64,
    calls: Mutex<Calls>,
    called: Condvar,
}

/// Rows that are taken in at the moment.
#[derive(Debug)]
pub(in crate::catalog) struct Arrival(Arc<Crew>);

impl Drop for Arrival {
    fn drop(&mut self) {
        self.0.arrivals.fetch_add(1, Ordering::Relaxed);
        self.0.arriving.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct Calls {
    /// In the order in which they came; there may be nothing left to do.
    waiting: VecDeque<Arc<Gathering>>,
    threads: usize,
    threads_idle: usize,
}

impl Crew {
    /// One thread for each core, up to eight.
    pub fn new() -> Arc<Crew> {
        let size = thread::available_parallelism().map_or(1, usize::from).min(SIZE_MAX);
        Arc::new(Crew {
            size,
            arriving: AtomicUsize::new(0),
            arrivals: AtomicU64::new(0),
            quiet_at: AtomicU64::new(0),
            calls: Mutex::default(),
            called: Condvar::new(),
        })
    }

    /// Has the threads rest until the guard is gone, and for a while after: rows come in.
    pub fn make_way(self: &Arc<Self>) -> Arrival {
        self.arriving.fetch_add(1, Ordering::Relaxed);
        Arrival(self.clone())
    }

    /// Returns once no rows have come in for a while, or when that takes long.
    pub(super) fn rest(&self) {
        let is_quiet = || self.arriving.load(Ordering::Relaxed) == 0;
        let mut before = self.arrivals.load(Ordering::Relaxed);
        for _ in 0..RESTS_MAX {
            if is_quiet() && self.quiet_at.load(Ordering::Relaxed) == before {
                return;
            }
            thread::sleep(REST);
            let now = self.arrivals.load(Ordering::Relaxed);
            if is_quiet() && now == before {
                self.quiet_at.store(now, Ordering::Relaxed);
            }
            before = now;
        }
    }

    /// How many threads may work on one profile.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Has a thread do what `gathering` has to do.
    pub(super) fn call(self: &Arc<Self>, gathering: Arc<Gathering>) {
        let mut calls = self.calls.lock();
        calls.waiting.push_back(gathering);
        if calls.waiting.len() <= calls.threads_idle || calls.threads == self.size {
            drop(calls);
            self.called.notify_one();
            return;
        }
        calls.threads += 1;
        drop(calls);
        let crew = self.clone();
        if thread::Builder::new().name("profile".to_string()).spawn(move || crew.work()).is_err() {
            // The system has no more threads: whoever waits for the profile makes it.
            self.calls.lock().threads -= 1;
        }
    }

    fn work(&self) {
        go_last();
        while let Some(gathering) = self.next() {
            gathering.work(Worker::Crew);
        }
    }

    /// Whose turn it is; `None` when for a while there was nobody, and the thread is no longer counted.
    fn next(&self) -> Option<Arc<Gathering>> {
        let mut calls = self.calls.lock();
        loop {
            if let Some(gathering) = calls.waiting.pop_front() {
                return Some(gathering);
            }
            calls.threads_idle += 1;
            let timeout = self.called.wait_for(&mut calls, LINGER);
            calls.threads_idle -= 1;
            if timeout.timed_out() && calls.waiting.is_empty() {
                calls.threads -= 1;
                return None;
            }
        }
    }
}

/// Has the calling thread run where no other wants the core, and stop at once when one does. A thread that is only
/// nicer than others is let finish its slice first, for which a load waits again and again: with niceness 19 it took
/// up to 1.8 times as long.
#[cfg(target_os = "linux")]
fn go_last() {
    use thread_priority::unix::{
        NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
    };
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    // Where it is not allowed, the thread takes its share.
    let _ = set_thread_priority_and_policy(thread_native_id(), thread_priority::ThreadPriority::Min, idle);
}

/// Elsewhere the thread takes its share.
#[cfg(not(target_os = "linux"))]
fn go_last() {}
