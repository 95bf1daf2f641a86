//! Formats the results of the benchmark suite `clients` as tables.

use super::appends::AppendsResult;
use super::changes::{ChangeResult, ChangesResult};
use super::growing::Memory;
use super::inserts::{InsertsResult, Latency};
use super::measure::{Results, SharesResult, SmallResult};
use crate::suite::Table;
use crate::{stats, text};

/// Returns the whole report of the suite as text.
pub fn text(results: &Results) -> String {
    let about = format!(
        "{} rows · {} worker threads · farpool over loopback TCP, clients in the same process",
        text::rows(results.rows),
        results.threads
    );
    let head = format!("{}{}", results.head.text(about), results.limits);
    let sections = [
        text::section(&results.shares, shares),
        text::section(&results.small, small),
        results.inserts.as_ref().map(inserts),
        results.appends.as_ref().map(appends),
        results.changes.as_ref().map(changes),
    ];
    text::report(&head, sections)
}

fn shares(results: &[SharesResult]) -> String {
    let percent = |parts: &[f64]| {
        let parts: Vec<String> = parts.iter().map(|part| format!("{:.1}", part * 100.0)).collect();
        parts.join(" ") + " %"
    };
    let table = Table::of(results)
        .column("clients", |result| &result.name)
        .column("programs", |result| result.programs)
        .column("shares expected", |result| percent(&result.expected))
        .column("shares measured", |result| percent(&result.measured))
        .column("off by", |result| format!("{:.0} %", result.off_by() * 100.0))
        .column("goal", |result| format!("{:.0} %", result.within * 100.0))
        .met(|result| result.off_by() <= result.within);
    format!(
        "Shares are of the CPU time of the programs that ran to their end; waited is the time in which a worker could\n\
         have gone on with a query and none had time.\n\n{table}"
    )
}

fn small(results: &[SmallResult]) -> String {
    let alone = results.first().map_or(f64::NAN, |alone| alone.p99_ms);
    let table = Table::of(results)
        .column("small queries beside", |result| &result.beside)
        .column("queries", |result| result.queries)
        .number("p50 ms", 2, |result| result.p50_ms)
        .number("p99 ms", 2, |result| result.p99_ms)
        .number("waited p50", 3, |result| result.waited_p50_ms)
        .number("waited p99", 3, |result| result.waited_p99_ms)
        .ratio("p99 / alone", 1, |result| result.p99_ms / alone)
        .ratio("goal", 1, |result| result.at_most)
        .met(|result| result.p99_ms / alone <= result.at_most);
    table.to_string()
}

fn inserts(results: &InsertsResult) -> String {
    let InsertsResult { connections, per_second, inserts, queries } = results;
    let table = Table::of(inserts)
        .column("inserts", |result| beside(&result.beside))
        .column("rows", |result| result.inserts)
        .number("a second", 0, |result| result.inserts as f64 / result.elapsed_s)
        .column("goal", |_| per_second)
        .met(|result| result.is_rate_reached);
    let table = with_latency(table, |result| &result.latency);
    let queries = Table::of(queries)
        .column("queries over", |result| &result.over)
        .column("alone", |result| result.alone.count);
    let queries =
        with_latency(queries, |result| &result.alone).column("beside", |result| result.beside.count);
    let queries = with_latency(queries, |result| &result.beside);
    let memories: Vec<_> = inserts.iter().map(|result| (beside(&result.beside), &result.memory)).collect();
    format!(
        "INSERT statements of one row, {per_second} a second due on {connections} connections; a latency counts from \
         when its statement was due.\n\n{table}\n\n{queries}\n\n{}",
        memory(&memories)
    )
}

fn appends(result: &AppendsResult) -> String {
    let AppendsResult { connections, rows, elapsed_s, memory: held, scans } = result;
    let table = Table::of(scans)
        .column("scans", |scan| &scan.name)
        .column("runs", |scan| scan.runs)
        .number("appended ms", 2, |scan| scan.appended.ms)
        .number("loaded ms", 2, |scan| scan.loaded.ms)
        .ratio("ratio", 2, |scan| scan.appended.ms / scan.loaded.ms)
        .ratio("goal", 1, |scan| scan.at_most)
        .met(|scan| scan.appended.ms / scan.loaded.ms <= scan.at_most)
        .number("node's CPU ms", 2, |scan| scan.appended.cpu_ms)
        .number("loaded", 2, |scan| scan.loaded.cpu_ms)
        .ratio("ratio", 2, |scan| scan.appended.cpu_ms / scan.loaded.cpu_ms);
    format!(
        "{rows} rows appended one by one on {connections} connections, {:.0} a second; then scans in turns with a \
         table of the same rows loaded at once.\n\n{}\n\n{table}",
        *rows as f64 / elapsed_s,
        memory(&[("all appends".to_string(), held)]),
    )
}

fn changes(result: &ChangesResult) -> String {
    let ChangesResult { scale, runs, rows, sides, rivals, notes, cases } = result;
    let median = |case: &ChangeResult, side: &String| {
        stats::median(case.times_ms.get(side).map_or(&[], Vec::as_slice))
    };
    let mut table = Table::of(cases).column("changes", |case| &case.name).column("rows", |case| case.rows);
    for side in sides {
        table = table.number(format!("{side} ms"), 1, |case| median(case, side));
    }
    // Ratios compare each side's time with that of the first side.
    for side in sides.iter().skip(1) {
        let ratio = |case| median(case, side) / median(case, &sides[0]);
        table = table.ratio(format!("{side} / {}", sides[0]), 2, ratio);
    }
    let beside: String = rivals.iter().map(|rival| format!(" · {rival}")).collect();
    let notes: String = notes.iter().map(|note| format!("\n{note}")).collect();
    format!(
        "Changes of lineitem, scale {scale}, {rows} rows{beside}: medians of {runs} runs.{notes}\n\n{table}"
    )
}

/// Formats the memory of growing tables, one row for each measurement.
fn memory(tables: &[(String, &Memory)]) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let table = Table::of(tables)
        .column("memory in MiB after", |(name, _)| name)
        .number("at most", 0, |(_, memory)| mib(memory.most_bytes))
        .number("settled", 0, |(_, memory)| mib(memory.settled_bytes))
        .number("loaded at once", 0, |(_, memory)| mib(memory.loaded_bytes))
        .number("goal", 0, |(_, memory)| mib(memory.at_most_bytes))
        .met(|(_, memory)| memory.is_within())
        .number("settled after s", 2, |(_, memory)| memory.settled_s);
    table.to_string()
}

fn beside(what: &str) -> String {
    match what {
        "alone" => what.to_string(),
        _ => format!("beside {what}"),
    }
}

/// Adds the columns of a latency.
fn with_latency<'a, R>(table: Table<&'a R>, latency: impl Fn(&'a R) -> &'a Latency) -> Table<&'a R> {
    table
        .number("p50 ms", 2, |result| latency(result).p50_ms)
        .number("p99 ms", 2, |result| latency(result).p99_ms)
        .number("most ms", 2, |result| latency(result).most_ms)
}
