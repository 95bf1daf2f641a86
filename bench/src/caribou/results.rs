//! The results of the suite, as they are written to JSON; `bench/rivals/figures_caribou.py` reads the same fields.

use super::definition::Case;
use super::load::Outcome;
use crate::limits::Limits;
use crate::stats::median_of;
use crate::suite::{Goals, Head, RivalResult};
use serde::Serialize;

/// A run of the suite. Parts that were left out have empty lists, or `None`.
#[derive(Debug, Default, Serialize)]
pub struct Results {
    #[serde(flatten)]
    pub head: Head,
    pub limits: Limits,
    /// Average number of runnable processes in the minute before and the last minute of the suite (Linux' load
    /// average). Other processes on the machine are included.
    pub load_average: Vec<f64>,
    pub runs: usize,
    /// Duration of a run in a closed loop.
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
    /// The goal of starts over durable keys: minimum ratio of the rates at which farpool and Redis load values.
    pub recovery_at_least: f64,
    pub second_opinion: Vec<SecondOpinion>,
    pub goals: Goals,
    /// Measurements that failed or were left out, with the reasons.
    pub notes: Vec<String>,
}

/// A case in a closed loop, with the measurements of each side.
#[derive(Debug, Serialize)]
pub struct CaseResult {
    #[serde(flatten)]
    pub case: Case,
    pub sides: Vec<SideResult>,
}

/// The measurements of one side: medians of its runs.
#[derive(Clone, Debug, Serialize)]
pub struct SideResult {
    pub name: String,
    /// Operations per second, and per CPU second of the server.
    pub rate: f64,
    pub per_cpu: f64,
    /// Mean number of processors that the server kept busy. If the server has more, the generator is the bottleneck.
    pub busy: f64,
    /// Percentiles of the latency in microseconds. It ends with the reply, and begins when the batch is queued, or in
    /// an open loop when the request is due.
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    /// Number of reads of keys whose insertion had not completed, in all runs.
    pub misses: u64,
    /// Operations per second of each run.
    pub rates: Vec<f64>,
    /// The reason why a run has no measurements; `None` if all have some.
    pub refused: Option<String>,
}

/// An open loop at one rate.
#[derive(Debug, Serialize)]
pub struct LoadResult {
    /// Requests per second that are due, and their fraction of the slowest side's throughput in a closed loop.
    pub rate: f64,
    pub part: f64,
    pub sides: Vec<SideResult>,
}

/// Memory per entry on each side, with one number of keyspaces. The memory of a server without entries is subtracted.
#[derive(Debug, Serialize)]
pub struct MemoryResult {
    pub spaces: u64,
    pub keys: u64,
    /// Mean bytes of the key and the value of an entry.
    pub payload_bytes: f64,
    pub sides: Vec<Bytes>,
}

/// Memory per entry on one side.
#[derive(Debug, Serialize)]
pub struct Bytes {
    pub name: String,
    /// Bytes that the server reports (`used_memory`).
    pub entry_bytes: f64,
    /// Bytes by which the resident memory of the process has grown.
    pub resident_bytes: f64,
}

/// Plain reads (GET) and conditional reads (`FP.CGET`) of values of one size, whose condition matches or does not.
#[derive(Debug, Serialize)]
pub struct ConditionalResult {
    pub value_bytes: usize,
    pub get: SideResult,
    pub matching: SideResult,
    pub missing: SideResult,
}

/// A scan with eight conditions that counts the rows that pass, or fetches them.
#[derive(Debug, Serialize)]
pub struct ScanResult {
    pub value_bytes: usize,
    /// Percentage of the rows that pass.
    pub percent: u64,
    pub fetches: bool,
    pub rows: u64,
    pub ms: f64,
    /// Scanned GB of values per second, and their fraction of the memory's read bandwidth with two threads.
    pub gb_s: f64,
    pub of_bandwidth: f64,
}

/// A scan of values for a substring, compared with `memmem` over the same values in one contiguous buffer, on as many
/// threads.
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
    /// Scanned GB per second, of plain bytes.
    pub gb_s: f64,
    /// Plain GB per second that the codec alone decompresses; `None` if values are not compressed.
    pub codec_gb_s: Option<f64>,
}

/// Point operations in an open loop and scans of the same keyspace, alone and together.
#[derive(Debug, Serialize)]
pub struct BesideResult {
    /// Point operations per second that are due.
    pub rate: f64,
    pub alone: SideResult,
    pub beside: SideResult,
    /// Scans per second.
    pub scans_alone: f64,
    pub scans_beside: f64,
}

/// Updates that are durable before they are acknowledged, with one number of connections.
#[derive(Debug, Serialize)]
pub struct DurableResult {
    pub connections: usize,
    pub depth: usize,
    /// The goal: minimum ratio of farpool's operations per second to Redis'.
    pub at_least: f64,
    pub sides: Vec<SideResult>,
}

/// Times of an `fdatasync` after an append of `bytes` bytes, on the disk of the durable updates.
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

/// A start of a server over durable keys.
#[derive(Debug, Serialize)]
pub struct RecoveryResult {
    pub name: String,
    /// Whether the process was killed, rather than stopped cleanly.
    pub is_killed: bool,
    /// Bytes of all values.
    pub bytes: u64,
    /// Time from the start of the process until it answers.
    pub seconds: f64,
}

/// Requests per second of a test of `redis-benchmark`, on farpool and on Redis.
#[derive(Debug, Serialize)]
pub struct SecondOpinion {
    pub test: String,
    pub depth: usize,
    pub farpool: f64,
    pub redis: f64,
}

impl SideResult {
    /// Computes the medians of the runs of the side `name`.
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

/// Returns the measurements of the side `name`; `None` if it is not installed.
pub fn side<'a>(sides: &'a [SideResult], name: &str) -> Option<&'a SideResult> {
    sides.iter().find(|side| side.name == name)
}

impl MemoryResult {
    /// Returns the memory per entry on the side `name`; `None` if it was not measured.
    pub fn side(&self, name: &str) -> Option<&Bytes> {
        self.sides.iter().find(|side| side.name == name)
    }

    /// Returns the ratio of farpool's bytes per entry to Redis'; `None` if one of the two was not measured.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.side("farpool")?.entry_bytes / self.side("Redis")?.entry_bytes)
    }
}

/// Returns the ratio of farpool's value to Redis'; `None` if one of the two was not measured, or the ratio is not
/// finite.
pub fn ratio(sides: &[SideResult], value: &dyn Fn(&SideResult) -> f64) -> Option<f64> {
    let (farpool, redis) = (side(sides, "farpool")?, side(sides, "Redis")?);
    Some(value(farpool) / value(redis)).filter(|ratio| ratio.is_finite())
}
