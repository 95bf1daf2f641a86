//! The definition of the suite, read from `bench/definitions/joins.toml` (the fields are explained there).

use crate::text;
use serde::{Deserialize, Serialize};
use std::fmt::{Display, Formatter};

/// Columns of the build table that a join may return.
pub const PAYLOAD_MAX: usize = 4;

/// Percentages of the probe table's rows that have a match.
pub const MATCHES: [u64; 4] = [100, 50, 10, 1];

/// Bytes of a plain value that is summed.
const VALUE_BYTES: u64 = 8;

/// The definition of the suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub runs: usize,
    pub threads: usize,
    /// Rows of the probe table.
    pub rows: u64,
    /// The sides in the order of a round.
    pub sides: Vec<String>,
    pub goals: Vec<Goal>,
    pub tables: Vec<TablePair>,
}

/// The largest permitted ratio of a side's time to that of the fastest rival, at every point.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    pub of: String,
    pub at_most: f64,
}

/// A build table, the probe table with keys of the same form, and the points that join them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TablePair {
    keys: KeyForm,
    build: u64,
    #[serde(default = "one")]
    duplicates: u64,
    pub points: Vec<Point>,
}

/// Size and keys of a build table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Shape {
    pub keys: KeyForm,
    /// Rows of the build table.
    pub build: u64,
    /// Rows of the build table for each key.
    pub duplicates: u64,
}

/// The form of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyForm {
    /// 32-bit integers from 0, without gaps if all keys have a match.
    Dense,
    /// 64-bit integers that are spread over the whole range of the type.
    Sparse,
    /// Strings of 12 bytes.
    Text,
}

/// A join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Percentage of the probe table's rows that have a match.
    #[serde(default = "all")]
    pub matches: u64,
    /// Columns of the build table that are summed.
    #[serde(default = "one_column")]
    pub payload: usize,
}

fn one() -> u64 {
    1
}

fn all() -> u64 {
    100
}

fn one_column() -> usize {
    1
}

impl Definition {
    /// Keeps the points whose names have this property.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        for pair in &mut self.tables {
            let shape = pair.shape();
            pair.points.retain(|point| keep(&point.name(shape)));
        }
        self.tables.retain(|pair| !pair.points.is_empty());
    }
}

impl TablePair {
    /// Returns size and keys of the build table.
    pub fn shape(&self) -> Shape {
        let TablePair { keys, build, duplicates, .. } = *self;
        Shape { keys, build, duplicates }
    }
}

impl Shape {
    /// Returns the number of keys, all different.
    pub fn distinct(&self) -> u64 {
        self.build / self.duplicates
    }
}

impl Display for Shape {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {} × {}", self.keys, text::rows(self.distinct()), self.duplicates)
    }
}

impl KeyForm {
    /// Returns the bytes of a plain key: a string of 12 bytes is the 16 bytes of its view.
    fn bytes(self) -> u64 {
        match self {
            KeyForm::Dense => 4,
            KeyForm::Sparse => 8,
            KeyForm::Text => 16,
        }
    }
}

impl Display for KeyForm {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        out.pad(match self {
            KeyForm::Dense => "dense",
            KeyForm::Sparse => "sparse",
            KeyForm::Text => "text",
        })
    }
}

impl Point {
    /// Names the point, as in `dense 64 Ki × 1, 10 %, payload 2`: the form, the number of keys and the rows for each in the
    /// build table; the share of rows with a match, and the columns that are summed.
    pub fn name(&self, shape: Shape) -> String {
        format!("{shape}, {} %, payload {}", self.matches, self.payload)
    }

    /// Returns the statement.
    pub fn sql(&self) -> String {
        let payload: String = (1..=self.payload).map(|i| format!(", sum(d.p{i}) AS p{i}")).collect();
        let key = key_column(self.matches);
        format!("SELECT count(*) AS n, sum(f.v) AS v{payload} FROM probe f JOIN build d ON f.k = d.{key}")
    }

    /// Returns the bytes of the columns that the statement reads, as plain values.
    pub fn bytes_plain(&self, shape: Shape, probe_rows: u64) -> u64 {
        let probe = shape.keys.bytes() + VALUE_BYTES;
        let build = shape.keys.bytes() + VALUE_BYTES * self.payload as u64;
        probe_rows * probe + shape.build * build
    }
}

/// Names the key column of the build table of which this percentage of the probe table's rows have a match.
pub fn key_column(matches: u64) -> String {
    format!("k{matches}")
}
