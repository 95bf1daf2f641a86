//! Formats the results of the benchmark suite `iopath` as a table: a line for each cipher, direction and number of
//! threads.

use super::measure::{Results, SizeResult};
use super::measure_packing::Share;
use crate::suite::{Table, list};
use std::collections::BTreeSet;

/// Returns the whole report of the suite as text.
pub fn text(results: &Results) -> String {
    let about = format!("median of {} paired ratios · both sides encrypt to the same bytes", results.runs);
    format!(
        "{}{}\n{}\n\n\
         GB/s of one thread, and how many times as fast it is as what it stands beside; * misses the goal\n{}\n{}{}",
        results.head.text(about),
        list(&results.rivals),
        speeds(results),
        goals(results),
        shares(&results.shares),
        super::mix::text(&results.mix)
    )
}

fn speeds(results: &Results) -> String {
    let mut table = Table::of(&results.cases)
        .column("cipher", |case| &case.name)
        .column("", |case| &case.direction)
        .column("threads", |case| case.threads)
        .column("beside", |case| &case.other);
    let all: BTreeSet<usize> = results.cases.iter().flat_map(|case| &case.sizes).map(|it| it.bytes).collect();
    for bytes in all {
        table = table.column(size_name(bytes), |case| {
            let size = case.sizes.iter().find(|size| size.bytes == bytes);
            size.map(speed).unwrap_or_default()
        });
    }
    table.to_string()
}

fn speed(size: &SizeResult) -> String {
    let ratio = size.ratio.map(|ratio| format!(" {ratio:.2}")).unwrap_or_default();
    let mark = if is_missed(size) { "*" } else { " " };
    format!("{:.1}{ratio}{mark}", size.gb_per_second)
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
