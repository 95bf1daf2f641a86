//! Splits bytes into records of fields (RFC 4180, as leniently as the `csv` crates), each with its line.
//!
//! Invariant: at most one record is held beside the reader's buffer, and it has at most
//! [`limits::RECORD_BYTES_MAX`] bytes.

use super::Dialect;
use csv_core::ReadRecordResult;
use farpool_model::{cast, limits};
use std::io::{BufRead, Cursor};

/// A source of records.
pub(in super::super) trait RecordSource {
    /// Returns the next record that is not empty.
    ///
    /// # Errors
    /// The reason why the next record cannot be read.
    fn next(&mut self) -> Result<Option<Record<'_>>, Broken>;

    /// Passes over records, `most` at most, and returns how many: none behind the first that is empty or broken, or has
    /// not `fields` fields, or that this source does not pass over.
    fn pass(&mut self, _fields: usize, _most: usize) -> usize {
        0
    }
}

/// Splits the bytes of a reader into records.
pub(in super::super) struct Records<R> {
    from: R,
    core: csv_core::Reader,
    fields: Vec<u8>,
    ends: Vec<usize>,
    /// Number of bytes in `fields` and of entries in `ends` that belong to the current record.
    field_bytes: usize,
    field_count: usize,
    skipped_lines: u64,
    ended: bool,
}

/// One record.
pub(in super::super) struct Record<'a> {
    pub bytes: &'a [u8],
    pub fields: Spans<'a>,
    /// The line on which the record begins, from 1.
    pub line: u64,
}

/// Positions of the fields within the bytes of a record, without their quotes.
#[derive(Clone, Copy)]
pub(in super::super) enum Spans<'a> {
    /// Fields follow each other; the end of each.
    Joined(&'a [usize]),
    /// Start and end of each field, and the number of further fields, whose positions are not needed.
    Apart(&'a [(usize, usize)], usize),
}

impl<'a> Record<'a> {
    pub(in super::super) fn len(&self) -> usize {
        match self.fields {
            Spans::Joined(ends) => ends.len(),
            Spans::Apart(spans, more) => spans.len() + more,
        }
    }

    /// The field at index `i`, without quotes.
    pub(in super::super) fn field(&self, i: usize) -> &'a [u8] {
        let (start, end) = match self.fields {
            Spans::Joined(ends) => (if i == 0 { 0 } else { ends[i - 1] }, ends[i]),
            Spans::Apart(spans, _) => spans[i],
        };
        &self.bytes[start..end]
    }
}

/// The reason why a record cannot be read.
#[derive(Debug)]
pub(in super::super) enum Broken {
    Io(std::io::Error),
    /// The record on this line has an opening quote without a closing one.
    Unclosed(u64),
    /// The record of this line is longer than the limit.
    Long(u64),
}

impl<R: BufRead> Records<R> {
    /// Reads records of `from` from the beginning of a file; the first has the names if there is a header.
    ///
    /// # Errors
    /// I/O errors from skipping lines.
    pub(in super::super) fn new(mut from: R, dialect: &Dialect) -> std::io::Result<Self> {
        for _ in 0..dialect.skip_lines {
            skip_line(&mut from)?;
        }
        Ok(Records { skipped_lines: cast::u64_from(dialect.skip_lines), ..Records::of(from, dialect) })
    }

    /// Reads records from within a file; the first begins on `line`.
    pub(super) fn from_line(from: R, line: u64, dialect: &Dialect) -> Self {
        let mut records = Records::of(from, dialect);
        records.start();
        records.core.set_line(line);
        records
    }

    /// Feeds the splitter an empty line first, since it strips a byte order mark from its first input.
    fn start(&mut self) {
        let _ = self.core.read_record(b"\n", &mut self.fields, &mut self.ends);
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
        }
    }

    /// Reads the next record; returns the line on which it begins.
    fn advance(&mut self) -> Result<Option<u64>, Broken> {
        (self.field_bytes, self.field_count) = (0, 0);
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
            if !self.ended {
                self.from.consume(read);
            }
            match result {
                ReadRecordResult::Record => return Ok(Some(self.line(is_terminated))),
                _ if self.ended && written > 0 => return Err(Broken::Unclosed(self.line(false))),
                ReadRecordResult::InputEmpty
                | ReadRecordResult::OutputFull
                | ReadRecordResult::OutputEndsFull
                | ReadRecordResult::End => {}
            }
        }
        Ok(None)
    }

    /// The record that was read last.
    fn record(&self, line: u64) -> Record<'_> {
        let fields = Spans::Joined(&self.ends[..self.field_count]);
        Record { bytes: &self.fields[..self.field_bytes], fields, line }
    }

    /// Makes room for at least one byte and one field.
    fn make_room(&mut self) -> Result<(), Broken> {
        if self.field_bytes >= limits::RECORD_BYTES_MAX {
            return Err(Broken::Long(self.line(false)));
        }
        if self.field_bytes + 2 > self.fields.len() {
            self.fields.resize(self.fields.len() * 2, 0);
        }
        if self.field_count + 2 > self.ends.len() {
            self.ends.resize(self.ends.len() * 2, 0);
        }
        Ok(())
    }

    /// Line on which the current record begins, computed from the line breaks read since.
    fn line(&self, is_terminated: bool) -> u64 {
        let within = memchr::memchr_iter(b'\n', &self.fields[..self.field_bytes]).count();
        let behind = cast::u64_from(within) + u64::from(is_terminated);
        self.skipped_lines + self.core.line().saturating_sub(behind)
    }
}

impl<R: BufRead> RecordSource for Records<R> {
    fn next(&mut self) -> Result<Option<Record<'_>>, Broken> {
        Ok(self.advance()?.map(|line| self.record(line)))
    }
}

impl Records<Cursor<Vec<u8>>> {
    /// Splits records of bytes in memory from within a file: no byte order mark or lines are skipped.
    pub(super) fn within(bytes: Vec<u8>, dialect: &Dialect) -> Self {
        Records::from_line(Cursor::new(bytes), 1, dialect)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.from.get_ref()
    }

    /// Reads the record at byte `at` on `line`, and advances both behind it.
    pub(super) fn next_at(&mut self, at: &mut usize, line: &mut u64) -> Result<Option<Record<'_>>, Broken> {
        self.from.set_position(cast::u64_from(*at));
        self.core.set_line(*line);
        let found = self.advance()?;
        (*at, *line) = (cast::usize_saturating(self.from.position()), self.core.line());
        Ok(found.map(|line| self.record(line)))
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
