//! The definition of the benchmark suite `correlation`, read from `bench/definitions/correlation.toml` (the fields are
//! explained there).

use serde::Deserialize;
use std::collections::BTreeMap;

/// The definition of the suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub runs: usize,
    pub threads: usize,
    /// Larger cases are cut to this many rows, and their smaller sizes are left out.
    rows_max: Option<usize>,
    pub goals: BTreeMap<String, f64>,
    pub cases: Vec<Case>,
}

/// A set of columns to correlate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    pub values: Values,
    pub columns: usize,
    pub rows: usize,
    /// Smaller numbers of rows, which are measured for the figures.
    #[serde(default)]
    smaller: Vec<usize>,
    /// Whether no goals apply to the case.
    #[serde(default)]
    pub only_figures: bool,
    pub rivals: Vec<String>,
    pub naive: bool,
}

/// The type of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Values {
    Int16,
    Int32,
    Int64,
    Uint8,
    Float32,
    Float64,
}

impl Definition {
    /// Returns each case at all of its sizes, the largest last.
    pub fn cases_at_all_sizes(&self) -> impl Iterator<Item = Case> {
        let sizes = |case: &Case| match self.rows_max {
            Some(most) => vec![Case { rows: case.rows.min(most), ..case.clone() }],
            None => case.at_all_sizes().collect(),
        };
        self.cases.iter().flat_map(sizes)
    }
}

impl Case {
    fn at_all_sizes(&self) -> impl Iterator<Item = Case> {
        let of = |rows: usize, only_figures: bool| Case { rows, only_figures, ..self.clone() };
        let smaller = self.smaller.iter().map(move |rows| of(*rows, true));
        smaller.chain([self.clone()])
    }

    /// Returns the name of the case's table.
    pub fn table(&self) -> String {
        format!("t_{}", self.name.replace(' ', "_"))
    }

    /// Returns the names of the table's columns.
    pub fn names(&self) -> Vec<String> {
        (0..self.columns).map(|column| format!("c{column}")).collect()
    }

    /// Returns all pairs of columns, each once.
    pub fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        let columns = self.columns;
        (0..columns).flat_map(move |i| (i + 1..columns).map(move |j| (i, j)))
    }

    /// Returns an SQL statement for all coefficients.
    pub fn sql(&self) -> String {
        let terms: Vec<String> =
            self.pairs().map(|(i, j)| format!("corr(c{i}, c{j}) AS r_{i}_{j}")).collect();
        format!("SELECT {} FROM {}", terms.join(", "), self.table())
    }
}
