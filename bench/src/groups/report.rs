//! Formats the results as tables.

use super::clients::{ClientsResult, Held, RIVAL, SideResult, Way};
use super::dashboards::DashboardResult;
use super::definition::Definition;
use super::goals;
use super::joins::JoinsResult;
use super::measure::Results;
use super::pipelines::{ModeResult, PipelinesResult};
use super::scans::ScansResult;
use super::stage::Ways;
use crate::text;

/// Returns the whole report.
pub fn text(results: &Results, definition: &Definition) -> String {
    let mut report = format!(
        "groups · {} · median of {} runs · {} threads at client and node · all answers agree\n{}\n{}\n",
        results.date,
        results.runs,
        definition.threads,
        text::machine(&results.machine),
        text::limits(&results.limits),
    );
    results.notes.iter().for_each(|note| report.push_str(&format!("{note}\n")));
    let mut part = |about: &str, table: String| report.push_str(&format!("\n{about}\n\n{table}\n"));
    if !results.pipelines.is_empty() {
        let about = format!("{} pipelines of three columns each. {WAYS}", definition.pipelines.count);
        part(&about, pipelines(&results.pipelines));
        part("The same in the paper's modes of execution, seconds.", modes(&results.modes));
    }
    if !results.joins.is_empty() {
        let about = format!("Hash joins of one table, each with another half of a smaller one. {WAYS}");
        part(&about, joins(&results.joins));
    }
    if !results.dashboards.is_empty() {
        let about = "Dashboards: their statements one by one, and together.";
        part(about, dashboards(&results.dashboards));
    }
    if !results.scans.is_empty() {
        let about = "Clients of one node that scan one table at once, with and without sharing.";
        part(about, scans(&results.scans));
    }
    if let Some(results) = &results.clients {
        part(&about_clients(results), clients(results, definition));
    }
    report.push_str(&format!("\n{}\n", goals::table(results, definition)));
    report
}

const WAYS: &str = "Seconds. Nothing is done at the node: rows are sent for each; columns are sent for each (isolated); columns are sent \
                    once for all, which run at once; columns are at the client already (local). And as a batch with free choice \
                    of what is done where.";

pub fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_string()).collect()
}

/// The columns of a table of costs in each of the ways.
const WAYS_HEADER: [&str; 12] = [
    "rows",
    "moved",
    "isolated",
    "moved",
    "at once",
    "moved",
    "of columns",
    "by isolated",
    "local",
    "by local",
    "free",
    "moved",
];

fn ways(ways: &Ways) -> [String; 12] {
    [
        format!("{:.3}", ways.rows_s),
        text::bytes(ways.rows_bytes),
        format!("{:.3}", ways.isolated_s),
        text::bytes(ways.isolated_bytes),
        format!("{:.3}", ways.grouped_s),
        text::bytes(ways.grouped_bytes),
        format!("{:.2}×", ways.grouped_bytes as f64 / ways.distinct_bytes as f64),
        format!("{:.2}×", ways.grouped_s / ways.isolated_s),
        format!("{:.3}", ways.local_s),
        format!("{:.2}×", ways.grouped_s / ways.local_s),
        format!("{:.3}", ways.free_s),
        text::bytes(ways.free_bytes),
    ]
}

fn pipelines(results: &[PipelinesResult]) -> String {
    let row = |result: &PipelinesResult| {
        let named = [result.table.clone(), format!("{}/3", result.overlap)];
        named.into_iter().chain(ways(&result.ways)).collect()
    };
    let names = [&["table", "overlap"][..], &WAYS_HEADER].concat();
    text::table(header(&names), results.iter().map(row).collect())
}

fn joins(results: &[JoinsResult]) -> String {
    let row =
        |result: &JoinsResult| [result.joins.to_string()].into_iter().chain(ways(&result.ways)).collect();
    let names = [&["joins"][..], &WAYS_HEADER].concat();
    text::table(header(&names), results.iter().map(row).collect())
}

fn modes(results: &[ModeResult]) -> String {
    let names =
        ["table", "overlap", "one thread", "all threads for each", "half at once", "a thread for each"];
    let row = |result: &ModeResult| {
        let mut row = vec![result.table.clone(), format!("{}/3", result.overlap)];
        row.extend(result.modes_s.iter().map(|seconds| format!("{seconds:.3}")));
        row
    };
    text::table(header(&names), results.iter().map(row).collect())
}

fn dashboards(results: &[DashboardResult]) -> String {
    let names = [
        "dashboard",
        "link",
        "statements",
        "apart s",
        "CPU s",
        "moved",
        "together s",
        "CPU s",
        "moved",
        "time",
        "CPU",
        "bytes",
    ];
    let row = |result: &DashboardResult| {
        let (apart, together) = (result.apart, result.together);
        vec![
            result.name.clone(),
            result.link.clone(),
            result.statements.to_string(),
            format!("{:.3}", apart.seconds),
            format!("{:.2}", apart.cpu_s),
            text::bytes(apart.bytes),
            format!("{:.3}", together.seconds),
            format!("{:.2}", together.cpu_s),
            text::bytes(together.bytes),
            format!("{:.2}×", together.seconds / apart.seconds),
            format!("{:.2}×", together.cpu_s / apart.cpu_s),
            format!("{:.2}×", together.bytes as f64 / apart.bytes as f64),
        ]
    };
    text::table(header(&names), results.iter().map(row).collect())
}

fn scans(results: &[ScansResult]) -> String {
    let names = [
        "",
        "clients",
        "of columns",
        "shared s",
        "CPU s",
        "read",
        "known",
        "unshared s",
        "CPU s",
        "read",
        "time",
        "CPU",
    ];
    let row = |result: &ScansResult| {
        let (shared, unshared) = (result.shared, result.unshared);
        vec![
            result.name.clone(),
            result.clients.to_string(),
            text::bytes(result.distinct_bytes),
            format!("{:.3}", shared.seconds),
            format!("{:.2}", shared.cpu_s),
            text::bytes(shared.bytes_read),
            text::rows(shared.rows_known),
            format!("{:.3}", unshared.seconds),
            format!("{:.2}", unshared.cpu_s),
            text::bytes(unshared.bytes_read),
            format!("{:.2}×", shared.seconds / unshared.seconds),
            format!("{:.2}×", shared.cpu_s / unshared.cpu_s),
        ]
    };
    text::table(header(&names), results.iter().map(row).collect())
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

fn clients(results: &ClientsResult, definition: &Definition) -> String {
    let names = [
        "in memory",
        "way",
        "clients",
        "statements",
        "shared /s",
        "CPU",
        "read",
        "p99",
        "unshared /s",
        "CPU",
        "read",
        "p99",
        "of",
        "by unshared",
        "p99",
        "DuckDB /s",
        "CPU",
        "p99",
        "by DuckDB",
    ];
    let mut rows = Vec::new();
    for (held, in_memory) in [(Held::All, "all"), (Held::Half, "half")] {
        for way in [Way::Embedded, Way::Remote] {
            for count in definition.clients.clients.iter().copied() {
                let of = |name: &str, held| results.side(name, held, count);
                let sides = of(&way.side(true), held).zip(of(&way.side(false), held));
                let Some((shared, unshared)) = sides else { continue };
                let mut row = vec![in_memory.to_string(), way.name().to_string(), count.to_string()];
                row.push(shared.statements.to_string());
                row.extend(clients_side(shared));
                row.extend(clients_side(unshared));
                row.push(unshared.shortest_ms.len().to_string());
                row.push(format!("{:.2}×", shared.throughput() / unshared.throughput()));
                row.push(format!("{:.2}×", shared.shortest_p99_ms() / unshared.shortest_p99_ms()));
                row.extend(by_rival(shared, of(RIVAL, Held::All)));
                rows.push(row);
            }
        }
    }
    text::table(header(&names), rows)
}

fn clients_side(side: &SideResult) -> [String; 4] {
    [
        format!("{:.1}", side.throughput()),
        format!("{:.1}", side.cpu_s),
        text::bytes(side.bytes_read),
        format!("{:.0}", side.shortest_p99_ms()),
    ]
}

fn by_rival(shared: &SideResult, rival: Option<&SideResult>) -> [String; 4] {
    let Some(rival) = rival else { return std::array::from_fn(|_| "-".to_string()) };
    [
        format!("{:.1}", rival.throughput()),
        format!("{:.1}", rival.cpu_s),
        format!("{:.0}", rival.shortest_p99_ms()),
        format!("{:.2}×", shared.throughput() / rival.throughput()),
    ]
}
