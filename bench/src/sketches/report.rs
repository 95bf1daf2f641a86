//! Formats the results of the benchmark suite `sketches` as tables.

use super::results::{LIBRARY, Results};
use crate::stats;
use crate::suite::{Table, list};

/// Returns the whole report of the suite as text.
pub fn text(results: &Results) -> String {
    let about = format!("{} values of 32 bits · median of {} runs", results.rows, results.runs);
    format!(
        "{}\n{}{}\n\
         GB/s of values, and in brackets how many times as fast the library is; the goal is about the library \
         with one thread\nthe naive twin, and DataSketches through Python value by value, had the first {}\n\n\
         {}\n\nloading over TCP: the node makes a profile behind the load, or does not\n\n{}\n",
        results.head.text(about),
        list(&results.rivals),
        results.limits,
        results.rows_slow,
        cases(results),
        ingest(results)
    )
}

fn cases(results: &Results) -> String {
    // Farpool's own sides and the naive implementation come first: all cases have them.
    let mut others: Vec<&str> = Vec::new();
    for side in results.cases.iter().flat_map(|case| &case.sides) {
        if side.name != LIBRARY && !others.contains(&side.name.as_str()) {
            others.push(&side.name);
        }
    }
    let one_thread = |threads: usize| threads == 1;
    let mut table =
        Table::of(&results.cases)
            .column("sketches", |case| &case.name)
            .column("column", |case| &case.column)
            .column("threads", |case| case.threads)
            .number(LIBRARY, 2, |case| case.gb_s(LIBRARY))
            .column("goal", |case| {
                if one_thread(case.threads) { format!("{:.1}", case.goal) } else { String::new() }
            })
            .met(|case| one_thread(case.threads).then_some(case.gb_s(LIBRARY) >= Some(case.goal)));
    for other in others {
        table = table.optional(other, |case| {
            let (ours, theirs) = case.gb_s(LIBRARY).zip(case.gb_s(other))?;
            Some(format!("{theirs:.2} ({:.1}×)", ours / theirs))
        });
    }
    table.to_string()
}

fn ingest(results: &Results) -> String {
    let table = Table::of(&results.ingest)
        .column("column", |result| &result.column)
        .number("GB/s with tap", 2, |result| result.with_tap.gb_s)
        .number("without", 2, |result| result.without.gb_s)
        .ratio("times as long", 2, |result| result.without.gb_s / result.with_tap.gb_s)
        .number("profile after ms", 0, |result| stats::median(&result.with_tap.profile_ms))
        .number("node's CPU ms/GB with", 0, |result| result.with_tap.cpu_ms_per_gb)
        .number("without", 0, |result| result.without.cpu_ms_per_gb);
    table.to_string()
}
