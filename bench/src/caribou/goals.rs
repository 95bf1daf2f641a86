//! Compares the results of all parts with the goals, most of which are ratios to Redis.

use super::definition::{Cores, Definition};
use super::results::{CaseResult, RecoveryResult, Results, ratio, side};
use crate::suite::Goals;

/// Returns the goals of all parts. A goal whose part was left out has no measurement, and is neither met nor missed.
pub fn of(results: &Results, definition: &Definition) -> Goals {
    let mut goals = Goals::default();
    throughput(&mut goals, results, definition);
    if let Some(load) = results.load.last() {
        let what = format!("p99 at {:.0} operations a second: Redis' / farpool's", load.rate);
        let measured = ratio(&load.sides, &|side| 1.0 / side.p99_us);
        goals.at_least(what, definition.goals.latency, measured);
    }
    durability(&mut goals, results, definition);
    for result in &results.memory {
        let what = format!("memory of an entry, {} spaces, by Redis'", result.spaces);
        goals.at_most(what, definition.goals.memory, result.ratio());
    }
    let conditional = results.conditional.iter().find(|result| result.value_bytes == 512);
    let measured = conditional.map(|result| result.matching.per_cpu / result.get.per_cpu);
    let what = "FP.CGET of 512 B per CPU-second, by GET's".to_string();
    goals.at_least(what, definition.goals.conditional, measured);
    scans(&mut goals, results, definition);
    beside(&mut goals, results, definition);
    hot(&mut goals, results, definition);
    goals
}

/// Adds the goals of operations in a closed loop, one at a time and pipelined.
fn throughput(goals: &mut Goals, results: &Results, definition: &Definition) {
    let bounds = &definition.goals;
    for result in results.cases.iter().filter(|result| result.case.series == "pipeline") {
        let (mix, depth) = (&result.case.mix, result.case.depth);
        let per_cpu = ratio(&result.sides, &|side| side.per_cpu);
        let rate = ratio(&result.sides, &|side| side.rate);
        let what = |of: &str| format!("{of}, pipeline {depth}, {mix}, by Redis'");
        match depth {
            1 => {
                goals.at_least(what("operations a second"), bounds.one_by_one, rate);
                goals.at_least(what("operations per CPU-second"), bounds.one_by_one, per_cpu);
            }
            32 => {
                goals.at_least(what("operations per CPU-second"), bounds.per_cpu_pipelined, per_cpu);
                goals.at_least(what("operations a second, pinned"), bounds.pinned_pipelined, rate);
            }
            _ => {}
        }
    }
}

/// Adds the goals of durable updates and of starts over durable keys.
fn durability(goals: &mut Goals, results: &Results, definition: &Definition) {
    for result in &results.durable {
        let (connections, depth) = (result.connections, result.depth);
        let what = format!("always, {connections} connections, pipeline {depth}, by Redis'");
        goals.at_least(what, result.at_least, ratio(&result.sides, &|side| side.rate));
    }
    for result in &results.durable {
        let p99 = side(&result.sides, "farpool").map(|side| side.p99_us);
        let measured = p99.zip(results.sync.as_ref()).map(|(p99, sync)| p99 / sync.p99_us);
        let (connections, depth) = (result.connections, result.depth);
        let what = format!("always, {connections} connections, pipeline {depth}, p99 by a sync's");
        goals.at_most(what, definition.goals.sync_latency, measured);
    }
    for (is_killed, how) in [(false, "stopped"), (true, "killed")] {
        let rate = |name: &str| {
            let is_it = |result: &&RecoveryResult| result.name == name && result.is_killed == is_killed;
            results.recovery.iter().find(is_it).map(|result| result.bytes as f64 / result.seconds)
        };
        let measured = rate("farpool").zip(rate("Redis")).map(|(ours, theirs)| ours / theirs);
        let what = format!("recovery per GiB, {how}, by Redis' load");
        goals.at_least(what, results.recovery_at_least, measured);
    }
}

/// Adds the goals of scans: relative to the read bandwidth of memory, to `memmem`, and to the codec.
fn scans(goals: &mut Goals, results: &Results, definition: &Definition) {
    for (value_bytes, bound) in &definition.goals.conditions {
        let of =
            results.scans.iter().filter(|scan| scan.value_bytes.to_string() == *value_bytes && !scan.fetches);
        let measured = of.map(|scan| scan.of_bandwidth).reduce(f64::min);
        goals.at_least(format!("eight conditions, {value_bytes} B, of read bandwidth"), *bound, measured);
    }
    for result in &results.substrings {
        let what = format!("substring, {} B, by memmem's rate", result.value_bytes);
        goals.at_least(what, definition.goals.substring, result.gb_s / result.memmem_gb_s);
    }
    for result in &results.compressed {
        let Some(codec_gb_s) = result.codec_gb_s else { continue };
        let what =
            format!("compressed scan, {} B, {}, by the codec's rate", result.value_bytes, result.codec);
        goals.at_least(what, definition.goals.compressed, result.gb_s / codec_gb_s);
    }
}

/// Adds the goals of point operations and scans that run together.
fn beside(goals: &mut Goals, results: &Results, definition: &Definition) {
    let (bounds, beside) = (&definition.goals, results.beside.as_ref());
    let allowed = beside.map_or(f64::NAN, |beside| {
        let idle = beside.alone.p99_us;
        (bounds.beside_latency * idle).max(idle + bounds.beside_steps_us)
    });
    let p99 = beside.map(|beside| beside.beside.p99_us);
    goals.at_most("p99 beside scans, us".to_string(), allowed, p99);
    let scan = beside.map(|beside| beside.scans_beside / beside.scans_alone);
    goals.at_least("scans beside points, of their speed alone".to_string(), bounds.beside_scan, scan);
}

/// Adds the goals of 128 hot keys relative to uniformly chosen keys, on a server and inside the library.
fn hot(goals: &mut Goals, results: &Results, definition: &Definition) {
    let rate = |skew: &str, cores: Cores| {
        let is_it = |result: &&CaseResult| {
            let case = &result.case;
            case.cores == cores
                && String::from(case.skew) == skew
                && case.series.contains(if cores == Cores::Own { "skew" } else { "hot" })
        };
        let result = results.cases.iter().find(is_it)?;
        Some(side(&result.sides, "farpool")?.rate)
    };
    for (cores, name) in [(Cores::Own, "pinned"), (Cores::Both, "both cores")] {
        let measured = rate("hot 128", cores).zip(rate("uniform", cores)).map(|(hot, all)| hot / all);
        goals.at_least(format!("128 hot keys, {name}, by uniform ones"), definition.goals.hot, measured);
    }
    let measured = results.library.as_ref().map(|library| library.hot / library.uniform);
    let what = "128 hot keys, inside the library, by uniform ones".to_string();
    goals.at_least(what, definition.goals.hot, measured);
}
