//! Formats the results of the benchmark suite `correlation` as a table.

use super::measure::Results;
use crate::suite::{Table, list};
use crate::text;

/// Returns the whole report of the suite as text.
pub fn text(results: &Results) -> String {
    let rows = results.cases.iter().flat_map(|case| case.sides.iter().map(move |side| (case, side)));
    let table = Table::of(rows)
        .column("case", |(case, _)| &case.name)
        .column("rows", |(case, _)| text::rows(case.rows as u64))
        .column("side", |(_, side)| &side.name)
        .number("ms", 2, |(_, side)| side.median_ms)
        .number("GB/s", 2, |(case, side)| case.bytes as f64 / side.median_ms / 1e6)
        .ratio("times farpool's", 1, |(_, side)| side.ratio)
        .ratio("goal", 0, |(_, side)| side.goal)
        .met(|(_, side)| side.goal.map(|goal| side.ratio >= goal));
    let about =
        format!("median of {} runs · {} threads · all coefficients agree", results.runs, results.threads);
    format!(
        "{}\n{}{}\nGB/s are of the columns' bytes; the plain loop runs once, with one thread\n\n{table}\n",
        results.head.text(about),
        list(&results.rivals),
        results.limits,
    )
}
