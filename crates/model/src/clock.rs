//! Time as the core sees it: given from outside, so that a simulation can decide what time it is.

/// A source of time. Both clocks are monotonic and count from a moment of their own.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Wall time, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// CPU time that the calling thread has used, in nanoseconds.
    fn thread_cpu_ns(&self) -> u64;
}
