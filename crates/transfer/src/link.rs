//! What is known about the way to a pool: measured when the pool is registered, and on results of its
//! programs.
//!
//! Invariant: numbers are of what was seen, never of what was hoped for; they only steer choices.

use farpool_model::{Receipt, cast};
use farpool_planner::cost::{Link, Place};
use farpool_transfer::Pool;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Bytes of a result from which its time says something about the link: below, the latency decides.
const BYTES_TELLING: u64 = 1 << 20;

/// The part of a result's time that the engine waited, and that the workers of the pool had time to spare, from which
/// on it was the link that took the time.
const IDLE_PART: f64 = 0.5;

/// The way to one pool.
#[derive(Debug, Default)]
pub(crate) struct LinkMeter {
    seen: Mutex<Seen>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    latency_ns: Option<f64>,
    /// The fastest result for which the link took the time.
    bytes_per_s: Option<f64>,
    /// The fastest of all results.
    bytes_per_s_min: f64,
    workers: Option<usize>,
}

impl LinkMeter {
    /// Asks a remote pool one small question: how long it takes, and how many workers there are. A pool
    /// that does not answer is met again soon enough.
    pub(crate) async fn probe(&self, pool: &dyn Pool) {
        let start = now();
        let Ok(status) = pool.status().await else { return };
        let mut seen = self.seen.lock();
        seen.latency_ns = Some(start.elapsed().as_secs_f64() * 1e9);
        seen.workers = Some(cast::usize_saturating(status.workers)).filter(|workers| *workers > 0);
    }

    /// A result came in the time `taken`, of which the engine `waited` for so much. Where most of the rest was the
    /// pool's or the engine's to compute, the link is at least as fast; the best of all counts.
    pub(crate) fn observe(&self, receipt: &Receipt, taken: Duration, waited: Duration) {
        let seconds = taken.as_secs_f64();
        if receipt.bytes_on_wire < BYTES_TELLING || seconds <= 0.0 {
            return;
        }
        let mut seen = self.seen.lock();
        let bytes_per_s = receipt.bytes_on_wire as f64 / seconds;
        seen.bytes_per_s_min = seen.bytes_per_s_min.max(bytes_per_s);
        let computed = receipt.cpu_ns as f64 / 1e9 / seen.workers.unwrap_or(1) as f64;
        if waited.as_secs_f64() >= seconds * IDLE_PART && computed <= seconds * (1.0 - IDLE_PART) {
            seen.bytes_per_s = Some(seen.bytes_per_s.unwrap_or(0.0).max(bytes_per_s));
        }
    }

    /// Where a program of the pool would run.
    pub(crate) fn place(&self, is_remote: bool, threads: usize) -> Place {
        if !is_remote {
            return Place { link: None, workers: threads, threads };
        }
        let (seen, unknown) = (*self.seen.lock(), Link::default());
        let link = Link {
            bytes_per_s: seen.bytes_per_s.unwrap_or(unknown.bytes_per_s).max(seen.bytes_per_s_min),
            latency_ns: seen.latency_ns.unwrap_or(unknown.latency_ns),
        };
        Place { link: Some(link), workers: seen.workers.unwrap_or(threads), threads }
    }
}

/// The time.
#[expect(clippy::disallowed_methods, reason = "the engine's side measures how long the pool takes")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_transfer_tells_the_bandwidth() {
        let meter = LinkMeter::default();
        assert_eq!(meter.place(false, 3), Place { link: None, workers: 3, threads: 3 });
        assert_eq!(meter.place(true, 3).link, Some(Link::default()));
        let seconds = Duration::from_secs_f64;
        let receipt = |bytes_on_wire, cpu_s: f64| Receipt {
            bytes_on_wire,
            cpu_ns: (cpu_s * 1e9) as u64,
            ..Receipt::default()
        };
        let found = || meter.place(true, 3).link.unwrap().bytes_per_s;
        meter.observe(&receipt(1000, 0.0), seconds(1.0), seconds(1.0));
        assert_eq!(found(), Link::default().bytes_per_s, "a few bytes tell nothing");
        meter.observe(&receipt(20_000_000, 1.8), seconds(2.0), seconds(2.0));
        meter.observe(&receipt(20_000_000, 0.1), seconds(2.0), seconds(0.2));
        assert_eq!(found(), Link::default().bytes_per_s, "the pool and the engine were slow");
        meter.observe(&receipt(20_000_000, 0.1), seconds(2.0), seconds(1.9));
        meter.observe(&receipt(20_000_000, 0.1), seconds(200.0), seconds(200.0));
        assert_eq!(found(), 1e7);
        meter.observe(&receipt(40_000_000, 1.8), seconds(2.0), seconds(0.2));
        assert_eq!(found(), 2e7, "at least as fast");
    }
}
