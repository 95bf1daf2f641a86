//! The definition of a suite of queries, read from `bench/definitions/SUITE.toml`.

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
    /// Whether the remote sides' node is a process of its own, with its own copy of the tables, rather than the node of
    /// the embedded sides.
    #[serde(default)]
    pub separate_node: bool,
    /// The queries: the names of their files in `testdata/SUITE/queries/`, without `q` and leading zeros.
    pub queries: Vec<String>,
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
    pub query: Option<String>,
    /// The side whose quantity is measured.
    pub of: Option<String>,
    /// The side that it is compared with.
    pub against: Option<String>,
    /// The upper bound.
    pub at_most: Option<f64>,
    /// The lower bound.
    pub at_least: Option<f64>,
}

/// The measured quantity of a goal; the definitions explain each.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    Total,
    Mean,
    Query,
    ExtraMs,
    Wire,
    Load,
    Encode,
    Size,
}
