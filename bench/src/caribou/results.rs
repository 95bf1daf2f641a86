//! What the suite measures.

use super::definition::Case;
use super::load::Outcome;
use crate::limits::Limits;
use crate::machine::Machine;
use crate::rival::RivalResult;
use crate::stats::median;
use serde::Serialize;

/// Results of the suite.
#[derive(Debug, Serialize)]
pub struct Results {
    pub suite: String,
    pub date: String,
    pub machine: Machine,
    pub limits: Limits,
    /// Processes that wanted to run, by Linux' average over a minute, before the suite and after it: those of others among
    /// them.
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
    /// The goal of recovery.
    pub recovery_at_least: f64,
    pub second_opinion: Vec<SecondOpinion>,
    pub goals: Vec<GoalResult>,
    /// What could not be measured, and why.
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
    /// Operations a second, and for each second of the server's CPU time.
    pub rate: f64,
    pub per_cpu: f64,
    /// Processors that the server had busy: where that is less than its own, the generator is the limit.
    pub busy: f64,
    /// From the first byte of a batch sent, or from when a request was due, to its replies.
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub misses: u64,
    pub rates: Vec<f64>,
    /// Why there is no number.
    pub refused: Option<String>,
}

/// An open loop of so many operations a second.
#[derive(Debug, Serialize)]
pub struct LoadResult {
    pub rate: f64,
    pub part: f64,
    pub sides: Vec<SideResult>,
}

/// Memory that the server says it uses for entries, each less what it used without.
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
    /// How much more memory the process has resident, which the system rounds up.
    pub resident_bytes: f64,
}

/// Conditional reads beside plain ones, of values of one size: medians of operations for each second of CPU time.
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
    /// Bytes of values scanned, and which part of the memory's read bandwidth with two threads that is.
    pub gb_s: f64,
    pub of_bandwidth: f64,
}

/// A scan for a substring beside a search of the same bytes in one piece, on as many threads.
#[derive(Debug, Serialize)]
pub struct SubstringResult {
    pub value_bytes: usize,
    pub percent: u64,
    pub gb_s: f64,
    pub memmem_gb_s: f64,
}

/// A scan of compressed values for a substring, beside what the codec alone makes of the same bytes, on as many threads.
#[derive(Debug, Serialize)]
pub struct CompressedResult {
    pub codec: String,
    pub value_bytes: usize,
    pub bytes_per_entry: f64,
    /// Of plain bytes.
    pub gb_s: f64,
    /// None where values are not compressed.
    pub codec_gb_s: Option<f64>,
}

/// Point operations in an open loop alone and beside scans of the same space.
#[derive(Debug, Serialize)]
pub struct BesideResult {
    pub rate: f64,
    pub alone: SideResult,
    pub beside: SideResult,
    /// Scans a second.
    pub scans_alone: f64,
    pub scans_beside: f64,
}

/// Updates that are on disk before they are acknowledged.
#[derive(Debug, Serialize)]
pub struct DurableResult {
    pub connections: usize,
    pub depth: usize,
    pub at_least: f64,
    pub sides: Vec<SideResult>,
}

/// What the disk takes to make an append durable.
#[derive(Debug, Serialize)]
pub struct SyncResult {
    pub bytes: usize,
    pub p50_us: f64,
    pub p99_us: f64,
}

/// Operations a second inside the library, of so many threads together.
#[derive(Debug, Serialize)]
pub struct LibraryResult {
    pub threads: usize,
    /// With all keys alike.
    pub uniform: f64,
    /// With 128 of them.
    pub hot: f64,
}

/// A start over keys on disk.
#[derive(Debug, Serialize)]
pub struct RecoveryResult {
    pub name: String,
    /// Whether the process was killed, or stopped in order.
    pub is_killed: bool,
    /// Bytes of all values.
    pub bytes: u64,
    pub seconds: f64,
}

/// What `redis-benchmark` says, in requests a second.
#[derive(Debug, Serialize)]
pub struct SecondOpinion {
    pub test: String,
    pub depth: usize,
    pub farpool: f64,
    pub redis: f64,
}

/// A goal.
#[derive(Debug, Serialize)]
pub struct GoalResult {
    pub what: String,
    /// What was aimed at: at least, or at most.
    pub goal: String,
    /// `None` if it was not measured.
    pub measured: Option<f64>,
    pub is_met: Option<bool>,
}

impl SideResult {
    /// Medians of runs.
    pub fn of(name: &str, runs: &[Outcome]) -> SideResult {
        let of = |value: &dyn Fn(&Outcome) -> f64| median(&runs.iter().map(value).collect::<Vec<_>>());
        SideResult {
            name: name.to_string(),
            rate: of(&Outcome::rate),
            per_cpu: of(&Outcome::per_cpu),
            busy: of(&|run| run.server_cpu_s / run.seconds),
            p50_us: of(&|run| run.p50_us),
            p99_us: of(&|run| run.p99_us),
            p999_us: of(&|run| run.p999_us),
            misses: runs.iter().map(|run| run.misses).sum(),
            rates: runs.iter().map(Outcome::rate).collect(),
            refused: runs.iter().find_map(|run| run.refused.clone()),
        }
    }
}

/// The side with a name.
pub fn side<'a>(sides: &'a [SideResult], name: &str) -> Option<&'a SideResult> {
    sides.iter().find(|side| side.name == name)
}

/// Farpool's value by Redis'.
pub fn ratio(sides: &[SideResult], value: &dyn Fn(&SideResult) -> f64) -> Option<f64> {
    let (farpool, redis) = (side(sides, "farpool")?, side(sides, "Redis")?);
    Some(value(farpool) / value(redis)).filter(|ratio| ratio.is_finite())
}
