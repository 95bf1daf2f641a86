//! The suite as data: `bench/definitions/iopath.toml`, which explains the fields.

use serde::Deserialize;

/// The suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub runs: usize,
    pub round_bytes: usize,
    pub modes: Vec<String>,
    pub bits: Vec<usize>,
    pub bytes: Vec<usize>,
    pub threads: Vec<usize>,
    pub chain_bytes: usize,
    quick: Quick,
    pub goals: Goals,
}

/// What `--quick` changes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quick {
    runs: usize,
    round_bytes: usize,
    bytes_max: usize,
}

/// Shares of OpenSSL's rate, by the least size that they are for; and how many times as fast many chains are as one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goals {
    pub openssl: Vec<(usize, f64)>,
    pub chains: f64,
}

impl Definition {
    /// Applies the settings of `--quick`.
    pub fn shrink_to_quick(&mut self) {
        self.runs = self.quick.runs;
        self.round_bytes = self.quick.round_bytes;
        self.bytes.retain(|bytes| *bytes <= self.quick.bytes_max);
    }

    /// How often a cipher runs over so many bytes in one round.
    pub fn repeats(&self, bytes: usize) -> usize {
        (self.round_bytes / bytes).max(1)
    }
}

impl Goals {
    /// The goal at a size.
    pub fn at(&self, bytes: usize) -> Option<f64> {
        let reached = self.openssl.iter().filter(|(from, _)| *from <= bytes);
        reached.max_by_key(|(from, _)| *from).map(|(_, goal)| *goal)
    }
}
