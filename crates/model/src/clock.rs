//! Time as the core crates see it: passed in from outside, so that a simulation can control it.

/// A source of time. The first two clocks are monotonic, each with an arbitrary start.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Returns the wall time, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// Returns the time since an arbitrary moment, in nanoseconds. Advances while the machine sleeps, and is never set.
    fn steady_ns(&self) -> u64 {
        self.now_ns()
    }

    /// Returns the CPU time that the calling thread has used, in nanoseconds.
    fn thread_cpu_ns(&self) -> u64;

    /// Returns the time of day, in milliseconds since 1970 (UTC). The default takes wall time as counted from 1970.
    fn unix_ms(&self) -> u64 {
        self.now_ns() / 1_000_000
    }

    /// Returns the time of day, in seconds since 1970 (UTC).
    fn unix_s(&self) -> u64 {
        self.unix_ms() / 1000
    }
}
