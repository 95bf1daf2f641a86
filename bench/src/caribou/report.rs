//! Formats the results of all parts as tables.

use super::definition::Cores;
use super::results::{
    BesideResult, CaseResult, ConditionalResult, LibraryResult, LoadResult, MemoryResult, Results,
    ScanResult, SecondOpinion, SideResult, ratio, side,
};
use crate::suite::{RivalResult, Table};
use crate::text;

/// Names of the sides, in the order of the columns.
const SIDES: [&str; 3] = ["farpool", "Redis", "memcached"];

/// Returns the whole report.
pub fn text(results: &Results) -> String {
    let sides: Vec<String> = results.sides.iter().map(RivalResult::text).collect();
    let about = format!(
        "median of {} runs of {} s · {} keys · all replies checked",
        results.runs, results.seconds, results.keys
    );
    let head = format!(
        "{}{}\n{}\nload of the machine before and after, with what others ran: {:.1}, {:.1}",
        results.head.text(about),
        results.limits,
        sides.join(" · "),
        results.load_average.first().unwrap_or(&f64::NAN),
        results.load_average.last().unwrap_or(&f64::NAN),
    );
    let sections = [
        text::section(&results.cases, cases),
        text::section(&results.response, response),
        text::section(&results.load, load),
        text::section(&results.memory, memory),
        text::section(&results.conditional, conditional),
        text::section(&results.scans, |scans| self::scans(scans, results)),
        results.beside.as_ref().map(beside),
        (!results.durable.is_empty() || !results.recovery.is_empty()).then(|| durable(results)),
        results.library.as_ref().map(library),
        text::section(&results.second_opinion, second_opinion),
        (!results.goals.is_empty()).then(|| results.goals.table()),
        text::section(&results.notes, |notes| notes.join("\n")),
    ];
    text::report(&head, sections)
}

/// Formats a number in thousands; a dash for NaN and infinity.
fn thousands(value: f64) -> String {
    if value.is_finite() { format!("{:.1}", value / 1e3) } else { "-".to_string() }
}

/// Adds a column for each side. The name of the first one is followed by `about`, which says what the columns show.
fn with_sides<'a, R, C: std::fmt::Display>(
    mut table: Table<&'a R>,
    about: &str,
    sides: impl Fn(&'a R) -> &'a [SideResult],
    cell: impl Fn(&SideResult) -> C,
) -> Table<&'a R> {
    for (place, name) in SIDES.into_iter().enumerate() {
        let header = if place == 0 { format!("{name} {about}") } else { name.to_string() };
        table = table.optional(header, |result| side(sides(result), name).map(&cell));
    }
    table
}

/// Adds a column for each side with a value in thousands, and a column with the ratio of farpool's value to Redis'.
fn compared<'a>(
    table: Table<&'a CaseResult>,
    about: &str,
    value: fn(&SideResult) -> f64,
) -> Table<&'a CaseResult> {
    with_sides(table, about, |result| &result.sides, |side| thousands(value(side))).ratio(
        "by Redis'",
        2,
        |result| ratio(&result.sides, &value),
    )
}

/// Adds a column for each side with a latency in microseconds.
fn latencies<'a, R>(
    table: Table<&'a R>,
    about: &str,
    sides: impl Fn(&'a R) -> &'a [SideResult],
    value: fn(&SideResult) -> f64,
) -> Table<&'a R> {
    with_sides(table, about, sides, |side| format!("{:.0}", value(side)))
}

fn cases(cases: &[CaseResult]) -> String {
    let series = |result: &CaseResult| match result.case.cores {
        Cores::Own => result.case.series.clone(),
        Cores::Both => format!("{} *", result.case.series),
    };
    let table = Table::of(cases)
        .column("series", series)
        .column("operations", |result| &result.case.mix)
        .column("depth", |result| result.case.depth)
        .column("bytes", |result| result.case.value_bytes)
        .column("keys", |result| String::from(result.case.skew))
        .column("clients", |result| result.case.connections);
    let table = compared(table, "k/s", |side| side.rate);
    let table = compared(table, "k/CPU-s", |side| side.per_cpu)
        .number("busy", 2, |result| side(&result.sides, "farpool").map(|side| side.busy))
        .number("Redis", 2, |result| side(&result.sides, "Redis").map(|side| side.busy));
    format!(
        "Thousands of operations a second in a closed loop, and for each second of the server's CPU time; server and \
         generator have a processor each, or share both (*). Busy are the processors that the server had busy.\n\n{table}"
    )
}

fn response(cases: &[CaseResult]) -> String {
    let table = Table::of(cases)
        .column("operations", |result| &result.case.mix)
        .column("bytes", |result| result.case.value_bytes);
    let table = latencies(table, "p50", |result| &result.sides, |side| side.p50_us);
    let table = latencies(table, "p99", |result| &result.sides, |side| side.p99_us);
    format!("Response times of one client, microseconds.\n\n{table}")
}

fn load(results: &[LoadResult]) -> String {
    let table = Table::of(results).number("k/s due", 1, |result| result.rate / 1e3);
    let table = latencies(table, "p50", |result| &result.sides, |side| side.p50_us);
    let table = latencies(table, "p99", |result| &result.sides, |side| side.p99_us);
    let table = latencies(table, "p99.9", |result| &result.sides, |side| side.p999_us);
    format!("An open loop: latency in microseconds from when a request was due.\n\n{table}")
}

fn memory(results: &[MemoryResult]) -> String {
    let table = Table::of(results)
        .column("spaces", |result| result.spaces)
        .column("entries", |result| result.keys)
        .number("key and value B", 1, |result| result.payload_bytes)
        .number("farpool B", 1, |result| result.side("farpool").map(|side| side.entry_bytes))
        .number("Redis B", 1, |result| result.side("Redis").map(|side| side.entry_bytes))
        .ratio("by Redis'", 2, |result| result.ratio())
        .number("farpool resident B", 1, |result| result.side("farpool").map(|side| side.resident_bytes))
        .number("Redis resident B", 1, |result| result.side("Redis").map(|side| side.resident_bytes));
    format!("Memory of an entry, as the servers say it (used_memory) and as the system sees it.\n\n{table}")
}

fn conditional(results: &[ConditionalResult]) -> String {
    let table = Table::of(results)
        .column("bytes", |result| result.value_bytes)
        .column("GET k/CPU-s", |result| thousands(result.get.per_cpu))
        .column("matches", |result| thousands(result.matching.per_cpu))
        .ratio("by GET's", 2, |result| result.matching.per_cpu / result.get.per_cpu)
        .column("does not", |result| thousands(result.missing.per_cpu))
        .ratio("by GET's", 2, |result| result.missing.per_cpu / result.get.per_cpu);
    format!("Reads with eight conditions.\n\n{table}")
}

/// Formats all scans: with conditions, for a substring, and of compressed values.
fn scans(scans: &[ScanResult], results: &Results) -> String {
    let conditions = Table::of(scans)
        .column("bytes", |scan| scan.value_bytes)
        .column("rows", |scan| text::rows(scan.rows))
        .column("pass", |scan| format!("{} %", scan.percent))
        .column("", |scan| if scan.fetches { "fetched" } else { "counted" })
        .number("ms", 1, |scan| scan.ms)
        .number("GB/s", 2, |scan| scan.gb_s)
        .number("of bandwidth", 2, |scan| scan.of_bandwidth);
    let substrings = Table::of(&results.substrings)
        .column("substring, bytes", |result| result.value_bytes)
        .column("pass", |result| format!("{} %", result.percent))
        .number("GB/s", 2, |result| result.gb_s)
        .number("memmem GB/s", 2, |result| result.memmem_gb_s)
        .ratio("ratio", 2, |result| result.gb_s / result.memmem_gb_s);
    let compressed = Table::of(&results.compressed)
        .column("compressed, bytes", |result| result.value_bytes)
        .column("codec", |result| &result.codec)
        .number("bytes an entry", 0, |result| result.bytes_per_entry)
        .number("GB/s", 2, |result| result.gb_s)
        .number("codec GB/s", 2, |result| result.codec_gb_s)
        .ratio("ratio", 2, |result| result.codec_gb_s.map(|codec| result.gb_s / codec));
    format!(
        "Scans by SQL on two threads: eight conditions on fields; a substring, beside memmem over the same bytes in one \
         piece on two threads; the same of compressed values of JSON, beside the codec alone on two threads.\n\n\
         {conditions}\n\n{substrings}\n\n{compressed}"
    )
}

fn beside(result: &BesideResult) -> String {
    let rows = [
        ("points alone", Some(&result.alone), None),
        ("scans alone", None, Some(result.scans_alone)),
        ("together", Some(&result.beside), Some(result.scans_beside)),
    ];
    let table = Table::of(rows)
        .column("", |(name, ..)| name)
        .number("p50", 0, |(_, side, _)| side.map(|side| side.p50_us))
        .number("p99", 0, |(_, side, _)| side.map(|side| side.p99_us))
        .number("p99.9", 0, |(_, side, _)| side.map(|side| side.p999_us))
        .number("scans a second", 2, |(.., scans)| scans);
    format!(
        "Point operations, {:.1} thousand a second due, and scans of the same space on the same processor; \
         microseconds.\n\n{table}",
        result.rate / 1e3
    )
}

/// Formats durable updates, syncs of the disk, and starts over durable keys.
fn durable(results: &Results) -> String {
    let table = Table::of(&results.durable)
        .column("connections", |result| result.connections)
        .column("depth", |result| result.depth)
        .optional("farpool k/s", |result| side(&result.sides, "farpool").map(|side| thousands(side.rate)))
        .optional("Redis k/s", |result| side(&result.sides, "Redis").map(|side| thousands(side.rate)))
        .ratio("by Redis'", 2, |result| ratio(&result.sides, &|side| side.rate))
        .number("farpool p99 us", 0, |result| side(&result.sides, "farpool").map(|side| side.p99_us))
        .number("Redis p99 us", 0, |result| side(&result.sides, "Redis").map(|side| side.p99_us));
    let sync = results.sync.iter().map(|sync| {
        let kib = sync.bytes >> 10;
        format!("an append of {kib} KiB is durable after {:.0} us, p99 {:.0} us", sync.p50_us, sync.p99_us)
    });
    let recovery = results.recovery.iter().map(|result| {
        let gib = result.bytes as f64 / f64::from(1 << 30);
        let how = if result.is_killed { "killed" } else { "stopped" };
        format!("start over {gib:.2} GiB of values, {}, {how}: {:.2} s", result.name, result.seconds)
    });
    format!(
        "Updates that are on disk before they are acknowledged.\n\n{table}\n\n{}",
        sync.chain(recovery).collect::<Vec<_>>().join("\n")
    )
}

fn library(result: &LibraryResult) -> String {
    format!(
        "Inside the library, {} threads, nine reads to an update: {:.2} million operations a second with all keys, {:.2} with \
         128 hot ones.",
        result.threads,
        result.uniform / 1e6,
        result.hot / 1e6
    )
}

fn second_opinion(results: &[SecondOpinion]) -> String {
    let table = Table::of(results)
        .column("redis-benchmark", |result| &result.test)
        .column("depth", |result| result.depth)
        .column("farpool k/s", |result| thousands(result.farpool))
        .column("Redis k/s", |result| thousands(result.redis))
        .ratio("by Redis'", 2, |result| result.farpool / result.redis);
    table.to_string()
}
