//! How fast the socket of a connection takes bytes.
//!
//! Only times in which the socket was full say something: then the link, or the reader at its other end, is
//! what everything waits for. Until that happens a guess stands in, by where the client is. Times are nanoseconds by
//! the node's clock.

/// What a client on this machine takes (`cargo run -p farpool-node --example loopback`): the cost of a byte there
/// is that of copying it in and out of the system, and of making an array of it.
const LOOPBACK_BYTES_PER_S: f64 = 0.8e9;

/// What a client elsewhere takes: a network of 10 Gbit/s.
const NETWORK_BYTES_PER_S: f64 = 1.25e9;

/// Bytes after which a rate is taken: several times what the buffers of a socket swallow at once.
const SAMPLE_BYTES: usize = 8 << 20;

/// The measure of one connection.
#[derive(Debug)]
pub(super) struct Meter {
    bytes_per_s: f64,
    /// Since when there has been something to write all the time.
    busy: Option<Busy>,
}

#[derive(Debug)]
struct Busy {
    since_ns: u64,
    bytes: usize,
    was_full: bool,
}

impl Meter {
    /// That of a new connection to a client that is on this machine or elsewhere.
    pub fn new(is_near: bool) -> Self {
        Meter { bytes_per_s: if is_near { LOOPBACK_BYTES_PER_S } else { NETWORK_BYTES_PER_S }, busy: None }
    }

    /// What the socket takes, by the latest measurement.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes_per_s
    }

    /// The socket took bytes, and there is more to write or not.
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

    /// The socket took no more.
    pub fn full(&mut self, now_ns: u64) {
        self.busy.get_or_insert_with(|| Busy::since(now_ns)).was_full = true;
    }

    fn sample(&mut self, now_ns: u64) {
        let Some(busy) = self.busy.replace(Busy::since(now_ns)) else { return };
        if busy.was_full {
            self.add(busy.bytes, now_ns.saturating_sub(busy.since_ns));
        }
    }

    /// Half of what was known and half of what was seen.
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
