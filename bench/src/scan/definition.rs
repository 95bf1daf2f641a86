//! The definition of the benchmark suite `scan`, read from `bench/definitions/scan.toml` (the fields are explained
//! there).

use crate::tables::TableDefinition;
use serde::Deserialize;

/// The definition of the suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub runs: usize,
    pub threads: Vec<usize>,
    pub rows: u64,
    pub table: TableDefinition,
    pub cases: Vec<Case>,
}

/// A query and its goal.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    /// The columns that are read.
    pub columns: Vec<String>,
    pub sql: String,
    /// Goal: the minimal share of the read bandwidth, in logical bytes.
    pub at_least: f64,
}

#[cfg(test)]
mod tests {
    use super::Definition;
    use crate::places;

    #[test]
    fn cases_read_columns_that_there_are() {
        let definition: Definition = places::definition("scan").expect("it can be read");
        let columns = definition.table.columns();
        for case in &definition.cases {
            assert!(case.sql.contains(&format!("FROM {}", definition.table.name)));
            assert!(case.columns.iter().all(|wanted| columns.iter().any(|(name, _)| name == wanted)));
        }
    }
}
