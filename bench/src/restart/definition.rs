//! The definition of the benchmark suite `restart`, read from `bench/definitions/restart.toml` (the fields are
//! explained there).

use crate::suite::Options;
use crate::tables::{Content, TableDefinition};
use anyhow::{Context, Result};
use serde::Deserialize;

/// Rows of an append that is stored in the log.
pub const APPEND_ROWS: u64 = 2048;

/// The definition of the suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub runs: usize,
    pub threads: usize,
    pub selective_ms: f64,
    pub selective_mib: u64,
    pub of_disk: f64,
    most: Option<Most>,
    pub tables: Vec<TableDefinition>,
    pub stores: Vec<Store>,
    /// Whether only the answers count, and not the times.
    #[serde(skip)]
    pub is_quick: bool,
}

/// Upper bounds to which the sizes of all stores are reduced.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Most {
    rows: u64,
    tables: u64,
    log_mib: u64,
}

/// The data that both sides have on disk.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    pub name: String,
    table: String,
    #[serde(default = "one")]
    pub tables: u64,
    pub rows: u64,
    #[serde(default)]
    pub log_mib: u64,
    pub memory_mib: Vec<usize>,
    selective: String,
    scan: Option<String>,
}

fn one() -> u64 {
    1
}

impl Definition {
    /// Reads the definition.
    pub fn read(options: &Options) -> Result<Definition> {
        let mut definition: Definition = options.definition("restart")?;
        definition.is_quick = options.quick;
        if let Some(Most { rows, tables, log_mib }) = definition.most {
            for store in &mut definition.stores {
                store.rows = store.rows.min(rows);
                store.tables = store.tables.min(tables);
                store.log_mib = store.log_mib.min(log_mib);
            }
        }
        Ok(definition)
    }

    /// Names and contents of the columns of a store's tables.
    pub fn columns(&self, store: &Store) -> Result<Vec<(String, Content)>> {
        let table = self.tables.iter().find(|table| table.name == store.table);
        Ok(table.with_context(|| format!("there is no table {:?}", store.table))?.columns())
    }
}

impl Store {
    /// Returns the name of the table at a position.
    pub fn table_name(&self, place: u64) -> String {
        if self.tables == 1 { "t".to_string() } else { format!("t{place}") }
    }

    /// Returns whether the processes are killed, so that the log is read again.
    pub fn is_killed(&self) -> bool {
        self.log_mib > 0
    }

    /// Returns the query that reads little.
    pub fn selective(&self) -> String {
        self.sql(&self.selective)
    }

    /// Returns the query that reads a whole column.
    pub fn scan(&self) -> Option<String> {
        self.scan.as_ref().map(|scan| self.sql(scan))
    }

    fn sql(&self, text: &str) -> String {
        let numbers = [("{rows}", self.rows), ("{half}", self.rows / 2), ("{last}", self.tables - 1)];
        numbers.iter().fold(text.to_string(), |sql, (name, number)| sql.replace(name, &number.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::Definition;
    use crate::suite::Options;

    #[test]
    fn stores_have_tables_and_whole_queries() {
        for is_quick in [false, true] {
            let definition = Definition::read(&Options::of(is_quick)).expect("it can be read");
            for store in &definition.stores {
                assert!(!definition.columns(store).expect("there is such a table").is_empty());
                assert!(!store.memory_mib.is_empty());
                for sql in [Some(store.selective()), store.scan()].into_iter().flatten() {
                    assert!(!sql.contains('{'), "{sql}");
                }
            }
        }
    }
}
