//! Formats the results as tables.

use super::appends::{AppendsResult, ScanResult};
use super::changes::{ChangeResult, ChangesResult};
use super::growing::Memory;
use super::inserts::{InsertResult, InsertsResult, Latency, QueriesResult};
use super::measure::{Results, SharesResult, SmallResult};
use crate::{stats, text};

/// Returns the whole report.
pub fn text(results: &Results) -> String {
    let head = format!(
        "clients · {} rows · {} · {} worker threads · farpool over loopback TCP, clients in the same process\n{}\n{}",
        text::rows(results.rows),
        results.date,
        results.threads,
        text::machine(&results.machine),
        text::limits(&results.limits),
    );
    let parts = [
        (!results.shares.is_empty()).then(|| shares(&results.shares)),
        (!results.small.is_empty()).then(|| small(&results.small)),
        results.inserts.as_ref().map(inserts),
        results.appends.as_ref().map(appends),
        results.changes.as_ref().map(changes),
    ];
    let parts = [head].into_iter().chain(parts.into_iter().flatten());
    parts.collect::<Vec<_>>().join("\n\n") + "\n"
}

fn shares(results: &[SharesResult]) -> String {
    let header = ["clients", "programs", "shares expected", "shares measured", "off by", "goal", ""];
    format!(
        "Shares are of the CPU time of the programs that ran to their end; waited is the time in which a worker could\n\
         have gone on with a query and none had time.\n\n{}",
        text::table(header.map(String::from).to_vec(), results.iter().map(shares_row).collect())
    )
}

fn small(results: &[SmallResult]) -> String {
    let header = [
        "small queries beside",
        "queries",
        "p50 ms",
        "p99 ms",
        "waited p50",
        "waited p99",
        "p99 / alone",
        "goal",
        "",
    ];
    let alone = results.first();
    let rows = results.iter().map(|result| small_row(result, alone)).collect();
    text::table(header.map(String::from).to_vec(), rows)
}

fn inserts(results: &InsertsResult) -> String {
    let InsertsResult { connections, per_second, inserts, queries } = results;
    let header = ["inserts", "rows", "a second", "goal", "", "p50 ms", "p99 ms", "most ms"];
    let insert = |result: &InsertResult| {
        let reached = result.inserts as f64 / result.elapsed_s;
        let rate = [format!("{reached:.0}"), per_second.to_string(), met(result.is_rate_reached)];
        [vec![beside(&result.beside), result.inserts.to_string()], rate.to_vec(), latency(&result.latency)]
            .concat()
    };
    let queries_header =
        ["queries over", "alone", "p50 ms", "p99 ms", "most ms", "beside", "p50 ms", "p99 ms", "most ms"];
    let counted = |of: &Latency| [vec![of.count.to_string()], latency(of)].concat();
    let query = |result: &QueriesResult| {
        [vec![result.over.clone()], counted(&result.alone), counted(&result.beside)].concat()
    };
    let memories = inserts.iter().map(|result| (beside(&result.beside), &result.memory));
    format!(
        "INSERT statements of one row, {per_second} a second due on {connections} connections; a latency counts from \
         when its statement was due.\n\n{}\n\n{}\n\n{}",
        text::table(header.map(String::from).to_vec(), inserts.iter().map(insert).collect()),
        text::table(queries_header.map(String::from).to_vec(), queries.iter().map(query).collect()),
        memory(memories.collect())
    )
}

fn appends(result: &AppendsResult) -> String {
    let AppendsResult { connections, rows, elapsed_s, memory: held, scans } = result;
    let header = [
        "scans",
        "runs",
        "appended ms",
        "loaded ms",
        "ratio",
        "goal",
        "",
        "node's CPU ms",
        "loaded",
        "ratio",
    ];
    format!(
        "{rows} rows appended one by one on {connections} connections, {:.0} a second; then scans in turns with a \
         table of the same rows loaded at once.\n\n{}\n\n{}",
        *rows as f64 / elapsed_s,
        memory(vec![("all appends".to_string(), held)]),
        text::table(header.map(String::from).to_vec(), scans.iter().map(scan_row).collect())
    )
}

fn scan_row(result: &ScanResult) -> Vec<String> {
    let ScanResult { name, runs, appended, loaded, at_most } = result;
    let ratio = appended.ms / loaded.ms;
    vec![
        name.clone(),
        runs.to_string(),
        format!("{:.2}", appended.ms),
        format!("{:.2}", loaded.ms),
        format!("{ratio:.2}×"),
        format!("{at_most:.1}×"),
        met(ratio <= *at_most),
        format!("{:.2}", appended.cpu_ms),
        format!("{:.2}", loaded.cpu_ms),
        format!("{:.2}×", appended.cpu_ms / loaded.cpu_ms),
    ]
}

fn changes(result: &ChangesResult) -> String {
    let ChangesResult { scale, runs, rows, sides, rivals, notes, cases } = result;
    let beside: String = rivals.iter().map(|rival| format!(" · {rival}")).collect();
    let header = ["changes", "rows"].map(String::from).into_iter();
    // Ratios are to the first side.
    let others = || sides.iter().skip(1);
    let header = header
        .chain(sides.iter().map(|side| format!("{side} ms")))
        .chain(others().map(|side| format!("{side} / {}", sides[0])));
    let row = |case: &ChangeResult| {
        let median = |side: &String| stats::median(case.times_ms.get(side).map_or(&[], Vec::as_slice));
        let ratios = others().map(|side| format!("{:.2}×", median(side) / median(&sides[0])));
        let times = sides.iter().map(|side| format!("{:.1}", median(side)));
        [case.name.clone(), case.rows.to_string()].into_iter().chain(times).chain(ratios).collect()
    };
    let notes: String = notes.iter().map(|note| format!("\n{note}")).collect();
    format!(
        "Changes of lineitem, scale {scale}, {rows} rows{beside}: medians of {runs} runs.{notes}\n\n{}",
        text::table(header.collect(), cases.iter().map(row).collect())
    )
}

/// Formats the memory of growing tables, one row for each measurement.
fn memory(tables: Vec<(String, &Memory)>) -> String {
    let header =
        ["memory in MiB after", "at most", "settled", "loaded at once", "goal", "", "settled after s"];
    let mib = |bytes: u64| format!("{:.0}", bytes as f64 / f64::from(1 << 20));
    let row = |(name, memory): (String, &Memory)| {
        let Memory { most_bytes, settled_bytes, loaded_bytes, at_most_bytes, settled_s } = memory;
        let bytes = [most_bytes, settled_bytes, loaded_bytes, at_most_bytes].map(|bytes| mib(*bytes));
        [vec![name], bytes.to_vec(), vec![met(memory.is_within()), format!("{settled_s:.2}")]].concat()
    };
    text::table(header.map(String::from).to_vec(), tables.into_iter().map(row).collect())
}

fn beside(what: &str) -> String {
    match what {
        "alone" => what.to_string(),
        _ => format!("beside {what}"),
    }
}

fn latency(latency: &Latency) -> Vec<String> {
    [latency.p50_ms, latency.p99_ms, latency.most_ms].map(|ms| format!("{ms:.2}")).to_vec()
}

fn met(is_met: bool) -> String {
    text::met(Some(is_met)).trim().to_string()
}

fn shares_row(result: &SharesResult) -> Vec<String> {
    let percent = |parts: &[f64]| {
        let parts: Vec<String> = parts.iter().map(|part| format!("{:.1}", part * 100.0)).collect();
        parts.join(" ") + " %"
    };
    vec![
        result.name.clone(),
        result.programs.to_string(),
        percent(&result.expected),
        percent(&result.measured),
        format!("{:.0} %", result.off_by() * 100.0),
        format!("{:.0} %", result.within * 100.0),
        met(result.off_by() <= result.within),
    ]
}

fn small_row(result: &SmallResult, alone: Option<&SmallResult>) -> Vec<String> {
    let ratio = alone.map_or(f64::NAN, |alone| result.p99_ms / alone.p99_ms);
    vec![
        result.beside.clone(),
        result.queries.to_string(),
        format!("{:.2}", result.p50_ms),
        format!("{:.2}", result.p99_ms),
        format!("{:.3}", result.waited_p50_ms),
        format!("{:.3}", result.waited_p99_ms),
        format!("{ratio:.1}×"),
        format!("{:.1}×", result.at_most),
        met(ratio <= result.at_most),
    ]
}
