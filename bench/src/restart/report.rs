//! Formats the results of the benchmark suite `restart` as tables.

use super::measure::{Results, RivalTimes, StartResult, StoreResult};
use crate::suite::Table;
use crate::text;

/// Returns the whole report of the suite as text.
pub fn text(results: &Results) -> String {
    let about =
        format!("median of {} starts · {} threads · all answers agree", results.runs, results.threads);
    let notes = text::lines(&results.notes);
    let stores: String = results.stores.iter().map(|store| of_store(store, results)).collect();
    format!(
        "{}{}\nbefore each start {} was dropped, and programs were read again\n\
         times are from the start of the process, ms; DuckDB's in brackets without Python and the import\n{notes}{stores}",
        results.head.text(about),
        results.duckdb.text(),
        results.dropped,
    )
}

fn of_store(store: &StoreResult, results: &Results) -> String {
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
        starts(&store.starts, results)
    )
}

fn starts(starts: &[StartResult], results: &Results) -> String {
    let theirs = |times: &Option<RivalTimes>| {
        times.as_ref().map(|times| format!("{:.0} ({:.0})", times.whole_ms, times.own_ms))
    };
    let is_small = |start: &StartResult| start.selective_bytes <= results.selective_bytes;
    let of_disk = |start: &StartResult| start.scan.as_ref()?.of_disk;
    let table = Table::of(starts)
        .column("memory", |start| format!("{} MiB", start.memory_mib))
        .number("connected", 0, |start| start.connected_ms)
        .number("selective", 0, |start| start.selective_ms)
        .bytes("read", |start| start.selective_bytes)
        .met(|start| is_small(start).then_some(start.selective_ms <= results.selective_ms))
        .optional("DuckDB", |start| theirs(&start.duckdb_selective))
        .number("scan", 0, |start| start.scan.as_ref().map(|scan| scan.since_start_ms))
        .number("alone", 0, |start| start.scan.as_ref().map(|scan| scan.ms))
        .bytes("read", |start| start.scan.as_ref().map(|scan| scan.bytes_from_disk))
        .number("GB/s", 2, |start| start.scan.as_ref().map(|scan| scan.gb_s))
        .number("disk's", 2, |start| start.scan.as_ref().map(|scan| scan.disk_gb_s))
        .number("part", 2, of_disk)
        .met(|start| of_disk(start).map(|part| part >= results.of_disk))
        .optional("DuckDB", |start| theirs(&start.duckdb_scan))
        .number("filled", 0, |start| start.filled_ms)
        .column("resident", |start| format!("{:.0}%", start.filled_part * 100.0));
    table.to_string()
}
