//! Threads that work in the background for a node without workers of its own, which is one in an engine's own process:
//! they run when no other thread of the machine wants the core, are started when there is something to do, and end
//! when there is nothing for a while.
//!
//! At a node with workers these do it: a thread that hardly runs is not to hold the scheduler's lock there.

#![expect(clippy::disallowed_methods, reason = "the node is where threads come from")]

use farpool_pipeline::{Attempt, Class, Scheduler};
use parking_lot::{Condvar, Mutex};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// What a thread waits for more to do, so that a load of small row groups does not start one for each.
const LINGER: Duration = Duration::from_millis(500);

/// See the file's comment.
pub(crate) struct BackgroundThreads {
    scheduler: Arc<Scheduler>,
    threads_max: usize,
    state: Mutex<State>,
    called: Condvar,
}

#[derive(Default)]
struct State {
    threads: usize,
    idle: usize,
    /// Calls that no thread has answered.
    calls: usize,
}

impl BackgroundThreads {
    /// Up to `threads_max` threads for `scheduler`.
    pub fn new(scheduler: Arc<Scheduler>, threads_max: usize) -> Arc<Self> {
        Arc::new(BackgroundThreads {
            scheduler,
            threads_max,
            state: Mutex::default(),
            called: Condvar::new(),
        })
    }

    /// There is something to do.
    pub fn call(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.calls = (state.calls + 1).min(self.threads_max);
        if state.idle > 0 || state.threads == self.threads_max {
            drop(state);
            self.called.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let threads = self.clone();
        if thread::Builder::new().name("farpool-background".to_string()).spawn(move || threads.run()).is_err()
        {
            // The system has no more threads: what nobody waits for is not done.
            self.state.lock().threads -= 1;
        }
    }

    fn run(self: &Arc<Self>) {
        go_last();
        while self.is_called() {
            if self.step() {
                // There may be enough for others, too.
                self.call();
            }
            while self.step() {}
        }
    }

    /// False when there is nothing to do.
    fn step(&self) -> bool {
        // A panic is a defect of one task: it must not cost a thread that is counted.
        let attempt = catch_unwind(AssertUnwindSafe(|| self.scheduler.try_work(Class::Background)));
        match attempt.unwrap_or(Attempt::Worked) {
            Attempt::Worked => true,
            Attempt::Idle(Some(due_ns)) => {
                let now_ns = self.scheduler.clock().now_ns();
                thread::sleep(Duration::from_nanos(due_ns.saturating_sub(now_ns)));
                true
            }
            Attempt::Idle(None) | Attempt::ShutDown => false,
        }
    }

    /// Waits for a call. False when for a while there was none, and the thread is no longer counted.
    fn is_called(&self) -> bool {
        let mut state = self.state.lock();
        if state.calls == 0 {
            state.idle += 1;
            self.called.wait_for(&mut state, LINGER);
            state.idle -= 1;
        }
        if state.calls == 0 {
            state.threads -= 1;
            return false;
        }
        state.calls -= 1;
        true
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
