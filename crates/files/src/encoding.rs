//! Converts text of other encodings to UTF-8 while it is read.
//!
//! Invariant: memory is bounded by three times the bytes that the underlying reader returns at once. Bytes that are
//! invalid in the encoding are an error, and are never replaced.

use super::compressed::Bytes;
use farpool_model::CharacterEncoding;
use std::io::{BufRead, Error, ErrorKind, Read, Result};

/// Returns the bytes of `from` as UTF-8.
pub(super) fn decoded(from: Bytes, encoding: Option<CharacterEncoding>) -> Bytes {
    match encoding.unwrap_or(CharacterEncoding::Utf8) {
        CharacterEncoding::Utf8 => from,
        encoding => Box::new(Decoded {
            from,
            encoding,
            text: String::new(),
            at: 0,
            unit: None,
            high: None,
            is_at_start: true,
        }),
    }
}

struct Decoded {
    from: Bytes,
    encoding: CharacterEncoding,
    text: String,
    /// Number of bytes of `text` that the caller has read.
    at: usize,
    /// The first byte of a UTF-16 code unit whose second byte was not read yet.
    unit: Option<u8>,
    /// The first half of a surrogate pair.
    high: Option<u16>,
    is_at_start: bool,
}

impl Decoded {
    fn unit(&mut self, first: u8, second: u8) -> Result<()> {
        let unit = match self.encoding {
            CharacterEncoding::Utf16Be => u16::from_be_bytes([first, second]),
            _ => u16::from_le_bytes([first, second]),
        };
        if std::mem::take(&mut self.is_at_start) {
            match (unit, self.encoding) {
                (0xfeff, _) => return Ok(()),
                (0xfffe, CharacterEncoding::Utf16) => {
                    self.encoding = CharacterEncoding::Utf16Be;
                    return Ok(());
                }
                _ => {}
            }
        }
        match (self.high.take(), unit) {
            (None, 0xd800..=0xdbff) => self.high = Some(unit),
            (high, unit) => {
                let units = high.into_iter().chain([unit]);
                for decoded in char::decode_utf16(units) {
                    self.text.push(decoded.map_err(|_| no_text())?);
                }
            }
        }
        Ok(())
    }

    fn decode(&mut self, bytes: &[u8]) -> Result<()> {
        if self.encoding == CharacterEncoding::Latin1 {
            self.text.extend(bytes.iter().map(|byte| char::from(*byte)));
            return Ok(());
        }
        for &byte in bytes {
            match self.unit.take() {
                None => self.unit = Some(byte),
                Some(first) => self.unit(first, byte)?,
            }
        }
        Ok(())
    }
}

fn no_text() -> Error {
    Error::new(ErrorKind::InvalidData, "it is not text of the encoding that was said")
}

impl BufRead for Decoded {
    fn fill_buf(&mut self) -> Result<&[u8]> {
        while self.at == self.text.len() {
            self.text.clear();
            self.at = 0;
            let bytes = self.from.fill_buf()?.to_vec();
            if bytes.is_empty() {
                return match self.unit.is_some() || self.high.is_some() {
                    true => Err(no_text()),
                    false => Ok(&[]),
                };
            }
            self.from.consume(bytes.len());
            self.decode(&bytes)?;
        }
        Ok(&self.text.as_bytes()[self.at..])
    }

    fn consume(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.text.len());
    }
}

impl Read for Decoded {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let text = self.fill_buf()?;
        let count = text.len().min(buffer.len());
        buffer[..count].copy_from_slice(&text[..count]);
        self.consume(count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;
    use std::io::Cursor;

    /// Decodes bytes that come `size` at a time.
    fn text(bytes: &[u8], encoding: CharacterEncoding, size: usize) -> Result<String> {
        let from = BufReader::with_capacity(size, Cursor::new(bytes.to_vec()));
        let mut text = String::new();
        decoded(Box::new(from), Some(encoding)).read_to_string(&mut text).map(|_| text)
    }

    #[test]
    fn text_is_the_same_however_its_bytes_come() {
        let said = "naïve, 日本 🦀\n";
        let little: Vec<u8> = said.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = said.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for size in [1, 2, 3, 5, 64] {
            assert_eq!(text(&little, CharacterEncoding::Utf16, size).unwrap(), said);
            assert_eq!(text(&little, CharacterEncoding::Utf16Le, size).unwrap(), said);
            assert_eq!(text(&big, CharacterEncoding::Utf16Be, size).unwrap(), said);
            let marked: Vec<u8> = [0xfe, 0xff].into_iter().chain(big.iter().copied()).collect();
            assert_eq!(text(&marked, CharacterEncoding::Utf16, size).unwrap(), said);
            let marked: Vec<u8> = [0xff, 0xfe].into_iter().chain(little.iter().copied()).collect();
            assert_eq!(text(&marked, CharacterEncoding::Utf16, size).unwrap(), said);
            assert_eq!(text(b"caf\xe9 \x80", CharacterEncoding::Latin1, size).unwrap(), "café \u{80}");
        }
    }

    #[test]
    fn what_is_no_text_is_an_error() {
        for bytes in [&b"a\0b"[..], &[0x3d, 0xd8], &[0x3d, 0xd8, 0x61, 0], &[0x80, 0xde]] {
            let error = text(bytes, CharacterEncoding::Utf16Le, 2).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{bytes:?}");
        }
    }
}
