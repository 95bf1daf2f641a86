//! Formats the results as tables.

use super::ingest::IngestResult;
use super::results::{CaseResult, LIBRARY, Results, Side};
use crate::{stats, text};

/// Returns the whole report.
pub fn text(results: &Results) -> String {
    let mut rivals = String::new();
    for rival in &results.rivals {
        let missing = rival.missing.as_ref().map(|why| format!(": left out, {why}")).unwrap_or_default();
        rivals.push_str(&format!("{} {}{missing}\n", rival.name, rival.version));
    }
    let slow = results.rows_slow;
    format!(
        "{} · {} values of 32 bits · {} · median of {} runs\n{}\n\n{rivals}{}\n\
         GB/s of values, and in brackets how many times as fast the library is; the goal is about the library \
         with one thread\nthe naive twin, and DataSketches through Python value by value, had the first {slow}\n\n\
         {}\n\nloading over TCP: the node makes a profile behind the load, or does not\n\n{}\n",
        results.suite,
        results.rows,
        results.date,
        results.runs,
        text::machine(&results.machine),
        text::limits(&results.limits),
        cases(results),
        ingest(results)
    )
}

fn cases(results: &Results) -> String {
    let mut others: Vec<&str> = Vec::new();
    for side in results.cases.iter().flat_map(|case| &case.sides) {
        if side.name != LIBRARY && !others.contains(&side.name.as_str()) {
            others.push(&side.name);
        }
    }
    // Farpool's own sides and the naive implementation come first: all cases have them.
    let header = ["sketches", "column", "threads", LIBRARY, "goal", ""].into_iter().chain(others.clone());
    let rows = results.cases.iter().map(|case| row(case, &others)).collect();
    text::table(header.map(String::from).collect(), rows)
}

fn row(case: &CaseResult, others: &[&str]) -> Vec<String> {
    let ours = case.side(LIBRARY).map_or(f64::NAN, |side| side.gb_s);
    let goal = (case.threads == 1).then_some(ours >= case.goal);
    let mut row = vec![
        case.name.clone(),
        case.column.clone(),
        case.threads.to_string(),
        format!("{ours:.2}"),
        if case.threads == 1 { format!("{:.1}", case.goal) } else { String::new() },
        text::met(goal).trim().to_string(),
    ];
    let other = |side: &Side| format!("{:.2} ({:.1}×)", side.gb_s, ours / side.gb_s);
    row.extend(others.iter().map(|name| case.side(name).map_or("-".to_string(), other)));
    row
}

fn ingest(results: &Results) -> String {
    let header = [
        "column",
        "GB/s with tap",
        "without",
        "times as long",
        "profile after ms",
        "node's CPU ms/GB with",
        "without",
    ];
    let rows = results.ingest.iter().map(ingest_row).collect();
    text::table(header.map(String::from).to_vec(), rows)
}

fn ingest_row(result: &IngestResult) -> Vec<String> {
    let (with, without) = (&result.with_tap, &result.without);
    vec![
        result.column.clone(),
        format!("{:.2}", with.gb_s),
        format!("{:.2}", without.gb_s),
        format!("{:.2}×", without.gb_s / with.gb_s),
        format!("{:.0}", stats::median(&with.profile_ms)),
        format!("{:.0}", with.cpu_ms_per_gb),
        format!("{:.0}", without.cpu_ms_per_gb),
    ]
}
