//! Compares the measured results with the goals.

use super::definition::{Cores, Definition};
use super::results::{
    CaseResult, DurableResult, GoalResult, MemoryResult, RecoveryResult, Results, SideResult, ratio, side,
};

/// Returns all goals; a goal without a measurement is neither met nor missed.
pub fn of(results: &Results, definition: &Definition) -> Vec<GoalResult> {
    let mut goals = throughput(results, definition);
    goals.extend(results.load.last().map(|load| {
        let inverse = |side: &SideResult| 1.0 / side.p99_us;
        let what = format!("p99 at {:.0} operations a second: Redis' / farpool's", load.rate);
        at_least(what, definition.goals.latency, ratio(&load.sides, &inverse))
    }));
    goals.extend(durability(results, definition));
    goals.extend(memory(results, definition));
    goals.extend(conditional(results, definition));
    goals.extend(scans(results, definition));
    goals.extend(beside(results, definition));
    goals.extend(hot(results, definition));
    goals
}

fn throughput(results: &Results, definition: &Definition) -> Vec<GoalResult> {
    let goals = &definition.goals;
    let cases = results.cases.iter().filter(|result| result.case.series == "pipeline");
    let of_case = |result: &CaseResult| {
        let (mix, depth) = (&result.case.mix, result.case.depth);
        let per_cpu = ratio(&result.sides, &|side| side.per_cpu);
        let rate = ratio(&result.sides, &|side| side.rate);
        let what = |of: &str| format!("{of}, pipeline {depth}, {mix}, by Redis'");
        match depth {
            1 => vec![
                at_least(what("operations a second"), goals.one_by_one, rate),
                at_least(what("operations per CPU-second"), goals.one_by_one, per_cpu),
            ],
            32 => vec![
                at_least(what("operations per CPU-second"), goals.per_cpu_pipelined, per_cpu),
                at_least(what("operations a second, pinned"), goals.pinned_pipelined, rate),
            ],
            _ => Vec::new(),
        }
    };
    cases.flat_map(of_case).collect()
}

fn durability(results: &Results, definition: &Definition) -> Vec<GoalResult> {
    let of_case = |result: &DurableResult| {
        let what =
            format!("always, {} connections, pipeline {}, by Redis'", result.connections, result.depth);
        at_least(what, result.at_least, ratio(&result.sides, &|side| side.rate))
    };
    let mut goals: Vec<GoalResult> = results.durable.iter().map(of_case).collect();
    for result in &results.durable {
        let p99 = side(&result.sides, "farpool").map(|side| side.p99_us);
        let measured = p99.zip(results.sync.as_ref()).map(|(p99, sync)| p99 / sync.p99_us);
        let (connections, depth) = (result.connections, result.depth);
        let what = format!("always, {connections} connections, pipeline {depth}, p99 by a sync's");
        goals.push(at_most(what, definition.goals.sync_latency, measured));
    }
    for (is_killed, how) in [(false, "stopped"), (true, "killed")] {
        let rate = |name: &str| {
            let is_it = |result: &&RecoveryResult| result.name == name && result.is_killed == is_killed;
            results.recovery.iter().find(is_it).map(|result| result.bytes as f64 / result.seconds)
        };
        let measured = rate("farpool").zip(rate("Redis")).map(|(ours, theirs)| ours / theirs);
        let what = format!("recovery per GiB, {how}, by Redis' load");
        goals.push(at_least(what, results.recovery_at_least, measured));
    }
    goals
}

fn memory(results: &Results, definition: &Definition) -> Vec<GoalResult> {
    let of_case = |result: &MemoryResult| {
        let bytes =
            |name: &str| result.sides.iter().find(|side| side.name == name).map(|side| side.entry_bytes);
        let measured = bytes("farpool").zip(bytes("Redis")).map(|(ours, theirs)| ours / theirs);
        let what = format!("memory of an entry, {} spaces, by Redis'", result.spaces);
        at_most(what, definition.goals.memory, measured)
    };
    results.memory.iter().map(of_case).collect()
}

fn conditional(results: &Results, definition: &Definition) -> Vec<GoalResult> {
    let result = results.conditional.iter().find(|result| result.value_bytes == 512);
    let measured = result.map(|result| result.matching.per_cpu / result.get.per_cpu);
    vec![at_least(
        "FP.CGET of 512 B per CPU-second, by GET's".to_string(),
        definition.goals.conditional,
        measured,
    )]
}

fn scans(results: &Results, definition: &Definition) -> Vec<GoalResult> {
    let mut goals = Vec::new();
    for (value_bytes, goal) in &definition.goals.conditions {
        let of =
            results.scans.iter().filter(|scan| scan.value_bytes.to_string() == *value_bytes && !scan.fetches);
        let measured = of.map(|scan| scan.of_bandwidth).reduce(f64::min);
        goals.push(at_least(
            format!("eight conditions, {value_bytes} B, of read bandwidth"),
            *goal,
            measured,
        ));
    }
    for result in &results.substrings {
        let what = format!("substring, {} B, by memmem's rate", result.value_bytes);
        goals.push(at_least(what, definition.goals.substring, Some(result.gb_s / result.memmem_gb_s)));
    }
    for result in &results.compressed {
        let Some(codec_gb_s) = result.codec_gb_s else { continue };
        let what =
            format!("compressed scan, {} B, {}, by the codec's rate", result.value_bytes, result.codec);
        goals.push(at_least(what, definition.goals.compressed, Some(result.gb_s / codec_gb_s)));
    }
    goals
}

fn beside(results: &Results, definition: &Definition) -> Vec<GoalResult> {
    let (goals, beside) = (&definition.goals, results.beside.as_ref());
    let allowed = beside.map_or(f64::NAN, |beside| {
        let idle = beside.alone.p99_us;
        (goals.beside_latency * idle).max(idle + goals.beside_steps_us)
    });
    let p99 = beside.map(|beside| beside.beside.p99_us);
    let scan = beside.map(|beside| beside.scans_beside / beside.scans_alone);
    vec![
        at_most("p99 beside scans, us".to_string(), allowed, p99),
        at_least("scans beside points, of their speed alone".to_string(), goals.beside_scan, scan),
    ]
}

fn hot(results: &Results, definition: &Definition) -> Vec<GoalResult> {
    let rate = |skew: &str, cores: Cores| {
        let is_it = |result: &&CaseResult| {
            let case = &result.case;
            case.cores == cores
                && String::from(case.skew) == skew
                && result.case.series.contains(if cores == Cores::Own { "skew" } else { "hot" })
        };
        results
            .cases
            .iter()
            .find(is_it)
            .and_then(|result| side(&result.sides, "farpool"))
            .map(|side| side.rate)
    };
    let of = |(cores, name): (Cores, &str)| {
        let measured = rate("hot 128", cores).zip(rate("uniform", cores)).map(|(hot, all)| hot / all);
        at_least(format!("128 hot keys, {name}, by uniform ones"), definition.goals.hot, measured)
    };
    let mut goals: Vec<GoalResult> = [(Cores::Own, "pinned"), (Cores::Both, "both cores")].map(of).into();
    let measured = results.library.as_ref().map(|library| library.hot / library.uniform);
    goals.push(at_least(
        "128 hot keys, inside the library, by uniform ones".to_string(),
        definition.goals.hot,
        measured,
    ));
    goals
}

fn at_least(what: String, goal: f64, measured: Option<f64>) -> GoalResult {
    GoalResult {
        what,
        goal: format!(">= {goal:.2}"),
        measured,
        is_met: measured.map(|measured| measured >= goal),
    }
}

fn at_most(what: String, goal: f64, measured: Option<f64>) -> GoalResult {
    let shown = if goal.is_nan() { "-".to_string() } else { format!("<= {goal:.2}") };
    GoalResult { what, goal: shown, measured, is_met: measured.map(|measured| measured <= goal) }
}
