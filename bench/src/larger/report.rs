//! Formats the results as tables.

use super::measure::{LimitResult, QueryResult, Results, Sample};
use super::trace::TraceResult;
use super::units;
use crate::text;

/// Returns the whole report.
pub fn text(results: &Results) -> String {
    let mut report = format!(
        "{} · {} · TPC-H at scale {} · median of {} runs · {} threads · all answers agree\n{}\n\
         the disk reads {:.2} GB/s past the cache; files: farpool {}, DuckDB {}\n",
        results.suite,
        results.date,
        results.scale,
        results.runs,
        results.threads,
        text::machine(&results.machine),
        results.disk_gb_s,
        text::bytes(results.bytes_farpool),
        results.bytes_duckdb.map_or("-".to_string(), text::bytes)
    );
    for note in &results.notes {
        report.push_str(&format!("{note}\n"));
    }
    for limit in &results.limits {
        report.push_str(&of_limit(limit, results));
    }
    report.extend(results.units.as_ref().map(units::report));
    report
}

fn of_limit(limit: &LimitResult, results: &Results) -> String {
    let header = [
        "query",
        "in memory, ms",
        "farpool, ms",
        "read",
        "reading",
        "",
        "DuckDB, ms",
        "read",
        "times farpool's",
    ];
    let rows = limit.queries.iter().map(|query| row(query, results)).collect();
    let both: Vec<(Sample, Sample)> =
        limit.queries.iter().filter_map(|query| query.farpool.zip(query.duckdb)).collect();
    let sum = |of: &dyn Fn(&(Sample, Sample)) -> f64| both.iter().map(of).sum::<f64>();
    let bytes = |of: &dyn Fn(&(Sample, Sample)) -> u64| both.iter().map(of).sum::<u64>();
    let (ours, theirs) = (bytes(&|both| both.0.bytes_read), bytes(&|both| both.1.bytes_read));
    let times = sum(&|both| both.1.ms) / sum(&|both| both.0.ms);
    let is_met = text::met((!both.is_empty()).then_some(ours as f64 <= results.bytes_goal * theirs as f64));
    format!(
        "\nwithin {} MiB:\n{}\n{} queries of both sides: DuckDB's time is {times:.2} times farpool's; farpool reads {}, \
         DuckDB {}, goal {:.2} of that {}\n{}",
        limit.mib,
        text::table(header.map(String::from).to_vec(), rows),
        both.len(),
        text::bytes(ours),
        text::bytes(theirs),
        results.bytes_goal,
        is_met.trim(),
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
        is_met.trim(),
        text::bytes(trace.bytes_of_process)
    )
}

fn row(query: &QueryResult, results: &Results) -> Vec<String> {
    let ms = |sample: Option<Sample>| sample.map_or("-".to_string(), |sample| format!("{:.0}", sample.ms));
    let read =
        |sample: Option<Sample>| sample.map_or("-".to_string(), |sample| text::bytes(sample.bytes_read));
    // The additional time compared with in-memory execution, as a multiple of the time to read the bytes from the disk.
    let reading = query.farpool.filter(|sample| sample.bytes_read > 0).map(|sample| {
        (sample.ms - query.in_memory_ms) / (sample.bytes_read as f64 / results.disk_gb_s / 1e6)
    });
    let ratio = query.farpool.zip(query.duckdb).map(|(ours, theirs)| theirs.ms / ours.ms);
    vec![
        format!("{:02}", query.query),
        format!("{:.0}", query.in_memory_ms),
        ms(query.farpool),
        read(query.farpool),
        reading.map_or("-".to_string(), |reading| format!("{reading:.2}")),
        text::met(reading.map(|reading| reading <= results.reading_goal)).trim().to_string(),
        ms(query.duckdb),
        read(query.duckdb),
        ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}")),
    ]
}
