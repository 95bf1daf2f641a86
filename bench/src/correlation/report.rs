//! Formats the results as a table.

use super::measure::{CaseResult, Results, SideResult};
use crate::text;

/// Returns the whole report.
pub fn text(results: &Results) -> String {
    let header = ["case", "rows", "side", "ms", "GB/s", "times farpool's", "goal", ""].map(String::from);
    let rows = results.cases.iter().flat_map(rows).collect();
    let mut rivals = String::new();
    for rival in &results.rivals {
        let missing = rival.missing.as_ref().map(|why| format!(": left out, {why}")).unwrap_or_default();
        rivals.push_str(&format!("{} {}{missing}\n", rival.name, rival.version));
    }
    format!(
        "{} · {} · median of {} runs · {} threads · all coefficients agree\n{}\n\n{rivals}{}\n\
         GB/s are of the columns' bytes; the plain loop runs once, with one thread\n\n{}\n",
        results.suite,
        results.date,
        results.runs,
        results.threads,
        text::machine(&results.machine),
        text::limits(&results.limits),
        text::table(header.to_vec(), rows)
    )
}

fn rows(case: &CaseResult) -> Vec<Vec<String>> {
    case.sides.iter().map(|side| row(case, side)).collect()
}

fn row(case: &CaseResult, side: &SideResult) -> Vec<String> {
    vec![
        case.name.clone(),
        text::rows(case.rows as u64),
        side.name.clone(),
        format!("{:.2}", side.median_ms),
        format!("{:.2}", case.bytes as f64 / side.median_ms / 1e6),
        format!("{:.1}×", side.ratio),
        side.goal.map(|goal| format!("{goal:.0}×")).unwrap_or_default(),
        side.goal.map_or("", |goal| text::met(Some(side.ratio >= goal)).trim()).to_string(),
    ]
}
