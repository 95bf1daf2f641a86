//! Results of a suite of queries, as written to JSON and kept in `bench/record/`.

use super::goals::Checked;
use super::loading::Loading;
use super::sides::{Sample, Side};
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
    /// The query, as the definition names it.
    pub query: String,
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
    pub fn median(&self, query: &str, side: &str) -> Option<f64> {
        Some(self.side(query, side)?.median_ms)
    }

    /// Returns the results of a query on a side.
    pub fn side(&self, query: &str, side: &str) -> Option<&SideResult> {
        self.queries.iter().find(|result| result.query == query)?.sides.get(side)
    }

    /// Returns the sum of the median times of all queries on a side; `None` if one is missing.
    pub fn total(&self, side: &str) -> Option<f64> {
        self.queries.iter().map(|result| Some(result.sides.get(side)?.median_ms)).sum()
    }

    /// Returns the geometric mean, over all queries, of the median time on the side `of` divided by that on the side
    /// `against`; `None` if a time is missing.
    pub fn mean(&self, of: &str, against: &str) -> Option<f64> {
        let median = |result: &QueryResult, side| Some(result.sides.get(side)?.median_ms);
        let ratios = self.queries.iter().map(|result| Some(median(result, of)? / median(result, against)?));
        stats::geometric_mean(&ratios.collect::<Option<Vec<f64>>>()?)
    }

    /// Returns the sides of farpool, whose queries run over a pool.
    pub fn sides_of_farpool(&self) -> Vec<&str> {
        self.sides.iter().map(String::as_str).filter(|side| !Side::names_rival(side)).collect()
    }

    /// Returns the sides that sent bytes over the network.
    pub fn sides_on_wire(&self) -> Vec<&str> {
        self.sides.iter().map(String::as_str).filter(|side| self.wire_bytes(side) > 0).collect()
    }

    /// Returns the bytes on the wire of all queries on a side.
    pub fn wire_bytes(&self, side: &str) -> u64 {
        self.sum(side, |receipt| receipt.bytes_on_wire)
    }

    /// Returns the sum of a quantity over the receipts of all queries on a side.
    pub fn sum(&self, side: &str, quantity: impl Fn(&Receipt) -> u64) -> u64 {
        let results = self.queries.iter().filter_map(|result| result.sides.get(side));
        results.map(|result| quantity(&result.receipt)).sum()
    }
}
