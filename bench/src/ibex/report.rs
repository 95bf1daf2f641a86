//! Formats the results of the suite `ibex` as tables.

use super::Part;
use super::measure::{CaseResult, Results};
use super::stage::{CpuSeconds, Side};
use crate::suite::Table;
use crate::text;
use clap::ValueEnum;
use std::collections::BTreeMap;

/// Returns the whole report.
pub fn text(results: &Results) -> String {
    let about = format!(
        "median of {} runs · {} threads · PostgreSQL {}",
        results.runs, results.threads, results.postgres
    );
    let list = |settings: &BTreeMap<String, String>| {
        settings.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
    };
    let analyzed = if results.is_analyzed { "" } else { "not " };
    let head = format!(
        "{}\
         \"heap\" are PostgreSQL's own tables, \"pool\" the same rows in a farpool node through postgres_fdw of the same\n\
         PostgreSQL, \"alone\" the node's own client. CPU milliseconds of a run: of PostgreSQL's processes, and of the node\n\
         (\"alone\": of the node and its client).\nPostgreSQL: {}\npostgres_fdw: {}; foreign tables {analyzed}analyzed\n{}",
        results.head.text(about),
        list(&results.settings),
        list(&results.foreign),
        text::lines(&results.notes)
    );
    let part = |part: &Part| {
        let cases: Vec<&CaseResult> = results.cases.iter().filter(|case| case.part == *part).collect();
        text::section(&cases, |cases| format!("{}\n{}", part.title(), table(cases)))
    };
    let goals = (!results.goals.is_empty()).then(|| results.goals.table());
    text::report(&head, Part::value_variants().iter().map(part).chain([goals]))
}

fn table(cases: &[&CaseResult]) -> String {
    let cpu =
        |case: &CaseResult, side, of: fn(CpuSeconds) -> f64| Some(of(case.sides.get(&side)?.cpu_s) * 1e3);
    let table = Table::of(cases.iter().copied())
        .column("", |case| &case.name)
        .column("rows", |case| case.rows)
        .number("heap ms", 2, |case| case.ms(Side::Heap))
        .number("pool ms", 2, |case| case.ms(Side::Pool))
        .ratio("heap/pool", 2, |case| case.ratio(Side::Heap, Side::Pool))
        .number("alone ms", 2, |case| case.ms(Side::Alone))
        .ratio("pool/alone", 2, |case| case.ratio(Side::Pool, Side::Alone))
        .number("heap CPU", 1, |case| cpu(case, Side::Heap, |cpu| cpu.postgres))
        .number("pool CPU: PostgreSQL", 1, |case| cpu(case, Side::Pool, |cpu| cpu.postgres))
        .number("node", 1, |case| cpu(case, Side::Pool, |cpu| cpu.node))
        .number("alone CPU", 1, |case| cpu(case, Side::Alone, |cpu| cpu.node + cpu.client));
    table.to_string()
}
