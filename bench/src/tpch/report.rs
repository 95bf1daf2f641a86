//! Formats the results as a table.

use super::results::{QueryResult, Results};
use crate::text::{self, bytes};
use std::fmt::Write;

/// Returns the whole report.
pub fn text(results: &Results) -> String {
    let mut text = heading(results);
    for note in &results.notes {
        line(&mut text, &format!("note: {note}"));
    }
    line(&mut text, "");
    line(&mut text, &times(results));
    line(&mut text, "");
    line(&mut text, &loading(results));
    line(&mut text, &text::limits(&results.limits));
    line(&mut text, "");
    text + &goals(results)
}

fn line(text: &mut String, content: &str) {
    text.push_str(content);
    text.push('\n');
}

fn heading(results: &Results) -> String {
    format!(
        "{} · scale {} · {} · median of {} runs · {} threads a side{}\n{}\n",
        results.suite,
        results.scale,
        results.date,
        results.runs,
        results.threads,
        results.rivals.iter().map(|rival| format!(" · {rival}")).collect::<String>(),
        text::machine(&results.machine),
    )
}

/// Formats the times, a row for each query: milliseconds, and in the other columns the ratio to the first side.
fn times(results: &Results) -> String {
    let mut header = vec!["query".to_string(), "rows".to_string()];
    for (index, side) in results.sides.iter().enumerate() {
        header.push(format!("{side} ms"));
        if index > 0 {
            header.push(format!("/{}", results.sides[0]));
        }
    }
    let on_wire = results.sides_on_wire();
    header.extend(on_wire.iter().map(|side| format!("wire {}", side.trim_start_matches("remote "))));
    let mut rows: Vec<_> = results.queries.iter().map(|query| query_row(results, query)).collect();
    rows.push(total_row(results));
    text::table(header, rows)
}

fn query_row(results: &Results, query: &QueryResult) -> Vec<String> {
    let mut row = vec![format!("q{:02}", query.query), query.rows.to_string()];
    row.extend(time_cells(results, &|side| query.sides.get(side).map(|s| s.median_ms)));
    let wire = |side: &str| query.sides.get(side).map(|s| bytes(s.receipt.bytes_on_wire));
    row.extend(results.sides_on_wire().into_iter().map(|side| wire(side).unwrap_or("-".to_string())));
    row
}

fn total_row(results: &Results) -> Vec<String> {
    let mut row = vec!["total".to_string(), String::new()];
    row.extend(time_cells(results, &|side| results.total(side)));
    row.extend(results.sides_on_wire().into_iter().map(|side| bytes(results.wire_bytes(side))));
    row
}

fn time_cells(results: &Results, time: &dyn Fn(&str) -> Option<f64>) -> Vec<String> {
    let first = results.sides.first().and_then(|side| time(side));
    let mut cells = Vec::new();
    for (index, side) in results.sides.iter().enumerate() {
        let ms = time(side);
        cells.push(ms.map_or("-".to_string(), |ms| format!("{ms:.1}")));
        if index > 0 {
            cells.push(ms.zip(first).map_or("-".to_string(), |(ms, first)| format!("{:.2}×", ms / first)));
        }
    }
    cells
}

fn loading(results: &Results) -> String {
    let loading = &results.loading;
    let speed = |cost| {
        format!("{:.2} GB/s per core, {:.2} GB/s in all", loading.gb_s_per_core(cost), loading.gb_s(cost))
    };
    format!(
        "loading lineitem: {} rows, {} plain, {} encoded ({:.2} of plain); {}, all until the profile is there counted; without \
         a profile {}",
        loading.rows,
        bytes(loading.bytes_plain),
        bytes(loading.bytes_encoded),
        loading.size_ratio(),
        speed(loading.profiled),
        speed(loading.encoded),
    )
}

fn goals(results: &Results) -> String {
    let mut text = String::new();
    for checked in &results.goals {
        let outcome = text::met(checked.met);
        let measured = checked.measured.map_or("not measured".to_string(), |value| format!("{value:.2}"));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{outcome}  {}: {measured}", checked.goal.text);
    }
    text
}
