//! Results as tables for a person.

use super::measure::{Results, SharesResult, SmallResult};
use crate::text;

/// The whole report.
pub fn text(results: &Results) -> String {
    let shares_header = ["clients", "programs", "shares expected", "shares measured", "off by", "goal", ""];
    let small_header = [
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
    let alone = results.small.first();
    let small = results.small.iter().map(|result| small_row(result, alone)).collect();
    format!(
        "clients · {} rows · {} · {} worker threads · farpool over loopback TCP, clients in the same process\n{}\n{}\n\n\
         Shares are of the CPU time of the programs that ran to their end; waited is the time in which a worker could\n\
         have gone on with a query and none had time.\n\n{}\n\n{}\n",
        text::rows(results.rows),
        results.date,
        results.threads,
        text::machine(&results.machine),
        text::limits(&results.limits),
        text::table(
            shares_header.map(String::from).to_vec(),
            results.shares.iter().map(shares_row).collect()
        ),
        text::table(small_header.map(String::from).to_vec(), small)
    )
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
        text::met(Some(result.off_by() <= result.within)).trim().to_string(),
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
        text::met(Some(ratio <= result.at_most)).trim().to_string(),
    ]
}
