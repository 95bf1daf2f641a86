//! Formats execution statistics (receipts) for people.

use crate::cli::size;
use crate::cli::terminal::printable;
use farpool::Receipt;
use farpool::model::{Answer, LookupReceipt, OperatorAnswer};
use std::fmt::Write;
use std::time::Duration;

/// Returns the execution statistics of a statement, in several lines; zeros are left out.
pub fn text(receipt: &Receipt) -> String {
    let rows = [
        ("scanned", receipt.rows_scanned),
        ("skipped", receipt.rows_skipped),
        ("known", receipt.rows_known),
        ("returned", receipt.rows_returned),
        ("bypassed", receipt.rows_bypassed),
    ];
    let bytes = [
        ("scanned", receipt.bytes_scanned),
        ("skipped", receipt.bytes_skipped),
        ("from disk", receipt.bytes_from_disk),
        ("again", receipt.bytes_again),
        ("from the cache", receipt.bytes_from_cache),
        ("shared", receipt.bytes_shared),
        ("on the wire", receipt.bytes_on_wire),
    ];
    let times =
        [("elapsed", receipt.elapsed_ns), ("of processors", receipt.cpu_ns), ("waited", receipt.waited_ns)];
    let duration = |ns| size::duration(Duration::from_nanos(ns));
    let mut text = line("rows", &rows, size::count) + &line("bytes", &bytes, size::bytes);
    text += &line("time", &times, duration);
    for OperatorAnswer { operator, detail, answer, reason } in &receipt.operators {
        let answer = match answer {
            Answer::Exact => "exact",
            Answer::Superset => "superset",
            Answer::Refused => "refused",
        };
        let reason = reason.as_ref().map_or_else(String::new, |reason| format!(", because {reason}"));
        let line = format!("{:<9}{answer:<9}{detail}{reason}", operator.name());
        let _ = writeln!(text, "{}", printable(line.trim_end()));
    }
    for LookupReceipt { table, rows, bytes, elapsed_ns } in &receipt.lookups {
        let (rows, bytes, time) = (size::count(*rows), size::bytes(*bytes), duration(*elapsed_ns));
        let line = format!("held     {rows} rows of {table}, {bytes}, after {time}");
        let _ = writeln!(text, "{}", printable(&line));
    }
    if text.is_empty() { "nothing was asked of a pool\n".to_string() } else { text }
}

fn line(name: &str, amounts: &[(&str, u64)], show: impl Fn(u64) -> String) -> String {
    let shown = amounts.iter().filter(|(_, amount)| *amount > 0);
    let shown: Vec<String> = shown.map(|(what, amount)| format!("{} {what}", show(*amount))).collect();
    if shown.is_empty() { String::new() } else { format!("{name:<9}{}\n", shown.join(", ")) }
}
