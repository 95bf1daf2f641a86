//! Determines the bottleneck of a case: the shares of the measured time that moving the bytes, or the processors' work,
//! would take at the limits of the machine.

use crate::limits::Limits;
use farpool::Receipt;
use serde::Serialize;

/// Shares of the measured time; each would be 1 if it were the only cost.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Bound {
    /// Encoded bytes that were scanned, at the memory's read bandwidth with two threads.
    pub memory_read: f64,
    /// Bytes on the wire, at loopback TCP's speed.
    pub wire: f64,
    /// Bytes of the result, written to fresh memory.
    pub result: f64,
    /// CPU time of the node's workers, of all processors' time.
    pub node_cpu: f64,
    /// CPU time of the clients, of all processors' time.
    pub client_cpu: f64,
}

impl Bound {
    /// Computes the shares of `ms` milliseconds.
    pub fn new(
        ms: f64,
        receipt: &Receipt,
        result_bytes: u64,
        client_cpu_ms: f64,
        limits: &Limits,
        processors: usize,
    ) -> Bound {
        let seconds = ms / 1e3;
        let at = |bytes: u64, gb_s: f64| bytes as f64 / (gb_s * 1e9) / seconds;
        let cpu = |cpu_ms: f64| cpu_ms / (processors.max(1) as f64 * ms);
        Bound {
            memory_read: at(receipt.bytes_scanned, limits.memory_read_2),
            wire: at(receipt.bytes_on_wire, limits.loopback_tcp),
            result: at(result_bytes, limits.memory_fresh),
            node_cpu: cpu(receipt.cpu_ns as f64 / 1e6),
            client_cpu: cpu(client_cpu_ms),
        }
    }

    /// Names the largest share: `wire 62 %`.
    pub fn text(&self) -> String {
        let processors = format!("CPU (node {:.0} %)", self.node_cpu * 100.0);
        let parts = [
            (self.memory_read, "memory read"),
            (self.wire, "wire"),
            (self.result, "fresh memory"),
            (self.node_cpu + self.client_cpu, processors.as_str()),
        ];
        let largest = parts.into_iter().max_by(|left, right| left.0.total_cmp(&right.0));
        largest.map_or(String::new(), |(share, what)| format!("{what} {:.0} %", share * 100.0))
    }
}

#[cfg(test)]
mod tests {
    use super::Bound;
    use crate::limits::Limits;
    use farpool::Receipt;

    #[test]
    fn the_largest_part_is_named() {
        let limits = Limits {
            memory_read_1: 5.0,
            memory_read_2: 10.0,
            memory_copy: 5.0,
            memory_fresh: 2.0,
            loopback_tcp: 2.0,
        };
        let receipt =
            Receipt { bytes_scanned: 1_000_000_000, bytes_on_wire: 1_600_000_000, ..Receipt::default() };
        let bound = Bound::new(1000.0, &receipt, 1_000_000_000, 400.0, &limits, 2);
        assert_eq!((bound.memory_read, bound.result, bound.client_cpu), (0.1, 0.5, 0.2));
        assert_eq!(bound.text(), "wire 80 %");
    }
}
