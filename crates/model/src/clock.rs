//! Time for the core crates. They get a clock from outside and never read the system's, so that a simulation can
//! control time.

/// A source of time. `now_ns` and `steady_ns` are monotonic, each from an arbitrary start.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Returns the elapsed time in nanoseconds since an arbitrary moment.
    fn now_ns(&self) -> u64;

    /// Returns the elapsed time in nanoseconds since an arbitrary moment, including the time during which the machine
    /// was suspended. Nobody can set this clock.
    fn steady_ns(&self) -> u64 {
        self.now_ns()
    }

    /// Returns the CPU time that the calling thread has used, in nanoseconds.
    fn thread_cpu_ns(&self) -> u64;

    /// Returns the time of day in milliseconds since 1970 (UTC). The default implementation treats `now_ns` as time
    /// since 1970, as a simulation does.
    fn unix_ms(&self) -> u64 {
        self.now_ns() / 1_000_000
    }

    /// Returns the time of day in seconds since 1970 (UTC).
    fn unix_s(&self) -> u64 {
        self.unix_ms() / 1000
    }
}
