//! Keeps the node's workers from sharing a CPU while another is idle.
//!
//! When a program starts, one thread wakes all workers. In virtual machines, where an idle CPU may look as if another
//! guest uses it, Linux tends to leave all workers on the CPU of the waking thread, and a program of a few milliseconds
//! is over before the load balancer runs. So a worker that finds another worker on its CPU moves to a CPU without
//! workers. It is not bound to that CPU, because other processes may need it.
//!
//! Invariant: moving a thread does not change the set of CPUs that it may run on (its affinity).

#![expect(unsafe_code, reason = "the CPUs of a thread are system calls that std does not offer")]

use std::sync::atomic::{AtomicUsize, Ordering};

/// Value in place of a CPU for a worker that waits and occupies no CPU.
const NOWHERE: usize = usize::MAX;

/// The CPU that each worker occupies, by index of the worker.
#[derive(Debug)]
pub(crate) struct CpuPlacement {
    taken: Box<[AtomicUsize]>,
}

impl CpuPlacement {
    /// Creates the placement of `workers` workers, all of which wait.
    pub(crate) fn new(workers: usize) -> Self {
        CpuPlacement { taken: (0..workers).map(|_| AtomicUsize::new(NOWHERE)).collect() }
    }

    /// Returns the number of workers.
    pub(crate) fn count(&self) -> usize {
        self.taken.len()
    }

    /// Notes that a worker, the calling thread, begins to work; may move the thread to another CPU.
    pub(crate) fn take(&self, worker: usize) {
        let Some(here) = system::current_cpu() else { return };
        self.taken[worker].store(here, Ordering::Relaxed);
        // Only the worker with the higher index moves, because two that both move might meet again.
        if !self.taken[..worker].iter().any(|taken| taken.load(Ordering::Relaxed) == here) {
            return;
        }
        let is_free = |cpu: usize| self.taken.iter().all(|taken| taken.load(Ordering::Relaxed) != cpu);
        if let Some(cpu) = system::move_to_one_of(is_free) {
            self.taken[worker].store(cpu, Ordering::Relaxed);
        }
    }

    /// Notes that a worker begins to wait.
    pub(crate) fn leave(&self, worker: usize) {
        self.taken[worker].store(NOWHERE, Ordering::Relaxed);
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::mem;

    /// Number of CPUs that a `cpu_set_t` can hold.
    const CPUS: usize = libc::CPU_SETSIZE as usize;

    /// Returns the CPU on which the calling thread runs.
    pub(super) fn current_cpu() -> Option<usize> {
        // SAFETY: the call has no arguments and changes nothing.
        usize::try_from(unsafe { libc::sched_getcpu() }).ok()
    }

    /// Moves the calling thread to the first CPU that it may use and for which `is_free` returns true; returns this
    /// CPU, or `None` if the thread was not moved.
    pub(super) fn move_to_one_of(is_free: impl Fn(usize) -> bool) -> Option<usize> {
        let before = allowed()?;
        // SAFETY: `CPU_ISSET` reads a bit of the set, which has one for each number below `CPUS`.
        let cpu = (0..CPUS).find(|&cpu| unsafe { libc::CPU_ISSET(cpu, &before) } && is_free(cpu))?;
        let mut only = none();
        // SAFETY: `CPU_SET` writes a bit of the set, which has one for each number below `CPUS`.
        unsafe { libc::CPU_SET(cpu, &mut only) };
        let moved = allow(&only);
        allow(&before);
        moved.then_some(cpu)
    }

    fn none() -> libc::cpu_set_t {
        // SAFETY: a `cpu_set_t` is an array of integers, for which zeros are valid: the empty set.
        unsafe { mem::zeroed() }
    }

    fn allowed() -> Option<libc::cpu_set_t> {
        let mut set = none();
        // SAFETY: 0 is the calling thread; the pointer is to a live set of the size given.
        let status = unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set) };
        (status == 0).then_some(set)
    }

    fn allow(set: &libc::cpu_set_t) -> bool {
        // SAFETY: 0 is the calling thread; the pointer is to a live set of the size given.
        unsafe { libc::sched_setaffinity(0, mem::size_of_val(set), set) == 0 }
    }

    #[cfg(test)]
    pub(super) fn cpus_allowed() -> Vec<usize> {
        let set = allowed().expect("a thread may ask for its CPUs");
        // SAFETY: `CPU_ISSET` reads a bit of the set, which has one for each number below `CPUS`.
        (0..CPUS).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn current_cpu() -> Option<usize> {
        None
    }

    pub(super) fn move_to_one_of(_: impl Fn(usize) -> bool) -> Option<usize> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_latter_of_two_workers_on_a_cpu_moves_and_is_not_bound() {
        let allowed = system::cpus_allowed();
        let cpu_placement = CpuPlacement::new(2);
        cpu_placement.take(1);
        let alone = cpu_placement.taken[1].load(Ordering::Relaxed);
        assert!(allowed.contains(&alone));
        // Both entries belong to this thread, so they are on one CPU unless the system moves the thread in
        // between.
        let parted = (0..100).any(|_| {
            cpu_placement.take(0);
            cpu_placement.take(1);
            cpu_placement.taken[0].load(Ordering::Relaxed) != cpu_placement.taken[1].load(Ordering::Relaxed)
        });
        assert_eq!(parted, allowed.len() > 1);
        assert_eq!(system::cpus_allowed(), allowed);
    }

    #[test]
    fn who_waits_takes_no_seat() {
        let cpu_placement = CpuPlacement::new(2);
        cpu_placement.take(0);
        cpu_placement.leave(0);
        assert_eq!(cpu_placement.taken[0].load(Ordering::Relaxed), NOWHERE);
    }
}
