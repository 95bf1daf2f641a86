//! Formats the results as a table.

use super::measure::{Line, Results};
use crate::text;

/// Returns the whole report.
pub fn text(results: &Results) -> String {
    let header = [
        "data",
        "distinct",
        "sketch",
        "seeds",
        "mean error",
        "95 of 100",
        "largest",
        "bounds kept",
        "goal",
        "",
    ];
    let rows = results.lines.iter().filter(|line| !line.only_figures).map(row).collect();
    let goals = results.lines.iter().filter_map(|line| Some(line.error_mean <= line.goal?));
    let (met, missed): (Vec<bool>, Vec<bool>) = goals.partition(|met| *met);
    let (kept, estimates) = results
        .lines
        .iter()
        .fold((0, 0), |(kept, estimates), line| (kept + line.kept, estimates + line.estimates));
    format!(
        "{} · up to {} seeds · {} · {:.0} s with one thread\n{}\n\n\
         {} of {} goals are met; {:.2} % of {estimates} stated bounds (95 %) hold the truth\n\
         shapes that are there to be compared stand in the numbers and the figures\n\n{}\n",
        results.suite,
        results.seeds,
        results.date,
        results.elapsed_s,
        text::machine(&results.machine),
        met.len(),
        met.len() + missed.len(),
        100.0 * kept as f64 / estimates as f64,
        text::table(header.map(String::from).to_vec(), rows)
    )
}

fn row(line: &Line) -> Vec<String> {
    let percent = |part: f64| format!("{:.2} %", 100.0 * part);
    let mut row =
        vec![line.data.clone(), line.distinct.to_string(), line.sketch.clone(), line.seeds.to_string()];
    row.extend([line.error_mean, line.error_95, line.error_most].map(percent));
    row.push(percent(line.kept as f64 / line.estimates as f64));
    row.push(line.goal.map(percent).unwrap_or_default());
    row.push(text::met(line.goal.map(|goal| line.error_mean <= goal)).trim().to_string());
    row
}
