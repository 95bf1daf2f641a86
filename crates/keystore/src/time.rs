//! The clock for keys. `TIME`, `TTL`, `EXPIREAT` and the log records of keys use this clock.
//!
//! The clock shows the wall time at the start of the node plus the monotonic time that has passed since. It starts no
//! earlier than the latest time in the log of keys, so that time does not go back during a restart. Without this:
//! 1. A lock expires at 12:00:10, and at 12:00:11 another client is told that it is free.
//! 2. The clock of the machine is put back by an hour, while the node runs or before it is started again.
//! 3. With the wall clock, the expired lock would exist again. With a clock that stands still until the wall clock has
//!    caught up, a lock with an expiry of one second, taken in this time, would last an hour.

use farpool_model::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// The clock for all keys of a node, which never goes back.
#[derive(Debug)]
pub struct KeyTime {
    clock: Arc<dyn Clock>,
    /// The time that this clock shows when the monotonic clock is zero, in microseconds since 1970.
    base_us: AtomicI64,
}

impl KeyTime {
    /// Creates a clock that starts at the wall time, rounded up to the end of the millisecond. Reason: measured by the
    /// client's clock, a key must not live a millisecond longer than the client asked for.
    pub fn starting(clock: Arc<dyn Clock>) -> Self {
        let base = signed(clock.unix_ms().saturating_mul(1000)) + 999 - signed(clock.steady_ns() / 1000);
        KeyTime { clock, base_us: AtomicI64::new(base) }
    }

    /// Creates another clock that starts at the wall time now.
    pub(crate) fn another(&self) -> KeyTime {
        KeyTime::starting(Arc::clone(&self.clock))
    }

    /// Advances the clock to `seen_ms`, in milliseconds since 1970, if it shows an earlier time. Called at the start,
    /// before any client is served.
    pub fn go_on_from(&self, seen_ms: u64) {
        let behind = signed(seen_ms.saturating_mul(1000)) - signed(self.now_us());
        if behind > 0 {
            self.base_us.fetch_add(behind, Ordering::Relaxed);
        }
    }

    /// Returns the time in microseconds since 1970.
    pub fn now_us(&self) -> u64 {
        let steady = signed(self.clock.steady_ns() / 1000);
        u64::try_from(self.base_us.load(Ordering::Relaxed).saturating_add(steady)).unwrap_or(0)
    }

    /// Returns the time in milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.now_us() / 1000
    }

    /// Returns by how many milliseconds this clock is ahead of the wall clock; negative if it is behind.
    pub fn ahead_ms(&self) -> i64 {
        signed(self.now_ms()) - signed(self.clock.unix_ms())
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// A clock for tests whose wall time and monotonic time advance only when the test sets them.
    #[derive(Debug, Default)]
    struct Hands {
        wall_ms: AtomicU64,
        steady_ms: AtomicU64,
    }

    impl Clock for Hands {
        fn now_ns(&self) -> u64 {
            0
        }

        fn thread_cpu_ns(&self) -> u64 {
            0
        }

        fn unix_ms(&self) -> u64 {
            self.wall_ms.load(Ordering::Relaxed)
        }

        fn steady_ns(&self) -> u64 {
            self.steady_ms.load(Ordering::Relaxed) * 1_000_000
        }
    }

    fn started(wall_ms: u64, steady_ms: u64) -> (Arc<Hands>, KeyTime) {
        let hands = Hands { wall_ms: AtomicU64::new(wall_ms), steady_ms: AtomicU64::new(steady_ms) };
        let hands = Arc::new(hands);
        (hands.clone(), KeyTime::starting(hands))
    }

    #[test]
    fn a_step_of_the_time_of_day_changes_nothing() {
        let (hands, time) = started(1_700_000_000_000, 77);
        assert_eq!(time.now_ms(), 1_700_000_000_000);
        for wall in [1_700_000_000_000 - 3_600_000, 1_700_000_000_000 + 86_400_000, 5] {
            hands.wall_ms.store(wall, Ordering::Relaxed);
            let before = time.now_ms();
            hands.steady_ms.fetch_add(1500, Ordering::Relaxed);
            assert_eq!(time.now_ms(), before + 1500);
            assert_eq!(time.ahead_ms(), (before + 1500) as i64 - wall as i64);
        }
    }

    #[test]
    fn it_goes_on_from_what_was_seen_before_a_restart() {
        let (hands, time) = started(1_000_000, 9_000_000);
        time.go_on_from(999_999);
        assert_eq!(time.now_ms(), 1_000_000);
        time.go_on_from(4_000_000);
        assert_eq!(time.now_ms(), 4_000_000);
        hands.steady_ms.fetch_add(500, Ordering::Relaxed);
        assert_eq!((time.now_ms(), time.now_us()), (4_000_500, 4_000_500_000));
    }

    #[test]
    fn a_machine_that_does_not_know_the_year_counts_from_1970() {
        let (hands, time) = started(0, 50);
        assert_eq!(time.now_ms(), 0);
        hands.steady_ms.fetch_add(20, Ordering::Relaxed);
        assert_eq!(time.now_ms(), 20);
    }
}
