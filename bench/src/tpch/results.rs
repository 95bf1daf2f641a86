//! Results of a run of `tpch`, as written to JSON and kept in `bench/record/`.

use super::goals::Checked;
use super::loading::Loading;
use super::sides::Sample;
use crate::limits::Limits;
use crate::stats;
use crate::suite::Head;
use farpool::Receipt;
use serde::Serialize;
use std::collections::BTreeMap;

/// Results of a run of a suite.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    #[serde(flatten)]
    pub head: Head,
    /// The rivals that took part, with their versions.
    pub rivals: Vec<String>,
    pub scale: f64,
    pub runs: usize,
    pub threads: usize,
    /// The sides that took part, in order.
    pub sides: Vec<String>,
    pub limits: Limits,
    pub loading: Loading,
    pub queries: Vec<QueryResult>,
    pub goals: Vec<Checked>,
    pub notes: Vec<String>,
}

/// Results of a query on all sides.
#[derive(Clone, Debug, Serialize)]
pub struct QueryResult {
    pub query: usize,
    /// Number of rows of the result.
    pub rows: usize,
    pub sides: BTreeMap<String, SideResult>,
}

/// Results of a query on one side.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SideResult {
    /// The median of the times.
    pub median_ms: f64,
    /// Every counted time, in the order of the runs.
    pub times_ms: Vec<f64>,
    /// Execution statistics (receipt) of the last run; for a rival only the bytes on the wire, if it counts them.
    pub receipt: Receipt,
}

impl SideResult {
    /// Returns the results of a side from the samples of its counted runs.
    pub fn of(samples: &[Sample]) -> SideResult {
        SideResult {
            median_ms: stats::median_of(samples, |sample| sample.ms),
            times_ms: samples.iter().map(|sample| sample.ms).collect(),
            receipt: samples.last().map(|sample| sample.receipt.clone()).unwrap_or_default(),
        }
    }
}

impl Results {
    /// Returns the median time of a query on a side.
    pub fn median(&self, query: usize, side: &str) -> Option<f64> {
        Some(self.side(query, side)?.median_ms)
    }

    /// Returns the results of a query on a side.
    pub fn side(&self, query: usize, side: &str) -> Option<&SideResult> {
        self.queries.iter().find(|result| result.query == query)?.sides.get(side)
    }

    /// Returns the sum of the median times of all queries on a side; `None` if one is missing.
    pub fn total(&self, side: &str) -> Option<f64> {
        self.queries.iter().map(|result| Some(result.sides.get(side)?.median_ms)).sum()
    }

    /// Returns the sides that sent bytes over the network.
    pub fn sides_on_wire(&self) -> Vec<&str> {
        self.sides.iter().map(String::as_str).filter(|side| self.wire_bytes(side) > 0).collect()
    }

    /// Returns the bytes on the wire of all queries on a side.
    pub fn wire_bytes(&self, side: &str) -> u64 {
        self.queries.iter().filter_map(|result| result.sides.get(side)).map(|s| s.receipt.bytes_on_wire).sum()
    }
}
