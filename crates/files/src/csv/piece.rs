//! Splits a piece of a file, which is in memory, into records. Delimiters, line breaks and quotes are found 64 bytes at
//! a time, as bit masks, and fields are not copied (like the structural scans of simdjson and the CSV readers of DuckDB
//! and Polars).
//!
//! A record that this parser does not support (a doubled or escaped quote, a quote or a carriage return within a field)
//! is read from its beginning by [`Records`], the scalar parser. Such a record is never mistaken for a simple one: in a
//! simple record quotes are only the first and last character of a field, which is checked.

use super::Dialect;
use super::marks::{BLOCK, Marked, Marks, parity};
use super::records::{Broken, Quotes, Record, RecordSource, Records, Spans};
use farpool_columns::Level;
use memchr::memchr;
use std::io::Cursor;

/// Splits a piece of a CSV file into records.
pub(super) struct PieceRecords {
    bytes: Vec<u8>,
    dialect: Dialect,
    /// The scalar parser, created for the first record that is not simple. It owns `bytes` from then on.
    plain: Option<Records<Cursor<Vec<u8>>>>,
    at: usize,
    /// The line of the file at offset `at`.
    line: u64,
    spans: Vec<(usize, usize)>,
    /// Number of fields after those in `spans`, which are only counted.
    more: usize,
    needed: usize,
    marked: Marked,
    quote: Option<u8>,
    has_returns: bool,
    /// Number of bytes that were scanned for records that the scalar parser had to read after all.
    wasted: usize,
    /// Whether an empty line is a record, as it is after the first record of a file of one column.
    keeps_empty_lines: bool,
    /// Parsing state at offset `at`.
    place: Place,
}

/// Parsing state of a splitter between two records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At the beginning of a line.
    Start,
    /// At the line break of the last record.
    Break,
    /// After a record that the scalar parser has read: after its line break, or within a line break of two bytes.
    Twin,
}

/// Result of looking for the end of a record.
enum Found {
    /// The offset of the end of the record, and the number of line breaks in it.
    End(usize, u64),
    /// The record is not simple. Has the number of bytes examined.
    Other(usize),
}

impl PieceRecords {
    /// Creates a splitter for `bytes`, which begin on line `line` of the file. It locates the first `needed` fields of
    /// each record; further ones may only be counted.
    pub(super) fn new(bytes: Vec<u8>, line: u64, is_first: bool, dialect: &Dialect, needed: usize) -> Self {
        let has = |byte: &u8| memchr(*byte, &bytes).is_some();
        let has_returns = has(&b'\r');
        let quote = dialect.quote.filter(has);
        // Fields with quotes or carriage returns are checked, so all positions are needed.
        let needed = if has_returns || quote.is_some() { usize::MAX } else { needed };
        PieceRecords {
            bytes,
            dialect: dialect.clone(),
            plain: None,
            at: 0,
            line,
            spans: Vec::new(),
            more: 0,
            needed,
            marked: Marked::new(Marks { delimiter: dialect.delimiter, quote }, Level::best()),
            quote,
            has_returns,
            wasted: 0,
            keeps_empty_lines: dialect.is_single && !is_first,
            place: Place::Start,
        }
    }

    #[cfg(test)]
    pub(super) fn bytes_wasted(&self) -> usize {
        self.wasted
    }

    fn bytes(&self) -> &[u8] {
        self.plain.as_ref().map_or(&*self.bytes, Records::bytes)
    }

    /// Skips empty lines that are not records; returns whether anything follows.
    fn find(&mut self) -> bool {
        let (mut at, mut line) = (self.at, self.line);
        let skips = !self.keeps_empty_lines;
        let place = std::mem::replace(&mut self.place, Place::Start);
        let bytes = self.bytes();
        let is_within_break = match place {
            Place::Start => false,
            Place::Break => true,
            Place::Twin => at > 0 && bytes[at - 1] == b'\r',
        };
        if !skips && is_within_break && bytes.get(at) == Some(&b'\n') {
            (at, line) = (at + 1, line + 1);
        }
        while skips && let Some(byte @ (b'\n' | b'\r')) = bytes.get(at) {
            line += u64::from(*byte == b'\n');
            at += 1;
        }
        let is_more = at < bytes.len();
        (self.at, self.line) = (at, line);
        is_more
    }

    /// Locates the fields of the record at `at`.
    fn split(&mut self) -> Found {
        let PieceRecords { bytes, plain, marked, spans, needed, .. } = self;
        let bytes = plain.as_ref().map_or(&**bytes, Records::bytes);
        spans.clear();
        let (mut start, mut more, mut quotes, mut breaks) = (self.at, 0, 0, 0);
        let mut number = self.at / BLOCK;
        let mut left = u64::MAX << (self.at % BLOCK);
        // A record begins outside of quotes. Becomes all ones while a block begins within quotes.
        let mut within_quotes = 0;
        let end = loop {
            let places = marked.block(bytes, number);
            let quoted = places.quotes & left;
            let inside = if quoted == 0 { within_quotes } else { parity(quoted) ^ within_quotes };
            let ends = places.breaks & left & !inside;
            let mut structure = (places.delimiters & left & !inside) | ends;
            while structure != 0 && spans.len() < *needed {
                let bit = structure & structure.wrapping_neg();
                let place = number * BLOCK + bit.trailing_zeros() as usize;
                spans.push((start, place));
                start = place + 1;
                structure = if ends & bit == 0 { structure & (structure - 1) } else { 0 };
            }
            // The remaining fields are only counted; bits behind the end belong to the next record.
            let first_end = ends & ends.wrapping_neg();
            let before = first_end.wrapping_sub(1);
            more += (structure & before).count_ones() + u32::from(structure & first_end != 0);
            // Only line breaks within quotes are left here.
            if inside != 0 {
                quotes += (quoted & before).count_ones();
                breaks += (places.breaks & left & before).count_ones();
            }
            if first_end != 0 {
                break number * BLOCK + first_end.trailing_zeros() as usize;
            }
            number += 1;
            if number * BLOCK >= bytes.len() {
                match spans.len() < *needed {
                    true => spans.push((start, bytes.len())),
                    false => more += 1,
                }
                break bytes.len();
            }
            left = u64::MAX;
            within_quotes = if inside >> (BLOCK - 1) == 0 { 0 } else { u64::MAX };
        };
        self.more = more as usize;
        match self.trim(quotes) {
            true => Found::End(end, u64::from(breaks)),
            false => Found::Other(end - self.at),
        }
    }

    /// Removes the quotes around fields and the carriage return at the end. Returns false if the record is not simple;
    /// `quotes` is the number of quotes in it.
    fn trim(&mut self, mut quotes: u32) -> bool {
        let PieceRecords { bytes, plain, spans, .. } = self;
        let bytes = plain.as_ref().map_or(&**bytes, Records::bytes);
        if quotes == 0 && !self.has_returns {
            return true;
        }
        // All fields are in `spans` here, so the last one ends the record.
        if let Some((start, end)) = spans.last_mut()
            && start < end
            && bytes[*end - 1] == b'\r'
        {
            *end -= 1;
        }
        let has_quotes = quotes > 0;
        for (start, end) in spans {
            let is_quoted = has_quotes && *start < *end && Some(bytes[*start]) == self.quote;
            if is_quoted {
                if *end - *start < 2 || Some(bytes[*end - 1]) != self.quote || quotes < 2 {
                    return false;
                }
                (*start, *end, quotes) = (*start + 1, *end - 1, quotes - 2);
            } else if self.has_returns && memchr(b'\r', &bytes[*start..*end]).is_some() {
                return false;
            }
        }
        quotes == 0 && !(has_quotes && self.dialect.escape.is_some())
    }

    /// Reads the record at offset `at` with the scalar parser.
    fn other(&mut self) -> Result<Option<Record<'_>>, Broken> {
        let plain =
            self.plain.get_or_insert_with(|| Records::within(std::mem::take(&mut self.bytes), &self.dialect));
        plain.keep_empty_lines(self.keeps_empty_lines);
        self.place = Place::Twin;
        self.keeps_empty_lines = self.dialect.is_single;
        plain.next_at(&mut self.at, &mut self.line)
    }
}

impl RecordSource for PieceRecords {
    fn next(&mut self) -> Result<Option<Record<'_>>, Broken> {
        if !self.find() {
            return Ok(None);
        }
        // If records do not end with `\n`, as in files of old Macs, each search would run to the end of the
        // piece.
        if self.wasted > self.bytes().len() {
            return self.other();
        }
        let line = self.line;
        match self.split() {
            Found::End(end, breaks) => {
                self.at = end;
                self.line += breaks;
                self.place = Place::Break;
                self.keeps_empty_lines = self.dialect.is_single;
                let quotes = self.quote.map_or(Quotes::Known(&[]), Quotes::Before);
                let fields = Spans::Apart(&self.spans, self.more);
                Ok(Some(Record { bytes: self.bytes(), fields, quotes, line }))
            }
            Found::Other(bytes) => {
                self.wasted += bytes;
                self.other()
            }
        }
    }

    fn pass(&mut self, fields: usize, most: usize) -> usize {
        let is_passed_over = !self.has_returns && (self.quote.is_none() || self.dialect.escape.is_none());
        if !is_passed_over || !self.find() {
            return 0;
        }
        let passed = self.pass_simple(fields, most);
        if passed > 0 {
            self.place = Place::Break;
            self.keeps_empty_lines = self.dialect.is_single;
        }
        passed
    }
}

impl PieceRecords {
    /// Skips simple records, of which the first begins at offset `at`; returns their number.
    fn pass_simple(&mut self, fields: usize, most: usize) -> usize {
        let PieceRecords { bytes, plain, marked, at, line, .. } = self;
        let bytes = plain.as_ref().map_or(&**bytes, Records::bytes);
        let (mut start, mut passed, mut delimiters, mut breaks) = (*at, 0, 0, 0);
        let mut left = u64::MAX << (start % BLOCK);
        // State at the beginning of the next block of 64 bytes, as masks: the place where a field may begin, the place
        // where a field must have ended, and all ones if the block begins within quotes.
        let (mut begins, mut has_ended, mut within_quotes) = (1 << (start % BLOCK), 0, 0);
        // What follows the last line break is left to `next`.
        for number in start / BLOCK..bytes.len().div_ceil(BLOCK) {
            let places = marked.block(bytes, number);
            let quotes = places.quotes & left;
            let inside = if quotes == 0 { within_quotes } else { parity(quotes) ^ within_quotes };
            let (between, quoted) = (places.delimiters & left & !inside, places.breaks & left & inside);
            let mut ends = places.breaks & left & !inside;
            let structure = between | ends;
            // In simple records quotes open fields where these begin, and close them where they end.
            let (opening, closing) = (quotes & inside, quotes & !inside);
            let wrong =
                (opening & !((structure << 1) | begins)) | (((closing << 1) | has_ended) & !structure);
            if wrong != 0 {
                ends &= (wrong & wrong.wrapping_neg()) - 1;
            }
            while ends != 0 {
                let end = ends & ends.wrapping_neg();
                let place = number * BLOCK + end.trailing_zeros() as usize;
                delimiters += (between & left & (end - 1)).count_ones() as usize;
                breaks += (quoted & left & (end - 1)).count_ones();
                if delimiters + 1 != fields || place == start || passed == most {
                    return passed;
                }
                // The state is the same as after a record that `next` has returned: the line break of the last record
                // is still to be read.
                *line += u64::from(breaks) + u64::from(passed > 0);
                (*at, start) = (place, place + 1);
                (passed, delimiters, breaks) = (passed + 1, 0, 0);
                left = !(end | (end - 1));
                ends &= left;
            }
            if wrong != 0 {
                return passed;
            }
            delimiters += (between & left).count_ones() as usize;
            breaks += (quoted & left).count_ones();
            left = u64::MAX;
            (begins, has_ended) = (structure >> (BLOCK - 1), closing >> (BLOCK - 1));
            within_quotes = if inside >> (BLOCK - 1) == 0 { 0 } else { u64::MAX };
        }
        passed
    }
}
