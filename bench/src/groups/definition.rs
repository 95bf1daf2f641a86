//! The suite as data: `bench/definitions/groups.toml`, which explains the fields.

use crate::suite::Options;
use crate::tables::{Content, TableDefinition};
use anyhow::Result;
use serde::Deserialize;

/// Number of columns of a table.
pub const COLUMNS: usize = 12;

/// Number of columns that a pipeline reads.
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
    pub joins: Joins,
    pub scans: Scans,
    pub clients: Clients,
    pub goals: Goals,
    /// Tables of pipelines, dashboards and joins are cut to this many rows, and only so many of pipelines are kept.
    rows_max: Option<u64>,
    tables_max: Option<usize>,
}

/// Concurrent queries.
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

/// Statements that are sent together.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dashboard {
    pub name: String,
    /// Position of its table.
    pub table: usize,
    statements: Vec<String>,
}

/// Hash joins of one table with parts of another one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Joins {
    pub counts: Vec<usize>,
    pub tables: Vec<TableDefinition>,
    sql: String,
}

/// Clients that scan the same table concurrently.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scans {
    pub rows: u64,
    pub below: u64,
    pub clients: Vec<usize>,
    sql: String,
    /// The computations of programs with the same filter.
    same: Vec<String>,
    same_filter: String,
    /// Number of clients that begin one after the other, at intervals of this many milliseconds.
    pub later: usize,
    pub later_ms: u64,
    /// Number of clients that scan repeatedly, and number of scans of each.
    pub cyclic: usize,
    pub turns: usize,
}

/// Clients that run the queries of TPC-H concurrently.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    pub scale: f64,
    pub runs: usize,
    pub clients: Vec<usize>,
    pub queries: Vec<usize>,
    /// The shortest of the queries, which is repeated after every this many others.
    pub shortest: usize,
    every: usize,
    /// Number of times that all queries run, and minimal number of statements of a client.
    rounds: usize,
    each_least: usize,
}

/// The goals.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goals {
    pub bytes: f64,
    pub free: f64,
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
    pub clients: ClientsGoals,
}

/// Goals for clients that run TPC-H: the throughput of at least this many clients, relative to the side without sharing
/// and to DuckDB, and the time of the shortest query.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientsGoals {
    pub least: usize,
    pub in_memory: f64,
    pub from_disk: f64,
    pub duckdb: f64,
    pub shortest_p99: f64,
}

impl Definition {
    /// Reads the definition.
    pub fn read(options: &Options) -> Result<Definition> {
        let mut definition: Definition = options.definition("groups")?;
        let rows_max = definition.rows_max.unwrap_or(u64::MAX);
        definition.tables.truncate(definition.tables_max.unwrap_or(usize::MAX));
        definition.tables.iter_mut().for_each(|table| table.rows = table.rows.min(rows_max));
        let sizes = definition.joins.tables.iter_mut().flat_map(|table| &mut table.sizes);
        sizes.for_each(|size| *size = rows_max.min(*size));
        Ok(definition)
    }
}

/// Returns names and contents of the columns of a table whose values are all below a bound.
fn columns(below: u64) -> Vec<(String, Content)> {
    (0..COLUMNS).map(|column| (format!("c{column}"), Content::Uniform(below))).collect()
}

impl Table {
    /// Returns names and contents of the columns.
    pub fn columns(&self) -> Vec<(String, Content)> {
        columns(self.below)
    }

    fn filled(&self, sql: &str) -> String {
        sql.replace("{n}", &(self.below / 2).to_string())
    }
}

impl Joins {
    /// Returns `count` joins, each with a different part.
    pub fn statements(&self, count: usize) -> Vec<String> {
        (0..count).map(|join| self.sql.replace("{i}", &join.to_string())).collect()
    }
}

impl Clients {
    /// Returns the queries that this many clients run together, in order.
    pub fn order(&self, clients: usize) -> Vec<usize> {
        let some = self.queries.chunks(self.every);
        let round: Vec<usize> = some.flat_map(|some| some.iter().copied().chain([self.shortest])).collect();
        let rounds = self.rounds.max((clients * self.each_least).div_ceil(round.len()));
        round.repeat(rounds)
    }
}

impl Scans {
    /// Returns names and contents of the columns.
    pub fn columns(&self) -> Vec<(String, Content)> {
        columns(self.below)
    }

    /// Returns the statement of a client, each with a different filter.
    pub fn statement(&self, client: usize) -> String {
        let below = self.below / 2 + self.below / 1000 * client as u64;
        self.sql.replace("{n}", &below.to_string())
    }

    /// Returns statements with the same filter.
    pub fn same_filter(&self) -> Vec<String> {
        let filter = self.same_filter.replace("{n}", &(self.below / 2).to_string());
        self.same.iter().map(|same| format!("SELECT {same} FROM t WHERE {filter}")).collect()
    }
}

impl Pipelines {
    /// Returns the columns of a pipeline, of which all pipelines share the first `overlap`.
    fn columns(&self, overlap: usize, pipeline: usize) -> [usize; OF_PIPELINE] {
        let own = overlap + pipeline * (OF_PIPELINE - overlap);
        std::array::from_fn(|place| if place < overlap { place } else { own + place - overlap })
    }

    /// Returns the statements, and the number of distinct columns that they read.
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
    /// Returns the statements.
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
            let definition = Definition::read(&Options::of(is_quick)).expect("it can be read");
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

    #[test]
    fn clients_ask_all_queries_alike_but_for_the_shortest() {
        for is_quick in [false, true] {
            let Definition { clients, .. } =
                Definition::read(&Options::of(is_quick)).expect("it can be read");
            for count in &clients.clients {
                let order = clients.order(*count);
                assert!(order.len() >= count * clients.each_least);
                let times = |query: usize| order.iter().filter(|asked| **asked == query).count();
                let others = clients.queries.iter().filter(|query| **query != clients.shortest);
                let rounds =
                    order.len() / (clients.queries.len() + clients.queries.len().div_ceil(clients.every));
                assert!(others.copied().all(|query| times(query) == rounds));
                assert!(times(clients.shortest) > 4 * rounds);
            }
        }
    }
}
