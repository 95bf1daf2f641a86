//! Splits a file into pieces of whole records, which several threads can parse.
//!
//! The end of a record is found without examining every byte: by jumping from one quote to the next, and then to the
//! last line break outside of quotes. A quote opens a field only at the beginning of the field; elsewhere it is an
//! ordinary character, as in [`super::records::Records`], which reads files that cannot be split.
//!
//! Invariant: memory is bounded by one piece, of at most [`PIECE_BYTES_MAX`] bytes, and the beginning of the next.

use super::Dialect;
use super::records::skip_line;
use farpool_model::cast;
use memchr::{memchr, memchr_iter, memchr2, memrchr};
use std::io::{BufRead, Read, Result};

/// Bytes of the first piece, so that a statement that needs only the first rows reads little more. Each piece is twice
/// as long as the one before, up to [`PIECE_BYTES`].
const PIECE_BYTES_FIRST: usize = 64 << 10;

/// Maximum bytes of a regular piece. Reason: about a batch of rows, which stay in the L2 cache from one step of parsing
/// to the next.
const PIECE_BYTES: usize = 1 << 20;

/// Bytes without the end of a record, after which the rest of the file is not split. Reason: bounds the memory of a
/// piece.
const PIECE_BYTES_MAX: usize = 8 << 20;

/// The byte order mark of UTF-8, which is skipped.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// A piece of a file, which begins at the beginning of a record.
#[derive(Debug)]
pub(super) struct Piece<R> {
    pub bytes: Vec<u8>,
    /// The rest of the file after `bytes`, if the file is not split any further.
    pub rest: Option<R>,
    /// The line of the file on which the piece begins, from 1.
    pub line: u64,
    /// Whether no piece before this one has more than empty lines.
    pub is_first: bool,
}

/// Splits the bytes of a reader into pieces.
pub(super) struct Cutter<R> {
    from: Option<R>,
    marks: Marks,
    /// Bytes that were read after the end of the last piece.
    carried: Vec<u8>,
    size: usize,
    line: u64,
    is_first: bool,
    may_have_mark: bool,
}

/// The bytes by which the end of a record is recognized.
#[derive(Clone, Copy, Debug)]
struct Marks {
    delimiter: u8,
    quote: Option<u8>,
    escape: Option<u8>,
}

impl<R: BufRead> Cutter<R> {
    /// Creates a cutter for `from`. [`can_cut`] must be true for `dialect`.
    ///
    /// # Errors
    /// I/O errors from skipping lines.
    pub(super) fn new(mut from: R, dialect: &Dialect) -> Result<Self> {
        for _ in 0..dialect.skip_lines {
            skip_line(&mut from)?;
        }
        Ok(Cutter {
            from: Some(from),
            marks: Marks { delimiter: dialect.delimiter, quote: dialect.quote, escape: dialect.escape },
            carried: Vec::new(),
            size: PIECE_BYTES_FIRST,
            line: cast::u64_from(dialect.skip_lines) + 1,
            is_first: true,
            may_have_mark: true,
        })
    }

    /// Sets the size of pieces to about `size` bytes.
    #[cfg(test)]
    pub(super) fn of_size(mut self, size: usize) -> Self {
        self.size = size;
        self
    }

    /// Returns the next piece; `None` at the end.
    ///
    /// # Errors
    /// I/O errors; there is no further piece after an error.
    pub(super) fn next(&mut self) -> Result<Option<Piece<R>>> {
        let Some(mut from) = self.from.take() else { return Ok(None) };
        let mut bytes = std::mem::take(&mut self.carried);
        // Enough to tell a byte order mark.
        let mut wanted = self.size.max(MARK.len());
        loop {
            let is_whole = fill(&mut from, &mut bytes, wanted)?;
            if (is_whole || bytes.len() >= MARK.len()) && std::mem::take(&mut self.may_have_mark) {
                let mark = if bytes.starts_with(MARK) { MARK.len() } else { 0 };
                bytes.drain(..mark);
            }
            if is_whole {
                return Ok((!bytes.is_empty()).then(|| self.piece(bytes, None)));
            }
            let end = self.marks.last_end(&bytes);
            if end > 0 {
                self.carried = bytes.split_off(end);
                self.from = Some(from);
                self.size = (self.size * 2).min(PIECE_BYTES.max(self.size));
                return Ok(Some(self.piece(bytes, None)));
            }
            if bytes.len() >= PIECE_BYTES_MAX {
                return Ok(Some(self.piece(bytes, Some(from))));
            }
            wanted = (bytes.len() * 2).max(self.size);
        }
    }

    fn piece(&mut self, bytes: Vec<u8>, rest: Option<R>) -> Piece<R> {
        let line = self.line;
        self.line += cast::u64_from(memchr_iter(b'\n', &bytes).count());
        let is_first = self.is_first;
        // Empty lines before the header are skipped.
        self.is_first &= bytes.iter().all(|byte| matches!(byte, b'\n' | b'\r'));
        Piece { bytes, rest, line, is_first }
    }
}

/// Returns whether a line break outside of quotes always ends a record in this dialect.
pub(super) fn can_cut(dialect: &Dialect) -> bool {
    let is_break = |byte: u8| byte == b'\n' || byte == b'\r';
    let marks = [Some(dialect.delimiter), dialect.quote, dialect.escape];
    dialect.comment.is_none()
        && !marks.into_iter().flatten().any(is_break)
        && dialect.quote != Some(dialect.delimiter)
}

/// Reads until `bytes` has `wanted` bytes; returns whether the reader ended before that.
fn fill(from: &mut impl Read, bytes: &mut Vec<u8>, wanted: usize) -> Result<bool> {
    let mut filled = bytes.len();
    bytes.resize(wanted.max(filled), 0);
    while filled < bytes.len() {
        match from.read(&mut bytes[filled..]) {
            Ok(0) => {
                bytes.truncate(filled);
                return Ok(true);
            }
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

impl Marks {
    /// Returns the end of the last record in `bytes` that ends with a line break; 0 if there is none. A record must
    /// begin at the start of `bytes`.
    fn last_end(self, bytes: &[u8]) -> usize {
        let Some(quote) = self.quote else { return memrchr(b'\n', bytes).map_or(0, |at| at + 1) };
        let (mut last, mut at) = (0, 0);
        loop {
            let open = self.next_open(quote, bytes, at);
            let outside = &bytes[at..open.unwrap_or(bytes.len())];
            if let Some(end) = memrchr(b'\n', outside) {
                last = at + end + 1;
            }
            let Some(open) = open else { return last };
            match self.close(quote, bytes, open + 1) {
                Some(close) => at = close + 1,
                None => return last,
            }
        }
    }

    /// Returns the offset of the next quote that opens a field; `None` if there is none.
    fn next_open(self, quote: u8, bytes: &[u8], from: usize) -> Option<usize> {
        let mut at = from;
        loop {
            let found = at + memchr(quote, &bytes[at..])?;
            let is_open = match found.checked_sub(1) {
                Some(before) => {
                    let before = bytes[before];
                    before == self.delimiter || before == b'\n' || before == b'\r'
                }
                None => true,
            };
            if is_open {
                return Some(found);
            }
            at = found + 1;
        }
    }

    /// Returns the offset of the quote that closes a field whose text begins at `from`; `None` if there is none.
    fn close(self, quote: u8, bytes: &[u8], from: usize) -> Option<usize> {
        let mut at = from;
        loop {
            let rest = bytes.get(at..)?;
            let found = match self.escape {
                Some(escape) => at + memchr2(quote, escape, rest)?,
                None => at + memchr(quote, rest)?,
            };
            let is_pair = match self.escape {
                Some(_) => bytes[found] != quote,
                None => bytes.get(found + 1) == Some(&quote),
            };
            if !is_pair {
                return Some(found);
            }
            at = found + 2;
        }
    }
}
