//! What is known about the way to a pool: measured when the pool is registered, and on results of its
//! programs.
//!
//! Invariant: numbers are of what was seen, never of what was hoped for; they only steer choices.

use farpool_model::cast;
use farpool_planner::cost::{Link, Place};
use farpool_transfer::Pool;
use parking_lot::Mutex;
use std::time::Instant;

/// Bytes of a result from which its time says something about the link: below, the latency decides.
const BYTES_TELLING: u64 = 1 << 20;

/// The way to one pool.
#[derive(Debug, Default)]
pub(crate) struct LinkMeter {
    seen: Mutex<Seen>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    latency_ns: Option<f64>,
    bytes_per_s: Option<f64>,
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

    /// A result of so many bytes came in the time since `start`. The best of all counts: the others waited
    /// for the pool or for the engine as well.
    pub(crate) fn observe(&self, bytes: u64, start: Instant) {
        let seconds = start.elapsed().as_secs_f64();
        if bytes < BYTES_TELLING || seconds <= 0.0 {
            return;
        }
        let mut seen = self.seen.lock();
        seen.bytes_per_s = Some((bytes as f64 / seconds).max(seen.bytes_per_s.unwrap_or(0.0)));
    }

    /// Where a program of the pool would run.
    pub(crate) fn place(&self, is_remote: bool, threads: usize) -> Place {
        if !is_remote {
            return Place { link: None, workers: threads, threads };
        }
        let (seen, unknown) = (*self.seen.lock(), Link::default());
        let link = Link {
            bytes_per_s: seen.bytes_per_s.unwrap_or(unknown.bytes_per_s),
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
    use std::time::Duration;

    #[test]
    fn the_best_transfer_tells_the_bandwidth() {
        let meter = LinkMeter::default();
        assert_eq!(meter.place(false, 3), Place { link: None, workers: 3, threads: 3 });
        assert_eq!(meter.place(true, 3).link, Some(Link::default()));
        let ago = |seconds| now().checked_sub(Duration::from_secs(seconds)).unwrap();
        meter.observe(1000, ago(1));
        assert_eq!(meter.place(true, 3).link, Some(Link::default()), "a few bytes tell nothing");
        meter.observe(20 << 20, ago(2));
        meter.observe(20 << 20, ago(200));
        let found = meter.place(true, 3).link.unwrap().bytes_per_s;
        assert!(found > 1e6 && found <= 10.5e6, "{found}");
    }
}
