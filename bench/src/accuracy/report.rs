//! Results as a table for a person.

use super::measure::{Line, Results};
use crate::text;

/// The whole report.
pub fn text(results: &Results) -> String {
    let header = ["data", "distinct", "sketch", "mean error", "largest", "bounds kept", "goal", ""];
    let rows = results.lines.iter().map(row).collect();
    format!(
        "{} · {} seeds · {}\n{}\n\n{}\n",
        results.suite,
        results.seeds,
        results.date,
        text::machine(&results.machine),
        text::table(header.map(String::from).to_vec(), rows)
    )
}

fn row(line: &Line) -> Vec<String> {
    let percent = |part: f64| format!("{:.2} %", 100.0 * part);
    vec![
        line.data.clone(),
        line.distinct.to_string(),
        line.sketch.clone(),
        percent(line.error_mean),
        percent(line.error_most),
        percent(f64::from(line.kept) / f64::from(line.estimates)),
        line.goal.map(percent).unwrap_or_default(),
        text::met(line.goal.map(|goal| line.error_mean <= goal)).trim().to_string(),
    ]
}
