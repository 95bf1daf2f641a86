//! Formats the results of the benchmark suite `scan` as a table.

use super::measure::{CaseResult, Results};
use crate::suite::Table;
use crate::text;

/// Returns the whole report of the suite as text.
pub fn text(results: &Results) -> String {
    let gb_s = |case: &CaseResult, bytes: u64| bytes as f64 / case.median_ms / 1e6;
    let table = Table::of(&results.cases)
        .column("case", |case| &case.name)
        .column("threads", |case| case.threads)
        .number("ms", 2, |case| case.median_ms)
        .number("memory ms", 2, |case| case.memory_median_ms)
        .number("GB/s", 1, |case| gb_s(case, case.bytes_logical))
        .number("scanned GB/s", 1, |case| gb_s(case, case.bytes_scanned))
        .ratio("of bandwidth", 2, |case| case.of_bandwidth)
        .ratio("goal", 1, |case| case.goal)
        .met(|case| case.of_bandwidth >= case.goal);
    let about =
        format!("{} rows · median of {} runs · farpool in-process", text::rows(results.rows), results.runs);
    format!(
        "{}\ntable: {} plain, {} in the pool\n{}\n\
         GB/s are of plain bytes; memory is as many bytes read plainly; the goal is a part of its bandwidth\n\n{table}\n",
        results.head.text(about),
        text::bytes(results.bytes_plain),
        text::bytes(results.bytes_encoded),
        results.limits,
    )
}
