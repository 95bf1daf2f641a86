//! Compares the results of all parts with the goals. A missed goal is reported and does not fail the run.

use super::clients::{ClientsResult, Held, RIVAL, Way};
use super::dashboards::DashboardResult;
use super::definition::{ClientsGoals, Definition, Goals};
use super::measure::Results;
use super::scans::ScansResult;
use super::stage::Ways;
use crate::suite;

/// Returns the goals of all parts that have results.
pub fn of(results: &Results, definition: &Definition) -> suite::Goals {
    let goals = &definition.goals;
    let mut checked = suite::Goals::default();
    for result in &results.pipelines {
        let (ways, name) = (&result.ways, format!("{}, overlap {}/3", result.table, result.overlap));
        of_ways(&mut checked, goals, &name, ways);
        match result.overlap {
            0 => {
                let by_isolated = ways.grouped_s / ways.isolated_s;
                checked.at_most(format!("{name}: by isolated"), goals.isolated, by_isolated);
            }
            3 => checked.at_most(format!("{name}: by local"), goals.local, ways.grouped_s / ways.local_s),
            _ => {}
        }
    }
    for result in &results.joins {
        of_ways(&mut checked, goals, &format!("{} joins", result.joins), &result.ways);
    }
    results.dashboards.iter().for_each(|result| of_dashboard(&mut checked, goals, result));
    of_scans(&mut checked, goals, &results.scans, definition.scans.turns);
    if let Some(clients) = &results.clients {
        of_clients(&mut checked, &goals.clients, clients, &definition.clients.clients);
    }
    checked
}

/// Adds the goals of statements that ran in each of the [`Ways`]: bytes moved, and time as a batch.
fn of_ways(checked: &mut suite::Goals, goals: &Goals, name: &str, ways: &Ways) {
    let bytes = ways.grouped_bytes as f64 / ways.distinct_bytes as f64;
    checked.at_most(format!("{name}: bytes moved, by those of the columns"), goals.bytes, bytes);
    let fastest = ways.rows_s.min(ways.isolated_s).min(ways.grouped_s);
    let what = format!("{name}: free choice, by the fastest of rows, isolated and at once");
    checked.at_most(what, goals.free, ways.free_s / fastest);
}

/// Adds the goals of a dashboard: one for the first dashboard over the limited link, where bytes decide the time, and
/// one for the second over loopback, where CPU time does.
fn of_dashboard(checked: &mut suite::Goals, goals: &Goals, result: &DashboardResult) {
    let bytes = result.together.bytes as f64 / result.apart.bytes as f64;
    let time = result.together.seconds / result.apart.seconds;
    let name = format!("{}, {}", result.name, result.link);
    match (result.name.as_str(), result.link.as_str()) {
        ("at the client", link) if link != "loopback" => {
            checked.at_most(
                format!("{name}: part of the time by part of the bytes"),
                goals.capped,
                time / bytes,
            );
        }
        ("pushed whole", "loopback") => {
            let cpu = result.together.cpu_s / result.apart.cpu_s;
            checked.at_most(format!("{name}: processor time"), goals.cpu, cpu);
        }
        _ => {}
    }
}

/// Adds the goals of concurrent scans; `turns` is the number of scans of each client that scans repeatedly.
fn of_scans(checked: &mut suite::Goals, goals: &Goals, results: &[ScansResult], turns: usize) {
    let of = |name: &str, clients: usize| {
        results.iter().find(|result| result.name == name && result.clients == clients)
    };
    let all =
        |name: &'static str| results.iter().filter(move |result| result.name == name && result.clients > 1);
    let by_unshared = |result: &ScansResult| result.shared.seconds / result.unshared.seconds;
    let by_columns = |result: &ScansResult| result.shared.bytes_read as f64 / result.distinct_bytes as f64;
    for result in all("larger than the pool") {
        let name = format!("larger than the pool, {} clients", result.clients);
        if let Some(one) = of("larger than the pool", 1) {
            let by_one = result.shared.seconds / one.shared.seconds;
            checked.at_most(format!("{name}: time, by one"), goals.larger_time, by_one);
        }
        let what = format!("{name}: bytes read, by those of the columns");
        checked.at_most(what, goals.larger_bytes, by_columns(result));
        checked.at_most(format!("{name}: time, by unshared"), goals.from_disk, by_unshared(result));
    }
    for result in all("one later than the other") {
        let name = format!("{}, {} clients", result.name, result.clients);
        let what = format!("{name}: bytes read, by those of the columns");
        checked.at_most(what, goals.larger_bytes, by_columns(result));
        checked.at_most(format!("{name}: time, by unshared"), goals.from_disk, by_unshared(result));
    }
    for result in all("in memory") {
        let what = format!("in memory, {} clients: time, by unshared", result.clients);
        checked.at_most(what, goals.different_filters, by_unshared(result));
    }
    for result in all("again and again") {
        let scans = result.clients * turns;
        let what = format!("{scans} scans: bytes read, by those of all");
        checked.at_most(what, goals.cyclic, by_columns(result) / scans as f64);
    }
    for result in all("same filter") {
        if let Some(one) = of("one", 1) {
            let what = format!("same filter, {} clients: time, by one", result.clients);
            checked.at_most(what, goals.same_filter, result.shared.seconds / one.shared.seconds);
        }
    }
}

/// Adds the goals of clients that run TPC-H, for each number of clients that is large enough.
fn of_clients(checked: &mut suite::Goals, goals: &ClientsGoals, results: &ClientsResult, clients: &[usize]) {
    for clients in clients.iter().copied().filter(|clients| *clients >= goals.least) {
        for (held, bound) in [(Held::All, goals.in_memory), (Held::Half, goals.from_disk)] {
            let in_memory = if held == Held::All { "in memory" } else { "half in memory" };
            for way in [Way::Embedded, Way::Remote] {
                let of = |name: &str| results.side(name, held, clients);
                let Some((shared, unshared)) = of(&way.side(true)).zip(of(&way.side(false))) else {
                    continue;
                };
                let name = format!("TPC-H {in_memory}, {}, {clients} clients", way.name());
                let by_unshared = shared.throughput() / unshared.throughput();
                checked.at_least(format!("{name}: throughput, by unshared"), bound, by_unshared);
                if let Some(rival) = of(RIVAL).filter(|_| way == Way::Embedded) {
                    let by_rival = shared.throughput() / rival.throughput();
                    checked.at_least(format!("{name}: throughput, by {RIVAL}"), goals.duckdb, by_rival);
                }
                let p99 = shared.shortest_p99_ms() / unshared.shortest_p99_ms();
                let what = format!("{name}: p99 of the shortest query, by unshared");
                checked.at_most(what, goals.shortest_p99, p99);
            }
        }
    }
}
