//! The clocks of the node: elapsed time for receipts and uptime, CPU time for the cost of steps, and the time
//! of day for expiry dates.

#![expect(
    unsafe_code,
    reason = "the thread CPU clock and the one since boot are system calls that std does not offer"
)]

use farpool_model::Clock;
use std::time::{Instant, SystemTime};

/// Returns the CPU time that the calling thread has used, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    read_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The system's clock that continues while the machine sleeps.
#[cfg(any(target_os = "linux", target_os = "android"))]
const STEADY: libc::clockid_t = libc::CLOCK_BOOTTIME;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const STEADY: libc::clockid_t = libc::CLOCK_MONOTONIC;

fn read_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live, writable timespec; the call keeps no reference to it.
    let status = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(status, 0, "every supported system has this clock");
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + nanoseconds
}

/// The clocks of the operating system. Elapsed time is measured from the creation of this value.
#[derive(Debug)]
pub struct SystemClock(Stopwatch);

impl SystemClock {
    /// Creates a clock whose elapsed time is zero now.
    #[expect(clippy::new_without_default, reason = "a clock that starts is no default value")]
    pub fn new() -> Self {
        SystemClock(Stopwatch::start())
    }
}

impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        self.0.elapsed_ns()
    }

    fn steady_ns(&self) -> u64 {
        read_ns(STEADY)
    }

    fn thread_cpu_ns(&self) -> u64 {
        thread_cpu_ns()
    }

    #[expect(clippy::disallowed_methods, reason = "the node is where the clock lives")]
    fn unix_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A stopwatch: measures the time elapsed since a moment.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Creates a stopwatch that starts now.
    #[expect(clippy::disallowed_methods, reason = "the node is where the clock lives")]
    pub fn start() -> Self {
        Stopwatch(Instant::now())
    }

    /// Returns the nanoseconds since the start.
    pub fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the whole seconds since the start.
    pub fn elapsed_s(&self) -> u64 {
        self.0.elapsed().as_secs()
    }
}

#[cfg(test)]
mod tests {
    use super::thread_cpu_ns;

    #[test]
    fn cpu_time_grows_with_work_and_never_runs_back() {
        let start = thread_cpu_ns();
        let mut last = start;
        while last == start {
            let now = thread_cpu_ns();
            assert!(now >= last);
            last = now;
        }
    }
}
