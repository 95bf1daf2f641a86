//! The writer of replies of the Redis protocol. Lengths precede elements, so the number of elements must be known in
//! advance.

use super::number::{INTEGER_TEXT_BYTES, double_text, integer_text, write_before};

/// A version of the protocol; a connection begins with the older one, and `HELLO` changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Strings, integers, arrays, errors and two kinds of null.
    #[default]
    Resp2,
    /// Adds maps, sets, doubles, booleans, big numbers, verbatim texts, and a single null.
    Resp3,
}

impl Protocol {
    /// Returns the version with this number in `HELLO`; `None` if there is none.
    pub fn of_number(number: i64) -> Option<Self> {
        match number {
            2 => Some(Self::Resp2),
            3 => Some(Self::Resp3),
            _ => None,
        }
    }

    /// Returns the number in `HELLO`.
    pub fn number(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// A writer that appends replies to a buffer. Types that RESP2 lacks are replaced as Redis does.
#[derive(Debug)]
pub struct Replies<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
    bytes_max: usize,
}

impl<'a> Replies<'a> {
    /// Creates a writer that appends to `out`.
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        Self { out, protocol, bytes_max: usize::MAX }
    }

    /// Sets the maximum bytes of the buffer. Writing does not enforce it: callers must check [`Replies::has_room`]
    /// before large replies.
    #[must_use]
    pub fn within(self, bytes_max: usize) -> Self {
        Self { bytes_max, ..self }
    }

    /// Returns a writer to the same buffer for at most `bytes` more bytes.
    pub(crate) fn narrowed(&mut self, bytes: usize) -> Replies<'_> {
        let bytes_max = self.bytes_max.min(self.out.len().saturating_add(bytes));
        Replies { out: self.out, bytes_max, ..*self }
    }

    /// Returns whether `bytes` more bytes stay within the maximum.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.out.len().saturating_add(bytes) <= self.bytes_max
    }

    /// Returns a writer to the same buffer, for the time in which it borrows this one (a reborrow).
    pub fn reborrow(&mut self) -> Replies<'_> {
        Replies { out: self.out, ..*self }
    }

    /// Returns the version of the Redis protocol (RESP2 or RESP3) in which replies are encoded.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Changes the version for the following replies.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// Returns the number of bytes in the buffer.
    pub fn bytes(&self) -> usize {
        self.out.len()
    }

    /// Truncates the buffer to `bytes` bytes, to replace a partly written reply by an error.
    pub fn truncate(&mut self, bytes: usize) {
        self.out.truncate(bytes);
    }

    /// Appends the simple string `OK`.
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// Appends a simple string. Newlines become spaces.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// Appends an error: its code, such as `ERR`, a space and a message, which may quote a client. Newlines at both
    /// ends are dropped, others become spaces.
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        self.line(b'-', text.as_ref());
    }

    /// Appends an integer.
    pub fn integer(&mut self, number: i64) {
        self.header(b':', number);
    }

    /// Appends a bulk string of any bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.out.reserve(bytes.len() + INTEGER_TEXT_BYTES + 5);
        self.bulk_begin(bytes.len());
        self.out.extend_from_slice(bytes);
        self.bulk_end();
    }

    /// Appends a bulk string with the text of an integer.
    pub fn bulk_integer(&mut self, number: i64) {
        self.bulk(integer_text(number, &mut [0; INTEGER_TEXT_BYTES]));
    }

    /// Appends the header of a bulk string; the caller appends its bytes and then [`Self::bulk_end`].
    pub fn bulk_begin(&mut self, bytes: usize) {
        self.length(b'$', bytes);
    }

    /// Appends the end of a bulk string.
    pub fn bulk_end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// Appends a null in place of a bulk string.
    pub fn null(&mut self) {
        self.either(b"$-1\r\n", b"_\r\n");
    }

    /// Appends a null in place of an array, as for an aborted `EXEC`.
    pub fn null_array(&mut self) {
        self.either(b"*-1\r\n", b"_\r\n");
    }

    /// Begins an array of `elements` replies.
    pub fn array(&mut self, elements: usize) {
        self.length(b'*', elements);
    }

    /// Begins a map of `pairs` pairs of replies, each a key and its value.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.length(b'*', 2 * pairs),
            Protocol::Resp3 => self.length(b'%', pairs),
        }
    }

    /// Begins a set of `elements` replies.
    pub fn set(&mut self, elements: usize) {
        match self.protocol {
            Protocol::Resp2 => self.length(b'*', elements),
            Protocol::Resp3 => self.length(b'~', elements),
        }
    }

    /// Appends a double; in RESP2 a bulk string with its text.
    pub fn double(&mut self, number: f64) {
        self.text(b',', &double_text(number));
    }

    /// Appends a boolean; in RESP2 the integer 1 or 0.
    pub fn boolean(&mut self, is_true: bool) {
        match is_true {
            true => self.either(b":1\r\n", b"#t\r\n"),
            false => self.either(b":0\r\n", b"#f\r\n"),
        }
    }

    /// Appends an integer of arbitrary size in decimal digits; in RESP2 a bulk string.
    pub fn big_number(&mut self, digits: &str) {
        self.text(b'(', digits);
    }

    /// Appends a text for humans with a format of three letters, `txt` or `mkd`; in RESP2 a bulk string.
    pub fn verbatim(&mut self, format: [u8; 3], text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.length(b'=', text.len() + 4);
                self.out.extend_from_slice(&format);
                self.out.push(b':');
                self.out.extend_from_slice(text);
                self.bulk_end();
            }
        }
    }

    fn either(&mut self, resp2: &[u8], resp3: &[u8]) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => resp2,
            Protocol::Resp3 => resp3,
        });
    }

    /// Appends a text that has a type of its own in RESP3 and is a bulk string in RESP2.
    fn text(&mut self, kind: u8, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => self.line(kind, text.as_bytes()),
        }
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        let is_newline = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let start = text.iter().take_while(|byte| is_newline(byte)).count();
        let end = text.len() - text[start..].iter().rev().take_while(|byte| is_newline(byte)).count();
        self.out.push(kind);
        self.out.extend(text[start..end].iter().map(|byte| if is_newline(byte) { b' ' } else { *byte }));
        self.out.extend_from_slice(b"\r\n");
    }

    fn length(&mut self, kind: u8, length: usize) {
        // The conversion cannot fail, because lengths in memory always fit an `i64`.
        self.header(kind, i64::try_from(length).unwrap_or(i64::MAX));
    }

    /// Appends a line with a number.
    #[inline]
    fn header(&mut self, kind: u8, number: i64) {
        if let 0..10 = number {
            self.out.extend_from_slice(&[kind, b'0' + number as u8, b'\r', b'\n']);
            return;
        }
        let mut line = [b'\r'; INTEGER_TEXT_BYTES + 3];
        line[INTEGER_TEXT_BYTES + 2] = b'\n';
        let start = write_before(number, &mut line[..INTEGER_TEXT_BYTES + 1]) - 1;
        line[start] = kind;
        self.out.extend_from_slice(&line[start..]);
    }
}
