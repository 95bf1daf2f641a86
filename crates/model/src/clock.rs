//! Time as the core sees it: given from outside, so that a simulation can decide what time it is.

/// A source of time. The first two clocks are monotonic and count from a moment of their own.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Wall time, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// CPU time that the calling thread has used, in nanoseconds.
    fn thread_cpu_ns(&self) -> u64;

    /// The time of day, in seconds since 1970 by UTC. Where there is none, wall time began in 1970.
    fn unix_s(&self) -> u64 {
        self.now_ns() / 1_000_000_000
    }
}
