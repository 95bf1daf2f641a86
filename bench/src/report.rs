//! Results as a table for a person.

use crate::results::{QueryResult, Results};
use comfy_table::{Cell, CellAlignment, Table, presets};
use std::fmt::Write;

/// The whole report.
pub fn text(results: &Results) -> String {
    let mut text = heading(results);
    for note in &results.notes {
        line(&mut text, &format!("note: {note}"));
    }
    line(&mut text, "");
    line(&mut text, &times(results).to_string());
    line(&mut text, "");
    line(&mut text, &loading(results));
    line(&mut text, &limits(results));
    line(&mut text, "");
    text + &goals(results)
}

fn line(text: &mut String, content: &str) {
    text.push_str(content);
    text.push('\n');
}

fn heading(results: &Results) -> String {
    let machine = &results.machine;
    format!(
        "{} · scale {} · {} · median of {} runs · {} threads a side{}\n{} · {} processors · {} GiB · Linux {}\n",
        results.suite,
        results.scale,
        results.date,
        results.runs,
        results.threads,
        results.rival.as_ref().map_or(String::new(), |rival| format!(" · {rival}")),
        machine.processor,
        machine.processors,
        machine.memory_gib,
        machine.kernel
    )
}

/// A row for each query: milliseconds, and in the other columns the ratio to the first.
fn times(results: &Results) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let mut header = vec!["query".to_string(), "rows".to_string()];
    for (index, side) in results.sides.iter().enumerate() {
        header.push(format!("{side} ms"));
        if index > 0 {
            header.push(format!("/{}", results.sides[0]));
        }
    }
    header.extend(["wire on".to_string(), "wire off".to_string()]);
    table.set_header(header.into_iter().map(right));
    for query in &results.queries {
        table.add_row(query_row(results, query).into_iter().map(right));
    }
    table.add_row(total_row(results).into_iter().map(right));
    table
}

fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn query_row(results: &Results, query: &QueryResult) -> Vec<String> {
    let mut row = vec![format!("q{:02}", query.query), query.rows.to_string()];
    row.extend(time_cells(results, &|side| query.sides.get(side).map(|s| s.median_ms)));
    let wire = |side: &str| query.sides.get(side).map_or(0, |s| s.receipt.bytes_on_wire);
    row.extend([bytes(wire("remote on")), bytes(wire("remote off"))]);
    row
}

fn total_row(results: &Results) -> Vec<String> {
    let mut row = vec!["total".to_string(), String::new()];
    row.extend(time_cells(results, &|side| results.total(side)));
    row.extend([bytes(results.wire_bytes("remote on")), bytes(results.wire_bytes("remote off"))]);
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

fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..10_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}

fn loading(results: &Results) -> String {
    let loading = &results.loading;
    format!(
        "loading lineitem: {} rows, {} plain, {} encoded ({:.2} of plain); {:.2} GB/s per core, {:.2} GB/s in all",
        loading.rows,
        bytes(loading.bytes_plain),
        bytes(loading.bytes_encoded),
        loading.size_ratio(),
        loading.gb_s_per_core(),
        loading.bytes_plain as f64 / loading.elapsed_s.max(1e-9) / 1e9
    )
}

fn limits(results: &Results) -> String {
    let limits = &results.limits;
    format!(
        "limits of the machine, GB/s: memory read {:.1} with one thread, {:.1} with two; copy {:.1}; loopback TCP {:.1}",
        limits.memory_read_1, limits.memory_read_2, limits.memory_copy, limits.loopback_tcp
    )
}

fn goals(results: &Results) -> String {
    let mut text = String::new();
    for checked in &results.goals {
        let outcome = match checked.met {
            Some(true) => "met   ",
            Some(false) => "missed",
            None => "-     ",
        };
        let measured = checked.measured.map_or("not measured".to_string(), |value| format!("{value:.2}"));
        // Writing to a string does not fail.
        let _ = writeln!(text, "{outcome}  {}: {measured}", checked.goal.text);
    }
    text
}
