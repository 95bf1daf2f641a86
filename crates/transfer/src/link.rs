//! Measures the network link to a pool: the latency when an engine registers the pool, the bandwidth whenever a
//! program's result arrives.
//!
//! Invariant: a meter reports only what it measured. Only cost estimates depend on these numbers, and no result of a
//! query does.

use crate::{BatchStream, Pool, ReceiptHandle};
use farpool_model::{Receipt, cast};
use futures::StreamExt;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Minimum size of a result, in bytes, from which the bandwidth is computed. Reason: the time of a smaller one depends
/// on the latency.
const BYTES_TELLING: u64 = 1 << 20;

/// Minimum fraction of the time of a result for which the link counts as the bottleneck: the engine must have waited
/// for the result, and the pool's workers must have been idle, for at least this part.
const IDLE_PART: f64 = 0.5;

/// Measures the network link to one pool.
#[derive(Debug, Default)]
pub struct LinkMeter {
    seen: Mutex<LinkSpeed>,
}

/// The measurements of a [`LinkMeter`]; a field is `None` until there is a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkSpeed {
    /// Round-trip time of a small request, in nanoseconds.
    pub latency_ns: Option<f64>,
    /// Bandwidth of the fastest result for which the link was the bottleneck, in bytes per second.
    pub bytes_per_s: Option<f64>,
    /// Bandwidth of the fastest result of all, in bytes per second: a lower bound for the bandwidth of the link. 0
    /// before the first large result.
    pub bytes_per_s_min: f64,
    /// Number of worker threads of the pool.
    pub workers: Option<usize>,
}

impl LinkMeter {
    /// Measures the latency of a remote pool with one small request, whose answer also tells the number of workers. If
    /// the pool does not answer, nothing is recorded: the next request to it reports the error.
    pub async fn probe(&self, pool: &dyn Pool) {
        let start = now();
        let Ok(status) = pool.status().await else { return };
        let mut seen = self.seen.lock();
        seen.latency_ns = Some(start.elapsed().as_secs_f64() * 1e9);
        seen.workers = Some(cast::usize_saturating(status.workers)).filter(|workers| *workers > 0);
    }

    /// Returns `stream` with a measurement around it. If `receipt` has the execution statistics when the stream ends,
    /// the meter records how long the program took since `start`, and for how much of that time the reader waited for
    /// this stream.
    pub fn measured(
        self: Arc<Self>,
        stream: BatchStream,
        receipt: ReceiptHandle,
        start: Instant,
    ) -> BatchStream {
        let waited = start.elapsed();
        type State = (BatchStream, Arc<LinkMeter>, ReceiptHandle, Duration);
        let next = move |(mut stream, meter, receipt, waited): State| async move {
            let asked = now();
            let batch = stream.next().await;
            let waited = waited + asked.elapsed();
            let Some(batch) = batch else {
                if let Some(receipt) = receipt.get() {
                    meter.observe(&receipt, start.elapsed(), waited);
                }
                return None;
            };
            Some((batch, (stream, meter, receipt, waited)))
        };
        futures::stream::unfold((stream, self, receipt, waited), next).boxed()
    }

    /// Records a result that arrived within the time `taken`, during which the engine `waited` for it. If the engine or
    /// the pool was busy for most of that time, the result gives only a lower bound for the bandwidth.
    fn observe(&self, receipt: &Receipt, taken: Duration, waited: Duration) {
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

    /// Returns the measurements so far.
    pub fn speed(&self) -> LinkSpeed {
        *self.seen.lock()
    }
}

/// Returns the current time, to be passed later to [`LinkMeter::measured`] as `start`.
#[expect(clippy::disallowed_methods, reason = "the engine's side measures how long the pool takes")]
pub fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_transfer_tells_the_bandwidth() {
        let meter = LinkMeter::default();
        assert_eq!(meter.speed(), LinkSpeed::default());
        let seconds = Duration::from_secs_f64;
        let receipt = |bytes_on_wire, cpu_s: f64| Receipt {
            bytes_on_wire,
            cpu_ns: (cpu_s * 1e9) as u64,
            ..Receipt::default()
        };
        let found = || (meter.speed().bytes_per_s, meter.speed().bytes_per_s_min);
        meter.observe(&receipt(1000, 0.0), seconds(1.0), seconds(1.0));
        assert_eq!(found(), (None, 0.0), "a few bytes tell nothing");
        meter.observe(&receipt(20_000_000, 1.8), seconds(2.0), seconds(2.0));
        meter.observe(&receipt(20_000_000, 0.1), seconds(2.0), seconds(0.2));
        assert_eq!(found(), (None, 1e7), "the pool and the engine were slow");
        meter.observe(&receipt(20_000_000, 0.1), seconds(2.0), seconds(1.9));
        meter.observe(&receipt(20_000_000, 0.1), seconds(200.0), seconds(200.0));
        assert_eq!(found(), (Some(1e7), 1e7));
        meter.observe(&receipt(40_000_000, 1.8), seconds(2.0), seconds(0.2));
        assert_eq!(found(), (Some(1e7), 2e7), "at least as fast");
    }
}
