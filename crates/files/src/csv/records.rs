//! Splits bytes into records of fields (RFC 4180, as leniently as the `csv` crates), each with its line.
//!
//! Invariant: at most one record is held beside the reader's buffer, and it has at most
//! [`limits::RECORD_BYTES_MAX`] bytes.

use super::Dialect;
use csv_core::ReadRecordResult;
use farpool_model::{cast, limits};
use std::io::{BufRead, Cursor};

/// A source of CSV records, which are read one after the other.
pub(crate) trait RecordSource {
    /// Returns the next record that is not an empty line; `None` at the end.
    ///
    /// # Errors
    /// The reason why the next record cannot be read.
    fn next(&mut self) -> Result<Option<Record<'_>>, Broken>;

    /// Skips at most `most` records, and returns how many were skipped. Stops before a record that is empty, cannot be
    /// read, has not exactly `fields` fields, or cannot be skipped by this source.
    fn pass(&mut self, _fields: usize, _most: usize) -> usize {
        0
    }
}

/// Splits the bytes of a reader into records.
pub(crate) struct Records<R> {
    from: R,
    core: csv_core::Reader,
    fields: Vec<u8>,
    ends: Vec<usize>,
    /// Number of bytes of `fields`, and of entries of `ends`, that belong to the current record.
    field_bytes: usize,
    field_count: usize,
    skipped_lines: u64,
    ended: bool,
    /// The bytes of the current record as in the file, if fields can be quoted.
    raw: Vec<u8>,
    marks: Marks,
    /// For each field of the current record whether it was quoted; empty if none was.
    quoted: Vec<bool>,
    /// Whether an empty line is a record with an empty field, as in a file of one column.
    empty_lines: EmptyLines,
    /// Whether the next bytes are the first of a file, where a byte order mark may be.
    is_at_start: bool,
}

/// Meaning of an empty line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EmptyLines {
    Skipped,
    /// A record, but only after the first record was read.
    KeptLater,
    /// A record. The value is whether the byte that was read last is a carriage return.
    Kept(bool),
}

/// The characters that delimit quoted fields.
#[derive(Clone, Copy, Debug)]
struct Marks {
    delimiter: u8,
    quote: Option<u8>,
    escape: Option<u8>,
    comment: Option<u8>,
}

impl Marks {
    /// Appends to `quoted` for each field of the record in `raw` whether it is quoted, by the rules of `csv_core`.
    fn quoted_fields(self, quote: u8, raw: &[u8], quoted: &mut Vec<bool>) {
        let is_break = |byte: u8| byte == b'\n' || byte == b'\r';
        let mut rest = raw;
        // Skips the lines before the record that are no records: empty lines and comments.
        while let Some(&first) = rest.first() {
            rest = match first {
                _ if is_break(first) => &rest[1..],
                _ if Some(first) == self.comment => {
                    memchr::memchr(b'\n', rest).map_or(&[][..], |end| &rest[end + 1..])
                }
                _ => break,
            };
        }
        loop {
            let is_quoted = rest.first() == Some(&quote);
            quoted.push(is_quoted);
            let closed = if is_quoted { self.behind_quotes(quote, &rest[1..]) } else { rest };
            let end = closed.iter().position(|byte| *byte == self.delimiter || is_break(*byte));
            match end {
                Some(end) if closed[end] == self.delimiter => rest = &closed[end + 1..],
                _ => return,
            }
        }
    }

    /// Returns the bytes after the quote that closes a field.
    fn behind_quotes(self, quote: u8, mut rest: &[u8]) -> &[u8] {
        while let Some(at) = rest.iter().position(|byte| *byte == quote || Some(*byte) == self.escape) {
            let is_pair = match self.escape {
                Some(escape) => rest[at] == escape,
                None => rest.get(at + 1) == Some(&quote),
            };
            let behind = at + if is_pair { 2 } else { 1 };
            rest = rest.get(behind..).unwrap_or_default();
            if !is_pair {
                break;
            }
        }
        rest
    }
}

/// One CSV record.
pub(crate) struct Record<'a> {
    pub bytes: &'a [u8],
    pub fields: Spans<'a>,
    pub quotes: Quotes<'a>,
    /// The line on which the record begins, from 1.
    pub line: u64,
}

/// Flags for the fields of a record that were quoted.
#[derive(Clone, Copy)]
pub(crate) enum Quotes<'a> {
    /// A flag per field; empty if no field was quoted.
    Known(&'a [bool]),
    /// The quoted fields are those that this byte (the quote) precedes in the bytes of the record.
    Before(u8),
}

/// Offsets of the fields in the bytes of a record, without their quotes.
#[derive(Clone, Copy)]
pub(crate) enum Spans<'a> {
    /// Fields without gaps, by their end offsets.
    Joined(&'a [usize]),
    /// Start and end offset of each field, and the number of further fields, whose offsets are not needed.
    Apart(&'a [(usize, usize)], usize),
}

impl<'a> Record<'a> {
    pub(crate) fn len(&self) -> usize {
        match self.fields {
            Spans::Joined(ends) => ends.len(),
            Spans::Apart(spans, more) => spans.len() + more,
        }
    }

    /// Returns whether the field at index `i` was in quotes.
    pub(crate) fn is_quoted(&self, i: usize) -> bool {
        match (self.quotes, self.fields) {
            (Quotes::Known(quoted), _) => quoted.get(i).copied().unwrap_or(false),
            (Quotes::Before(quote), Spans::Apart(spans, _)) => {
                let before = spans.get(i).and_then(|(start, _)| start.checked_sub(1));
                before.is_some_and(|before| self.bytes[before] == quote)
            }
            (Quotes::Before(_), Spans::Joined(_)) => false,
        }
    }

    /// Returns the field at index `i`, without quotes.
    pub(crate) fn field(&self, i: usize) -> &'a [u8] {
        let (start, end) = match self.fields {
            Spans::Joined(ends) => (if i == 0 { 0 } else { ends[i - 1] }, ends[i]),
            Spans::Apart(spans, _) => spans[i],
        };
        &self.bytes[start..end]
    }
}

/// The reason why a record cannot be read.
#[derive(Debug)]
pub(crate) enum Broken {
    Io(std::io::Error),
    /// The record on this line has an opening quote without a closing one.
    Unclosed(u64),
    /// The record of this line is longer than the limit.
    Long(u64),
    /// The record of this line has more fields than the limit.
    Wide(u64),
}

impl<R: BufRead> Records<R> {
    /// Reads records from the beginning of a file. The first record has the column names if there is a header.
    ///
    /// # Errors
    /// I/O errors from skipping lines.
    pub(crate) fn new(mut from: R, dialect: &Dialect) -> std::io::Result<Self> {
        for _ in 0..dialect.skip_lines {
            skip_line(&mut from)?;
        }
        Ok(Records { skipped_lines: cast::u64_from(dialect.skip_lines), ..Records::of(from, dialect) })
    }

    /// Reads records from within a file, of which the first begins on line `line`.
    pub(super) fn from_line(from: R, line: u64, is_first: bool, dialect: &Dialect) -> Self {
        let mut records = Records::of(from, dialect);
        records.start();
        if dialect.is_single && !is_first {
            records.empty_lines = EmptyLines::Kept(false);
        }
        records.core.set_line(line);
        records
    }

    /// Passes an empty line to the splitter first, because it strips a byte order mark from its first input.
    fn start(&mut self) {
        let _ = self.core.read_record(b"\n", &mut self.fields, &mut self.ends);
        self.is_at_start = false;
    }

    fn of(from: R, dialect: &Dialect) -> Self {
        let mut builder = csv_core::ReaderBuilder::new();
        builder.delimiter(dialect.delimiter).escape(dialect.escape).comment(dialect.comment);
        match dialect.quote {
            Some(quote) => builder.quote(quote),
            None => builder.quoting(false),
        };
        builder.double_quote(dialect.escape.is_none());
        Records {
            from,
            core: builder.build(),
            fields: vec![0; 4 << 10],
            ends: vec![0; 64],
            field_bytes: 0,
            field_count: 0,
            skipped_lines: 0,
            ended: false,
            raw: Vec::new(),
            marks: Marks {
                delimiter: dialect.delimiter,
                quote: dialect.quote,
                escape: dialect.escape,
                comment: dialect.comment,
            },
            quoted: Vec::new(),
            empty_lines: if dialect.is_single { EmptyLines::KeptLater } else { EmptyLines::Skipped },
            is_at_start: true,
        }
    }

    /// Reads the next record; returns the line on which it begins, `None` at the end.
    fn advance(&mut self) -> Result<Option<u64>, Broken> {
        (self.field_bytes, self.field_count) = (0, 0);
        self.raw.clear();
        if let Some(line) = self.empty_line().map_err(Broken::Io)? {
            return Ok(Some(line));
        }
        while !self.ended {
            self.make_room()?;
            let input = self.from.fill_buf().map_err(Broken::Io)?;
            self.ended = input.is_empty();
            // A line break ends the last record, unless a quote is open: then it becomes part of the field.
            let input = if self.ended { &b"\n"[..] } else { input };
            let (output, ends) = (&mut self.fields[self.field_bytes..], &mut self.ends[self.field_count..]);
            let (result, read, written, ends) = self.core.read_record(input, output, ends);
            self.field_bytes += written;
            self.field_count += ends;
            let is_terminated = read > 0 && input[read - 1] == b'\n';
            let ends_with_return = read > 0 && input[read - 1] == b'\r';
            if self.marks.quote.is_some() {
                self.raw.extend_from_slice(&input[..read]);
            }
            if !self.ended {
                self.from.consume(read);
            }
            match result {
                ReadRecordResult::Record => {
                    if self.empty_lines != EmptyLines::Skipped {
                        self.empty_lines = EmptyLines::Kept(ends_with_return);
                    }
                    return Ok(Some(self.line(is_terminated)));
                }
                _ if self.ended && written > 0 => return Err(Broken::Unclosed(self.line(false))),
                ReadRecordResult::InputEmpty
                | ReadRecordResult::OutputFull
                | ReadRecordResult::OutputEndsFull
                | ReadRecordResult::End => {}
            }
        }
        Ok(None)
    }

    /// Reads an empty line if it is a record, and returns its line number.
    fn empty_line(&mut self) -> std::io::Result<Option<u64>> {
        while let EmptyLines::Kept(is_behind_return) = self.empty_lines {
            let line = self.skipped_lines + self.core.line();
            match self.from.fill_buf()?.first() {
                Some(b'\n') => {
                    self.from.consume(1);
                    self.skipped_lines += 1;
                    self.empty_lines = EmptyLines::Kept(false);
                    if is_behind_return {
                        // The line feed belongs to the carriage return that was read before; together they end one
                        // line.
                        continue;
                    }
                }
                Some(b'\r') => {
                    self.from.consume(1);
                    self.empty_lines = EmptyLines::Kept(true);
                }
                _ => return Ok(None),
            }
            (self.field_count, self.ends[0]) = (1, 0);
            return Ok(Some(line));
        }
        Ok(None)
    }

    /// Returns the record that was read last.
    fn record(&mut self, line: u64) -> Record<'_> {
        self.quoted.clear();
        if let Some(quote) = self.marks.quote
            && memchr::memchr(quote, &self.raw).is_some()
        {
            let mark = if self.is_at_start { &b"\xef\xbb\xbf"[..] } else { b"" };
            let raw = self.raw.strip_prefix(mark).unwrap_or(&self.raw);
            self.marks.quoted_fields(quote, raw, &mut self.quoted);
        }
        self.is_at_start = false;
        let fields = Spans::Joined(&self.ends[..self.field_count]);
        let quotes = Quotes::Known(&self.quoted);
        Record { bytes: &self.fields[..self.field_bytes], fields, quotes, line }
    }

    /// Makes room for at least one byte and one field.
    fn make_room(&mut self) -> Result<(), Broken> {
        if self.field_bytes >= limits::RECORD_BYTES_MAX {
            return Err(Broken::Long(self.line(false)));
        }
        // The end offset of a field takes eight times as much memory as the field's delimiter in the file.
        if self.field_count > limits::CSV_FIELDS_MAX {
            return Err(Broken::Wide(self.line(false)));
        }
        if self.field_bytes + 2 > self.fields.len() {
            self.fields.resize(self.fields.len() * 2, 0);
        }
        if self.field_count + 2 > self.ends.len() {
            self.ends.resize(self.ends.len() * 2, 0);
        }
        Ok(())
    }

    /// Returns the line on which the current record begins, computed from the line breaks read since.
    fn line(&self, is_terminated: bool) -> u64 {
        let within = memchr::memchr_iter(b'\n', &self.fields[..self.field_bytes]).count();
        let behind = cast::u64_from(within) + u64::from(is_terminated);
        self.skipped_lines + self.core.line().saturating_sub(behind)
    }
}

impl<R: BufRead> RecordSource for Records<R> {
    fn next(&mut self) -> Result<Option<Record<'_>>, Broken> {
        match self.advance()? {
            Some(line) => Ok(Some(self.record(line))),
            None => Ok(None),
        }
    }
}

impl Records<Cursor<Vec<u8>>> {
    /// Reads records from bytes within a file, where no byte order mark or lines are skipped.
    pub(super) fn within(bytes: Vec<u8>, dialect: &Dialect) -> Self {
        Records::from_line(Cursor::new(bytes), 1, true, dialect)
    }

    /// Sets whether an empty line that follows is a record.
    pub(super) fn keep_empty_lines(&mut self, are_kept: bool) {
        self.empty_lines = if are_kept { EmptyLines::Kept(false) } else { EmptyLines::Skipped };
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.from.get_ref()
    }

    /// Reads the record at offset `at` on line `line`, and advances both to the end of the record.
    pub(super) fn next_at(&mut self, at: &mut usize, line: &mut u64) -> Result<Option<Record<'_>>, Broken> {
        self.from.set_position(cast::u64_from(*at));
        self.core.set_line(*line);
        let found = self.advance()?;
        (*at, *line) = (cast::usize_saturating(self.from.position()), self.core.line());
        match found {
            Some(line) => Ok(Some(self.record(line))),
            None => Ok(None),
        }
    }
}

/// Skips the rest of a line.
pub(super) fn skip_line(from: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let input = from.fill_buf()?;
        if input.is_empty() {
            return Ok(());
        }
        let found = memchr::memchr(b'\n', input);
        let read = found.map_or(input.len(), |at| at + 1);
        from.consume(read);
        if found.is_some() {
            return Ok(());
        }
    }
}
