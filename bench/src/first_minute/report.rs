//! Formats the results as a table.

use super::frames;
use super::measure::{CaseResult, Results, SideResult};
use crate::text;

/// Returns the whole report.
pub fn text(results: &Results) -> String {
    let sides: Vec<&str> = results.cases.first().map_or_else(Vec::new, |case| names(&case.sides));
    let mut header = vec!["file".to_string(), "case".to_string(), "cache".to_string()];
    header.extend(sides.iter().flat_map(|side| match *side {
        "farpool" => vec!["farpool".to_string(), "(best)".to_string()],
        side => vec![side.to_string(), "(best)".to_string(), "started".to_string()],
    }));
    header.extend(["of fastest", "goal", "", "of started"].map(String::from));
    let rows = results.cases.iter().map(row).collect();
    let rivals: Vec<String> = results
        .rivals
        .iter()
        .map(|rival| match &rival.missing {
            Some(why) => format!("without {}: {why}", rival.name),
            None => format!("{} {}", rival.name, rival.version),
        })
        .collect();
    let files: Vec<String> =
        results.files.iter().map(|file| format!("{} ({})", file.name, text::bytes(file.bytes))).collect();
    let notes: String = results.notes.iter().map(|note| format!("{note}\n")).collect();
    format!(
        "{} · {} · median of {} processes, ms\n{}\n{}\nfiles: {}\n\
         \"Of fastest\" is farpool's whole process by that of the fastest rival. \"Started\" is a rival's time without the\n\
         start of Python and the import of the rival; \"of started\" is farpool's whole process by the least of these.\n{notes}\n{}\n",
        results.suite,
        results.date,
        results.runs,
        text::machine(&results.machine),
        rivals.join(", "),
        files.join(", "),
        text::table(header, rows)
    ) + &frames_text(results)
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

fn names(sides: &[SideResult]) -> Vec<&str> {
    sides.iter().map(|side| side.side.as_str()).collect()
}

fn row(case: &CaseResult) -> Vec<String> {
    let ms = |ms: f64| format!("{ms:.1}");
    let cache = match (&case.file, case.is_cold) {
        (None, _) => "",
        (Some(_), true) => "cold",
        (Some(_), false) => "warm",
    };
    let mut row = vec![case.file.clone().unwrap_or_default(), case.name.clone(), cache.to_string()];
    for (place, side) in case.sides.iter().enumerate() {
        row.extend([ms(side.whole_median_ms), ms(side.whole_best_ms)]);
        if place > 0 {
            row.push(ms(side.own_median_ms));
        }
    }
    let is_met = case.of_fastest.zip(case.goal).map(|(ratio, goal)| ratio <= goal);
    row.extend([
        case.of_fastest.map_or("-".to_string(), |ratio| format!("{ratio:.2}×")),
        case.goal.map_or("-".to_string(), |goal| format!("{goal:.1}×")),
        text::met(is_met).trim().to_string(),
        case.of_fastest_started.map_or("-".to_string(), |ratio| format!("{ratio:.2}×")),
    ]);
    row
}
