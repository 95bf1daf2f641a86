//! Results of a run of the benchmark suite `farview`, as written to JSON and kept in `bench/record/`.

use super::bound::Bound;
use super::goals::Checked;
use super::measure::Sample;
use crate::limits::Limits;
use crate::rival::Place;
use crate::stats;
use crate::suite::Head;
use farpool::Receipt;
use serde::Serialize;
use std::collections::BTreeMap;

/// The name of farpool's side.
pub const FARPOOL: &str = "farpool";

/// The name of farpool's side with TLS, in the cases that have a goal for it.
pub const FARPOOL_TLS: &str = "farpool, TLS";

/// The name of farpool's side whose table is encrypted in memory.
pub const FARPOOL_HIDDEN: &str = "farpool, encrypted";

/// The name of farpool's side whose results are encrypted for the client, and of the one whose table is encrypted as
/// well.
pub const FARPOOL_SEALED: &str = "farpool, encrypted results";
pub const FARPOOL_BOTH: &str = "farpool, both encrypted";

/// Results of a run of the suite.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    #[serde(flatten)]
    pub head: Head,
    /// Rows of the largest table.
    pub rows: u64,
    pub runs: usize,
    pub threads: usize,
    /// The rivals that took part.
    pub rivals: Vec<RivalInfo>,
    pub limits: Limits,
    /// Bytes per second that OpenSSL decrypts with AES-128-GCM on all threads; `None` if OpenSSL is not installed.
    pub openssl_bytes_per_s: Option<f64>,
    pub tables: Vec<TableResult>,
    pub cases: Vec<CaseResult>,
    pub notes: Vec<String>,
}

/// A rival that took part.
#[derive(Clone, Debug, Serialize)]
pub struct RivalInfo {
    pub name: String,
    pub version: String,
    pub place: Place,
    pub about: String,
}

/// A table that was loaded into the pool.
#[derive(Clone, Debug, Serialize)]
pub struct TableResult {
    pub name: String,
    pub rows: u64,
    pub bytes_plain: u64,
    pub bytes_encoded: u64,
}

/// Results of a case at one size of its table.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    pub name: String,
    pub figure: Option<String>,
    pub table: String,
    pub table_rows: u64,
    /// Whether this is the largest size of the table, to which the goals apply.
    pub largest: bool,
    pub clients: usize,
    pub result_rows: u64,
    /// Times of farpool and the rivals, by name.
    pub sides: BTreeMap<String, SideResult>,
    /// Execution statistics (receipt) of the last run.
    pub receipt: Receipt,
    /// Bytes of the result in the memory of farpool's client.
    pub result_bytes: u64,
    pub client_cpu_ms: f64,
    pub bound: Bound,
    pub goals: Vec<Checked>,
}

/// Times of a side.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SideResult {
    pub median_ms: f64,
    /// Every counted time, in the order of the runs.
    pub times_ms: Vec<f64>,
    /// Bytes on the wire in the last run, if a rival counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_on_wire: Option<u64>,
}

impl SideResult {
    /// Returns the results of a side from the samples of its counted runs.
    pub fn of(samples: &[Sample]) -> SideResult {
        SideResult {
            median_ms: stats::median_of(samples, |sample| sample.ms),
            times_ms: samples.iter().map(|sample| sample.ms).collect(),
            bytes_on_wire: samples.last().and_then(|sample| sample.bytes_on_wire),
        }
    }
}

impl CaseResult {
    /// Returns the median time of a side; `None` if the side has no times.
    pub fn median(&self, side: &str) -> Option<f64> {
        self.sides.get(side).map(|side| side.median_ms)
    }

    /// Returns whether the case compares kinds of encryption.
    pub fn is_about_encryption(&self) -> bool {
        self.sides.contains_key(FARPOOL_SEALED)
    }

    /// Returns the ratio of a side's median time to farpool's.
    pub fn ratio(&self, side: &str) -> Option<f64> {
        Some(self.median(side)? / self.median(FARPOOL)?)
    }
}

impl Results {
    /// Returns the engine with local data that is fastest in a case.
    pub fn fastest_local<'a>(rivals: &'a [RivalInfo], case: &CaseResult) -> Option<&'a str> {
        let local = rivals.iter().filter(|rival| rival.place == Place::Local);
        let timed = local.filter_map(|rival| Some((rival.name.as_str(), case.median(&rival.name)?)));
        timed.min_by(|left, right| left.1.total_cmp(&right.1)).map(|(name, _)| name)
    }
}
