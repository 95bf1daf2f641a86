//! Formats the results as tables.

use super::results::{
    CaseResult, FARPOOL, FARPOOL_BOTH, FARPOOL_HIDDEN, FARPOOL_SEALED, FARPOOL_TLS, Results,
};
use crate::text;

/// Returns the whole report.
pub fn text(results: &Results) -> String {
    let mut report = heading(results);
    let mut line = |content: &str| {
        report.push_str(content);
        report.push('\n');
    };
    for rival in &results.rivals {
        let place = if rival.place == crate::rival::Place::Local { "local" } else { "remote" };
        line(&format!("{} {} ({place}): {}", rival.name, rival.version, rival.about));
    }
    results.notes.iter().for_each(|note| line(&format!("note: {note}")));
    line("");
    for table in &results.tables {
        let ratio = table.bytes_encoded as f64 / table.bytes_plain.max(1) as f64;
        let (plain, encoded) = (text::bytes(table.bytes_plain), text::bytes(table.bytes_encoded));
        let rows = text::rows(table.rows);
        line(&format!(
            "table {}, {rows} rows: {plain} plain, {encoded} in the pool ({ratio:.2})",
            table.name
        ));
    }
    line(&text::limits(&results.limits));
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

fn heading(results: &Results) -> String {
    format!(
        "{} · {} rows · {} · median of {} runs · {} threads a side · farpool remote, over loopback TCP\n{}\n",
        results.suite,
        text::rows(results.rows),
        results.date,
        results.runs,
        results.threads,
        text::machine(&results.machine)
    )
}

/// Formats the times of all sides that took part, a row for each case.
fn times(results: &Results, cases: &[&CaseResult]) -> String {
    let mut header =
        vec!["case".to_string(), "of rows".to_string(), "result".to_string(), FARPOOL.to_string()];
    let others = || {
        let rivals = results.rivals.iter().map(|rival| rival.name.as_str());
        let sides = [FARPOOL_TLS, FARPOOL_HIDDEN, FARPOOL_SEALED, FARPOOL_BOTH].into_iter().chain(rivals);
        sides.filter(move |side| cases.iter().any(|case| case.sides.contains_key(*side)))
    };
    header.extend(others().map(str::to_string));
    let rows = cases.iter().map(|case| {
        let mut row = start_of_row(case);
        row.push(case.median(FARPOOL).map_or("-".to_string(), |ms| format!("{ms:.1}")));
        row.extend(others().map(|side| {
            let timed = case.median(side).zip(case.ratio(side));
            timed.map_or("-".to_string(), |(ms, ratio)| format!("{ms:.1} ({ratio:.1}×)"))
        }));
        row
    });
    text::table(header, rows.collect())
}

fn start_of_row(case: &CaseResult) -> Vec<String> {
    vec![case.name.clone(), text::rows(case.table_rows), case.result_rows.to_string()]
}

/// Formats the bytes moved and the bottlenecks, a row for each case.
fn bounds(results: &Results) -> String {
    let mut header =
        ["case", "of rows", "result", "scanned", "on the wire", "at the client"].map(String::from).to_vec();
    let counted = rivals_that_count(results);
    header.extend(counted.iter().map(|rival| format!("{rival}'s wire")));
    header.push("bound by".to_string());
    let rows = results.cases.iter().map(|case| {
        let mut row = start_of_row(case);
        let receipt = &case.receipt;
        row.extend([receipt.bytes_scanned, receipt.bytes_on_wire, case.result_bytes].map(text::bytes));
        let wire = |rival: &&str| case.sides.get(*rival).and_then(|side| side.bytes_on_wire);
        row.extend(counted.iter().map(|rival| wire(rival).map_or("-".to_string(), text::bytes)));
        row.push(case.bound.text());
        row
    });
    text::table(header, rows.collect())
}

/// Returns the rivals that count their bytes on the wire.
fn rivals_that_count(results: &Results) -> Vec<&str> {
    let counts = |rival: &&str| {
        let sides = results.cases.iter().filter_map(|case| case.sides.get(*rival));
        sides.filter_map(|side| side.bytes_on_wire).next().is_some()
    };
    results.rivals.iter().map(|rival| rival.name.as_str()).filter(counts).collect()
}

/// Formats the goals, a row each.
fn goals(results: &Results) -> String {
    let header = ["case", "against", "measured", "goal", "", ""];
    let rows = results.cases.iter().flat_map(|case| {
        case.goals.iter().map(|goal| {
            let [measured, bound, missed] = goal.outcome();
            let met = text::met(goal.met).trim().to_string();
            vec![case.name.clone(), goal.against.clone(), measured, bound, met, missed]
        })
    });
    text::table(header.map(String::from).to_vec(), rows.collect())
}
