//! Splits bytes into JSON objects without parsing them. The objects follow each other, or are in one array.
//!
//! Invariant: at most one object is in memory, of at most [`limits::RECORD_BYTES_MAX`] bytes.

use farpool_model::limits;
use std::io::BufRead;

/// Splits the bytes of a reader into objects.
pub(super) struct Scanner<R> {
    from: R,
    /// The bytes of the current object so far, and the nesting depth at their end.
    record: Vec<u8>,
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
    line: u64,
    array: Array,
    /// Whether each line is taken for an object, so that the error of a line that is none ends with the line.
    by_lines: bool,
}

/// State of the scanner with respect to an array around the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Array {
    /// Nothing was read yet.
    Unknown,
    /// There is no array.
    None,
    /// Within the array, before the first object.
    Open,
    /// Within the array, where an object must begin.
    Comma,
    /// Within the array, after an object.
    Behind,
    /// After the end of the array.
    Closed,
}

/// The reason why an object cannot be read.
#[derive(Debug)]
pub(super) enum Cut {
    Io(std::io::Error),
    /// A syntax error: its line and a description.
    Syntax(u64, &'static str),
    /// The input ends within an object or array.
    Short,
    /// The object that begins on this line is longer than the limit.
    Long(u64),
}

impl<R: BufRead> Scanner<R> {
    /// Splits `from` into objects, or with `by_lines` into lines that are not empty.
    pub(super) fn new(from: R, by_lines: bool) -> Self {
        Scanner {
            from,
            record: Vec::new(),
            depth: 0,
            is_in_string: false,
            is_escaped: false,
            line: 1,
            array: Array::Unknown,
            by_lines,
        }
    }

    /// Returns the next line that is not empty, and its number; `None` at the end.
    fn text_line(&mut self) -> Result<Option<(&[u8], u64)>, Cut> {
        loop {
            self.record.clear();
            let line = self.line;
            let mut is_ended = false;
            while !is_ended {
                let input = self.from.fill_buf().map_err(Cut::Io)?;
                let end = memchr::memchr(b'\n', input);
                let read = end.map_or(input.len(), |at| at + 1);
                if self.record.len() + read > limits::RECORD_BYTES_MAX {
                    return Err(Cut::Long(line));
                }
                is_ended = end.is_some() || input.is_empty();
                self.record.extend_from_slice(&input[..read]);
                self.from.consume(read);
            }
            if self.record.is_empty() {
                return Ok(None);
            }
            self.line += 1;
            if line == 1 && self.record.starts_with(b"\xef\xbb\xbf") {
                self.record.drain(..3);
            }
            let text = self.record.trim_ascii();
            if self.array == Array::Unknown && text.starts_with(b"[") {
                let what =
                    "an array of objects, of which none can be left out: write each on a line of its own";
                return Err(Cut::Syntax(line, what));
            }
            if !text.is_empty() {
                self.array = Array::None;
                break;
            }
        }
        Ok(Some((self.record.trim_ascii(), self.line - 1)))
    }

    /// Returns the next object and the line on which it begins; `None` at the end.
    pub(super) fn record(&mut self) -> Result<Option<(&[u8], u64)>, Cut> {
        if self.by_lines {
            return self.text_line();
        }
        self.record.clear();
        if !self.find()? {
            return Ok(None);
        }
        let line = self.line;
        loop {
            let input = self.from.fill_buf().map_err(Cut::Io)?;
            if input.is_empty() {
                return Err(Cut::Short);
            }
            let (read, ended) =
                end_of_object(input, (&mut self.depth, &mut self.is_in_string, &mut self.is_escaped));
            if self.record.len() + read > limits::RECORD_BYTES_MAX {
                return Err(Cut::Long(line));
            }
            self.line += memchr::memchr_iter(b'\n', &input[..read]).count() as u64;
            self.record.extend_from_slice(&input[..read]);
            self.from.consume(read);
            if ended {
                return Ok(Some((&self.record, line)));
            }
        }
    }

    /// Skips to the beginning of the next object; returns false if there is none.
    fn find(&mut self) -> Result<bool, Cut> {
        loop {
            let input = self.from.fill_buf().map_err(Cut::Io)?;
            let Some(&byte) = input.first() else {
                return match self.array {
                    Array::Open | Array::Comma | Array::Behind => Err(Cut::Short),
                    Array::Unknown | Array::None | Array::Closed => Ok(false),
                };
            };
            match (byte, self.array) {
                (b' ' | b'\t' | b'\r' | b'\n', _) => self.line += u64::from(byte == b'\n'),
                (0xef | 0xbb | 0xbf, Array::Unknown) => {}
                (b'[', Array::Unknown) => self.array = Array::Open,
                (b']', Array::Open | Array::Behind) => self.array = Array::Closed,
                (b',', Array::Behind) => self.array = Array::Comma,
                (b'{', Array::Unknown | Array::None) => {
                    self.array = Array::None;
                    return Ok(true);
                }
                (b'{', Array::Open | Array::Comma) => {
                    self.array = Array::Behind;
                    return Ok(true);
                }
                (_, Array::Closed) => {
                    return Err(Cut::Syntax(self.line, "there is something behind the array"));
                }
                (b']', Array::Comma) => {
                    return Err(Cut::Syntax(self.line, "no object follows the last comma"));
                }
                (_, Array::Behind) => return Err(Cut::Syntax(self.line, "a comma is missing before this")),
                _ => {
                    return Err(Cut::Syntax(
                        self.line,
                        "a row is not an object such as {\"city\": \"Oslo\"}",
                    ));
                }
            }
            self.from.consume(1);
        }
    }
}

/// Returns the number of bytes up to the end of the object, or of all bytes, and whether the object ends
/// there.
fn end_of_object(
    input: &[u8],
    (depth, is_in_string, is_escaped): (&mut usize, &mut bool, &mut bool),
) -> (usize, bool) {
    for (i, byte) in input.iter().enumerate() {
        if *is_in_string {
            match byte {
                _ if *is_escaped => *is_escaped = false,
                b'\\' => *is_escaped = true,
                b'"' => *is_in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => *is_in_string = true,
            b'{' | b'[' => *depth += 1,
            b'}' | b']' => {
                *depth = depth.saturating_sub(1);
                if *depth == 0 {
                    return (i + 1, true);
                }
            }
            _ => {}
        }
    }
    (input.len(), false)
}
