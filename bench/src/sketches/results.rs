//! Results of a run of the benchmark suite `sketches`, as written to JSON and kept in `bench/record/`.

use super::ingest::IngestResult;
use crate::limits::Limits;
use crate::stats;
use crate::suite::{Head, RivalResult};
use serde::Serialize;

/// Name of the library's side, which sketches a column in memory.
pub const LIBRARY: &str = "library";

/// Name of the naive implementation's side.
pub const NAIVE: &str = "naive";

/// Results of a run of the suite.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    #[serde(flatten)]
    pub head: Head,
    pub rows: usize,
    pub rows_slow: usize,
    pub runs: usize,
    pub limits: Limits,
    pub rivals: Vec<RivalResult>,
    pub cases: Vec<CaseResult>,
    pub ingest: Vec<IngestResult>,
}

/// Results of a case over a column with a number of threads.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    pub name: String,
    pub column: String,
    pub threads: usize,
    pub goal: f64,
    pub sides: Vec<Side>,
}

/// Times of one side of the comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    pub name: String,
    pub rows: usize,
    pub times_ms: Vec<f64>,
    pub gb_s: f64,
    /// The estimated number of distinct values, if the side counts them.
    pub distinct: Option<f64>,
}

impl CaseResult {
    /// Returns the speed of the side with this name.
    pub fn gb_s(&self, name: &str) -> Option<f64> {
        self.sides.iter().find(|side| side.name == name).map(|side| side.gb_s)
    }
}

impl Side {
    pub fn new(name: String, rows: usize, times_ms: Vec<f64>, distinct: Option<f64>) -> Side {
        let gb_s = (size_of::<u32>() * rows) as f64 / stats::median(&times_ms) / 1e6;
        Side { name, rows, times_ms, gb_s, distinct }
    }
}
