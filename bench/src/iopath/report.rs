//! Formats the results as a table: a line for each cipher, direction and number of threads.

use super::measure::{CaseResult, Results, SizeResult};
use super::measure_packing::Share;
use crate::text;
use std::collections::BTreeSet;

/// Returns the whole report.
pub fn text(results: &Results) -> String {
    let all: BTreeSet<usize> = results.cases.iter().flat_map(|case| &case.sizes).map(|it| it.bytes).collect();
    let mut header = ["cipher", "", "threads", "beside"].map(String::from).to_vec();
    header.extend(all.iter().map(|bytes| size_name(*bytes)));
    let rows = results.cases.iter().map(|case| row(case, &all)).collect();
    let rivals: String = results
        .rivals
        .iter()
        .map(|rival| {
            let missing = rival.missing.as_ref().map(|why| format!(": left out, {why}")).unwrap_or_default();
            format!("{} {}{missing}\n", rival.name, rival.version)
        })
        .collect();
    format!(
        "{} · {} · median of {} paired ratios · both sides encrypt to the same bytes\n{}\n{rivals}\n{}\n\n\
         GB/s of one thread, and how many times as fast it is as what it stands beside; * misses the goal\n{}\n{}{}",
        results.suite,
        results.date,
        results.runs,
        text::machine(&results.machine),
        text::table(header, rows),
        goals(results),
        shares(&results.shares),
        super::mix::text(&results.mix)
    )
}

fn row(case: &CaseResult, all: &BTreeSet<usize>) -> Vec<String> {
    let mut row =
        vec![case.name.clone(), case.direction.clone(), case.threads.to_string(), case.other.clone()];
    row.extend(all.iter().map(|bytes| {
        case.sizes.iter().find(|size| size.bytes == *bytes).map_or(String::new(), |size| {
            let ratio = size.ratio.map(|ratio| format!(" {ratio:.2}")).unwrap_or_default();
            let mark = if is_missed(size) { "*" } else { " " };
            format!("{:.1}{ratio}{mark}", size.gb_per_second)
        })
    }));
    row
}

fn is_missed(size: &SizeResult) -> bool {
    size.ratio.zip(size.goal).is_some_and(|(ratio, goal)| ratio < goal)
}

fn shares(shares: &[Share]) -> String {
    let line = |share: &Share| format!("{}, {}: {:.3}\n", share.data, share.library, share.share);
    let lines: String = shares.iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("\nbytes that are left\n{lines}") }
}

fn goals(results: &Results) -> String {
    let sizes = || results.cases.iter().flat_map(|case| &case.sizes).filter(|size| size.ratio.is_some());
    let missed = sizes().filter(|size| is_missed(size)).count();
    format!("goals: {} of {} met", sizes().count() - missed, sizes().count())
}

fn size_name(bytes: usize) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    }
}
