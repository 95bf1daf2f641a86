//! Formats the results as tables.

use super::definition::Definition;
use super::measure::{DashboardResult, PipelinesResult, Results};
use super::scans::ScansResult;
use crate::text;

/// Returns the whole report.
pub fn text(results: &Results, definition: &Definition) -> String {
    let mut report = format!(
        "groups · {} · median of {} runs · {} threads at client and node · all answers agree\n{}\n{}\n",
        results.date,
        results.runs,
        definition.threads,
        text::machine(&results.machine),
        text::limits(&results.limits),
    );
    results.notes.iter().for_each(|note| report.push_str(&format!("{note}\n")));
    report.push_str(&format!(
        "\n{} pipelines of three columns each, seconds. Nothing is done at the node: rows are sent for each; columns are sent \
         for each (isolated); columns are sent once for all, which run at once; columns are at the client already (local). \
         And as a batch with push-down.\n\n{}\n",
        definition.pipelines.count,
        pipelines(results)
    ));
    report
        .push_str(&format!("\nThe same in the paper's modes of execution, seconds.\n\n{}\n", modes(results)));
    report.push_str(&format!(
        "\nDashboards: their statements one by one, and together.\n\n{}\n",
        dashboards(results)
    ));
    if !results.scans.is_empty() {
        report.push_str(&format!(
            "\nClients of one node that scan one table at once, with and without sharing.\n\n{}\n",
            scans(results)
        ));
    }
    report.push_str(&format!("\n{}\n", goals(results, definition)));
    report
}

fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_string()).collect()
}

fn pipelines(results: &Results) -> String {
    let names = [
        "table",
        "overlap",
        "rows",
        "moved",
        "isolated",
        "moved",
        "at once",
        "moved",
        "of columns",
        "by isolated",
        "local",
        "by local",
        "pushed",
        "moved",
    ];
    let row = |result: &PipelinesResult| {
        vec![
            result.table.clone(),
            format!("{}/3", result.overlap),
            format!("{:.3}", result.rows_s),
            text::bytes(result.rows_bytes),
            format!("{:.3}", result.isolated_s),
            text::bytes(result.isolated_bytes),
            format!("{:.3}", result.grouped_s),
            text::bytes(result.grouped_bytes),
            format!("{:.2}×", result.grouped_bytes as f64 / result.distinct_bytes as f64),
            format!("{:.2}×", result.grouped_s / result.isolated_s),
            format!("{:.3}", result.local_s),
            format!("{:.2}×", result.grouped_s / result.local_s),
            format!("{:.3}", result.free_s),
            text::bytes(result.free_bytes),
        ]
    };
    text::table(header(&names), results.pipelines.iter().map(row).collect())
}

fn modes(results: &Results) -> String {
    let names =
        ["table", "overlap", "one thread", "all threads for each", "half at once", "a thread for each"];
    let row = |result: &super::measure::ModeResult| {
        let mut row = vec![result.table.clone(), format!("{}/3", result.overlap)];
        row.extend(result.modes_s.iter().map(|seconds| format!("{seconds:.3}")));
        row
    };
    text::table(header(&names), results.modes.iter().map(row).collect())
}

fn dashboards(results: &Results) -> String {
    let names = [
        "dashboard",
        "link",
        "statements",
        "apart s",
        "CPU s",
        "moved",
        "together s",
        "CPU s",
        "moved",
        "time",
        "CPU",
        "bytes",
    ];
    let row = |result: &DashboardResult| {
        let (apart, together) = (result.apart, result.together);
        vec![
            result.name.clone(),
            result.link.clone(),
            result.statements.to_string(),
            format!("{:.3}", apart.seconds),
            format!("{:.2}", apart.cpu_s),
            text::bytes(apart.bytes),
            format!("{:.3}", together.seconds),
            format!("{:.2}", together.cpu_s),
            text::bytes(together.bytes),
            format!("{:.2}×", together.seconds / apart.seconds),
            format!("{:.2}×", together.cpu_s / apart.cpu_s),
            format!("{:.2}×", together.bytes as f64 / apart.bytes as f64),
        ]
    };
    text::table(header(&names), results.dashboards.iter().map(row).collect())
}

fn scans(results: &Results) -> String {
    let names = [
        "",
        "clients",
        "of columns",
        "shared s",
        "CPU s",
        "read",
        "known",
        "unshared s",
        "CPU s",
        "read",
        "time",
        "CPU",
    ];
    let row = |result: &ScansResult| {
        let (shared, unshared) = (result.shared, result.unshared);
        vec![
            result.name.clone(),
            result.clients.to_string(),
            text::bytes(result.distinct_bytes),
            format!("{:.3}", shared.seconds),
            format!("{:.2}", shared.cpu_s),
            text::bytes(shared.bytes_read),
            text::rows(shared.rows_known),
            format!("{:.3}", unshared.seconds),
            format!("{:.2}", unshared.cpu_s),
            text::bytes(unshared.bytes_read),
            format!("{:.2}×", shared.seconds / unshared.seconds),
            format!("{:.2}×", shared.cpu_s / unshared.cpu_s),
        ]
    };
    text::table(header(&names), results.scans.iter().map(row).collect())
}

/// All goals are upper limits.
fn goals(results: &Results, definition: &Definition) -> String {
    let goals = &definition.goals;
    let mut rows = Vec::new();
    let mut add = |what: String, most: f64, measured: f64| {
        rows.push(vec![
            what,
            format!("<= {most:.2}"),
            format!("{measured:.2}"),
            text::met(Some(measured <= most)).to_string(),
        ]);
    };
    for result in &results.pipelines {
        let name = format!("{}, overlap {}/3", result.table, result.overlap);
        add(
            format!("{name}: bytes moved, by those of the columns"),
            goals.bytes,
            result.grouped_bytes as f64 / result.distinct_bytes as f64,
        );
        match result.overlap {
            0 => add(format!("{name}: by isolated"), goals.isolated, result.grouped_s / result.isolated_s),
            3 => add(format!("{name}: by local"), goals.local, result.grouped_s / result.local_s),
            _ => {}
        }
    }
    for result in &results.dashboards {
        let bytes = result.together.bytes as f64 / result.apart.bytes as f64;
        let time = result.together.seconds / result.apart.seconds;
        let name = format!("{}, {}", result.name, result.link);
        match (result.name.as_str(), result.link.as_str()) {
            ("at the client", link) if link != "loopback" => {
                add(format!("{name}: part of the time by part of the bytes"), goals.capped, time / bytes);
            }
            ("pushed whole", "loopback") => {
                add(format!("{name}: processor time"), goals.cpu, result.together.cpu_s / result.apart.cpu_s);
            }
            _ => {}
        }
    }
    let of = |name: &str, clients: usize| {
        results.scans.iter().find(|result| result.name == name && result.clients == clients)
    };
    let all = |name: &'static str| {
        results.scans.iter().filter(move |result| result.name == name && result.clients > 1)
    };
    for result in all("larger than the pool") {
        let name = format!("larger than the pool, {} clients", result.clients);
        if let Some(one) = of("larger than the pool", 1) {
            add(
                format!("{name}: time, by one"),
                goals.larger_time,
                result.shared.seconds / one.shared.seconds,
            );
        }
        let bytes = result.shared.bytes_read as f64 / result.distinct_bytes as f64;
        add(format!("{name}: bytes read, by those of the columns"), goals.larger_bytes, bytes);
        let time = result.shared.seconds / result.unshared.seconds;
        add(format!("{name}: time, by unshared"), goals.from_disk, time);
    }
    for result in all("one later than the other") {
        let bytes = result.shared.bytes_read as f64 / result.distinct_bytes as f64;
        let name = format!("{}, {} clients", result.name, result.clients);
        add(format!("{name}: bytes read, by those of the columns"), goals.larger_bytes, bytes);
        add(
            format!("{name}: time, by unshared"),
            goals.from_disk,
            result.shared.seconds / result.unshared.seconds,
        );
    }
    for result in all("in memory") {
        let time = result.shared.seconds / result.unshared.seconds;
        add(
            format!("in memory, {} clients: time, by unshared", result.clients),
            goals.different_filters,
            time,
        );
    }
    for result in all("again and again") {
        let scans = (result.clients * definition.scans.as_ref().map_or(1, |scans| scans.turns)) as u64;
        let bytes = result.shared.bytes_read as f64 / (scans * result.distinct_bytes) as f64;
        add(format!("{} scans: bytes read, by those of all", scans), goals.cyclic, bytes);
    }
    for result in all("same filter") {
        if let Some(one) = of("one", 1) {
            let name = format!("same filter, {} clients: time, by one", result.clients);
            add(name, goals.same_filter, result.shared.seconds / one.shared.seconds);
        }
    }
    text::table(header(&["", "goal", "measured", ""]), rows)
}
