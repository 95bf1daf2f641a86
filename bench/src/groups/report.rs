//! Formats the results of all parts as tables.

use super::clients::{ClientsResult, Held, RIVAL, SideResult, Way};
use super::dashboards::DashboardResult;
use super::definition::Definition;
use super::goals;
use super::joins::JoinsResult;
use super::measure::Results;
use super::pipelines::{ModeResult, PipelinesResult};
use super::scans::ScansResult;
use super::stage::Ways;
use crate::suite::Table;
use crate::text;

/// Returns the whole report.
pub fn text(results: &Results, definition: &Definition) -> String {
    let about = format!(
        "median of {} runs · {} threads at client and node · all answers agree",
        results.runs, definition.threads
    );
    let (head, notes) = (results.head.text(about), text::lines(&results.notes));
    let of_pipelines = |results: &[PipelinesResult]| {
        let count = definition.pipelines.count;
        format!("{count} pipelines of three columns each. {WAYS}\n\n{}", pipelines(results))
    };
    let sections = [
        text::section(&results.pipelines, of_pipelines),
        text::section(&results.modes, modes),
        text::section(&results.joins, joins),
        text::section(&results.dashboards, dashboards),
        text::section(&results.scans, scans),
        results.clients.as_ref().map(|results| clients(results, definition)),
        Some(goals::of(results, definition).table()),
    ];
    text::report(&format!("{head}{}\n{notes}", results.limits), sections)
}

/// Explains the columns of [`with_ways`].
const WAYS: &str = "Seconds. Nothing is done at the node: rows are sent for each; columns are sent for each (isolated); columns are sent \
                    once for all, which run at once; columns are at the client already (local). And as a batch with free choice \
                    of what is done where.";

/// Adds columns for the costs in each of the [`Ways`].
fn with_ways<T: Copy>(table: Table<T>, ways: impl Fn(T) -> Ways) -> String {
    let of_columns = |ways: &Ways| ways.grouped_bytes as f64 / ways.distinct_bytes as f64;
    let table = table
        .number("rows", 3, |item| ways(item).rows_s)
        .bytes("moved", |item| ways(item).rows_bytes)
        .number("isolated", 3, |item| ways(item).isolated_s)
        .bytes("moved", |item| ways(item).isolated_bytes)
        .number("at once", 3, |item| ways(item).grouped_s)
        .bytes("moved", |item| ways(item).grouped_bytes)
        .ratio("of columns", 2, |item| of_columns(&ways(item)))
        .ratio("by isolated", 2, |item| ways(item).grouped_s / ways(item).isolated_s)
        .number("local", 3, |item| ways(item).local_s)
        .ratio("by local", 2, |item| ways(item).grouped_s / ways(item).local_s)
        .number("free", 3, |item| ways(item).free_s)
        .bytes("moved", |item| ways(item).free_bytes);
    table.to_string()
}

fn pipelines(results: &[PipelinesResult]) -> String {
    let table = Table::of(results)
        .column("table", |result| &result.table)
        .column("overlap", |result| format!("{}/3", result.overlap));
    with_ways(table, |result| result.ways)
}

fn joins(results: &[JoinsResult]) -> String {
    let table = with_ways(Table::of(results).column("joins", |result| result.joins), |result| result.ways);
    format!("Hash joins of one table, each with another half of a smaller one. {WAYS}\n\n{table}")
}

fn modes(results: &[ModeResult]) -> String {
    let mut table = Table::of(results)
        .column("table", |result| &result.table)
        .column("overlap", |result| format!("{}/3", result.overlap));
    let names = ["one thread", "all threads for each", "half at once", "a thread for each"];
    for (mode, name) in names.into_iter().enumerate() {
        table = table.number(name, 3, |result| result.modes_s[mode]);
    }
    format!("The same in the paper's modes of execution, seconds.\n\n{table}")
}

fn dashboards(results: &[DashboardResult]) -> String {
    let bytes = |result: &DashboardResult| result.together.bytes as f64 / result.apart.bytes as f64;
    let table = Table::of(results)
        .column("dashboard", |result| &result.name)
        .column("link", |result| &result.link)
        .column("statements", |result| result.statements)
        .number("apart s", 3, |result| result.apart.seconds)
        .number("CPU s", 2, |result| result.apart.cpu_s)
        .bytes("moved", |result| result.apart.bytes)
        .number("together s", 3, |result| result.together.seconds)
        .number("CPU s", 2, |result| result.together.cpu_s)
        .bytes("moved", |result| result.together.bytes)
        .ratio("time", 2, |result| result.together.seconds / result.apart.seconds)
        .ratio("CPU", 2, |result| result.together.cpu_s / result.apart.cpu_s)
        .ratio("bytes", 2, bytes);
    format!("Dashboards: their statements one by one, and together.\n\n{table}")
}

fn scans(results: &[ScansResult]) -> String {
    let table = Table::of(results)
        .column("", |result| &result.name)
        .column("clients", |result| result.clients)
        .bytes("of columns", |result| result.distinct_bytes)
        .number("shared s", 3, |result| result.shared.seconds)
        .number("CPU s", 2, |result| result.shared.cpu_s)
        .bytes("read", |result| result.shared.bytes_read)
        .column("known", |result| text::rows(result.shared.rows_known))
        .number("unshared s", 3, |result| result.unshared.seconds)
        .number("CPU s", 2, |result| result.unshared.cpu_s)
        .bytes("read", |result| result.unshared.bytes_read)
        .ratio("time", 2, |result| result.shared.seconds / result.unshared.seconds)
        .ratio("CPU", 2, |result| result.shared.cpu_s / result.unshared.cpu_s);
    format!("Clients of one node that scan one table at once, with and without sharing.\n\n{table}")
}

fn about_clients(results: &ClientsResult) -> String {
    format!(
        "Clients that go through the queries of TPC-H at scale {}, {} encoded, {} runs, with and without sharing. Statements a \
         second, CPU time in seconds, and the 99th percentile of query {} in ms, of so many. {}, all in memory, with as many \
         cursors.",
        results.scale,
        text::bytes(results.data_bytes),
        results.runs,
        results.shortest,
        results.rival.as_deref().unwrap_or("Without a rival"),
    )
}

/// A row of the table of clients: the costs of one number of clients with and without shared scans, and of the rival,
/// which always has all data in memory.
#[derive(Clone, Copy)]
struct Compared<'r> {
    in_memory: &'static str,
    way: Way,
    shared: &'r SideResult,
    unshared: &'r SideResult,
    rival: Option<&'r SideResult>,
}

fn clients(results: &ClientsResult, definition: &Definition) -> String {
    let mut rows = Vec::new();
    for (held, in_memory) in [(Held::All, "all"), (Held::Half, "half")] {
        for way in [Way::Embedded, Way::Remote] {
            for count in definition.clients.clients.iter().copied() {
                let of = |name: &str, held| results.side(name, held, count);
                let sides = of(&way.side(true), held).zip(of(&way.side(false), held));
                let Some((shared, unshared)) = sides else { continue };
                rows.push(Compared { in_memory, way, shared, unshared, rival: of(RIVAL, Held::All) });
            }
        }
    }
    let p99 = SideResult::shortest_p99_ms;
    let table = Table::of(rows)
        .column("in memory", |row| row.in_memory)
        .column("way", |row| row.way.name())
        .column("clients", |row| row.shared.clients)
        .column("statements", |row| row.shared.statements)
        .number("shared /s", 1, |row| row.shared.throughput())
        .number("CPU", 1, |row| row.shared.cpu_s)
        .bytes("read", |row| row.shared.bytes_read)
        .number("p99", 0, |row| p99(row.shared))
        .number("unshared /s", 1, |row| row.unshared.throughput())
        .number("CPU", 1, |row| row.unshared.cpu_s)
        .bytes("read", |row| row.unshared.bytes_read)
        .number("p99", 0, |row| p99(row.unshared))
        .column("of", |row| row.unshared.shortest_ms.len())
        .ratio("by unshared", 2, |row| row.shared.throughput() / row.unshared.throughput())
        .ratio("p99", 2, |row| p99(row.shared) / p99(row.unshared))
        .number("DuckDB /s", 1, |row| row.rival.map(SideResult::throughput))
        .number("CPU", 1, |row| row.rival.map(|rival| rival.cpu_s))
        .number("p99", 0, |row| row.rival.map(p99))
        .ratio("by DuckDB", 2, |row| row.rival.map(|rival| row.shared.throughput() / rival.throughput()));
    format!("{}\n\n{table}", about_clients(results))
}
