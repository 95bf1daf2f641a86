//! Formatting that the reports of all suites share.

use std::io::IsTerminal;

/// Shows the current activity in one line on a terminal; an empty text clears it.
pub fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r{:60}\r{text}", "");
    }
}

/// Formats notes, one in a line.
pub fn lines(notes: &[String]) -> String {
    notes.iter().map(|note| format!("{note}\n")).collect()
}

/// Formats the section of a report about some items; `None` if there are none, because their part of the suite was left
/// out.
pub fn section<T>(items: &[T], format: impl FnOnce(&[T]) -> String) -> Option<String> {
    (!items.is_empty()).then(|| format(items))
}

/// Joins the head of a report and its sections, with an empty line between any two.
pub fn report(head: &str, sections: impl IntoIterator<Item = Option<String>>) -> String {
    let head = head.trim_end().to_string();
    let parts = [head].into_iter().chain(sections.into_iter().flatten());
    parts.collect::<Vec<_>>().join("\n\n") + "\n"
}

/// Formats a number of bytes.
pub fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..10_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}

/// Formats whether a goal was reached; `None` if nothing was measured.
pub fn met(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "met",
        Some(false) => "missed",
        None => "-",
    }
}

/// Formats a number of rows, in binary millions or thousands if it is a multiple of them.
pub fn rows(count: u64) -> String {
    match count {
        count if count >= 1 << 20 && count.is_multiple_of(1 << 20) => format!("{} Mi", count >> 20),
        count if count >= 1 << 10 && count.is_multiple_of(1 << 10) => format!("{} Ki", count >> 10),
        count => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes, report, rows, section};

    #[test]
    fn sections_of_nothing_are_left_out_of_reports() {
        let count = |items: &[u8]| format!("{} items", items.len());
        let sections = [section(&[], count), section(&[1, 2], count)];
        assert_eq!(report("head\n", sections), "head\n\n2 items\n");
    }

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
