//! Pieces that the reports of all suites share.

use crate::limits::Limits;
use crate::machine::Machine;
use comfy_table::{Cell, CellAlignment, Table, presets};
use std::io::IsTerminal;

/// Says in one line on a terminal what is being done; an empty text clears it.
pub fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r{:60}\r{text}", "");
    }
}

/// A table without lines, every cell to the right.
pub fn table(header: Vec<String>, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    table.set_header(header.into_iter().map(right));
    for row in rows {
        table.add_row(row.into_iter().map(right));
    }
    table.to_string()
}

/// The machine in a line.
pub fn machine(machine: &Machine) -> String {
    format!(
        "{} · {} processors · {} GiB · Linux {}",
        machine.processor, machine.processors, machine.memory_gib, machine.kernel
    )
}

/// The limits in a line.
pub fn limits(limits: &Limits) -> String {
    format!(
        "limits of the machine, GB/s: memory read {:.1} with one thread, {:.1} with two; copy {:.1}; \
         fresh memory {:.1}; loopback TCP {:.1}",
        limits.memory_read_1,
        limits.memory_read_2,
        limits.memory_copy,
        limits.memory_fresh,
        limits.loopback_tcp
    )
}

/// A number of bytes.
pub fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..10_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}

/// Whether a goal was reached, in a column of equal width; `None` when nothing was measured.
pub fn met(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "met   ",
        Some(false) => "missed",
        None => "-     ",
    }
}

/// A number of rows, in the binary millions and thousands in which tables are sized.
pub fn rows(count: u64) -> String {
    match count {
        count if count >= 1 << 20 && count.is_multiple_of(1 << 20) => format!("{} Mi", count >> 20),
        count if count >= 1 << 10 && count.is_multiple_of(1 << 10) => format!("{} Ki", count >> 10),
        count => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes, rows};

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            (bytes(9_999), bytes(12_345), bytes(1 << 30)),
            ("9999 B".into(), "12.3 kB".into(), "1073.7 MB".into())
        );
        assert_eq!(
            (rows(16 << 20), rows(64 << 10), rows(1_000_000)),
            ("16 Mi".into(), "64 Ki".into(), "1000000".into())
        );
    }
}
