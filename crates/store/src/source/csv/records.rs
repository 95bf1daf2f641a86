//! Bytes into records of fields (RFC 4180, as leniently as the `csv` crates are), each with its line.
//!
//! Invariant: at most one record is held beside the reader's buffer, and it has at most
//! [`limits::RECORD_BYTES_MAX`] bytes.

use super::Dialect;
use csv_core::ReadRecordResult;
use farpool_model::{cast, limits};
use std::io::BufRead;

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
    bytes: &'a [u8],
    ends: &'a [usize],
    /// The line on which it begins, from 1.
    pub line: u64,
}

impl<'a> Record<'a> {
    pub(in super::super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The field at `i`, without quotes.
    pub(in super::super) fn field(&self, i: usize) -> &'a [u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.bytes[start..self.ends[i]]
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
        let mut builder = csv_core::ReaderBuilder::new();
        builder.delimiter(dialect.delimiter).escape(dialect.escape).comment(dialect.comment);
        match dialect.quote {
            Some(quote) => builder.quote(quote),
            None => builder.quoting(false),
        };
        builder.double_quote(dialect.escape.is_none());
        Ok(Records {
            from,
            core: builder.build(),
            fields: vec![0; 4 << 10],
            ends: vec![0; 64],
            field_bytes: 0,
            field_count: 0,
            skipped_lines: cast::u64_from(dialect.skip_lines),
            ended: false,
        })
    }

    /// The next record that is not empty.
    pub(in super::super) fn next(&mut self) -> Result<Option<Record<'_>>, Broken> {
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
                ReadRecordResult::Record => {
                    let line = self.line(is_terminated);
                    let ends = &self.ends[..self.field_count];
                    return Ok(Some(Record { bytes: &self.fields[..self.field_bytes], ends, line }));
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

fn skip_line(from: &mut impl BufRead) -> std::io::Result<()> {
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
