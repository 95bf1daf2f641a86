//! The definition of the benchmark suite `ibex`, read from `bench/definitions/ibex.toml` (the fields are explained
//! there).

use crate::dbms::Settings;
use serde::Deserialize;

/// The definition of the suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub threads: usize,
    pub runs: usize,
    pub limit_s: u64,
    pub cpu_window_s: f64,
    pub memory_mib: usize,
    pub work_mib: usize,
    pub foreign: Settings,
    pub analyze: bool,
    pub settings: Settings,
    pub sizes: Sizes,
    pub aggregates: Series,
    pub predicates: Series,
    pub bypass: Bypass,
    pub filters: Filters,
    pub q13: Q13,
    pub tpch: Tpch,
    pub goals: Goals,
}

/// A statement over tables of several sizes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    pub mib: Vec<u64>,
    pub sql: String,
}

/// A statement with several numbers of the same kind of expression.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    pub rows: u64,
    pub counts: Vec<usize>,
    sql: String,
}

/// A statement over a table in which some rows have keys of their own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bypass {
    pub rows: u64,
    pub percent: Vec<u64>,
    pub sql: String,
}

/// Statements over `lineitem` at several scale factors.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filters {
    pub scales: Vec<f64>,
    pub cases: Vec<Case>,
}

/// Forms of TPC-H's query 13.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Q13 {
    pub scale: f64,
    pub cases: Vec<Case>,
}

/// A statement, in which `{customer}` stands for this table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    pub sql: String,
    /// Whether `customer` is always in the heap.
    #[serde(default)]
    pub mixed: bool,
}

/// The queries of TPC-H.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tpch {
    pub scale: f64,
    pub runs: usize,
    pub queries: Vec<usize>,
}

/// Bounds of ratios.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goals {
    pub groups: f64,
    pub filters: f64,
    pub flat: f64,
    pub q1_of_alone: f64,
}

impl Series {
    /// Returns the statement with `count` expressions, of which `expression` makes the one with a number from 1, joined by
    /// `separator`.
    pub fn statement(&self, count: usize, separator: &str, expression: impl Fn(usize) -> String) -> String {
        let expressions: Vec<String> = (1..=count).map(expression).collect();
        self.sql.replace("{}", &expressions.join(separator))
    }
}

#[cfg(test)]
mod tests {
    use super::Definition;
    use crate::ibex::tables::VALUES;
    use crate::places;

    #[test]
    fn the_definition_can_be_read_with_and_without_quick() {
        for is_quick in [false, true] {
            let definition: Definition =
                places::definition_for("ibex", is_quick, None).expect("it can be read");
            let series = [&definition.aggregates, &definition.predicates];
            assert!(series.iter().all(|series| series.counts.iter().all(|count| *count <= VALUES)));
            assert!(definition.bypass.percent.iter().all(|percent| *percent <= 100));
            let statement = definition.aggregates.statement(2, ", ", |n| format!("sum(v{n})"));
            assert!(statement.contains("sum(v1), sum(v2)"), "{statement}");
        }
    }
}
