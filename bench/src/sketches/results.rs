//! Results of a run, as written to JSON and kept in `bench/record/`.

use super::ingest::IngestResult;
use crate::limits::Limits;
use crate::machine::Machine;
use crate::rival::RivalResult;
use crate::stats;
use serde::Serialize;

/// Name of the library's side, which sketches a column in memory.
pub const LIBRARY: &str = "library";

/// Name of the naive implementation's side.
pub const NAIVE: &str = "naive";

/// A run of the suite.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    pub suite: String,
    pub date: String,
    pub machine: Machine,
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

/// Times of a side.
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
    /// Returns the side with this name.
    pub fn side(&self, name: &str) -> Option<&Side> {
        self.sides.iter().find(|side| side.name == name)
    }
}

impl Side {
    pub fn new(name: &str, rows: usize) -> Side {
        Side { name: name.to_string(), rows, times_ms: Vec::new(), gb_s: f64::NAN, distinct: None }
    }

    pub fn settle(&mut self) {
        self.gb_s = (size_of::<u32>() * self.rows) as f64 / stats::median(&self.times_ms) / 1e6;
    }
}
