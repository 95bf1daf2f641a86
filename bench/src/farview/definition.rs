//! The definition of the benchmark suite `farview`, read from `bench/definitions/farview.toml` (the fields are
//! explained there).

use crate::rival::RivalDefinition;
use crate::tables::TableDefinition;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The definition of the suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub runs: usize,
    pub threads: usize,
    pub rows: u64,
    pub rivals: Vec<String>,
    /// Number of rows of the largest table to which all tables are scaled.
    pub scaled_rows: Option<u64>,
    /// Goal: maximal additional time for a table that is encrypted in memory, as a multiple of OpenSSL's time for its
    /// bytes.
    pub decryption_at_most: f64,
    /// Goals against single rivals, which apply to every case.
    pub goals: BTreeMap<String, f64>,
    pub tables: Vec<TableDefinition>,
    pub cases: Vec<Case>,
}

/// A query and its goals.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    /// The figure of the paper that the case reproduces.
    pub figure: Option<String>,
    pub table: String,
    /// The columns that the query needs.
    pub columns: Vec<String>,
    pub sql: String,
    /// Statements in dialects that differ from `sql`.
    #[serde(default)]
    pub dialects: BTreeMap<String, String>,
    /// Rivals that do not take part.
    #[serde(default)]
    pub without: Vec<String>,
    /// Number of clients that run the query concurrently.
    #[serde(default = "one")]
    pub clients: usize,
    /// Goal: minimal ratio of the fastest local engine's time to farpool's.
    pub faster: Option<f64>,
    /// Name of the case in which one client alone does the same as each of the `clients` here.
    pub alone: Option<String>,
    /// Goal: maximal time of the concurrent clients, as a multiple of running them one after the other.
    pub alone_at_most: Option<f64>,
    /// Whether the case also runs on a table that is encrypted in memory.
    #[serde(default)]
    pub hidden: bool,
    /// Goal for the encrypted table: minimal ratio of the fastest local engine's time to farpool's.
    pub hidden_faster: Option<f64>,
    /// Whether the case also runs with encrypted results, and with both table and results encrypted.
    #[serde(default)]
    pub sealed: bool,
    /// Goal: maximal time with TLS, as a multiple of the time without; if `None`, the case is not run with TLS.
    pub tls_at_most: Option<f64>,
    /// Whether the case runs with the largest size of the table only.
    #[serde(default)]
    pub largest_only: bool,
}

fn one() -> usize {
    1
}

impl Definition {
    /// Scales the tables so that the largest has `rows` rows; their smaller sizes are left out.
    pub fn scale_to(&mut self, rows: u64) {
        let whole = u128::from(self.rows.max(1));
        for table in &mut self.tables {
            let scaled = u128::from(table.largest()) * u128::from(rows) / whole;
            table.sizes = vec![u64::try_from(scaled).unwrap_or(u64::MAX).max(1)];
        }
        self.rows = rows;
    }
}

impl Case {
    /// Returns whether the case runs on a table that is encrypted in memory.
    pub fn is_hidden(&self) -> bool {
        self.hidden || self.sealed || self.hidden_faster.is_some()
    }

    /// Returns the statement for a rival, if the rival takes part.
    pub fn statement(&self, rival: &RivalDefinition) -> Option<&str> {
        if self.without.contains(&rival.name) {
            return None;
        }
        match rival.dialects.iter().find_map(|dialect| self.dialects.get(dialect)) {
            Some(own) => Some(own),
            None if rival.only => None,
            None => Some(&self.sql),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Definition;
    use crate::places;
    use crate::rival::RivalDefinition;
    use crate::tables::Content;

    fn definition() -> Definition {
        places::definition("farview").expect("it can be read")
    }

    #[test]
    fn cases_name_tables_columns_rivals_and_cases_that_there_are() {
        let definition = definition();
        for case in &definition.cases {
            let table = definition.tables.iter().find(|table| table.name == case.table).expect(&case.table);
            let columns = table.columns();
            for column in &case.columns {
                assert!(columns.iter().any(|(name, _)| name == column), "{}: {column}", case.name);
                assert!(case.sql.contains(column.as_str()), "{}: {column}", case.name);
            }
            if let Some(alone) = &case.alone {
                assert!(definition.cases.iter().any(|other| other.name == *alone), "{alone}");
            }
        }
        for rival in &definition.rivals {
            RivalDefinition::named(rival).expect("it is defined");
        }
        assert!(definition.goals.keys().all(|rival| definition.rivals.contains(rival)));
    }

    #[test]
    fn tables_shrink_in_proportion() {
        let mut definition = definition();
        let before: Vec<u64> = definition.tables.iter().map(|table| table.largest()).collect();
        definition.scale_to(definition.rows / 16);
        for (table, before) in definition.tables.iter().zip(before) {
            assert_eq!(table.sizes, [before / 16]);
        }
    }

    #[test]
    fn numbered_columns_are_many() {
        let definition = definition();
        let wide =
            definition.tables.iter().find(|table| table.name == "wide").expect("it is there").columns();
        assert_eq!((wide.len(), wide[63].0.as_str(), wide[63].1), (64, "c63", Content::Uniform(1_000_000)));
    }

    #[test]
    fn rivals_take_the_first_statement_in_their_dialects() {
        let definition = definition();
        let statement = |case: &str, rival: &str| {
            let case = definition.cases.iter().find(|other| other.name == case).expect(case);
            case.statement(&RivalDefinition::named(rival).expect(rival)).map(str::to_string)
        };
        let has = |found: Option<String>, part: &str| found.is_some_and(|found| found.contains(part));
        assert!(has(statement("regex, 16 bytes", "chDB"), "match("));
        assert!(has(statement("regex, 16 bytes", "Polars"), "regexp_like("));
        assert!(has(statement("regex, 16 bytes", "Quack"), "regexp_matches("));
        assert!(has(statement("distinct 8 M", "Quack"), "FROM remote.s"));
        assert_eq!(statement("distinct 8 M", "RE2"), None);
        assert_eq!(statement("distinct 8 M", "Flight"), None);
        // Rivals whose database files are encrypted take part only in the cases about encryption.
        assert_eq!(statement("distinct 8 M", "DuckDB encrypted"), None);
        assert!(has(statement("read all", "DuckDB encrypted"), "FROM e"));
        assert!(has(statement("read all", "DuckDB"), "FROM e"));
        assert_eq!(statement("read all", "Polars"), None);
    }
}
