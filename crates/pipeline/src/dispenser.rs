//! Assigns the numbers of independent tasks to any number of threads, each task exactly once, and reports to exactly
//! one thread that the last task is complete.
//!
//! Invariant: the count of completed tasks reaches the total exactly once, however many threads claim, complete
//! and close. Tasks that were not claimed before a thread closed the dispenser are completed by that thread.
//!
//! Example, with 5 tasks:
//! 1. Thread A claims task 0, and thread B task 1.
//! 2. A closes the dispenser and gets the tasks 2 to 4. B closes it, too, and gets none; otherwise both would complete
//!    2 to 4.
//! 3. A completes 1 + 3 tasks. B completes 1, the fifth, and is told that it was the last.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Assigns task numbers and counts completed tasks.
#[derive(Debug)]
pub(crate) struct Dispenser {
    total: usize,
    next: AtomicUsize,
    completed: AtomicUsize,
}

impl Dispenser {
    /// Creates a dispenser of the tasks `0..total`.
    pub(crate) fn new(total: usize) -> Self {
        Dispenser { total, next: AtomicUsize::new(0), completed: AtomicUsize::new(0) }
    }

    /// Assigns the next task, in ascending order; `None` if all are assigned. Does not block.
    pub(crate) fn claim(&self) -> Option<usize> {
        // The check with a plain load keeps idle threads that poll from incrementing `next` without end.
        if self.next.load(Ordering::Relaxed) >= self.total {
            return None;
        }
        let task = self.next.fetch_add(1, Ordering::Relaxed);
        (task < self.total).then_some(task)
    }

    /// Records that `count` assigned or closed tasks are complete. Returns true for exactly one call, the one that
    /// completes the last task. The caller then sees all that other threads wrote before their calls.
    pub(crate) fn complete(&self, count: usize) -> bool {
        if count == 0 {
            return false;
        }
        let completed = self.completed.fetch_add(count, Ordering::AcqRel) + count;
        assert!(
            completed <= self.total,
            "{completed} of {} tasks are complete: one was counted twice",
            self.total
        );
        completed == self.total
    }

    /// Stops assigning tasks. Returns those that were not claimed; the caller must complete them without executing
    /// them.
    pub(crate) fn close(&self) -> Range<usize> {
        let closed = self.next.swap(self.total, Ordering::Relaxed).min(self.total)..self.total;
        debug_assert!(self.claim().is_none(), "a closed dispenser hands out nothing");
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test has threads of its own")]
    fn every_task_goes_to_exactly_one_thread_and_one_thread_is_last() {
        let tasks = 10_000;
        let dispenser = Dispenser::new(tasks);
        let seen: Vec<AtomicU32> = (0..tasks).map(|_| AtomicU32::new(0)).collect();
        let last = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (dispenser, seen, last) = (&dispenser, &seen, &last);
                scope.spawn(move || {
                    while let Some(task) = dispenser.claim() {
                        seen[task].fetch_add(1, Ordering::Relaxed);
                        last.fetch_add(u32::from(dispenser.complete(1)), Ordering::Relaxed);
                        if thread == 0 && task > tasks / 2 {
                            let closed = dispenser.close();
                            closed.clone().for_each(|task| {
                                seen[task].fetch_add(1, Ordering::Relaxed);
                            });
                            last.fetch_add(u32::from(dispenser.complete(closed.len())), Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 1));
        assert_eq!(last.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn closing_twice_gives_nothing_the_second_time() {
        let dispenser = Dispenser::new(5);
        assert_eq!(dispenser.claim(), Some(0));
        assert_eq!(dispenser.close(), 1..5);
        assert!(dispenser.close().is_empty());
        assert_eq!(dispenser.claim(), None);
        assert!(!dispenser.complete(4));
        assert!(dispenser.complete(1));
    }
}
