//! What happened in a simulation: the last events for people, and a hash of everything for the check that
//! the same seed does the same again.

use std::collections::VecDeque;

/// Events that are shown when something goes wrong.
const SHOWN: usize = 40;

/// See the file's comment.
#[derive(Debug)]
pub struct Log {
    hash: u64,
    last: VecDeque<String>,
    /// The number of the current event.
    pub step: u64,
}

impl Log {
    /// A log without events.
    pub fn new() -> Self {
        Log { hash: 0xcbf2_9ce4_8422_2325, last: VecDeque::new(), step: 0 }
    }

    /// Adds an event.
    pub fn event(&mut self, text: String) {
        self.bytes(text.as_bytes());
        if self.last.len() == SHOWN {
            self.last.pop_front();
        }
        self.last.push_back(format!("{:>6}  {text}", self.step));
    }

    /// Adds bytes that came over the wire to the hash (FNV-1a).
    pub fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// The hash of all events and bytes.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The last events, a line each.
    pub fn shown(&self) -> String {
        self.last.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}
