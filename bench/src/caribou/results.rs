//! The results of the suite.

use super::definition::Case;
use super::load::Outcome;
use crate::limits::Limits;
use crate::stats::median_of;
use crate::suite::{Goals, Head, RivalResult};
use serde::Serialize;

/// Results of the suite.
#[derive(Debug, Default, Serialize)]
pub struct Results {
    #[serde(flatten)]
    pub head: Head,
    pub limits: Limits,
    /// The number of runnable processes, as Linux' average over a minute, before and after the suite: other processes
    /// on the machine are included.
    pub load_average: Vec<f64>,
    pub runs: usize,
    pub seconds: f64,
    pub keys: u64,
    pub sides: Vec<RivalResult>,
    pub cases: Vec<CaseResult>,
    pub response: Vec<CaseResult>,
    pub load: Vec<LoadResult>,
    pub memory: Vec<MemoryResult>,
    pub conditional: Vec<ConditionalResult>,
    pub scans: Vec<ScanResult>,
    pub substrings: Vec<SubstringResult>,
    pub compressed: Vec<CompressedResult>,
    pub beside: Option<BesideResult>,
    pub durable: Vec<DurableResult>,
    pub recovery: Vec<RecoveryResult>,
    pub library: Option<LibraryResult>,
    pub sync: Option<SyncResult>,
    /// The goal for recovery.
    pub recovery_at_least: f64,
    pub second_opinion: Vec<SecondOpinion>,
    pub goals: Goals,
    /// Measurements that failed, with the reasons.
    pub notes: Vec<String>,
}

/// A case with its sides.
#[derive(Debug, Serialize)]
pub struct CaseResult {
    #[serde(flatten)]
    pub case: Case,
    pub sides: Vec<SideResult>,
}

/// A side: medians of its runs.
#[derive(Clone, Debug, Serialize)]
pub struct SideResult {
    pub name: String,
    /// Operations per second, and per second of the server's CPU time.
    pub rate: f64,
    pub per_cpu: f64,
    /// Number of processors that the server kept busy: if it is less than the server has, the generator is the
    /// bottleneck.
    pub busy: f64,
    /// Latencies from the first byte of a batch sent, or from the time when a request was due, to its replies.
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub misses: u64,
    pub rates: Vec<f64>,
    /// The reason why there is no result.
    pub refused: Option<String>,
}

/// An open loop at this number of operations per second.
#[derive(Debug, Serialize)]
pub struct LoadResult {
    pub rate: f64,
    pub part: f64,
    pub sides: Vec<SideResult>,
}

/// The memory that the servers report for entries, less the memory that they use without any.
#[derive(Debug, Serialize)]
pub struct MemoryResult {
    pub spaces: u64,
    pub keys: u64,
    /// Bytes of keys and values of an entry.
    pub payload_bytes: f64,
    pub sides: Vec<Bytes>,
}

/// Bytes for each entry.
#[derive(Debug, Serialize)]
pub struct Bytes {
    pub name: String,
    pub entry_bytes: f64,
    /// Growth of the process's resident memory, which the system rounds up.
    pub resident_bytes: f64,
}

/// Conditional reads compared with plain ones, of values of one size: medians of operations per second of CPU time.
#[derive(Debug, Serialize)]
pub struct ConditionalResult {
    pub value_bytes: usize,
    pub get: SideResult,
    pub matching: SideResult,
    pub missing: SideResult,
}

/// Scans with eight conditions, counting rows that pass or fetching them.
#[derive(Debug, Serialize)]
pub struct ScanResult {
    pub value_bytes: usize,
    pub percent: u64,
    pub fetches: bool,
    pub rows: u64,
    pub ms: f64,
    /// Bytes of values scanned, and their share of the memory's read bandwidth with two threads.
    pub gb_s: f64,
    pub of_bandwidth: f64,
}

/// A scan for a substring compared with a search of the same bytes in one contiguous buffer, on as many threads.
#[derive(Debug, Serialize)]
pub struct SubstringResult {
    pub value_bytes: usize,
    pub percent: u64,
    pub gb_s: f64,
    pub memmem_gb_s: f64,
}

/// A scan of compressed values for a substring, compared with the codec alone over the same bytes, on as many threads.
#[derive(Debug, Serialize)]
pub struct CompressedResult {
    pub codec: String,
    pub value_bytes: usize,
    pub bytes_per_entry: f64,
    /// GB/s of plain bytes.
    pub gb_s: f64,
    /// The codec's speed; `None` if values are not compressed.
    pub codec_gb_s: Option<f64>,
}

/// Point operations in an open loop, alone and with concurrent scans of the same space.
#[derive(Debug, Serialize)]
pub struct BesideResult {
    pub rate: f64,
    pub alone: SideResult,
    pub beside: SideResult,
    /// Scans per second.
    pub scans_alone: f64,
    pub scans_beside: f64,
}

/// Updates that are durable before they are acknowledged.
#[derive(Debug, Serialize)]
pub struct DurableResult {
    pub connections: usize,
    pub depth: usize,
    pub at_least: f64,
    pub sides: Vec<SideResult>,
}

/// The time in which the disk makes an append durable.
#[derive(Debug, Serialize)]
pub struct SyncResult {
    pub bytes: usize,
    pub p50_us: f64,
    pub p99_us: f64,
}

/// Operations per second inside the library, in total over all threads.
#[derive(Debug, Serialize)]
pub struct LibraryResult {
    pub threads: usize,
    /// With a uniform distribution of keys.
    pub uniform: f64,
    /// With 128 hot keys.
    pub hot: f64,
}

/// A start over durable keys.
#[derive(Debug, Serialize)]
pub struct RecoveryResult {
    pub name: String,
    /// Whether the process was killed, rather than stopped cleanly.
    pub is_killed: bool,
    /// Bytes of all values.
    pub bytes: u64,
    pub seconds: f64,
}

/// Results of `redis-benchmark`, in requests per second.
#[derive(Debug, Serialize)]
pub struct SecondOpinion {
    pub test: String,
    pub depth: usize,
    pub farpool: f64,
    pub redis: f64,
}

impl SideResult {
    /// Returns the medians of runs.
    pub fn of(name: &str, runs: &[Outcome]) -> SideResult {
        SideResult {
            name: name.to_string(),
            rate: median_of(runs, Outcome::rate),
            per_cpu: median_of(runs, Outcome::per_cpu),
            busy: median_of(runs, |run| run.server_cpu_s / run.seconds),
            p50_us: median_of(runs, |run| run.p50_us),
            p99_us: median_of(runs, |run| run.p99_us),
            p999_us: median_of(runs, |run| run.p999_us),
            misses: runs.iter().map(|run| run.misses).sum(),
            rates: runs.iter().map(Outcome::rate).collect(),
            refused: runs.iter().find_map(|run| run.refused.clone()),
        }
    }
}

/// Returns the side with a name.
pub fn side<'a>(sides: &'a [SideResult], name: &str) -> Option<&'a SideResult> {
    sides.iter().find(|side| side.name == name)
}

impl MemoryResult {
    /// Returns the bytes of an entry on the side with a name.
    pub fn side(&self, name: &str) -> Option<&Bytes> {
        self.sides.iter().find(|side| side.name == name)
    }

    /// Returns the ratio of farpool's bytes of an entry to Redis'.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.side("farpool")?.entry_bytes / self.side("Redis")?.entry_bytes)
    }
}

/// Returns the ratio of farpool's value to Redis'.
pub fn ratio(sides: &[SideResult], value: &dyn Fn(&SideResult) -> f64) -> Option<f64> {
    let (farpool, redis) = (side(sides, "farpool")?, side(sides, "Redis")?);
    Some(value(farpool) / value(redis)).filter(|ratio| ratio.is_finite())
}
