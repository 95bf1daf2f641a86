//! Bytes into the objects that stand one after the other, or in one array, without looking into them.
//!
//! Invariant: at most one object is held, of at most [`limits::RECORD_BYTES_MAX`] bytes.

use farpool_model::limits;
use std::io::BufRead;

/// Cuts what a reader gives.
pub(super) struct Scanner<R> {
    from: R,
    /// The object that is being read, and how deep it is nested at its end so far.
    record: Vec<u8>,
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
    line: u64,
    array: Array,
}

/// Where the scanner is with respect to an array around the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Array {
    /// Nothing was read yet.
    Unknown,
    /// There is none.
    None,
    /// In it, where an object may stand.
    Open,
    /// In it, behind an object.
    Behind,
    /// It has ended.
    Closed,
}

/// Why there is no further object.
#[derive(Debug)]
pub(super) enum Cut {
    Io(std::io::Error),
    /// What is wrong on this line.
    Syntax(u64, &'static str),
    /// The bytes end too early.
    Short,
    /// The object that begins on this line is longer than the limit.
    Long(u64),
}

impl<R: BufRead> Scanner<R> {
    pub(super) fn new(from: R) -> Self {
        Scanner {
            from,
            record: Vec::new(),
            depth: 0,
            is_in_string: false,
            is_escaped: false,
            line: 1,
            array: Array::Unknown,
        }
    }

    /// The next object, and the line on which it begins.
    pub(super) fn record(&mut self) -> Result<Option<(&[u8], u64)>, Cut> {
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

    /// Goes to the beginning of the next object, if there is one.
    fn find(&mut self) -> Result<bool, Cut> {
        loop {
            let input = self.from.fill_buf().map_err(Cut::Io)?;
            let Some(&byte) = input.first() else {
                return match self.array {
                    Array::Open | Array::Behind => Err(Cut::Short),
                    Array::Unknown | Array::None | Array::Closed => Ok(false),
                };
            };
            match (byte, self.array) {
                (b' ' | b'\t' | b'\r' | b'\n', _) => self.line += u64::from(byte == b'\n'),
                (0xef | 0xbb | 0xbf, Array::Unknown) => {}
                (b'[', Array::Unknown) => self.array = Array::Open,
                (b']', Array::Open | Array::Behind) => self.array = Array::Closed,
                (b',', Array::Behind) => self.array = Array::Open,
                (b'{', Array::Unknown | Array::None) => {
                    self.array = Array::None;
                    return Ok(true);
                }
                (b'{', Array::Open) => {
                    self.array = Array::Behind;
                    return Ok(true);
                }
                (_, Array::Closed) => {
                    return Err(Cut::Syntax(self.line, "there is something behind the array"));
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

/// Bytes up to the end of the object, or all, and whether it ends there.
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
