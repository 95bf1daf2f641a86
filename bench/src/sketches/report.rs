//! Results as a table for a person.

use super::measure::{CaseResult, Results};
use crate::text;

/// The whole report.
pub fn text(results: &Results) -> String {
    let header =
        ["sketches", "column", "threads", "GB/s", "goal", "", "naive", "ratio", "others, GB/s (ratio)"];
    let rows = results.cases.iter().map(row).collect();
    let absent: String = results.absent.iter().map(|rival| format!("without {rival}\n")).collect();
    format!(
        "{} · {} values of 32 bits · {} · median of {} runs\n{}\n{}\n{absent}\
         the naive twin, and DataSketches through Python value by value, had the first {}\n\n{}\n",
        results.suite,
        results.rows,
        results.date,
        results.runs,
        text::machine(&results.machine),
        text::limits(&results.limits),
        results.rows_slow,
        text::table(header.map(String::from).to_vec(), rows)
    )
}

fn row(case: &CaseResult) -> Vec<String> {
    let (ours, naive) = (&case.sides[0], &case.sides[1]);
    let others = case.sides[2..].iter();
    let others = others.map(|side| format!("{} {:.3} ({:.1}×)", side.name, side.gb_s, ours.gb_s / side.gb_s));
    let goal = (case.threads == 1).then_some(ours.gb_s >= case.goal);
    vec![
        case.name.clone(),
        case.column.clone(),
        case.threads.to_string(),
        format!("{:.2}", ours.gb_s),
        format!("{:.1}", case.goal),
        text::met(goal).trim().to_string(),
        format!("{:.2}", naive.gb_s),
        format!("{:.1}×", ours.gb_s / naive.gb_s),
        others.collect::<Vec<_>>().join(", "),
    ]
}
