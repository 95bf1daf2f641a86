//! Bytes into records of fields (RFC 4180, as leniently as the `csv` crates are), each with its line.
//!
//! Invariant: at most one record is held beside the reader's buffer, and it has at most
//! [`limits::RECORD_BYTES_MAX`] bytes.

use super::Dialect;
use csv_core::ReadRecordResult;
use farpool_model::{cast, limits};
use std::io::{BufRead, Cursor};

/// What gives one record after the other.
pub(in super::super) trait RecordSource {
    /// The next record that is not empty.
    ///
    /// # Errors
    /// Why there is no further record, although the bytes have not ended.
    fn next(&mut self) -> Result<Option<Record<'_>>, Broken>;
}

/// Splits what a reader gives.
pub(in super::super) struct Records<R> {
    from: R,
    core: csv_core::Reader,
    fields: Vec<u8>,
    ends: Vec<usize>,
    /// Of `fields` and `ends`, those of the record that is being read.
    field_bytes: usize,
    field_count: usize,
    skipped_lines: u64,
    ended: bool,
}

/// One record.
pub(in super::super) struct Record<'a> {
    pub bytes: &'a [u8],
    pub fields: Spans<'a>,
    /// The line on which it begins, from 1.
    pub line: u64,
}

/// Where the fields of a record lie in its bytes, without their quotes.
#[derive(Clone, Copy)]
pub(in super::super) enum Spans<'a> {
    /// One behind the other, by their ends.
    Joined(&'a [usize]),
    /// Anywhere, each with its beginning and end; so many more follow, which nobody needs.
    Apart(&'a [(usize, usize)], usize),
}

impl<'a> Record<'a> {
    pub(in super::super) fn len(&self) -> usize {
        match self.fields {
            Spans::Joined(ends) => ends.len(),
            Spans::Apart(spans, more) => spans.len() + more,
        }
    }

    /// The field at `i`, without quotes.
    pub(in super::super) fn field(&self, i: usize) -> &'a [u8] {
        let (start, end) = match self.fields {
            Spans::Joined(ends) => (if i == 0 { 0 } else { ends[i - 1] }, ends[i]),
            Spans::Apart(spans, _) => spans[i],
        };
        &self.bytes[start..end]
    }
}

/// Why there is no further record.
#[derive(Debug)]
pub(in super::super) enum Broken {
    Io(std::io::Error),
    /// A quote opens in the record of this line and none closes it.
    Unclosed(u64),
    /// The record of this line is longer than the limit.
    Long(u64),
}

impl<R: BufRead> Records<R> {
    /// Records of `from`, the first of which has the names if there is a header.
    ///
    /// # Errors
    /// Those of the reader, for the lines that are skipped.
    pub(in super::super) fn new(mut from: R, dialect: &Dialect) -> std::io::Result<Self> {
        for _ in 0..dialect.skip_lines {
            skip_line(&mut from)?;
        }
        Ok(Records { skipped_lines: cast::u64_from(dialect.skip_lines), ..Records::of(from, dialect) })
    }

    /// Records within a file, the first of which begins on `line`.
    pub(super) fn from_line(from: R, line: u64, dialect: &Dialect) -> Self {
        let mut records = Records::of(from, dialect);
        records.start();
        records.core.set_line(line);
        records
    }

    /// The splitter leaves out a byte order mark before it has seen anything.
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

    /// Reads the next record, and says on which line it begins.
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

    /// The record that was read.
    fn record(&self, line: u64) -> Record<'_> {
        let fields = Spans::Joined(&self.ends[..self.field_count]);
        Record { bytes: &self.fields[..self.field_bytes], fields, line }
    }

    /// Room for a byte and a field at least.
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

    /// The line on which the record begins of which so much was read.
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
    /// Records within a file, of bytes that lie in memory: nothing is skipped at their beginning.
    pub(super) fn within(bytes: Vec<u8>, dialect: &Dialect) -> Self {
        Records::from_line(Cursor::new(bytes), 1, dialect)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.from.get_ref()
    }

    /// The record that begins at `at` on `line`, which become the place behind it and the line there.
    pub(super) fn next_at(&mut self, at: &mut usize, line: &mut u64) -> Result<Option<Record<'_>>, Broken> {
        self.from.set_position(cast::u64_from(*at));
        self.core.set_line(*line);
        let found = self.advance()?;
        (*at, *line) = (cast::usize_saturating(self.from.position()), self.core.line());
        Ok(found.map(|line| self.record(line)))
    }
}

/// Reads up to the end of a line.
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
