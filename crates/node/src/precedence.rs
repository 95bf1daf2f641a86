//! Who goes first on a CPU that workers share with threads which answer clients of the Redis protocol.
//!
//! Such a thread needs microseconds for a request, and often. A worker keeps a CPU for a time slice, which is
//! milliseconds; and where requests take half of a CPU, they have no claim to be answered before a worker of
//! the same weight. So the threads that answer take short slices (since Linux 6.12 one that asks for less may
//! interrupt one that asked for more), and workers weigh less once there is such a thread.
//!
//! Measured with one CPU, requests at half of what it can answer, and scans without a pause beside them: with
//! both, the 99th percentile falls from 4.6 to 1.7 ms and the median from 0.74 to 0.23 ms, and the scans
//! keep 0.47 of their speed in place of 0.6. One of the two alone changes little.

#![expect(
    unsafe_code,
    reason = "the slices and the weight of a thread are system calls that std does not offer"
)]

use std::sync::atomic::{AtomicBool, Ordering};

/// The slice of a thread that answers, in nanoseconds: what a request may take that should not be split. The
/// system allows no less.
const SLICE_NS: u64 = 100_000;
/// The niceness of workers beside threads that answer: they weigh a third.
const NICE: i32 = 5;

/// Which threads of a node let others go first.
#[derive(Debug, Default)]
pub(crate) struct Precedence {
    are_answers_first: AtomicBool,
}

impl Precedence {
    /// Called on a thread that answers clients, before it does.
    pub fn answer(&self) {
        self.are_answers_first.store(true, Ordering::Relaxed);
        system::change(|own| own.sched_runtime = SLICE_NS);
    }

    /// Whether workers should let others go first.
    pub fn are_answers_first(&self) -> bool {
        self.are_answers_first.load(Ordering::Relaxed)
    }
}

/// Has the calling thread let others go first, unless it does already.
pub(crate) fn step_back() {
    system::change(|own| own.sched_nice = own.sched_nice.max(NICE));
}

#[cfg(target_os = "linux")]
mod system {
    use std::mem;

    /// Changes what the scheduler knows of the calling thread. Where that is not permitted, or the system
    /// does not know of it, the thread competes like any other.
    pub(super) fn change(change: impl FnOnce(&mut libc::sched_attr)) {
        let size = u32::try_from(mem::size_of::<libc::sched_attr>()).unwrap_or(0);
        // SAFETY: all fields are integers, for which zeros are a value.
        let mut own: libc::sched_attr = unsafe { mem::zeroed() };
        // SAFETY: the pointer is to a live, writable structure of the given size; the call keeps no reference
        // to it.
        if unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &mut own, size, 0) } != 0 {
            return;
        }
        own.size = size;
        change(&mut own);
        // SAFETY: the pointer is to a live structure, whose size it says; the call keeps no reference to it.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &own, 0) };
    }

    #[cfg(test)]
    pub(super) fn own() -> libc::sched_attr {
        let mut copy = None;
        change(|own| copy = Some(*own));
        copy.expect("Linux tells")
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    /// What is changed, and is not on this system.
    #[derive(Default)]
    pub(super) struct Attributes {
        pub sched_runtime: u64,
        pub sched_nice: i32,
    }

    pub(super) fn change(change: impl FnOnce(&mut Attributes)) {
        change(&mut Attributes::default());
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test has threads of its own")]
    fn workers_step_back_behind_threads_that_answer() {
        let precedence = Precedence::default();
        assert!(!precedence.are_answers_first());
        let (before, answering, worker) = std::thread::scope(|scope| {
            let answering = scope.spawn(|| {
                let before = system::own();
                precedence.answer();
                (before, system::own())
            });
            let (before, answering) = answering.join().unwrap();
            let worker = scope.spawn(|| {
                step_back();
                system::own()
            });
            (before, answering, worker.join().unwrap())
        });
        assert!(precedence.are_answers_first());
        assert_eq!((answering.sched_policy, answering.sched_nice), (before.sched_policy, before.sched_nice));
        // Kernels before 6.12 know of no slices.
        assert!(answering.sched_runtime == SLICE_NS || answering.sched_runtime == before.sched_runtime);
        assert_eq!(worker.sched_nice, before.sched_nice.max(NICE));
        assert_eq!(worker.sched_policy, before.sched_policy);
    }
}
