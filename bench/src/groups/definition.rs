//! The suite as data: `bench/definitions/groups.toml`, which explains the fields.

use crate::places;
use crate::tables::Content;
use anyhow::Result;
use serde::Deserialize;

/// Columns of a table.
pub const COLUMNS: usize = 12;

/// Columns that a pipeline reads.
const OF_PIPELINE: usize = 3;

/// The suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub runs: usize,
    pub threads: usize,
    pub cache_mib: usize,
    pub capped_mbit: u64,
    pub pipelines: Pipelines,
    pub tables: Vec<Table>,
    pub dashboards: Vec<Dashboard>,
    /// `None` where it is left out.
    pub scans: Option<Scans>,
    pub goals: Goals,
    quick: Quick,
}

/// Queries that run at once.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pipelines {
    pub count: usize,
    pub overlaps: Vec<usize>,
    sql: String,
}

/// Rows and values of the table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub name: String,
    pub rows: u64,
    pub below: u64,
}

/// Statements that are sent at once.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dashboard {
    pub name: String,
    /// Position of its table.
    pub table: usize,
    statements: Vec<String>,
}

/// Clients that scan the same table at the same time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scans {
    pub rows: u64,
    pub below: u64,
    pub clients: Vec<usize>,
    sql: String,
    /// What programs with the same filter compute.
    same: Vec<String>,
    same_filter: String,
    /// Clients of which each begins this many milliseconds after the one before.
    pub later: usize,
    pub later_ms: u64,
    /// Clients that scan again and again, and how often.
    pub cyclic: usize,
    pub turns: usize,
}

/// What is aimed at.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goals {
    pub bytes: f64,
    pub local: f64,
    pub isolated: f64,
    pub capped: f64,
    pub cpu: f64,
    pub larger_time: f64,
    pub larger_bytes: f64,
    pub cyclic: f64,
    pub same_filter: f64,
    pub different_filters: f64,
    pub from_disk: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quick {
    runs: usize,
    rows: u64,
    capped_mbit: u64,
}

impl Definition {
    /// Reads the definition.
    pub fn read(is_quick: bool) -> Result<Definition> {
        let mut definition: Definition = places::definition("groups")?;
        if is_quick {
            let Quick { runs, rows, capped_mbit } = definition.quick;
            (definition.runs, definition.capped_mbit) = (runs, capped_mbit);
            definition.tables.iter_mut().for_each(|table| table.rows = table.rows.min(rows));
            definition.tables.truncate(2);
            if let Some(scans) = &mut definition.scans {
                // Fewer would fit a pool of a few pages.
                scans.rows = scans.rows.min(10 * rows);
                scans.clients.truncate(2);
            }
        }
        Ok(definition)
    }
}

impl Table {
    /// Names and contents of the columns.
    pub fn columns(&self) -> Vec<(String, Content)> {
        (0..COLUMNS).map(|column| (format!("c{column}"), Content::Uniform(self.below))).collect()
    }

    fn filled(&self, sql: &str) -> String {
        sql.replace("{n}", &(self.below / 2).to_string())
    }
}

impl Scans {
    /// The statement of a client, each with a filter of its own.
    pub fn statement(&self, client: usize) -> String {
        let below = self.below / 2 + self.below / 1000 * client as u64;
        self.sql.replace("{n}", &below.to_string())
    }

    /// Statements with the same filter.
    pub fn same_filter(&self) -> Vec<String> {
        let filter = self.same_filter.replace("{n}", &(self.below / 2).to_string());
        self.same.iter().map(|same| format!("SELECT {same} FROM t WHERE {filter}")).collect()
    }
}

impl Pipelines {
    /// The columns of a pipeline, of which the first `overlap` are those of all.
    fn columns(&self, overlap: usize, pipeline: usize) -> [usize; OF_PIPELINE] {
        let own = overlap + pipeline * (OF_PIPELINE - overlap);
        std::array::from_fn(|place| if place < overlap { place } else { own + place - overlap })
    }

    /// The statements, and how many columns they read together.
    pub fn statements(&self, overlap: usize, table: &Table) -> (Vec<String>, usize) {
        let statement = |pipeline| {
            let columns = self.columns(overlap, pipeline);
            let named = ["{a}", "{b}", "{c}"].into_iter().zip(columns);
            table.filled(
                &named.fold(self.sql.clone(), |sql, (name, column)| sql.replace(name, &format!("c{column}"))),
            )
        };
        let columns = overlap + self.count * (OF_PIPELINE - overlap);
        ((0..self.count).map(statement).collect(), columns)
    }
}

impl Dashboard {
    /// The statements.
    pub fn statements(&self, table: &Table) -> Vec<String> {
        self.statements.iter().map(|sql| table.filled(sql)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipelines_share_as_many_columns_as_they_say() {
        for is_quick in [false, true] {
            let definition = Definition::read(is_quick).expect("it can be read");
            for overlap in &definition.pipelines.overlaps {
                let (statements, columns) = definition.pipelines.statements(*overlap, &definition.tables[0]);
                assert!(columns <= COLUMNS && statements.iter().all(|sql| !sql.contains('{')));
                let distinct: std::collections::BTreeSet<usize> = (0..definition.pipelines.count)
                    .flat_map(|pipeline| definition.pipelines.columns(*overlap, pipeline))
                    .collect();
                assert_eq!(distinct, (0..columns).collect());
            }
            for dashboard in &definition.dashboards {
                let statements = dashboard.statements(&definition.tables[dashboard.table]);
                assert!(statements.len() > 1 && statements.iter().all(|sql| !sql.contains('{')));
            }
        }
    }
}
