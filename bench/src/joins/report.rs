//! Formats the results of the suite as a table.

use super::results::Results;
use crate::suite::Table;
use crate::suite::queries::Side;
use crate::text::{self, section};

/// Returns the whole report.
pub fn text(results: &Results) -> String {
    let rivals: String = results.rivals.iter().map(|rival| format!(" · {rival}")).collect();
    let about = format!(
        "{} rows probe · median of {} runs · {} threads a side{rivals}",
        text::rows(results.rows),
        results.runs,
        results.threads
    );
    let in_engine = results.points.iter().filter_map(|point| Some((&point.name, point.reason()?)));
    let in_engine: Vec<(&String, &str)> = in_engine.collect();
    let sections = [
        section(&results.notes, |notes| text::lines(notes).trim_end().to_string()),
        Some(times(results)),
        Some(results.limits.to_string()),
        section(&in_engine, |points| {
            let line = |(name, reason): &(&String, &str)| format!("\n{name}: {reason}");
            "joins that stay in the engine".to_string() + &points.iter().map(line).collect::<String>()
        }),
        Some(results.checked.table()),
    ];
    text::report(&results.head.text(about), sections)
}

/// Formats the times, a row for each point: milliseconds, for farpool's sides also the ratio to the fastest rival; the time
/// of reading the columns at the memory's bandwidth, rows that the pool returned to the engine, and bytes on the wire.
fn times(results: &Results) -> String {
    let mut table = Table::of(&results.points)
        .column("keys", |point| point.shape.keys)
        .column("build", |point| text::rows(point.shape.build))
        .column("a key", |point| point.shape.duplicates)
        .column("match", |point| format!("{} %", point.point.matches))
        .column("payload", |point| point.point.payload)
        .column("joined", |point| point.joined);
    for side in &results.sides {
        table = table.number(format!("{side} ms"), 1, |point| point.median(side));
        if !Side::names_rival(side) {
            table = table.ratio("/fastest", 2, |point| point.ratio(side));
        }
        for goal in results.goals.iter().filter(|goal| goal.of == *side) {
            table = table.met(|point| goal.is_met(point));
        }
    }
    table = table.number("memory ms", 1, |point| point.memory_ms);
    for side in results.sides.iter().filter(|side| !Side::names_rival(side)) {
        table = table.optional(format!("moved {side}"), |point| Some(point.receipt(side)?.rows_returned));
        if side.starts_with("remote") {
            table = table.bytes("wire", |point| Some(point.receipt(side)?.bytes_on_wire));
        }
    }
    table.to_string()
}
