//! Formats the results of the benchmark suite `sketch-accuracy` as a table.

use super::measure::Results;
use crate::suite::Table;

/// Returns the whole report of the suite as text.
pub fn text(results: &Results) -> String {
    let percent = |part: f64| format!("{:.2} %", 100.0 * part);
    let table = Table::of(results.lines.iter().filter(|line| !line.only_figures))
        .column("data", |line| &line.data)
        .column("distinct", |line| line.distinct)
        .column("sketch", |line| &line.sketch)
        .column("seeds", |line| line.seeds)
        .column("mean error", |line| percent(line.error_mean))
        .column("95 of 100", |line| percent(line.error_95))
        .column("largest", |line| percent(line.error_most))
        .column("bounds kept", |line| percent(line.kept as f64 / line.estimates as f64))
        .column("goal", |line| line.goal.map(percent).unwrap_or_default())
        .met(|line| line.goal.map(|goal| line.error_mean <= goal));
    let goals: Vec<bool> =
        results.lines.iter().filter_map(|line| Some(line.error_mean <= line.goal?)).collect();
    let kept: u64 = results.lines.iter().map(|line| line.kept).sum();
    let estimates: u64 = results.lines.iter().map(|line| line.estimates).sum();
    let about = format!("up to {} seeds · {:.0} s with one thread", results.seeds, results.elapsed_s);
    format!(
        "{}\n{} of {} goals are met; {:.2} % of {estimates} stated bounds (95 %) hold the truth\n\
         shapes that are there to be compared stand in the numbers and the figures\n\n{table}\n",
        results.head.text(about),
        goals.iter().filter(|is_met| **is_met).count(),
        goals.len(),
        100.0 * kept as f64 / estimates as f64,
    )
}
