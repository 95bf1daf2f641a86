//! The log of a simulation: all events as text, and a hash of everything including bytes on the wire, which verifies
//! that the same seed gives the same run.

/// Number of events before a violation that are shown.
const SHOWN: usize = 40;

/// The log of a simulation.
#[derive(Clone, Debug)]
pub struct Log {
    hash: u64,
    /// The events, each with the hash of everything before it.
    events: Vec<(u64, String)>,
    /// The number of the current event.
    pub step: u64,
}

impl Log {
    /// Creates a log without events.
    pub fn new() -> Self {
        Log { hash: 0xcbf2_9ce4_8422_2325, events: Vec::new(), step: 0 }
    }

    /// Adds an event.
    pub fn event(&mut self, text: String) {
        self.events.push((self.hash, format!("{:>6}  {text}", self.step)));
        self.bytes(text.as_bytes());
    }

    /// Adds bytes received over the wire to the hash (FNV-1a).
    pub fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Returns the hash of all events and bytes.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the last events, a line each.
    pub fn shown(&self) -> String {
        self.shown_until(self.events.len())
    }

    /// Returns the events before the first difference from `other` (the log of another run), in events or in the bytes
    /// between them.
    pub fn shown_until_other(&self, other: &Log) -> String {
        let same = self.events.iter().zip(&other.events).take_while(|(one, other)| one == other).count();
        let next = |log: &Log| log.events.get(same).map_or("the end", |(_, event)| event).to_string();
        format!("{}\n once: {}\n then: {}", self.shown_until(same), next(self), next(other))
    }

    /// Returns whether the text of an event contains `what`.
    #[cfg(test)]
    pub fn tells_of(&self, what: &str) -> bool {
        self.events.iter().any(|(_, event)| event.contains(what))
    }

    fn shown_until(&self, end: usize) -> String {
        let events = &self.events[end.saturating_sub(SHOWN)..end];
        events.iter().map(|(_, event)| event.as_str()).collect::<Vec<_>>().join("\n")
    }
}
