//! The formats of COPY: text, CSV and binary (PostgreSQL documentation, "COPY", "File Formats").
//!
//! Invariant: rows that are written read back as the same values, NULLs included.

use crate::failure::{Failure, code};
use crate::messages::Format;
use crate::values::Columns;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use farpool_model::{Error, Result, cast};

/// The bytes that begin a COPY in binary.
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// The format of a COPY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFormat {
    /// Values with backslashes for what would end them.
    Text,
    /// Values in quotes where they need them.
    Csv,
    /// Values in binary.
    Binary,
}

/// The options of a COPY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOptions {
    /// The format.
    pub format: CopyFormat,
    /// The byte between values.
    pub delimiter: u8,
    /// The text of NULL.
    pub null: String,
    /// Whether the first line has the names of the columns.
    pub header: bool,
    /// The byte around values that need it, in CSV.
    pub quote: u8,
    /// The byte in front of a quote within quotes, in CSV.
    pub escape: u8,
}

impl CopyOptions {
    /// Returns the defaults of a format.
    pub fn of(format: CopyFormat) -> Self {
        let (delimiter, null) = match format {
            CopyFormat::Csv => (b',', String::new()),
            CopyFormat::Text | CopyFormat::Binary => (b'\t', "\\N".to_string()),
        };
        CopyOptions { format, delimiter, null, header: false, quote: b'"', escape: b'"' }
    }

    /// Returns the format of the values.
    pub fn values(&self) -> Format {
        match self.format {
            CopyFormat::Binary => Format::Binary,
            CopyFormat::Text | CopyFormat::Csv => Format::Text,
        }
    }

    /// Appends what stands before the first row.
    pub fn put_start<'a>(&self, names: impl Iterator<Item = &'a str>, out: &mut BytesMut) {
        match self.format {
            CopyFormat::Binary => {
                out.put_slice(SIGNATURE);
                // Flags, and the length of an extension of this header.
                out.put_u64(0);
            }
            _ if self.header => {
                for (place, name) in names.enumerate() {
                    if place > 0 {
                        out.put_u8(self.delimiter);
                    }
                    self.put_text(name.as_bytes(), out);
                }
                out.put_u8(b'\n');
            }
            _ => {}
        }
    }

    /// Appends a row.
    ///
    /// # Errors
    /// Errors of [`Columns::put_value`].
    pub fn put_row(&self, columns: &Columns, row: usize, out: &mut BytesMut) -> Result<()> {
        let mut value = BytesMut::new();
        if self.format == CopyFormat::Binary {
            // There are at most 65,535 columns.
            out.put_u16(u16::try_from(columns.count()).unwrap_or(u16::MAX));
        }
        for column in 0..columns.count() {
            value.clear();
            let is_there = columns.put_value((row, column), &mut value)?;
            match self.format {
                CopyFormat::Binary if is_there => {
                    let length = u32::try_from(value.len());
                    out.put_u32(length.map_err(|_| Error::over_limit("a value of more than 4 GiB"))?);
                    out.put_slice(&value);
                }
                CopyFormat::Binary => out.put_i32(-1),
                CopyFormat::Text | CopyFormat::Csv => {
                    if column > 0 {
                        out.put_u8(self.delimiter);
                    }
                    match is_there {
                        true => self.put_text(&value, out),
                        false => out.put_slice(self.null.as_bytes()),
                    }
                }
            }
        }
        if self.format != CopyFormat::Binary {
            out.put_u8(b'\n');
        }
        Ok(())
    }

    /// Appends what stands behind the last row.
    pub fn put_end(&self, out: &mut BytesMut) {
        if self.format == CopyFormat::Binary {
            out.put_i16(-1);
        }
    }

    fn put_text(&self, text: &[u8], out: &mut BytesMut) {
        match self.format {
            CopyFormat::Csv => self.put_quoted(text, out),
            CopyFormat::Text | CopyFormat::Binary => self.put_escaped(text, out),
        }
    }

    fn put_escaped(&self, text: &[u8], out: &mut BytesMut) {
        for &byte in text {
            let escaped = match byte {
                8 => b'b',
                b'\t' => b't',
                b'\n' => b'n',
                11 => b'v',
                12 => b'f',
                b'\r' => b'r',
                b'\\' => b'\\',
                byte if byte == self.delimiter => byte,
                byte => {
                    out.put_u8(byte);
                    continue;
                }
            };
            out.put_u8(b'\\');
            out.put_u8(escaped);
        }
    }

    fn put_quoted(&self, text: &[u8], out: &mut BytesMut) {
        let needs = |byte: &u8| [self.delimiter, self.quote, b'\n', b'\r'].contains(byte);
        // A line of only `\.` would end the rows for older programs.
        let is_plain = text != self.null.as_bytes() && text != b"\\." && !text.iter().any(needs);
        if is_plain {
            out.put_slice(text);
            return;
        }
        out.put_u8(self.quote);
        for &byte in text {
            if byte == self.quote || byte == self.escape {
                out.put_u8(self.escape);
            }
            out.put_u8(byte);
        }
        out.put_u8(self.quote);
    }
}

/// A value of a row that was read: its text or its bytes in binary; `None` for NULL.
pub type CopyValue = Option<Bytes>;

/// Reads the rows of a COPY from pieces of bytes.
#[derive(Debug)]
pub struct CopyReader {
    options: CopyOptions,
    columns: usize,
    received: BytesMut,
    /// Bytes of `received` that are known to have no end of a row, and whether they end within quotes.
    seen: (usize, bool),
    /// The number of the line, or of the row in binary, counted from 1.
    line: u64,
    has_begun: bool,
    has_ended: bool,
}

impl CopyReader {
    /// Creates a reader of rows with this number of columns.
    pub fn new(options: CopyOptions, columns: usize) -> Self {
        let (received, seen) = Default::default();
        CopyReader { options, columns, received, seen, line: 0, has_begun: false, has_ended: false }
    }

    /// Adds bytes that have come.
    pub fn push(&mut self, bytes: &[u8]) {
        // Text behind the end mark is ignored; bytes in binary are an error.
        if !self.has_ended || self.options.format == CopyFormat::Binary {
            self.received.extend_from_slice(bytes);
        }
    }

    /// Returns the bytes that wait for the rest of their row.
    pub fn waiting(&self) -> usize {
        self.received.len()
    }

    /// Returns the number of the line that was read last.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Reads the next row; `None` if it has not come whole. `is_end` tells that no more bytes come.
    ///
    /// # Errors
    /// A failure with the number of the line, for a row with another number of columns or bytes that are none.
    pub fn row(&mut self, is_end: bool) -> Result<Option<Vec<CopyValue>>, Failure> {
        let row = match self.options.format {
            CopyFormat::Binary => self.binary_row(is_end),
            CopyFormat::Text | CopyFormat::Csv => self.text_row(is_end),
        };
        row.map_err(|message| {
            Failure::new(code::BAD_COPY_FORMAT, format!("{message} (line {} of the rows)", self.line))
        })
    }

    fn text_row(&mut self, is_end: bool) -> Result<Option<Vec<CopyValue>>, String> {
        while !self.has_ended {
            let Some(line) = self.next_line(is_end)? else { return Ok(None) };
            self.line += 1;
            if line == b"\\."[..] {
                self.has_ended = true;
                break;
            }
            if self.options.header && !self.has_begun {
                self.has_begun = true;
                continue;
            }
            let values = match self.options.format {
                CopyFormat::Csv => quoted_values(&self.options, &line)?,
                _ => escaped_values(&self.options, &line)?,
            };
            // A table without columns has empty lines.
            return match values.len() {
                count if count == self.columns => Ok(Some(values)),
                count if count < self.columns => {
                    Err(format!("missing data: {count} values for {} columns", self.columns))
                }
                _ => Err("extra data after last expected column".to_string()),
            };
        }
        self.received.clear();
        Ok(None)
    }

    /// Takes a line from the front, without its end.
    fn next_line(&mut self, is_end: bool) -> Result<Option<Bytes>, String> {
        let (mut at, mut is_quoted) = self.seen;
        let is_csv = self.options.format == CopyFormat::Csv;
        while at < self.received.len() {
            let byte = self.received[at];
            if is_csv && is_quoted && byte == self.options.escape && self.options.escape != self.options.quote
            {
                // The next byte, whatever it is, is part of the value.
                if at + 1 == self.received.len() && !is_end {
                    break;
                }
                at += 2;
                continue;
            }
            if is_csv && byte == self.options.quote {
                is_quoted = !is_quoted;
            } else if !is_csv && byte == b'\\' {
                if at + 1 == self.received.len() && !is_end {
                    break;
                }
                // An escaped end of line is part of the value.
                at += 2;
                continue;
            } else if byte == b'\n' && !is_quoted {
                let mut line = self.received.split_to(at + 1);
                line.truncate(at);
                if line.last() == Some(&b'\r') {
                    line.truncate(at - 1);
                }
                self.seen = (0, false);
                return Ok(Some(line.freeze()));
            }
            at += 1;
        }
        self.seen = (at.min(self.received.len()), is_quoted);
        if !is_end || self.received.is_empty() {
            return Ok(None);
        }
        if is_quoted {
            return Err("unterminated CSV quoted field".to_string());
        }
        self.seen = (0, false);
        Ok(Some(self.received.split().freeze()))
    }

    fn binary_row(&mut self, is_end: bool) -> Result<Option<Vec<CopyValue>>, String> {
        let cut = |is_end: bool| match is_end {
            true => Err("unexpected end of the rows".to_string()),
            false => Ok(None),
        };
        if self.has_ended {
            return match self.received.is_empty() {
                true => Ok(None),
                false => Err("received copy data after EOF marker".to_string()),
            };
        }
        if !self.has_begun {
            let Some(head) = self.received.get(..SIGNATURE.len() + 8) else { return cut(is_end) };
            if !head.starts_with(SIGNATURE) {
                return Err("COPY file signature not recognized".to_string());
            }
            let mut fields = &head[SIGNATURE.len()..];
            let (flags, extension) = (fields.get_u32(), fields.get_u32());
            if flags != 0 || extension != 0 {
                return Err("unrecognized flags in COPY file header".to_string());
            }
            self.received.advance(SIGNATURE.len() + 8);
            self.has_begun = true;
        }
        let Some(mut rest) = self.received.get(..2) else {
            // The mark behind the last row may be missing, as in PostgreSQL.
            return if self.received.is_empty() { Ok(None) } else { cut(is_end) };
        };
        let count = rest.get_i16();
        if count == -1 {
            self.has_ended = true;
            self.received.advance(2);
            return self.binary_row(is_end);
        }
        self.line += 1;
        if usize::try_from(count) != Ok(self.columns) {
            return Err(format!("row field count is {count}, expected {}", self.columns));
        }
        // The lengths are looked at before anything is taken.
        let mut at = 2;
        let mut ranges = Vec::with_capacity(self.columns);
        for _ in 0..self.columns {
            let Some(mut length) = self.received.get(at..at + 4) else {
                self.line -= 1;
                return cut(is_end);
            };
            at += 4;
            match length.get_i32() {
                -1 => ranges.push(None),
                length => {
                    let length = usize::try_from(length).map_err(|_| "invalid field size".to_string())?;
                    ranges.push(Some(at..at + length));
                    at += length;
                }
            }
        }
        if self.received.len() < at {
            self.line -= 1;
            return cut(is_end);
        }
        let row = self.received.split_to(at).freeze();
        Ok(Some(ranges.into_iter().map(|range| range.map(|range| row.slice(range))).collect()))
    }
}

/// Reads the values of a line in text format.
fn escaped_values(options: &CopyOptions, line: &Bytes) -> Result<Vec<CopyValue>, String> {
    let (mut values, mut start, mut at) = (Vec::new(), 0, 0);
    loop {
        match line.get(at) {
            Some(b'\\') => at = (at + 2).min(line.len()),
            Some(byte) if *byte != options.delimiter => at += 1,
            end => {
                let raw = line.slice(start..at);
                values.push(match raw == options.null.as_bytes() {
                    true => None,
                    false => Some(unescaped(&raw)),
                });
                if end.is_none() {
                    return Ok(values);
                }
                (start, at) = (at + 1, at + 1);
            }
        }
    }
}

/// Replaces the escapes of a value in text format.
fn unescaped(raw: &Bytes) -> Bytes {
    if memchr::memchr(b'\\', raw).is_none() {
        return raw.clone();
    }
    let mut out = BytesMut::with_capacity(raw.len());
    let mut rest = &raw[..];
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        let Some((&escaped, behind)) = rest.split_first().filter(|_| byte == b'\\') else {
            out.put_u8(byte);
            continue;
        };
        rest = behind;
        let digits = |rest: &[u8], is: fn(&u8) -> bool, most: usize| {
            rest.iter().take(most).take_while(|b| is(b)).count()
        };
        match escaped {
            b'b' => out.put_u8(8),
            b'f' => out.put_u8(12),
            b'n' => out.put_u8(b'\n'),
            b'r' => out.put_u8(b'\r'),
            b't' => out.put_u8(b'\t'),
            b'v' => out.put_u8(11),
            b'0'..=b'7' => {
                let count = digits(rest, |b| (b'0'..=b'7').contains(b), 2);
                let value =
                    rest[..count].iter().fold(u32::from(escaped - b'0'), |n, d| n * 8 + u32::from(d - b'0'));
                // As in PostgreSQL, only the low byte counts.
                out.put_u8(value.to_le_bytes()[0]);
                rest = &rest[count..];
            }
            b'x' if digits(rest, u8::is_ascii_hexdigit, 2) > 0 => {
                let count = digits(rest, u8::is_ascii_hexdigit, 2);
                let text = std::str::from_utf8(&rest[..count]).unwrap_or("0");
                out.put_u8(u8::from_str_radix(text, 16).unwrap_or(0));
                rest = &rest[count..];
            }
            other => out.put_u8(other),
        }
    }
    out.freeze()
}

/// Reads the values of a line in CSV.
fn quoted_values(options: &CopyOptions, line: &Bytes) -> Result<Vec<CopyValue>, String> {
    let (mut values, mut at) = (Vec::new(), 0);
    loop {
        let (mut value, mut was_quoted, mut is_quoted) = (BytesMut::new(), false, false);
        loop {
            let Some(&byte) = line.get(at) else {
                if is_quoted {
                    return Err("unterminated CSV quoted field".to_string());
                }
                break;
            };
            at += 1;
            if is_quoted
                && byte == options.escape
                && line.get(at).is_some_and(|next| [options.quote, options.escape].contains(next))
            {
                value.put_u8(line[at]);
                at += 1;
            } else if byte == options.quote {
                (is_quoted, was_quoted) = (!is_quoted, true);
            } else if byte == options.delimiter && !is_quoted {
                at -= 1;
                break;
            } else {
                value.put_u8(byte);
            }
        }
        let is_null = !was_quoted && value == options.null.as_bytes();
        values.push((!is_null).then(|| value.freeze()));
        if at >= line.len() {
            return Ok(values);
        }
        at += 1;
        // A delimiter at the end of the line has an empty value behind it.
        if at == line.len() {
            values.push((!options.null.is_empty()).then(Bytes::new));
            return Ok(values);
        }
    }
}

/// Returns the bytes of a row of values, to be charged.
pub fn row_bytes(row: &[CopyValue]) -> u64 {
    cast::u64_from(row.iter().flatten().map(Bytes::len).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::Style;
    use arrow_array::{ArrayRef, BinaryArray, Int32Array, RecordBatch, StringArray};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn read(
        options: &CopyOptions,
        columns: usize,
        bytes: &[u8],
        piece: usize,
    ) -> Result<Vec<Vec<CopyValue>>, Failure> {
        let (mut reader, mut rows) = (CopyReader::new(options.clone(), columns), Vec::new());
        for piece in bytes.chunks(piece.max(1)) {
            reader.push(piece);
            while let Some(row) = reader.row(false)? {
                rows.push(row);
            }
        }
        while let Some(row) = reader.row(true)? {
            rows.push(row);
        }
        Ok(rows)
    }

    fn shown(rows: &[Vec<CopyValue>]) -> Vec<Vec<Option<String>>> {
        let value = |value: &CopyValue| value.as_ref().map(|v| String::from_utf8_lossy(v).into_owned());
        rows.iter().map(|row| row.iter().map(value).collect()).collect()
    }

    fn written(options: &CopyOptions, batch: &RecordBatch) -> BytesMut {
        let columns = Columns::new(batch, |_| options.values(), Style::default()).unwrap();
        let mut out = BytesMut::new();
        options.put_start(["a", "b"].into_iter(), &mut out);
        (0..batch.num_rows()).for_each(|row| options.put_row(&columns, row, &mut out).unwrap());
        options.put_end(&mut out);
        out
    }

    #[test]
    fn rows_are_those_of_postgresql() {
        let text = CopyOptions::of(CopyFormat::Text);
        let rows = read(&text, 2, b"1\ta\\tb\\n\\\\\n\\N\t\\x41\\101\n\\.\n3\tignored\n", 3).unwrap();
        let expected = [vec![Some("1".to_string()), Some("a\tb\n\\".into())], vec![None, Some("AA".into())]];
        assert_eq!(shown(&rows), expected);
        let csv = CopyOptions { header: true, ..CopyOptions::of(CopyFormat::Csv) };
        let rows = read(&csv, 2, b"a,b\r\n1,\"x, \"\"y\"\"\nz\"\r\n,\"\"\r\n3,", 2).unwrap();
        let expected = [
            vec![Some("1".to_string()), Some("x, \"y\"\nz".into())],
            vec![None, Some(String::new())],
            vec![Some("3".into()), None],
        ];
        assert_eq!(shown(&rows), expected);
    }

    #[test]
    fn what_is_no_row_is_an_error_with_its_line() {
        let text = CopyOptions::of(CopyFormat::Text);
        for (bytes, said) in [(&b"1\t2\n3\n"[..], "missing data"), (b"1\t2\n3\t4\t5\n", "extra data")] {
            let failure = read(&text, 2, bytes, 100).unwrap_err();
            assert!(failure.message.contains(said) && failure.message.contains("line 2"), "{failure:?}");
        }
        let csv = CopyOptions::of(CopyFormat::Csv);
        assert!(read(&csv, 1, b"\"open", 100).is_err());
        let binary = CopyOptions::of(CopyFormat::Binary);
        for bytes in [
            &b"PGCOPX\n"[..],
            b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x02",
            b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x01\0\0",
        ] {
            assert!(read(&binary, 1, bytes, 100).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            rows in prop::collection::vec((any::<Option<i32>>(), prop::option::of("[a-zA-Z\\\\.,\"'\t\n\r;é]{0,6}")), 0..8),
            format in 0..3_usize,
            piece in 1..9_usize,
        ) {
            let format = [CopyFormat::Text, CopyFormat::Csv, CopyFormat::Binary][format];
            let options = CopyOptions { header: format == CopyFormat::Csv, ..CopyOptions::of(format) };
            let (numbers, texts): (Vec<_>, Vec<_>) = rows.iter().cloned().unzip();
            let columns: [(&str, ArrayRef); 2] =
                [("a", Arc::new(Int32Array::from(numbers))), ("b", Arc::new(StringArray::from(texts)))];
            let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true))).unwrap();
            let bytes = written(&options, &batch);
            let back = read(&options, 2, &bytes, piece).unwrap();
            let expected: Vec<Vec<CopyValue>> = rows
                .iter()
                .map(|(number, text)| {
                    let number = number.map(|n| match format {
                        CopyFormat::Binary => Bytes::copy_from_slice(&n.to_be_bytes()),
                        _ => Bytes::from(n.to_string()),
                    });
                    vec![number, text.clone().map(Bytes::from)]
                })
                .collect();
            prop_assert_eq!(back, expected);
        }

        #[test]
        fn any_bytes_are_rows_or_an_error(
            bytes in prop::collection::vec(prop_oneof![Just(b'\\'), Just(b'"'), Just(b'\n'), Just(b','), Just(0_u8), any::<u8>()], 0..80),
            format in 0..3_usize,
        ) {
            let options = CopyOptions::of([CopyFormat::Text, CopyFormat::Csv, CopyFormat::Binary][format]);
            let whole = read(&options, 2, &bytes, bytes.len());
            prop_assert_eq!(&whole.is_ok(), &read(&options, 2, &bytes, 1).is_ok());
        }
    }

    #[test]
    fn bytes_are_hexadecimal_in_text() {
        let batch =
            RecordBatch::try_from_iter([("a", Arc::new(BinaryArray::from(vec![&b"\x01"[..]])) as ArrayRef)])
                .unwrap();
        let options = CopyOptions::of(CopyFormat::Text);
        assert_eq!(&written(&options, &batch)[..], b"\\\\x01\n");
    }
}
