//! The definition of the benchmark suite `doors`, read from `bench/definitions/doors.toml` (the fields are explained
//! there).

use crate::dbms::Settings;
use crate::tables::TableDefinition;
use serde::Deserialize;

/// The definition of the suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub threads: usize,
    pub runs: usize,
    pub rows: u64,
    pub fetch_runs: usize,
    pub memory_mib: usize,
    pub work_mib: usize,
    pub rivals: Vec<String>,
    pub settings: Settings,
    pub clients: Vec<Client>,
    pub table: TableDefinition,
    pub queries: Vec<Query>,
    pub fetch: Query,
    pub small: Small,
    pub goals: Goals,
}

/// A client of another system's protocol.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    pub name: String,
    pub kind: String,
    pub protocol: Protocol,
    #[serde(default)]
    pub fetch_only: bool,
}

/// A protocol that other systems have, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    Postgres,
    Flight,
}

/// A query.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Query {
    pub name: String,
    pub columns: Vec<String>,
    pub sql: String,
}

/// Statements that return one value of one row.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Small {
    pub accounts: u32,
    pub seconds: f64,
    pub clients: Vec<usize>,
    pub sql: String,
}

/// Bounds of ratios.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goals {
    pub flight_of_duckdb_flight: f64,
    pub copy_of_postgres_copy: f64,
}

#[cfg(test)]
mod tests {
    use super::Definition;
    use crate::places;

    #[test]
    fn the_definition_can_be_read_with_and_without_quick() {
        for is_quick in [false, true] {
            let definition: Definition =
                places::definition_for("doors", is_quick, None).expect("it can be read");
            let columns = definition.table.columns();
            let queries = definition.queries.iter().chain([&definition.fetch]);
            for column in queries.flat_map(|query| &query.columns) {
                assert!(columns.iter().any(|(name, _)| name == column), "{column}");
            }
            let kinds =
                places::read(&places::root().join("bench/rivals/doors_driver.py")).expect("it is there");
            assert!(definition.clients.iter().all(|client| kinds.contains(&format!("\"{}\":", client.kind))));
        }
    }
}
