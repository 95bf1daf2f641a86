//! Formats a program and the pool's answers for EXPLAIN: one line for each operator, with the answer and the reason.

use crate::cost::{Estimate, bytes_shown};
use crate::groups::Expected;
use crate::rows::Rows;
use arrow_schema::Schema;
use farpool_model::{
    Answer, Lookup, LookupReceipt, OperatorAnswer, Output, Prepared, Program, Receipt, SortKey,
};
use std::fmt::Write;

/// Formats the program as the pool will run it: operators indented by two spaces below a heading line.
///
/// ```text
/// lineitem v3 at embedded: 6001215 rows, about 5916591 pass, about 4 leave
///   filter     exact     l_shipdate <= 1998-09-02
///   group      exact     l_returnflag, l_linestatus: sum(l_quantity), …
/// ```
pub fn explain(place: &str, prepared: &Prepared, more: &[OperatorAnswer], rows: &Rows) -> String {
    let program = &prepared.effective;
    let passed = crate::estimate::rows_passed(program, &rows.info);
    let out = crate::estimate::rows(program, &rows.info);
    let mut text =
        format!("{} {} at {place}: {} rows", program.table, prepared.version, rows.table.info.rows);
    if program.filter.is_some() || rows.are_joined() {
        let _ = write!(text, ", about {passed:.0} pass");
    }
    if matches!(program.output, Output::Aggregate { .. }) || program.limit.is_some() {
        let _ = write!(text, ", about {out:.0} leave");
    }
    text.push('\n');
    for answer in prepared.answers.iter().chain(more) {
        operator_line(&mut text, answer);
    }
    text
}

/// Formats the line with a program's estimated cost.
pub fn estimate_line(estimate: &Estimate) -> String {
    format!("  {:<10} {estimate}\n", "cost")
}

/// Formats the line of a program that runs as one with others: the estimates for the common program and for separate
/// programs.
pub fn shared_line(members: usize, together: &Expected, apart: &Expected) -> String {
    let (together, apart) = (expected(together), expected(apart));
    format!("  {:<10} one program for {members} statements: {together} together, {apart} apart\n", "shared")
}

/// Formats the estimates and the actual figures of programs that ran as one.
pub fn shared_outcome(members: usize, together: &Expected, receipt: &Receipt) -> String {
    let seen = Expected { ns: receipt.elapsed_ns as f64, bytes: receipt.bytes_on_wire as f64, ..*together };
    format!(
        "one program for {members} statements: {} expected; {} seen\n",
        expected(together),
        expected(&seen)
    )
}

fn expected(expected: &Expected) -> String {
    format!("{:.1} ms, {}", expected.ns / 1e6, bytes_shown(expected.bytes))
}

/// Formats the estimates and the actual figures of a program on one line; on others, what each lookup held, and the
/// conditions (`added`) that operators above it added to its filter when it started. Returns `None` if the program has not
/// run.
///
/// ```text
/// lineitem at embedded: push 12.3 ms, 4 rows, 1.2 KiB expected; 14.0 ms, 4 rows, 0 B on the wire seen
///   held of part: 1200 rows, 20.1 KiB, after 1.3 ms
///   other operators added l_partkey IN (a filter of 1200 keys)
/// ```
pub fn outcome(
    place: &str,
    program: &Program,
    rows: &Rows,
    estimate: Option<&Estimate>,
    receipt: &Receipt,
    added: Option<String>,
) -> Option<String> {
    if receipt.bytes_saved > 0 {
        let saved = bytes_shown(receipt.bytes_saved as f64);
        return Some(format!(
            "{} at {place}: the result was kept here, {saved} not sent again\n",
            program.table
        ));
    }
    if receipt.elapsed_ns == 0 {
        return None;
    }
    let added = added.map_or(String::new(), |added| format!("  other operators added {added}\n"));
    let expected = match estimate.and_then(|e| e.costs.first()) {
        Some(cost) => format!("{cost} expected"),
        None => format!("{:.0} rows expected", crate::estimate::rows(program, &rows.info)),
    };
    let held = |lookup: &LookupReceipt| {
        let LookupReceipt { table, rows, bytes, elapsed_ns } = lookup;
        let (bytes, ms) = (bytes_shown(*bytes as f64), *elapsed_ns as f64 / 1e6);
        format!("  held of {table}: {rows} rows, {bytes}, after {ms:.1} ms\n")
    };
    let held: String = receipt.lookups.iter().map(held).collect();
    Some(format!(
        "{} at {place}: {expected}; {:.1} ms, {} rows, {} on the wire seen{}\n{held}{added}",
        program.table,
        receipt.elapsed_ns as f64 / 1e6,
        receipt.rows_returned,
        bytes_shown(receipt.bytes_on_wire as f64),
        if receipt.encrypted { ", encrypted for this client" } else { "" }
    ))
}

fn operator_line(text: &mut String, operator: &OperatorAnswer) {
    let answer = match operator.answer {
        Answer::Exact => "exact",
        Answer::Superset => "superset",
        Answer::Refused => "refused",
    };
    let _ = write!(text, "  {:<10} {answer:<9} {}", operator.operator, operator.detail);
    if let Some(reason) = &operator.reason {
        let _ = write!(text, " ({reason})");
    }
    text.push('\n');
}

/// Formats the program on one line, for the engine's physical plan. `schema` has its columns behind the lookups.
pub fn one_line(program: &Program, schema: &Schema) -> String {
    let mut text = format!("table={}", program.table);
    if !program.lookups.is_empty() {
        let shown: Vec<String> = program.lookups.iter().map(lookup_shown).collect();
        let _ = write!(text, ", lookups=[{}]", shown.join("; "));
    }
    if let Some(filter) = &program.filter {
        let _ = write!(text, ", filter={}", filter.display(schema));
    }
    match &program.output {
        Output::Rows(columns) => {
            let shown: Vec<String> = columns.iter().map(|c| c.expr.display(schema).to_string()).collect();
            let _ = write!(text, ", rows=[{}]", shown.join(", "));
        }
        Output::Aggregate { keys, aggregates } => {
            let keys: Vec<String> = keys.iter().map(|k| k.expr.display(schema).to_string()).collect();
            let _ = write!(text, ", keys=[{}]", keys.join(", "));
            if !aggregates.is_empty() {
                let shown: Vec<String> = aggregates.iter().map(|a| a.display(schema).to_string()).collect();
                let _ = write!(text, ", aggregates=[{}]", shown.join(", "));
            }
        }
    }
    if let Some(having) = &program.having {
        let _ = write!(text, ", having={}", program.output.shown(having, schema));
    }
    if !program.order.is_empty() {
        let key = |key: &SortKey| key.display(&program.output.column_shown(key.column, schema));
        let shown: Vec<String> = program.order.iter().map(key).collect();
        let _ = write!(text, ", order=[{}]", shown.join(", "));
    }
    if let Some(limit) = program.limit {
        let _ = write!(text, ", limit={limit}");
    }
    text
}

fn lookup_shown(lookup: &Lookup) -> String {
    let kind = format!("{:?}", lookup.kind).to_lowercase();
    match lookup.program.joined_schema(&lookup.table_schema) {
        Ok(schema) => format!("{kind} ({})", one_line(&lookup.program, &schema)),
        Err(error) => format!("{kind} ({}: {})", lookup.program.table, error.message),
    }
}
