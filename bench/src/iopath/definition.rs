//! The definition of the benchmark suite `iopath`, read from `bench/definitions/iopath.toml` (the fields are explained
//! there).

use super::measure_packing::Library;
use farpool_codec::Codec;
use serde::Deserialize;

/// The definition of the suite.
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
    pub packing: PackingDefinition,
    pub mix: Mix,
    pub goals: Goals,
}

/// The data that is compressed, and the settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackingDefinition {
    pub data: Vec<String>,
    pub data_bytes: usize,
    pub round_bytes: usize,
    pub codecs: Vec<String>,
    pub libraries: Vec<Library>,
    pub bits: Vec<usize>,
    pub bytes: Vec<usize>,
    pub block_bytes: usize,
    pub chain_bytes: usize,
    goals: Vec<PackingGoal>,
}

/// Maximal ratio of the time of a codec with a cipher to the time of the codec alone.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PackingGoal {
    codec: String,
    data: String,
    pack: Option<f64>,
    unpack: Option<f64>,
}

impl PackingDefinition {
    /// Returns the goal of a codec on the named data in a direction.
    pub fn goal(&self, codec: Codec, data: &str, packs: bool) -> Option<f64> {
        let goal = self.goals.iter().find(|goal| goal.codec == codec.name() && goal.data == data)?;
        if packs { goal.pack } else { goal.unpack }
    }
}

/// The mix of blocks that is replayed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    pub bytes: u64,
    pub data: String,
    pub codecs: Vec<String>,
    pub bits: usize,
    pub slots_bytes: u64,
    pub seed: u64,
    pub kinds: Vec<Kind>,
}

/// One kind of access: the total bytes, and the block sizes with their shares of the accesses.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kind {
    pub name: String,
    pub gigabytes: f64,
    pub blocks: Vec<(u64, f64)>,
}

/// Minimal shares of OpenSSL's rate, by the minimal size to which they apply; and the minimal speed-up of many chains
/// over one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goals {
    pub openssl: Vec<(usize, f64)>,
    pub chains: f64,
}

impl Definition {
    /// Returns the number of times that a cipher runs over `bytes` bytes in one round.
    pub fn repeats(&self, bytes: usize) -> usize {
        (self.round_bytes / bytes).max(1)
    }
}

impl Goals {
    /// Returns the goal at a size.
    pub fn at(&self, bytes: usize) -> Option<f64> {
        let reached = self.openssl.iter().filter(|(from, _)| *from <= bytes);
        reached.max_by_key(|(from, _)| *from).map(|(_, goal)| *goal)
    }
}
