//! Formats the results as a table.

use super::measure::{CaseResult, Results};
use crate::text;

/// Returns the whole report.
pub fn text(results: &Results) -> String {
    let header = ["case", "threads", "ms", "memory ms", "GB/s", "scanned GB/s", "of bandwidth", "goal", ""];
    let rows = results.cases.iter().map(row).collect();
    format!(
        "{} · {} rows · {} · median of {} runs · farpool in-process\n{}\n\n\
         table: {} plain, {} in the pool\n{}\n\
         GB/s are of plain bytes; memory is as many bytes read plainly; the goal is a part of its bandwidth\n\n{}\n",
        results.suite,
        text::rows(results.rows),
        results.date,
        results.runs,
        text::machine(&results.machine),
        text::bytes(results.bytes_plain),
        text::bytes(results.bytes_encoded),
        text::limits(&results.limits),
        text::table(header.map(String::from).to_vec(), rows)
    )
}

fn row(case: &CaseResult) -> Vec<String> {
    let gb_s = |bytes: u64| format!("{:.1}", bytes as f64 / case.median_ms / 1e6);
    vec![
        case.name.clone(),
        case.threads.to_string(),
        format!("{:.2}", case.median_ms),
        format!("{:.2}", case.memory_median_ms),
        gb_s(case.bytes_logical),
        gb_s(case.bytes_scanned),
        format!("{:.2}×", case.of_bandwidth),
        format!("{:.1}×", case.goal),
        text::met(Some(case.of_bandwidth >= case.goal)).trim().to_string(),
    ]
}
