//! Formats the results of the benchmark suite `larger` as tables.

use super::measure::{LimitResult, QueryResult, Results, Sample};
use super::trace::TraceResult;
use super::units;
use crate::suite::Table;
use crate::text;

/// Returns the whole report of the suite as text.
pub fn text(results: &Results) -> String {
    let about = format!(
        "TPC-H at scale {} · median of {} runs · {} threads · all answers agree",
        results.scale, results.runs, results.threads
    );
    let notes = text::lines(&results.notes);
    let limits: String = results.limits.iter().map(|limit| of_limit(limit, results)).collect();
    format!(
        "{}the disk reads {:.2} GB/s past the cache; files: farpool {}, DuckDB {}\n{notes}{limits}{}",
        results.head.text(about),
        results.disk_gb_s,
        text::bytes(results.bytes_farpool),
        results.bytes_duckdb.map_or("-".to_string(), text::bytes),
        results.units.as_ref().map(units::report).unwrap_or_default()
    )
}

fn of_limit(limit: &LimitResult, results: &Results) -> String {
    let both: Vec<(Sample, Sample)> =
        limit.queries.iter().filter_map(|query| query.farpool.zip(query.duckdb)).collect();
    let sum = |of: &dyn Fn(&(Sample, Sample)) -> f64| both.iter().map(of).sum::<f64>();
    let bytes = |of: &dyn Fn(&(Sample, Sample)) -> u64| both.iter().map(of).sum::<u64>();
    let (ours, theirs) = (bytes(&|both| both.0.bytes_read), bytes(&|both| both.1.bytes_read));
    let ratio = sum(&|both| both.1.ms) / sum(&|both| both.0.ms);
    let is_met = text::met((!both.is_empty()).then_some(ours as f64 <= results.bytes_goal * theirs as f64));
    format!(
        "\nwithin {} MiB:\n{}\n{} queries of both sides: DuckDB's time is {ratio:.2} times farpool's; farpool reads {}, \
         DuckDB {}, goal {:.2} of that {}\n{}",
        limit.mib,
        times(limit, results),
        both.len(),
        text::bytes(ours),
        text::bytes(theirs),
        results.bytes_goal,
        is_met,
        of_trace(&limit.trace, results.optimum_goal)
    )
}

/// Formats the reads since the start of the process compared with the lower bounds.
fn of_trace(trace: &TraceResult, goal: f64) -> String {
    let ratio = |least: u64| trace.bytes_read as f64 / least.max(1) as f64;
    let is_met = text::met((trace.bytes_belady > 0).then_some(ratio(trace.bytes_belady) <= goal));
    let lost = match trace.lost {
        0 => String::new(),
        lost => format!("; {lost} accesses more had no room in the trace"),
    };
    format!(
        "{} uses of column chunks, of {} on disk, with a pool of {}: {} were read into it, {} of them for nobody; Belady's rule reads {}, and no order \
         of eviction less than {}: {:.2} times Belady's, goal {goal:.2} {}; the process had {} read in all{lost}\n",
        trace.uses,
        text::bytes(trace.bytes_used),
        text::bytes(trace.capacity),
        text::bytes(trace.bytes_read),
        text::bytes(trace.bytes_unused),
        text::bytes(trace.bytes_belady),
        text::bytes(trace.bytes_bound),
        ratio(trace.bytes_belady),
        is_met,
        text::bytes(trace.bytes_of_process)
    )
}

/// Formats the times and reads, a row for each query.
fn times(limit: &LimitResult, results: &Results) -> String {
    // The time that a query takes in addition to its time in memory, as a multiple of the time to read its bytes from
    // the disk.
    let reading = |query: &QueryResult| {
        let sample = query.farpool.filter(|sample| sample.bytes_read > 0)?;
        Some((sample.ms - query.in_memory_ms) / (sample.bytes_read as f64 / results.disk_gb_s / 1e6))
    };
    let table = Table::of(&limit.queries)
        .column("query", |query| format!("{:02}", query.query))
        .number("in memory, ms", 0, |query| query.in_memory_ms)
        .number("farpool, ms", 0, |query| query.farpool.map(|sample| sample.ms))
        .bytes("read", |query| query.farpool.map(|sample| sample.bytes_read))
        .number("reading", 2, reading)
        .met(|query| reading(query).map(|reading| reading <= results.reading_goal))
        .number("DuckDB, ms", 0, |query| query.duckdb.map(|sample| sample.ms))
        .bytes("read", |query| query.duckdb.map(|sample| sample.bytes_read))
        .number("times farpool's", 2, |query| Some(query.duckdb?.ms / query.farpool?.ms));
    table.to_string()
}
