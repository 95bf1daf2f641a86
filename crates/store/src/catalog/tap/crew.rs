//! The threads that work on profiles when no other thread of the machine wants the core.
//!
//! Invariant: they are there only while there is something to do, and a moment longer.

use super::gathering::{Gathering, Worker};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Threads beyond which a crew does not grow: each holds a profile of every column.
const SIZE_MAX: usize = 8;

/// What a thread waits for more to do, so that a load of small row groups does not start one for each.
const LINGER: Duration = Duration::from_millis(500);

/// Linux gives a thread of this niceness one part in seventy of a core that others want too. It applies to threads
/// there; elsewhere it is of the whole process, which stays as it is.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 19;

/// See the file's comment.
#[derive(Debug)]
pub(in crate::catalog) struct Crew {
    size: usize,
    calls: Mutex<Calls>,
    called: Condvar,
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
        Arc::new(Crew { size, calls: Mutex::default(), called: Condvar::new() })
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
        // Where it is not allowed, the thread just takes its share.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::setpriority_process(None, NICENESS);
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
