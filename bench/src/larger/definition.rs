//! The definition of the benchmark suite `larger`, read from `bench/definitions/larger.toml` (the fields are explained
//! there).

use serde::Deserialize;

/// The definition of the suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub scale: f64,
    pub limits_mib: Vec<u64>,
    pub runs: usize,
    pub threads: usize,
    pub queries: Vec<usize>,
    pub bytes_of_duckdb: f64,
    pub bytes_of_optimum: f64,
    pub reading: f64,
    pub units: Units,
    /// Whether only the answers count, and not the times.
    #[serde(skip)]
    pub is_quick: bool,
}

/// Data that is read in units of several sizes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Units {
    pub table: String,
    pub unit_kib: Vec<u64>,
    pub bytes_max_mib: u64,
    pub runs: usize,
    pub scans: Vec<Scan>,
}

/// The columns of some row groups that a scan reads.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scan {
    pub name: String,
    /// The columns; all if empty.
    #[serde(default)]
    pub columns: Vec<String>,
    /// Distance between two row groups that are read, counted in row groups.
    pub every: usize,
}
