//! Measures how many bytes per second the socket of a connection accepts.
//!
//! Only periods in which the socket was full are measured, because the network or the client was the bottleneck then.
//! Before the first such period, an estimate is used, which depends on whether the client is on the same machine. Times
//! are nanoseconds of the node's clock.

/// Estimated rate for a client on the same machine, measured with `cargo run -p farpool-node --example loopback`: the
/// time of copying a byte into and out of the system and of building an array of it.
const LOOPBACK_BYTES_PER_S: f64 = 0.8e9;

/// Estimated rate for a client on another machine: that of a network of 10 Gbit/s.
const NETWORK_BYTES_PER_S: f64 = 1.25e9;

/// Minimum bytes of a measurement. Reason for 8 MiB: several times what the buffers of a socket accept at once.
const SAMPLE_BYTES: usize = 8 << 20;

/// The rate at which the socket of one connection accepts bytes, measured or estimated.
#[derive(Debug)]
pub(super) struct Meter {
    bytes_per_s: f64,
    /// The current period in which the connection has always had something to write; `None` if nothing is left to
    /// write.
    busy: Option<Busy>,
}

#[derive(Debug)]
struct Busy {
    since_ns: u64,
    bytes: usize,
    was_full: bool,
}

impl Meter {
    /// Creates the meter of a new connection; `is_near` says whether the client is on this machine.
    pub fn new(is_near: bool) -> Self {
        Meter { bytes_per_s: if is_near { LOOPBACK_BYTES_PER_S } else { NETWORK_BYTES_PER_S }, busy: None }
    }

    /// Returns the bytes per second that the socket accepts, by the latest measurements or estimate.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes_per_s
    }

    /// Records that the socket accepted `bytes` bytes; `more` says whether there is more to write.
    pub fn wrote(&mut self, bytes: usize, more: bool, now_ns: u64) {
        let busy = self.busy.get_or_insert_with(|| Busy::since(now_ns));
        busy.bytes += bytes;
        if busy.bytes >= SAMPLE_BYTES {
            self.sample(now_ns);
        }
        if !more {
            self.busy = None;
        }
    }

    /// Records that the socket was full.
    pub fn full(&mut self, now_ns: u64) {
        self.busy.get_or_insert_with(|| Busy::since(now_ns)).was_full = true;
    }

    fn sample(&mut self, now_ns: u64) {
        let Some(busy) = self.busy.replace(Busy::since(now_ns)) else { return };
        if busy.was_full {
            self.add(busy.bytes, now_ns.saturating_sub(busy.since_ns));
        }
    }

    /// Replaces the rate by the average of the previous rate and that of `bytes` bytes in `ns` nanoseconds.
    fn add(&mut self, bytes: usize, ns: u64) {
        let seen = bytes as f64 / (ns.max(1) as f64 / 1e9);
        self.bytes_per_s = (self.bytes_per_s + seen) / 2.0;
    }
}

impl Busy {
    fn since(now_ns: u64) -> Self {
        Busy { since_ns: now_ns, bytes: 0, was_full: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_guessed_and_then_measured() {
        let mut meter = Meter::new(true);
        assert_eq!(meter.bytes_per_s(), LOOPBACK_BYTES_PER_S);
        assert_eq!(Meter::new(false).bytes_per_s(), NETWORK_BYTES_PER_S);
        (0..20).for_each(|_| meter.add(1_000_000, 10_000_000));
        assert!((meter.bytes_per_s() / 1e8 - 1.0).abs() < 0.01, "{meter:?}");
    }

    #[test]
    fn a_socket_that_was_never_full_says_nothing() {
        let mut meter = Meter::new(false);
        meter.wrote(2 * SAMPLE_BYTES, true, 1);
        assert_eq!(meter.bytes_per_s(), NETWORK_BYTES_PER_S);
        meter.full(2);
        meter.wrote(SAMPLE_BYTES / 2, true, 3);
        meter.wrote(SAMPLE_BYTES / 4, false, 4);
        assert_eq!(meter.bytes_per_s(), NETWORK_BYTES_PER_S, "too few bytes, then a pause");
        meter.full(1_000_000_000);
        meter.wrote(SAMPLE_BYTES, true, 2_000_000_000);
        let seen = SAMPLE_BYTES as f64;
        assert_eq!(meter.bytes_per_s(), (NETWORK_BYTES_PER_S + seen) / 2.0);
    }
}
