//! Formats the results of the benchmark suite `first-minute` as a table.

use super::frames;
use super::measure::{CaseResult, Results, SideResult};
use crate::suite::{RivalResult, Table};
use crate::text;

/// Returns the whole report of the suite as text.
pub fn text(results: &Results) -> String {
    let rivals: Vec<String> = results.rivals.iter().map(RivalResult::text).collect();
    let files: Vec<String> =
        results.files.iter().map(|file| format!("{} ({})", file.name, text::bytes(file.bytes))).collect();
    let notes = text::lines(&results.notes);
    format!(
        "{}{}\nfiles: {}\n\
         \"Of fastest\" is farpool's whole process by that of the fastest rival. \"Started\" is a rival's time without the\n\
         start of Python and the import of the rival; \"of started\" is farpool's whole process by the least of these.\n{notes}\n{}\n{}",
        results.head.text(format_args!("median of {} processes, ms", results.runs)),
        rivals.join(", "),
        files.join(", "),
        times(&results.cases),
        frames_text(results)
    )
}

fn times(cases: &[CaseResult]) -> String {
    let cache = |case: &CaseResult| match (&case.file, case.is_cold) {
        (None, _) => "",
        (Some(_), true) => "cold",
        (Some(_), false) => "warm",
    };
    let mut table = Table::of(cases)
        .column("file", |case| case.file.as_deref().unwrap_or_default())
        .column("case", |case| &case.name)
        .column("cache", cache);
    let sides: &[SideResult] = cases.first().map_or(&[], |case| &case.sides);
    for (place, side) in sides.iter().enumerate() {
        table = table.number(&side.side, 1, |case| case.sides[place].whole_median_ms).number(
            "(best)",
            1,
            |case| case.sides[place].whole_best_ms,
        );
        // Farpool is the first side, and starts no interpreter.
        if place > 0 {
            table = table.number("started", 1, |case| case.sides[place].own_median_ms);
        }
    }
    let table = table
        .ratio("of fastest", 2, |case| case.of_fastest)
        .ratio("goal", 1, |case| case.goal)
        .met(|case| case.of_fastest.zip(case.goal).map(|(ratio, goal)| ratio <= goal))
        .ratio("of started", 2, |case| case.of_fastest_started);
    table.to_string()
}

fn frames_text(results: &Results) -> String {
    let Some(frames) = &results.frames else { return String::new() };
    format!(
        "\nThe Python package beside that of {}: whole tables as data frames, and statements one after the other; medians,\n\
         ms. \"Rust\" is the library in the process of the benchmark.\n\n{}\n",
        frames.rival,
        frames::text(&frames.cases)
    )
}
