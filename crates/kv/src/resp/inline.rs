//! Splits inline commands into arguments as Redis' `sdssplitargs` does: words between blanks; within double quotes the
//! escapes `\n`, `\r`, `\t`, `\b`, `\a`, `\xHH` and `\` before any other byte; within single quotes only `\'`. A
//! closing quote ends its word, and a blank or the end of the line must follow.
//!
//! Invariant: an argument is no longer than its source, so it is written in place, starting where its word starts.

use std::ops::Range;

/// Appends the ranges of a line's arguments, which are unescaped in place. Returns `None` if quotes are unbalanced.
pub(super) fn split(line: &mut [u8], arguments: &mut Vec<Range<usize>>) -> Option<()> {
    let mut at = 0;
    loop {
        at += line[at..].iter().take_while(|&&byte| is_blank(byte)).count();
        if at == line.len() {
            return Some(());
        }
        let (argument, end) = word(line, at)?;
        arguments.push(argument);
        at = end;
    }
}

/// Unescapes the word at `start`; returns its range and the end of its source.
fn word(line: &mut [u8], start: usize) -> Option<(Range<usize>, usize)> {
    let mut end = start;
    while let Some(&byte) = line.get(end) {
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' => break,
            b'"' | b'\'' => {
                let (to, end) = quoted(line, end)?;
                return Some((start..to, end));
            }
            _ => end += 1,
        }
    }
    Some((start..end, end))
}

/// Unescapes the quoted text whose opening quote is at `open` in place; returns the end of the result and the end of
/// its source.
fn quoted(line: &mut [u8], open: usize) -> Option<(usize, usize)> {
    let quote = line[open];
    let (mut from, mut to) = (open + 1, open);
    loop {
        let (byte, bytes) = match *line.get(from)? {
            byte if byte == quote => break,
            b'\\' => escaped(&line[from..], quote),
            byte => (byte, 1),
        };
        line[to] = byte;
        (from, to) = (from + bytes, to + 1);
    }
    line.get(from + 1).is_none_or(|&next| is_blank(next)).then_some((to, from + 1))
}

/// Returns the byte that the escape at the start of `text` stands for, and the length of the escape.
fn escaped(text: &[u8], quote: u8) -> (u8, usize) {
    match (quote, text) {
        (b'\'', [_, b'\'', ..]) => (b'\'', 2),
        (b'\'', _) | (_, [_]) => (b'\\', 1),
        (_, [_, b'x', high, low, ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            (16 * hex_digit(*high) + hex_digit(*low), 4)
        }
        (_, [_, b'n', ..]) => (b'\n', 2),
        (_, [_, b'r', ..]) => (b'\r', 2),
        (_, [_, b't', ..]) => (b'\t', 2),
        (_, [_, b'b', ..]) => (8, 2),
        (_, [_, b'a', ..]) => (7, 2),
        (_, [_, other, ..]) => (*other, 2),
        (_, []) => (b'\\', 1),
    }
}

fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// Returns whether C's `isspace` is true for a byte; unlike `is_ascii_whitespace`, it includes the vertical tab.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}
