//! Formats the results as tables.

use super::definition::Cores;
use super::results::{CaseResult, LibraryResult, Results, SideResult, ratio, side};
use crate::text;

/// The sides in the order of columns.
const SIDES: [&str; 3] = ["farpool", "Redis", "memcached"];

/// Returns the whole report.
pub fn text(results: &Results) -> String {
    let sides = results.sides.iter().map(|side| match &side.missing {
        Some(why) => format!("without {}: {why}", side.name),
        None => format!("{} {}", side.name, side.version),
    });
    let head = format!(
        "caribou · {} · median of {} runs of {} s · {} keys · all replies checked\n{}\n{}\n{}\n\
         load of the machine before and after, with what others ran: {:.1}, {:.1}",
        results.date,
        results.runs,
        results.seconds,
        results.keys,
        text::machine(&results.machine),
        text::limits(&results.limits),
        sides.collect::<Vec<_>>().join(" · "),
        results.load_average.first().unwrap_or(&f64::NAN),
        results.load_average.last().unwrap_or(&f64::NAN),
    );
    let parts = [
        Some(head),
        (!results.cases.is_empty()).then(|| cases(&results.cases)),
        (!results.response.is_empty()).then(|| response(&results.response)),
        (!results.load.is_empty()).then(|| load(results)),
        (!results.memory.is_empty()).then(|| memory(results)),
        (!results.conditional.is_empty()).then(|| conditional(results)),
        (!results.scans.is_empty()).then(|| scans(results)),
        results.beside.as_ref().map(|_| beside(results)),
        (!results.durable.is_empty() || !results.recovery.is_empty()).then(|| durable(results)),
        results.library.as_ref().map(library),
        (!results.second_opinion.is_empty()).then(|| second_opinion(results)),
        (!results.goals.is_empty()).then(|| goals(results)),
        (!results.notes.is_empty()).then(|| results.notes.join("\n")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n\n") + "\n"
}

fn cases(cases: &[CaseResult]) -> String {
    let header = [
        "series",
        "operations",
        "depth",
        "bytes",
        "keys",
        "clients",
        "farpool k/s",
        "Redis",
        "memcached",
        "by Redis'",
        "farpool k/CPU-s",
        "Redis",
        "memcached",
        "by Redis'",
        "busy",
        "Redis",
    ];
    let row = |result: &CaseResult| {
        let case = &result.case;
        let series = match case.cores {
            Cores::Own => case.series.clone(),
            Cores::Both => format!("{} *", case.series),
        };
        let first = [
            series,
            case.mix.clone(),
            case.depth.to_string(),
            case.value_bytes.to_string(),
            String::from(case.skew),
            case.connections.to_string(),
        ];
        [
            first.to_vec(),
            compared(&result.sides, &|side| side.rate),
            compared(&result.sides, &|side| side.per_cpu),
            busy(&result.sides),
        ]
        .concat()
    };
    format!(
        "Thousands of operations a second in a closed loop, and for each second of the server's CPU time; server and \
         generator have a processor each, or share both (*). Busy are the processors that the server had busy.\n\n{}",
        text::table(header.map(String::from).to_vec(), cases.iter().map(row).collect())
    )
}

/// Returns the number of processors that farpool and Redis kept busy.
fn busy(sides: &[SideResult]) -> Vec<String> {
    let of = |name: &str| side(sides, name).map_or("-".to_string(), |side| format!("{:.2}", side.busy));
    vec![of("farpool"), of("Redis")]
}

/// Formats a value of all sides in thousands, and the ratio of farpool's to Redis'.
fn compared(sides: &[SideResult], value: &dyn Fn(&SideResult) -> f64) -> Vec<String> {
    let of = |name: &str| side(sides, name).map_or("-".to_string(), |side| thousands(value(side)));
    let ratio = ratio(sides, value).map_or("-".to_string(), |ratio| format!("{ratio:.2}×"));
    SIDES.iter().map(|name| of(name)).chain([ratio]).collect()
}

fn thousands(value: f64) -> String {
    if value.is_finite() { format!("{:.1}", value / 1e3) } else { "-".to_string() }
}

/// Formats a latency of all sides in microseconds.
fn latencies(sides: &[SideResult], value: &dyn Fn(&SideResult) -> f64) -> Vec<String> {
    SIDES.iter().map(|name| side(sides, name).map_or("-".to_string(), |side| us(value(side)))).collect()
}

fn us(value: f64) -> String {
    format!("{value:.0}")
}

fn response(cases: &[CaseResult]) -> String {
    let header =
        ["operations", "bytes", "farpool p50", "Redis", "memcached", "farpool p99", "Redis", "memcached"];
    let row = |result: &CaseResult| {
        let first = vec![result.case.mix.clone(), result.case.value_bytes.to_string()];
        [first, latencies(&result.sides, &|side| side.p50_us), latencies(&result.sides, &|side| side.p99_us)]
            .concat()
    };
    format!(
        "Response times of one client, microseconds.\n\n{}",
        text::table(header.map(String::from).to_vec(), cases.iter().map(row).collect())
    )
}

fn load(results: &Results) -> String {
    let header = [
        "k/s due",
        "farpool p50",
        "Redis",
        "memcached",
        "farpool p99",
        "Redis",
        "memcached",
        "farpool p99.9",
        "Redis",
        "memcached",
    ];
    let row = |result: &super::results::LoadResult| {
        let of = |value: &dyn Fn(&SideResult) -> f64| latencies(&result.sides, value);
        let due = vec![format!("{:.1}", result.rate / 1e3)];
        [due, of(&|side| side.p50_us), of(&|side| side.p99_us), of(&|side| side.p999_us)].concat()
    };
    format!(
        "An open loop: latency in microseconds from when a request was due.\n\n{}",
        text::table(header.map(String::from).to_vec(), results.load.iter().map(row).collect())
    )
}

fn memory(results: &Results) -> String {
    let header = [
        "spaces",
        "entries",
        "key and value B",
        "farpool B",
        "Redis B",
        "by Redis'",
        "farpool resident B",
        "Redis resident B",
    ];
    let row = |result: &super::results::MemoryResult| {
        let of = |name: &str| result.sides.iter().find(|side| side.name == name).map(|side| side.entry_bytes);
        let shown = |bytes: Option<f64>| bytes.map_or("-".to_string(), |bytes| format!("{bytes:.1}"));
        let resident =
            |name: &str| result.sides.iter().find(|side| side.name == name).map(|side| side.resident_bytes);
        let ratio = of("farpool").zip(of("Redis")).map(|(ours, theirs)| ours / theirs);
        vec![
            result.spaces.to_string(),
            result.keys.to_string(),
            format!("{:.1}", result.payload_bytes),
            shown(of("farpool")),
            shown(of("Redis")),
            ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}×")),
            shown(resident("farpool")),
            shown(resident("Redis")),
        ]
    };
    format!(
        "Memory of an entry, as the servers say it (used_memory) and as the system sees it.\n\n{}",
        text::table(header.map(String::from).to_vec(), results.memory.iter().map(row).collect())
    )
}

fn conditional(results: &Results) -> String {
    let header = ["bytes", "GET k/CPU-s", "matches", "by GET's", "does not", "by GET's"];
    let row = |result: &super::results::ConditionalResult| {
        let (get, matching, missing) = (result.get.per_cpu, result.matching.per_cpu, result.missing.per_cpu);
        let ratio = |value: f64| format!("{:.2}×", value / get);
        vec![
            result.value_bytes.to_string(),
            thousands(get),
            thousands(matching),
            ratio(matching),
            thousands(missing),
            ratio(missing),
        ]
    };
    format!(
        "Reads with eight conditions.\n\n{}",
        text::table(header.map(String::from).to_vec(), results.conditional.iter().map(row).collect())
    )
}

fn scans(results: &Results) -> String {
    let header = ["bytes", "rows", "pass", "", "ms", "GB/s", "of bandwidth"];
    let row = |scan: &super::results::ScanResult| {
        vec![
            scan.value_bytes.to_string(),
            text::rows(scan.rows),
            format!("{} %", scan.percent),
            if scan.fetches { "fetched" } else { "counted" }.to_string(),
            format!("{:.1}", scan.ms),
            format!("{:.2}", scan.gb_s),
            format!("{:.2}", scan.of_bandwidth),
        ]
    };
    let of_text = ["substring, bytes", "pass", "GB/s", "memmem GB/s", "ratio"];
    let substring = |result: &super::results::SubstringResult| {
        vec![
            result.value_bytes.to_string(),
            format!("{} %", result.percent),
            format!("{:.2}", result.gb_s),
            format!("{:.2}", result.memmem_gb_s),
            format!("{:.2}×", result.gb_s / result.memmem_gb_s),
        ]
    };
    let of_codec = ["compressed, bytes", "codec", "bytes an entry", "GB/s", "codec GB/s", "ratio"];
    let compressed = |result: &super::results::CompressedResult| {
        let of_codec = |shown: &dyn Fn(f64) -> String| result.codec_gb_s.map_or("-".to_string(), shown);
        vec![
            result.value_bytes.to_string(),
            result.codec.clone(),
            format!("{:.0}", result.bytes_per_entry),
            format!("{:.2}", result.gb_s),
            of_codec(&|codec| format!("{codec:.2}")),
            of_codec(&|codec| format!("{:.2}×", result.gb_s / codec)),
        ]
    };
    format!(
        "Scans by SQL on two threads: eight conditions on fields; a substring, beside memmem over the same bytes in one \
         piece on two threads; the same of compressed values of JSON, beside the codec alone on two threads.\n\n{}\n\n{}\n\n{}",
        text::table(header.map(String::from).to_vec(), results.scans.iter().map(row).collect()),
        text::table(of_text.map(String::from).to_vec(), results.substrings.iter().map(substring).collect()),
        text::table(of_codec.map(String::from).to_vec(), results.compressed.iter().map(compressed).collect())
    )
}

fn beside(results: &Results) -> String {
    let Some(beside) = &results.beside else { return String::new() };
    let header = ["", "p50", "p99", "p99.9", "scans a second"];
    let row = |name: &str, side: Option<&SideResult>, scans: Option<f64>| {
        let of = |value: &dyn Fn(&SideResult) -> f64| side.map_or("-".to_string(), |side| us(value(side)));
        let scans = scans.map_or("-".to_string(), |scans| format!("{scans:.2}"));
        vec![
            name.to_string(),
            of(&|side| side.p50_us),
            of(&|side| side.p99_us),
            of(&|side| side.p999_us),
            scans,
        ]
    };
    let rows = vec![
        row("points alone", Some(&beside.alone), None),
        row("scans alone", None, Some(beside.scans_alone)),
        row("together", Some(&beside.beside), Some(beside.scans_beside)),
    ];
    format!(
        "Point operations, {:.1} thousand a second due, and scans of the same space on the same processor; \
         microseconds.\n\n{}",
        beside.rate / 1e3,
        text::table(header.map(String::from).to_vec(), rows)
    )
}

fn durable(results: &Results) -> String {
    let header =
        ["connections", "depth", "farpool k/s", "Redis k/s", "by Redis'", "farpool p99 us", "Redis p99 us"];
    let row = |result: &super::results::DurableResult| {
        let of = |name: &str, value: &dyn Fn(&SideResult) -> String| {
            side(&result.sides, name).map_or("-".to_string(), value)
        };
        let ratio = ratio(&result.sides, &|side| side.rate);
        vec![
            result.connections.to_string(),
            result.depth.to_string(),
            of("farpool", &|side| thousands(side.rate)),
            of("Redis", &|side| thousands(side.rate)),
            ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}×")),
            of("farpool", &|side| us(side.p99_us)),
            of("Redis", &|side| us(side.p99_us)),
        ]
    };
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
        "Updates that are on disk before they are acknowledged.\n\n{}\n\n{}",
        text::table(header.map(String::from).to_vec(), results.durable.iter().map(row).collect()),
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

fn second_opinion(results: &Results) -> String {
    let header = ["redis-benchmark", "depth", "farpool k/s", "Redis k/s", "by Redis'"];
    let row = |result: &super::results::SecondOpinion| {
        vec![
            result.test.clone(),
            result.depth.to_string(),
            thousands(result.farpool),
            thousands(result.redis),
            format!("{:.2}×", result.farpool / result.redis),
        ]
    };
    text::table(header.map(String::from).to_vec(), results.second_opinion.iter().map(row).collect())
}

fn goals(results: &Results) -> String {
    let header = ["", "goal", "measured", ""];
    let row = |goal: &super::results::GoalResult| {
        vec![
            goal.what.clone(),
            goal.goal.clone(),
            goal.measured.map_or("-".to_string(), |measured| format!("{measured:.2}")),
            text::met(goal.is_met).trim().to_string(),
        ]
    };
    text::table(header.map(String::from).to_vec(), results.goals.iter().map(row).collect())
}
