//! Formats the results of the benchmark suite `farview` as tables.

use super::results::{
    CaseResult, FARPOOL, FARPOOL_BOTH, FARPOOL_HIDDEN, FARPOOL_SEALED, FARPOOL_TLS, Results, TableResult,
};
use crate::rival::Place;
use crate::suite::Table;
use crate::text;

/// Returns the whole report of the suite as text.
pub fn text(results: &Results) -> String {
    let about = format!(
        "{} rows · median of {} runs · {} threads a side · farpool remote, over loopback TCP",
        text::rows(results.rows),
        results.runs,
        results.threads
    );
    let mut report = results.head.text(about);
    let mut line = |content: &str| {
        report.push_str(content);
        report.push('\n');
    };
    for rival in &results.rivals {
        let place = if rival.place == Place::Local { "local" } else { "remote" };
        line(&format!("{} {} ({place}): {}", rival.name, rival.version, rival.about));
    }
    results.notes.iter().for_each(|note| line(&format!("note: {note}")));
    line("");
    results.tables.iter().for_each(|table| line(&of_table(table)));
    line(&results.limits.to_string());
    if let Some(rate) = results.openssl_bytes_per_s {
        line(&format!("OpenSSL decrypts {:.1} GB/s with AES-128-GCM on all threads", rate / 1e9));
    }
    let (encryption, others): (Vec<&CaseResult>, Vec<&CaseResult>) =
        results.cases.iter().partition(|case| case.is_about_encryption());
    if !others.is_empty() {
        line("\nmilliseconds, and in brackets how many times as long as farpool");
        line(&times(results, &others));
    }
    if !encryption.is_empty() {
        line(
            "\nencryption by size of the table (figure 11): its values are decrypted, the result is encrypted, or both; \
             milliseconds, and in brackets how many times as long as farpool without",
        );
        line(&times(results, &encryption));
    }
    line(
        "\nbounds: the largest part of farpool's time that one resource alone would take at the machine's limit",
    );
    line(&bounds(results));
    line(
        "\ngoals: how many times as long as farpool the other takes; 6 clients: of six times as long as one",
    );
    line(&goals(results));
    report
}

fn of_table(table: &TableResult) -> String {
    let ratio = table.bytes_encoded as f64 / table.bytes_plain.max(1) as f64;
    let (plain, encoded) = (text::bytes(table.bytes_plain), text::bytes(table.bytes_encoded));
    let (name, rows) = (&table.name, text::rows(table.rows));
    format!("table {name}, {rows} rows: {plain} plain, {encoded} in the pool ({ratio:.2})")
}

/// Creates a table with a row for each case, which names the case.
fn table_of<'a>(cases: impl IntoIterator<Item = &'a CaseResult>) -> Table<&'a CaseResult> {
    Table::of(cases)
        .column("case", |case| &case.name)
        .column("of rows", |case| text::rows(case.table_rows))
        .column("result", |case| case.result_rows)
}

/// Formats the times of all sides that took part.
fn times(results: &Results, cases: &[&CaseResult]) -> String {
    let mut table = table_of(cases.iter().copied()).number(FARPOOL, 1, |case| case.median(FARPOOL));
    let rivals = results.rivals.iter().map(|rival| rival.name.as_str());
    for side in [FARPOOL_TLS, FARPOOL_HIDDEN, FARPOOL_SEALED, FARPOOL_BOTH].into_iter().chain(rivals) {
        if cases.iter().any(|case| case.sides.contains_key(side)) {
            table = table.optional(side, |case| {
                let (ms, ratio) = case.median(side).zip(case.ratio(side))?;
                Some(format!("{ms:.1} ({ratio:.1}×)"))
            });
        }
    }
    table.to_string()
}

/// Formats the bytes that each case moves, and the bottleneck of each case.
fn bounds(results: &Results) -> String {
    let mut table = table_of(&results.cases)
        .bytes("scanned", |case| case.receipt.bytes_scanned)
        .bytes("on the wire", |case| case.receipt.bytes_on_wire)
        .bytes("at the client", |case| case.result_bytes);
    let wire = |case: &CaseResult, rival: &str| case.sides.get(rival).and_then(|side| side.bytes_on_wire);
    for rival in results.rivals.iter().map(|rival| rival.name.as_str()) {
        // Some rivals do not count their bytes on the wire.
        if results.cases.iter().any(|case| wire(case, rival).is_some()) {
            table = table.bytes(format!("{rival}'s wire"), |case| wire(case, rival));
        }
    }
    table.column("bound by", |case| case.bound.text()).to_string()
}

/// Formats the goals, a row each.
fn goals(results: &Results) -> String {
    let goals = results.cases.iter().flat_map(|case| case.goals.iter().map(move |goal| (case, goal)));
    let table = Table::of(goals)
        .column("case", |(case, _)| &case.name)
        .column("against", |(_, goal)| &goal.against)
        .ratio("measured", 2, |(_, goal)| goal.measured)
        .column("goal", |(_, goal)| goal.bound())
        .met(|(_, goal)| goal.met)
        .column("", |(_, goal)| goal.missed());
    table.to_string()
}
