//! The suite as data: `bench/definitions/groups.toml`, which explains the fields.

use crate::suite::Options;
use crate::tables::{Content, TableDefinition};
use anyhow::Result;
use serde::Deserialize;

/// Number of columns of the generated tables of pipelines, dashboards and scans.
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
    /// Maximum number of rows of the tables of pipelines, dashboards and joins.
    rows_max: Option<u64>,
    /// Maximum number of tables of pipelines and dashboards; the others are left out.
    tables_max: Option<usize>,
}

/// Pipelines: aggregates over one table with some columns in common.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pipelines {
    /// Number of pipelines that run together.
    pub count: usize,
    /// Numbers of columns that all pipelines have in common, a measurement for each.
    pub overlaps: Vec<usize>,
    sql: String,
}

/// A table with [`COLUMNS`] columns of random integers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub name: String,
    pub rows: u64,
    /// Exclusive upper bound of the values.
    pub below: u64,
}

/// A dashboard: statements over one table that a client sends together.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dashboard {
    pub name: String,
    /// Index of the table in [`Definition::tables`].
    pub table: usize,
    statements: Vec<String>,
}

/// Hash joins of one table with different halves of another one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Joins {
    /// Numbers of joins that run together, a measurement for each.
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
    /// Numbers of concurrent clients with different filters, a measurement for each.
    pub clients: Vec<usize>,
    sql: String,
    /// The aggregates of the clients with the same filter, one for each client.
    same: Vec<String>,
    same_filter: String,
    /// Number of clients that start one after the other, and the milliseconds between two starts.
    pub later: usize,
    pub later_ms: u64,
    /// Number of clients that scan repeatedly, and the number of scans of each.
    pub cyclic: usize,
    pub turns: usize,
}

/// Clients that run the queries of TPC-H concurrently.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    pub scale: f64,
    pub runs: usize,
    /// Numbers of concurrent clients, a measurement for each.
    pub clients: Vec<usize>,
    /// Numbers of the TPC-H queries.
    pub queries: Vec<usize>,
    /// The shortest of the queries. It runs again after every `every` queries, so that there are enough times of it for
    /// a percentile.
    pub shortest: usize,
    every: usize,
    /// Minimum number of times that all queries run, and minimum number of statements per client.
    rounds: usize,
    each_least: usize,
}

/// The goals, as ratios; the definition file says of what.
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

/// Goals for `least` or more clients that run TPC-H: throughput relative to the side without shared scans and to
/// DuckDB, and the 99th percentile of the shortest query's times relative to the side without shared scans.
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
    /// Reads the definition, with the settings of `--quick` and `--runs`.
    pub fn read(options: &Options) -> Result<Definition> {
        let mut definition: Definition = options.definition("groups")?;
        if let Some(runs) = options.runs {
            definition.clients.runs = runs.max(1);
        }
        let rows_max = definition.rows_max.unwrap_or(u64::MAX);
        definition.tables.truncate(definition.tables_max.unwrap_or(usize::MAX));
        definition.tables.iter_mut().for_each(|table| table.rows = table.rows.min(rows_max));
        let sizes = definition.joins.tables.iter_mut().flat_map(|table| &mut table.sizes);
        sizes.for_each(|size| *size = rows_max.min(*size));
        Ok(definition)
    }

    /// Leaves out tables whose names do not contain `part`, and the dashboards over them.
    pub fn keep_tables(&mut self, part: &str) {
        let is_kept = |table: &Table| table.name.contains(part);
        self.dashboards.retain(|dashboard| is_kept(&self.tables[dashboard.table]));
        for dashboard in &mut self.dashboards {
            // Tables that are left out no longer count in the index of a later one.
            let before = self.tables[..dashboard.table].iter();
            dashboard.table = before.filter(|table| is_kept(table)).count();
        }
        self.tables.retain(is_kept);
    }
}

/// Returns the names and contents of [`COLUMNS`] columns of integers below `below`.
fn columns(below: u64) -> Vec<(String, Content)> {
    (0..COLUMNS).map(|column| (format!("c{column}"), Content::Uniform(below))).collect()
}

impl Table {
    /// Returns names and contents of the columns.
    pub fn columns(&self) -> Vec<(String, Content)> {
        columns(self.below)
    }

    /// Replaces `{n}` in a statement by the median of the values.
    fn filled(&self, sql: &str) -> String {
        sql.replace("{n}", &(self.below / 2).to_string())
    }
}

impl Joins {
    /// Returns `count` joins, each with a different half of the smaller table.
    pub fn statements(&self, count: usize) -> Vec<String> {
        (0..count).map(|join| self.sql.replace("{i}", &join.to_string())).collect()
    }
}

impl Clients {
    /// Returns the numbers of the queries that `clients` clients run together, in order.
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

    /// Returns the statement of a client; the filters of any two clients differ.
    pub fn statement(&self, client: usize) -> String {
        let below = self.below / 2 + self.below / 1000 * client as u64;
        self.sql.replace("{n}", &below.to_string())
    }

    /// Returns statements with different aggregates and the same filter.
    pub fn same_filter(&self) -> Vec<String> {
        let filter = self.same_filter.replace("{n}", &(self.below / 2).to_string());
        self.same.iter().map(|same| format!("SELECT {same} FROM t WHERE {filter}")).collect()
    }
}

impl Pipelines {
    /// Returns the column indices of a pipeline: `overlap` columns that all pipelines read, and others of its own.
    fn columns(&self, overlap: usize, pipeline: usize) -> [usize; OF_PIPELINE] {
        let own = overlap + pipeline * (OF_PIPELINE - overlap);
        std::array::from_fn(|place| if place < overlap { place } else { own + place - overlap })
    }

    /// Returns the statements of all pipelines, and the number of distinct columns that they read.
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
    /// Returns the statements for `table`.
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
    fn dashboards_stay_with_their_tables() {
        let mut definition = Definition::read(&Options::of(false)).expect("it can be read");
        let name = definition.tables[definition.dashboards[0].table].name.clone();
        let dashboards = definition.dashboards.len();
        definition.keep_tables(&name);
        assert_eq!((definition.tables.len(), definition.dashboards.len()), (1, dashboards));
        assert!(definition.dashboards.iter().all(|dashboard| dashboard.table == 0));
        definition.keep_tables("no such table");
        assert!(definition.tables.is_empty() && definition.dashboards.is_empty());
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
