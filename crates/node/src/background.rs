//! Low-priority threads for the background work of a node without workers, as one that runs inside a database engine's
//! process. They get a CPU only when no other thread needs it, are started when there is work, and end after being idle
//! for a while.
//!
//! A node with workers does background work on its workers and has no such threads, because a low-priority thread that
//! gets no CPU could hold the scheduler's lock and so block the workers.

#![expect(clippy::disallowed_methods, reason = "the node is where threads come from")]

use farpool_pipeline::{Attempt, Class, Scheduler};
use parking_lot::{Condvar, Mutex};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Time that an idle thread waits for more work before it ends. Reason for waiting: a load of many small row groups
/// would otherwise start a thread for each.
const LINGER: Duration = Duration::from_millis(500);

/// The low-priority background threads of one node.
pub(crate) struct BackgroundThreads {
    scheduler: Arc<Scheduler>,
    threads_max: usize,
    state: Mutex<BackgroundState>,
    called: Condvar,
}

#[derive(Default)]
struct BackgroundState {
    threads: usize,
    idle: usize,
    /// Number of calls of [`BackgroundThreads::call`] to which no thread has responded yet; at most `threads_max`.
    calls: usize,
}

impl BackgroundThreads {
    /// Creates a set of at most `threads_max` threads that do the background work of `scheduler`; none is started yet.
    pub fn new(scheduler: Arc<Scheduler>, threads_max: usize) -> Arc<Self> {
        Arc::new(BackgroundThreads {
            scheduler,
            threads_max,
            state: Mutex::default(),
            called: Condvar::new(),
        })
    }

    /// Wakes an idle thread, or starts one, because there is background work.
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
            // The system cannot start another thread, so background work is skipped until the next call.
            self.state.lock().threads -= 1;
        }
    }

    fn run(self: &Arc<Self>) {
        go_last();
        while self.is_called() {
            if self.step() {
                // Wakes or starts another thread, because there may be more work than for this one.
                self.call();
            }
            while self.step() {}
        }
    }

    /// Executes one step of background work; returns false if there is none.
    fn step(&self) -> bool {
        // A panic is a bug in one task: it must not end a thread that is counted.
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

    /// Blocks until the thread is woken; returns true. Returns false if it was not woken for [`LINGER`]; the thread is
    /// then no longer counted and must end.
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

/// Makes the calling thread run only when no other wants its core, and yield at once when one does. Niceness is not
/// enough: a nice thread may finish its time slice, and a load would wait for that again and again; with niceness 19 it
/// took up to 1.8 times as long.
#[cfg(target_os = "linux")]
fn go_last() {
    use thread_priority::unix::{
        NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
    };
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    // An error is ignored: without permission, the thread gets as much CPU time as any other.
    let _ = set_thread_priority_and_policy(thread_native_id(), thread_priority::ThreadPriority::Min, idle);
}

/// Does nothing, because this system has no such priority; the thread gets as much CPU time as any other.
#[cfg(not(target_os = "linux"))]
fn go_last() {}
