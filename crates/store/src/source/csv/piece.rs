//! The records of a piece that lies in memory: fields are found by their delimiters and stay where they are.
//!
//! A record that this does not understand (a doubled or escaped quote, text behind a closing quote, a carriage return
//! within) is read by [`Records`], the plain twin, from where it begins.

use super::Dialect;
use super::records::{Broken, Record, RecordSource, Records, Spans};
use farpool_model::cast;
use memchr::{memchr, memchr_iter, memchr2};
use std::io::Cursor;

/// See the file's comment.
pub(super) struct PieceRecords {
    plain: Records<Cursor<Vec<u8>>>,
    at: usize,
    /// The line at `at`.
    line: u64,
    spans: Vec<(usize, usize)>,
    /// Fields that are behind those in `spans`.
    more: usize,
    needed: usize,
    delimiter: u8,
    quote: Option<u8>,
    has_escape: bool,
    has_quotes: bool,
    has_returns: bool,
}

/// What became of looking for the end of a record.
enum Found {
    /// It ends before this place.
    End(usize),
    /// It is none of the simple ones.
    Other,
}

impl PieceRecords {
    /// The records of `bytes`, which begin on `line`. Of each the first `needed` fields are looked at; the others may be
    /// counted and no more.
    pub(super) fn new(bytes: Vec<u8>, line: u64, dialect: &Dialect, needed: usize) -> Self {
        let has = |byte: u8| memchr(byte, &bytes).is_some();
        let (has_quotes, has_returns) = (dialect.quote.is_some_and(has), has(b'\r'));
        PieceRecords {
            plain: Records::within(bytes, dialect),
            at: 0,
            line,
            spans: Vec::new(),
            more: 0,
            needed,
            delimiter: dialect.delimiter,
            quote: dialect.quote,
            has_escape: dialect.escape.is_some(),
            has_quotes,
            has_returns,
        }
    }

    /// Goes behind empty lines, and says whether anything follows.
    fn find(&mut self) -> bool {
        let bytes = self.plain.bytes();
        while let Some(byte @ (b'\n' | b'\r')) = bytes.get(self.at) {
            self.line += u64::from(*byte == b'\n');
            self.at += 1;
        }
        self.at < bytes.len()
    }

    /// Looks for the fields of the record at `at`.
    fn split(&mut self) -> Found {
        self.spans.clear();
        self.more = 0;
        let bytes = self.plain.bytes();
        let mut may_count = !self.has_returns;
        let mut start = self.at;
        loop {
            if may_count && self.spans.len() >= self.needed {
                may_count = false;
                let end = memchr(b'\n', &bytes[start..]).map_or(bytes.len(), |at| start + at);
                let rest = &bytes[start..end];
                if !self.has_quotes || self.quote.is_none_or(|quote| memchr(quote, rest).is_none()) {
                    self.more = 1 + memchr_iter(self.delimiter, rest).count();
                    return Found::End(end);
                }
            }
            if self.has_quotes && bytes.get(start).copied() == self.quote {
                let Some(close) = self.closed(bytes, start) else { return Found::Other };
                self.spans.push((start + 1, close));
                match bytes.get(close + 1) {
                    Some(byte) if *byte == self.delimiter => start = close + 2,
                    _ => return Found::End(close + 1),
                }
                continue;
            }
            let end = self.end_of_plain(bytes, start);
            if end < bytes.len() && bytes[end] == self.delimiter {
                self.spans.push((start, end));
                start = end + 1;
                continue;
            }
            let has_return = end > start && bytes[end - 1] == b'\r';
            self.spans.push((start, end - usize::from(has_return)));
            return Found::End(end);
        }
    }

    /// The end of a field that no quote opens: a delimiter, a line break or the end.
    fn end_of_plain(&self, bytes: &[u8], start: usize) -> usize {
        memchr2(self.delimiter, b'\n', &bytes[start..]).map_or(bytes.len(), |at| start + at)
    }

    /// The quote that closes the field which one opens at `open`, if none is within and the field ends behind it.
    fn closed(&self, bytes: &[u8], open: usize) -> Option<usize> {
        if self.has_escape {
            return None;
        }
        let close = open + 1 + memchr(self.quote?, &bytes[open + 1..])?;
        match bytes.get(close + 1) {
            None | Some(b'\n' | b'\r') => Some(close),
            Some(byte) => (*byte == self.delimiter).then_some(close),
        }
    }

    /// Whether a carriage return that ends no line is in one of the fields without quotes.
    fn has_inner_return(&self) -> bool {
        if !self.has_returns {
            return false;
        }
        let bytes = self.plain.bytes();
        let quoted = |start: usize| start > self.at && Some(bytes[start - 1]) == self.quote;
        let is_inner =
            |&(start, stop): &(usize, usize)| !quoted(start) && memchr(b'\r', &bytes[start..stop]).is_some();
        self.spans.iter().any(is_inner)
    }
}

impl RecordSource for PieceRecords {
    fn next(&mut self) -> Result<Option<Record<'_>>, Broken> {
        if !self.find() {
            return Ok(None);
        }
        let line = self.line;
        match self.split() {
            Found::End(end) if !self.has_inner_return() => {
                let bytes = self.plain.bytes();
                if self.has_quotes {
                    self.line += cast::u64_from(memchr_iter(b'\n', &bytes[self.at..end]).count());
                }
                self.at = end;
                Ok(Some(Record { bytes, fields: Spans::Apart(&self.spans, self.more), line }))
            }
            Found::End(_) | Found::Other => self.plain.next_at(&mut self.at, &mut self.line),
        }
    }
}
