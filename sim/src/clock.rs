//! Simulated time: it passes when somebody reads the clock, by amounts that the seed decides, and jumps when
//! the simulation says so. And simulated luck, by which allocations fail.

use crate::random::Random;
use farpool_memory::Failures;
use farpool_model::Clock;
use parking_lot::Mutex;

/// The most CPU time between two looks at the clock: a step with bad luck costs as much as several steps' worth.
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
    /// Clocks whose steps `seed` decides.
    pub fn new(seed: u64) -> Self {
        SimClock(Mutex::new(Times { random: Random::new(seed), now_ns: 0, cpu_ns: 0 }))
    }

    /// Lets wall time pass during which nobody works.
    pub fn jump(&self, ns: u64) {
        self.0.lock().now_ns += ns;
    }

    /// CPU time so far; to look at it takes none.
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

/// Has so many of a hundred allocations fail.
#[derive(Debug)]
pub struct BadLuck {
    random: Mutex<Random>,
    percent: usize,
}

impl BadLuck {
    /// Luck that `seed` decides.
    pub fn new(seed: u64, percent: usize) -> Self {
        BadLuck { random: Mutex::new(Random::new(seed)), percent }
    }
}

impl Failures for BadLuck {
    fn next_fails(&self) -> bool {
        self.random.lock().chance(self.percent)
    }
}
