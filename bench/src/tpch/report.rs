//! Formats the results of the benchmark suite `tpch` as a table.

use super::loading::Cost;
use super::results::{QueryResult, Results};
use crate::suite::Table;
use crate::text::{self, bytes};

/// Returns the whole report.
pub fn text(results: &Results) -> String {
    let rivals: String = results.rivals.iter().map(|rival| format!(" · {rival}")).collect();
    let about = format!(
        "scale {} · median of {} runs · {} threads a side{rivals}",
        results.scale, results.runs, results.threads
    );
    let notes: String = results.notes.iter().map(|note| format!("note: {note}\n")).collect();
    format!(
        "{}{notes}\n{}\n\n{}\n{}\n\n{}",
        results.head.text(about),
        times(results),
        loading(results),
        results.limits,
        goals(results)
    )
}

/// Formats the times, a row for each query: milliseconds, and in the other columns the ratio to the first side. The last
/// row has the totals.
fn times(results: &Results) -> String {
    let rows = results.queries.iter().map(Some).chain([None]);
    let ms = |query: Option<&QueryResult>, side: &str| match query {
        Some(query) => query.sides.get(side).map(|side| side.median_ms),
        None => results.total(side),
    };
    let mut table = Table::of(rows)
        .column("query", |query| query.map_or("total".to_string(), |query| format!("q{:02}", query.query)))
        .column("rows", |query| query.map_or(String::new(), |query| query.rows.to_string()));
    for (index, side) in results.sides.iter().enumerate() {
        let first = &results.sides[0];
        table = table.number(format!("{side} ms"), 1, |query| ms(query, side));
        if index > 0 {
            let ratio = |query| Some(ms(query, side)? / ms(query, first)?);
            table = table.ratio(format!("/{first}"), 2, ratio);
        }
    }
    for side in results.sides_on_wire() {
        table = table.bytes(format!("wire {}", side.trim_start_matches("remote ")), |query| match query {
            Some(query) => query.sides.get(side).map(|side| side.receipt.bytes_on_wire),
            None => Some(results.wire_bytes(side)),
        });
    }
    table.to_string()
}

fn loading(results: &Results) -> String {
    let loading = &results.loading;
    let speed = |cost: Cost| {
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
    let line = |checked: &super::goals::Checked| {
        let measured = checked.measured.map_or("not measured".to_string(), |value| format!("{value:.2}"));
        format!("{:6}  {}: {measured}\n", text::met(checked.met), checked.goal.text)
    };
    results.goals.iter().map(line).collect()
}
