//! Formats the results as tables.

use super::measure::{Results, RivalTimes, ScanResult, StartResult, StoreResult};
use crate::text;

/// Returns the whole report.
pub fn text(results: &Results) -> String {
    let duckdb = match &results.duckdb.missing {
        Some(why) => format!("without DuckDB: {why}"),
        None => format!("DuckDB {}", results.duckdb.version),
    };
    let mut report = format!(
        "{} · {} · median of {} starts · {} threads · all answers agree\n{}\n{duckdb}\n\
         before each start {} was dropped, and programs were read again\n\
         times are from the start of the process, ms; DuckDB's in brackets without Python and the import\n",
        results.suite,
        results.date,
        results.runs,
        results.threads,
        text::machine(&results.machine),
        results.dropped,
    );
    results.notes.iter().for_each(|note| report.push_str(&format!("{note}\n")));
    for store in &results.stores {
        report.push_str(&of_store(store, results));
    }
    report
}

fn of_store(store: &StoreResult, results: &Results) -> String {
    let header = [
        "memory",
        "connected",
        "selective",
        "read",
        "",
        "DuckDB",
        "scan",
        "alone",
        "read",
        "GB/s",
        "disk's",
        "part",
        "",
        "DuckDB",
        "filled",
        "resident",
    ];
    let rows = store.starts.iter().map(|start| row(start, results)).collect();
    let log = match store.appends {
        0 => String::new(),
        appends => format!(", of them {appends} appends in the log"),
    };
    format!(
        "\n{}: {} encoded{log}; files: farpool {}, DuckDB {}\n{}\n",
        store.name,
        text::bytes(store.bytes_encoded),
        text::bytes(store.bytes_farpool),
        store.bytes_duckdb.map_or("-".to_string(), text::bytes),
        text::table(header.map(String::from).to_vec(), rows)
    )
}

fn row(start: &StartResult, results: &Results) -> Vec<String> {
    let ms = |ms: f64| format!("{ms:.0}");
    let theirs = |times: &Option<RivalTimes>| match times {
        Some(RivalTimes { whole_ms, own_ms }) => format!("{whole_ms:.0} ({own_ms:.0})"),
        None => "-".to_string(),
    };
    let scanned = |of: &dyn Fn(&ScanResult) -> String| start.scan.as_ref().map_or("-".to_string(), of);
    let is_small = start.selective_bytes <= results.selective_bytes;
    let is_fast = is_small.then_some(start.selective_ms <= results.selective_ms);
    let is_met = start.scan.as_ref().and_then(|scan| scan.of_disk).map(|part| part >= results.of_disk);
    vec![
        format!("{} MiB", start.memory_mib),
        ms(start.connected_ms),
        ms(start.selective_ms),
        text::bytes(start.selective_bytes),
        text::met(is_fast).trim().to_string(),
        theirs(&start.duckdb_selective),
        scanned(&|scan| ms(scan.since_start_ms)),
        scanned(&|scan| ms(scan.ms)),
        scanned(&|scan| text::bytes(scan.bytes_from_disk)),
        scanned(&|scan| format!("{:.2}", scan.gb_s)),
        scanned(&|scan| format!("{:.2}", scan.disk_gb_s)),
        scanned(&|scan| scan.of_disk.map_or("-".to_string(), |part| format!("{part:.2}"))),
        text::met(is_met).trim().to_string(),
        theirs(&start.duckdb_scan),
        ms(start.filled_ms),
        format!("{:.0}%", start.filled_part * 100.0),
    ]
}
