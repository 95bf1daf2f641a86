//! Escapes text for a terminal. Texts from a peer, a file or a query may contain characters that move the cursor,
//! change the terminal or reorder the surrounding text; these are printed as escapes.
//!
//! Formats for programs (CSV, JSON) are also escaped on a terminal ([`farpool::TerminalText`]), and never changed in
//! files and pipes.

use farpool::is_obeyed;
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use terminal_size::{Height, Width, terminal_size_of};

/// Columns and rows of a terminal that does not report its size.
const SIZE_UNKNOWN: (usize, usize) = (80, 24);

/// Returns the columns and rows of the terminal; `None` if standard output is not a terminal.
pub fn size() -> Option<(usize, usize)> {
    let out = io::stdout();
    let of_system = |(width, height): (Width, Height)| (width.0.into(), height.0.into());
    out.is_terminal().then(|| terminal_size_of(out).map_or(SIZE_UNKNOWN, of_system))
}

/// Escapes the text including its line breaks, so that it stays on one line.
pub fn printable(text: &str) -> Cow<'_, str> {
    escape(text, is_obeyed)
}

/// Escapes the text except for its line breaks.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| c != '\n' && is_obeyed(c))
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_escaped(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// A writer for the log, to standard error. Escapes control characters, because log messages may contain texts from
/// peers.
pub struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        io::stderr().write_all(printable_lines(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        for (text, shown) in [
            ("plain Zürich 東京 ‏עברית", "plain Zürich 東京 ‏עברית"),
            ("\u{1b}[2J", "\\u{1b}[2J"),
            ("\u{9b}2J\u{7f}\r\t\0", "\\u{9b}2J\\u{7f}\\r\\t\\u{0}"),
            ("\u{202e}txt.exe\u{2066}", "\\u{202e}txt.exe\\u{2066}"),
        ] {
            assert_eq!(printable(text), shown);
            assert_eq!(printable_lines(text), shown);
        }
        assert_eq!(printable("a\nb"), "a\\nb");
        assert_eq!(printable_lines("a\n\u{7}b\n"), "a\n\\u{7}b\n");
    }
}
