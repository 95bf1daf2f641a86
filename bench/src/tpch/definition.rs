//! The definition of the benchmark suite `tpch`, read from `bench/definitions/tpch.toml`.

use serde::{Deserialize, Serialize};

/// The definition of the suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Scale factor of the data.
    pub scale: f64,
    /// Counted runs of each query on each side.
    pub runs: usize,
    /// Threads of each side.
    pub threads: usize,
    /// The queries by number.
    pub queries: Vec<usize>,
    /// The sides in the order of a round.
    pub sides: Vec<String>,
    /// Goals of the suite.
    pub goals: Vec<Goal>,
}

/// A goal: a measured quantity, and the bounds that it should satisfy.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// Description for the report.
    pub text: String,
    /// The measured quantity.
    pub measure: Measure,
    /// The query, if the goal concerns a single one.
    pub query: Option<usize>,
    /// The side whose quantity is measured.
    pub of: Option<String>,
    /// The side that it is compared with.
    pub against: Option<String>,
    /// The upper bound.
    pub at_most: Option<f64>,
    /// The lower bound.
    pub at_least: Option<f64>,
}

/// The measured quantity of a goal; `bench/definitions/tpch.toml` explains each.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    Total,
    Query,
    ExtraMs,
    Wire,
    Load,
    Encode,
    Size,
}
