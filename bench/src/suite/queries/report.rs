//! Formats the results of a suite of queries as a table.

use super::loading::Cost;
use super::results::{QueryResult, Results};
use crate::places;
use crate::suite::Table;
use crate::text::{self, bytes};
use farpool::Receipt;

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

/// A row of the table of times.
#[derive(Clone, Copy)]
enum Row<'a> {
    Query(&'a QueryResult),
    /// Sums over all queries, and the ratios of the sums.
    Total,
    /// The geometric means of the ratios.
    Mean,
}

/// Formats the times, a row for each query: milliseconds, and in the columns beside them the ratio to the first side; rows
/// that the pool returned to the engine, and bytes on the wire.
fn times(results: &Results) -> String {
    let queries = results.queries.iter().map(Row::Query);
    let mut table = Table::of(queries.chain([Row::Total, Row::Mean]))
        .column("query", |row| match row {
            Row::Query(result) => places::query_name(&result.query),
            Row::Total => "total".to_string(),
            Row::Mean => "geometric mean".to_string(),
        })
        .column("rows", |row| match row {
            Row::Query(result) => result.rows.to_string(),
            Row::Total | Row::Mean => String::new(),
        });
    for (index, side) in results.sides.iter().enumerate() {
        let first = &results.sides[0];
        table = table.number(format!("{side} ms"), 1, |row| ms(results, row, side));
        if index > 0 {
            table = table.ratio(format!("/{first}"), 2, |row| match row {
                Row::Query(_) | Row::Total => Some(ms(results, row, side)? / ms(results, row, first)?),
                Row::Mean => results.mean(side, first),
            });
        }
    }
    for side in results.sides_of_farpool() {
        let rows = |receipt: &Receipt| receipt.rows_returned;
        table = table.optional(format!("moved {side}"), |row| quantity(results, row, side, rows));
    }
    for side in results.sides_on_wire() {
        let wire = |receipt: &Receipt| receipt.bytes_on_wire;
        let name = format!("wire {}", side.trim_start_matches("remote "));
        table = table.bytes(name, |row| quantity(results, row, side, wire));
    }
    table.to_string()
}

/// Returns the time of a row on a side in milliseconds.
fn ms(results: &Results, row: Row<'_>, side: &str) -> Option<f64> {
    match row {
        Row::Query(result) => Some(result.sides.get(side)?.median_ms),
        Row::Total => results.total(side),
        Row::Mean => None,
    }
}

/// Returns a quantity of the receipts of a row on a side.
fn quantity(results: &Results, row: Row<'_>, side: &str, of: impl Fn(&Receipt) -> u64) -> Option<u64> {
    match row {
        Row::Query(result) => Some(of(&result.sides.get(side)?.receipt)),
        Row::Total => Some(results.sum(side, of)),
        Row::Mean => None,
    }
}

fn loading(results: &Results) -> String {
    let loading = &results.loading;
    let speed = |cost: Cost| {
        format!("{:.2} GB/s per core, {:.2} GB/s in all", loading.gb_s_per_core(cost), loading.gb_s(cost))
    };
    format!(
        "loading {}: {} rows, {} plain, {} encoded ({:.2} of plain); {}, all until the profile is there counted; without a \
         profile {}",
        loading.table,
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
