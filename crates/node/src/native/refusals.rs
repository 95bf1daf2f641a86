//! Logs refused connections at a limited rate, so that peers without access cannot fill the log.

use parking_lot::Mutex;

/// Maximum number of refusals per period that are logged individually; others are only counted.
const LINES_PER_PERIOD: u32 = 20;

/// Length of a period of the rate limit, in nanoseconds: a minute.
const PERIOD_NS: u64 = 60_000_000_000;

/// Logs refused connections and counts those of the current period.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Period>);

#[derive(Debug, Default)]
struct Period {
    began_ns: Option<u64>,
    lines: u32,
    kept_back: u64,
}

/// Decision of the rate limit about a refusal.
#[derive(Debug, PartialEq, Eq)]
enum LogDecision {
    /// Log the refusal, and that `kept_back` refusals were not logged in the previous period.
    Whole { kept_back: u64 },
    /// The refusal is counted and not logged, because the limit of the period is reached.
    KeptBack,
}

impl Refusals {
    /// Logs that the connection of `peer` was refused at the time `now_ns`, unless the limit of the period is reached.
    pub fn log(&self, peer: &str, reason: &str, now_ns: u64) {
        let LogDecision::Whole { kept_back } = self.0.lock().next(now_ns) else { return };
        if kept_back > 0 {
            tracing::warn!(kept_back, "connections were refused that are not listed here");
        }
        // Logged in debug format, which escapes control characters, because both texts may contain bytes sent by the
        // peer.
        tracing::warn!(?peer, error = ?reason, "a connection was refused");
    }
}

impl Period {
    fn next(&mut self, now_ns: u64) -> LogDecision {
        let is_over = self.began_ns.is_none_or(|began_ns| now_ns.saturating_sub(began_ns) >= PERIOD_NS);
        let mut kept_back = 0;
        if is_over {
            kept_back = self.kept_back;
            *self = Period { began_ns: Some(now_ns), lines: 0, kept_back: 0 };
        }
        if self.lines < LINES_PER_PERIOD {
            self.lines += 1;
            return LogDecision::Whole { kept_back };
        }
        self.kept_back += 1;
        LogDecision::KeptBack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_makes_a_bounded_number_of_lines() {
        let mut period = Period::default();
        let lines = |period: &mut Period, count: u64, from_ns: u64| {
            (0..count).filter(|index| period.next(from_ns + index) != LogDecision::KeptBack).count()
        };
        assert_eq!(lines(&mut period, 1000, 5), LINES_PER_PERIOD as usize);
        let later = 5 + PERIOD_NS;
        assert_eq!(period.next(later), LogDecision::Whole { kept_back: 1000 - u64::from(LINES_PER_PERIOD) });
        assert_eq!(period.next(later), LogDecision::Whole { kept_back: 0 });
    }
}
