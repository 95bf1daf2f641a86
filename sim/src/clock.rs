//! Simulated time: it advances whenever a clock is read, by amounts derived from the seed, and jumps on demand. Also
//! simulated allocation failures.

use crate::random::Random;
use farpool_memory::Failures;
use farpool_model::Clock;
use parking_lot::Mutex;

/// Maximal CPU time between two readings of the clock: an unlucky step takes as long as several normal ones.
pub const LOOK_NS_MAX: usize = 400_000;

/// The clocks of a simulated node.
#[derive(Debug)]
pub struct SimClock(Mutex<Times>);

#[derive(Debug)]
struct Times {
    random: Random,
    now_ns: u64,
    cpu_ns: u64,
}

impl SimClock {
    /// Creates clocks whose steps derive from `seed`.
    pub fn new(seed: u64) -> Self {
        SimClock(Mutex::new(Times { random: Random::new(seed), now_ns: 0, cpu_ns: 0 }))
    }

    /// Advances wall time without CPU time.
    pub fn jump(&self, ns: u64) {
        self.0.lock().now_ns += ns;
    }

    /// Returns the CPU time so far; this reading does not advance it.
    pub fn cpu_ns(&self) -> u64 {
        self.0.lock().cpu_ns
    }
}

impl Clock for SimClock {
    fn now_ns(&self) -> u64 {
        self.0.lock().now_ns
    }

    fn thread_cpu_ns(&self) -> u64 {
        let mut times = self.0.lock();
        let passed = times.random.magnitude(LOOK_NS_MAX) as u64;
        times.now_ns += passed;
        times.cpu_ns += passed;
        times.cpu_ns
    }
}

/// An allocator policy that makes a given percentage of allocations fail.
#[derive(Debug)]
pub struct BadLuck {
    random: Mutex<Random>,
    percent: usize,
}

impl BadLuck {
    /// Creates failures that derive from `seed`.
    pub fn new(seed: u64, percent: usize) -> Self {
        BadLuck { random: Mutex::new(Random::new(seed)), percent }
    }
}

impl Failures for BadLuck {
    fn next_fails(&self) -> bool {
        self.random.lock().chance(self.percent)
    }
}
