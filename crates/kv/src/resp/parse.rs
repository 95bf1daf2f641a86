//! Parses requests: arrays of bulk strings, and inline commands.
//!
//! Invariant: what a request parses to, and which error a peer gets, does not depend on how its bytes were cut into
//! packets. As in Redis, a header ends with a carriage return and any byte behind it, and so does an argument with any
//! two bytes: the lengths alone say where things are.

use super::inline;
use super::number::parse_integer;
use farpool_model::limits::{
    RESP_ARGUMENT_BYTES_MAX, RESP_ARGUMENTS_MAX, RESP_INLINE_BYTES_MAX,
    RESP_UNAUTHENTICATED_ARGUMENT_BYTES_MAX, RESP_UNAUTHENTICATED_ARGUMENTS_MAX,
};
use std::error::Error;
use std::fmt;
use std::ops::Range;

/// Bytes of a header, its first and last two included, that are read without a search for its end: enough for lengths
/// below a million.
const SHORT_HEADER_BYTES: usize = 9;

/// Ranges that are kept allocated from one request to the next; a request of a million arguments is rare.
const RANGES_KEPT: usize = 128;

/// What a client may send; checked as soon as a length has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of arguments of one request, the command's name included.
    pub arguments_max: usize,
    /// Bytes of one argument.
    pub argument_bytes_max: usize,
    /// Bytes of an inline command, and of a header; at least [`Limits::INLINE_BYTES_LEAST`] are allowed.
    pub inline_bytes_max: usize,
    /// Whether the client has authenticated itself, or need not; only changes the texts of errors.
    pub is_authenticated: bool,
}

impl Limits {
    /// Limits of a client that has authenticated itself.
    pub const AUTHENTICATED: Self = Self {
        arguments_max: RESP_ARGUMENTS_MAX,
        argument_bytes_max: RESP_ARGUMENT_BYTES_MAX,
        inline_bytes_max: RESP_INLINE_BYTES_MAX,
        is_authenticated: true,
    };

    /// Limits of a client that has yet to authenticate itself: room for `AUTH` and `HELLO`.
    pub const UNAUTHENTICATED: Self = Self {
        arguments_max: RESP_UNAUTHENTICATED_ARGUMENTS_MAX,
        argument_bytes_max: RESP_UNAUTHENTICATED_ARGUMENT_BYTES_MAX,
        inline_bytes_max: RESP_UNAUTHENTICATED_ARGUMENT_BYTES_MAX,
        is_authenticated: false,
    };

    /// The least that `inline_bytes_max` means, so that headers of common lengths need no check.
    pub const INLINE_BYTES_LEAST: usize = 16;

    fn line_bytes(&self) -> usize {
        self.inline_bytes_max.max(Self::INLINE_BYTES_LEAST)
    }

    fn check_count(&self, count: i64) -> Result<usize, ProtocolError> {
        // Redis takes negative counts for empty requests.
        let count = usize::try_from(count).unwrap_or(0);
        match count {
            _ if count <= self.arguments_max => Ok(count),
            _ if self.is_authenticated || count > RESP_ARGUMENTS_MAX => Err(ProtocolError::InvalidCount),
            _ => Err(ProtocolError::UnauthenticatedCount),
        }
    }

    fn check_length(&self, length: i64) -> Result<usize, ProtocolError> {
        let length = usize::try_from(length).map_err(|_| ProtocolError::InvalidLength)?;
        match length {
            _ if length <= self.argument_bytes_max => Ok(length),
            _ if self.is_authenticated || length > RESP_ARGUMENT_BYTES_MAX => {
                Err(ProtocolError::InvalidLength)
            }
            _ => Err(ProtocolError::UnauthenticatedLength),
        }
    }
}

/// Why a connection cannot go on: the caller sends [`ProtocolError::reply`], if any, and closes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// The header of a request does not end.
    CountTooLong,
    /// The header of a request is no number, or beyond the protocol's limit.
    InvalidCount,
    /// A request has too many arguments for a client that is not authenticated.
    UnauthenticatedCount,
    /// An argument begins with this byte instead of `$`.
    ExpectedArgument(u8),
    /// The header of an argument does not end.
    LengthTooLong,
    /// The header of an argument is no length, or beyond the limit.
    InvalidLength,
    /// An argument is too long for a client that is not authenticated.
    UnauthenticatedLength,
    /// An inline command does not end.
    InlineTooLong,
    /// An inline command has quotes that are not closed, or closed within a word.
    UnbalancedQuotes,
    /// The peer speaks HTTP: perhaps a browser that a web page made to send commands, so that nothing is answered.
    Http,
}

impl ProtocolError {
    /// Returns the message of the error reply for the client; `None` if it gets none.
    pub fn reply(&self) -> Option<String> {
        (*self != Self::Http).then(|| format!("ERR {self}"))
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            Self::CountTooLong => f.write_str("too big mbulk count string"),
            Self::InvalidCount => f.write_str("invalid multibulk length"),
            Self::UnauthenticatedCount => f.write_str("unauthenticated multibulk length"),
            Self::ExpectedArgument(byte) => write!(f, "expected '$', got '{}'", char::from(*byte)),
            Self::LengthTooLong => f.write_str("too big bulk count string"),
            Self::InvalidLength => f.write_str("invalid bulk length"),
            Self::UnauthenticatedLength => f.write_str("unauthenticated bulk length"),
            Self::InlineTooLong => f.write_str("too big inline request"),
            Self::UnbalancedQuotes => f.write_str("unbalanced quotes in request"),
            Self::Http => f.write_str("the peer speaks HTTP"),
        }
    }
}

impl Error for ProtocolError {}

/// What the bytes in a buffer come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// The request is incomplete: at least `bytes` more are needed, those of the argument that was begun. A reader may
    /// make room for as many at once, after it has charged the client for them.
    NeedMore {
        /// Number of bytes, at least one.
        bytes: usize,
    },
    /// A request.
    Request(Request<'a>),
}

/// A complete request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Number of bytes at the beginning of the buffer that the request takes; the next one begins behind them.
    pub bytes: usize,
    /// Ranges of the buffer with the command's name and its arguments. Empty for an empty line or array, to which
    /// Redis replies nothing.
    pub arguments: &'a [Range<usize>],
}

/// Parses the requests of one connection, one after the other.
#[derive(Debug, Default)]
pub struct Parser {
    /// The arguments of the request that are complete.
    pub(super) arguments: Vec<Range<usize>>,
    /// Number of arguments that are still to come.
    missing: usize,
    /// Announced bytes of the argument at `at`, if its header has been read.
    open: Option<usize>,
    /// Number of bytes of the request that have been parsed.
    at: usize,
    /// Number of bytes of the request within which no end of the line at `at` has been found.
    searched: usize,
    /// Whether the request has been returned, so that another begins.
    is_complete: bool,
    /// Number of steps taken, for tests of the cost.
    #[cfg(test)]
    pub(super) steps: usize,
}

impl Parser {
    /// Makes a parser for a new connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses the request at the beginning of `buffer`, going on where the last call stopped.
    ///
    /// After [`Step::NeedMore`], the buffer of the next call begins with the same bytes; after a request, behind it.
    /// Arguments of inline commands are freed of quotes and escapes in place.
    ///
    /// # Errors
    /// Returns [`ProtocolError`] when the bytes are no request or exceed `limits`. The connection must be closed: the
    /// parser cannot go on.
    pub fn parse(&mut self, buffer: &mut [u8], limits: &Limits) -> Result<Step<'_>, ProtocolError> {
        if self.is_complete {
            self.restart();
        }
        let missing = match buffer.first() {
            Some(b'*') => self.parse_array(buffer, limits)?,
            Some(_) => self.parse_inline(buffer, limits)?,
            None => 1,
        };
        if missing > 0 {
            return Ok(Step::NeedMore { bytes: missing });
        }
        self.is_complete = true;
        Ok(Step::Request(Request { bytes: self.at, arguments: &self.arguments }))
    }

    /// Returns the complete arguments of the request that is being parsed, or of the last one.
    pub fn arguments(&self) -> &[Range<usize>] {
        &self.arguments
    }

    /// Takes the arguments of the request that was returned last, without copying them.
    pub fn take_arguments(&mut self) -> Vec<Range<usize>> {
        std::mem::take(&mut self.arguments)
    }

    /// Returns the range that an incomplete argument takes as soon as all its bytes are there, if its length is known.
    pub fn open_argument(&self) -> Option<Range<usize>> {
        self.open.map(|bytes| self.at..self.at + bytes)
    }

    fn restart(&mut self) {
        self.arguments.clear();
        self.arguments.shrink_to(RANGES_KEPT);
        (self.at, self.searched, self.is_complete) = (0, 0, false);
    }

    /// Parses as far as the bytes reach. Returns how many are missing at least; 0 if the request is complete.
    fn parse_array(&mut self, buffer: &[u8], limits: &Limits) -> Result<usize, ProtocolError> {
        if self.at == 0 {
            let errors = (ProtocolError::CountTooLong, ProtocolError::InvalidCount);
            let Some(count) = self.parse_header(buffer, limits, errors)? else { return Ok(1) };
            self.missing = limits.check_count(count)?;
        }
        while self.missing > 0 {
            self.count_steps(1);
            let Some(bytes) = self.argument_bytes(buffer, limits)? else { return Ok(1) };
            let end = self.at + bytes;
            if buffer.len() < end + 2 {
                self.open = Some(bytes);
                return Ok(end + 2 - buffer.len());
            }
            self.arguments.push(self.at..end);
            (self.at, self.open) = (end + 2, None);
            self.missing -= 1;
        }
        Ok(0)
    }

    /// Returns the announced length of the next argument; `None` if its header is incomplete.
    fn argument_bytes(&mut self, buffer: &[u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        if self.open.is_some() {
            return Ok(self.open);
        }
        match buffer.get(self.at) {
            Some(b'$') => {}
            Some(&other) => return Err(ProtocolError::ExpectedArgument(other)),
            None => return Ok(None),
        }
        let errors = (ProtocolError::LengthTooLong, ProtocolError::InvalidLength);
        let length = self.parse_header(buffer, limits, errors)?;
        length.map(|length| limits.check_length(length)).transpose()
    }

    /// Reads the number in the header at `self.at` and moves behind it; `None` if the header is incomplete. The errors
    /// are for one that is too long, and for one that is no number.
    fn parse_header(
        &mut self,
        buffer: &[u8],
        limits: &Limits,
        (too_long, invalid): (ProtocolError, ProtocolError),
    ) -> Result<Option<i64>, ProtocolError> {
        self.count_steps(SHORT_HEADER_BYTES);
        if let Some((number, bytes)) = short_header(&buffer[self.at..]) {
            self.at += bytes;
            return Ok(Some(number));
        }
        let Some(end) = self.find(b'\r', buffer, limits.line_bytes(), too_long)? else { return Ok(None) };
        if buffer.len() < end + 2 {
            return Ok(None);
        }
        let number = parse_integer(&buffer[self.at + 1..end]).ok_or(invalid)?;
        self.at = end + 2;
        Ok(Some(number))
    }

    /// Parses an inline command. Returns how many bytes are missing at least.
    fn parse_inline(&mut self, buffer: &mut [u8], limits: &Limits) -> Result<usize, ProtocolError> {
        let too_long = ProtocolError::InlineTooLong;
        let Some(newline) = self.find(b'\n', buffer, limits.line_bytes(), too_long)? else { return Ok(1) };
        let line = &mut buffer[..newline];
        let bytes = line.strip_suffix(b"\r").unwrap_or(line).len();
        inline::split(&mut line[..bytes], &mut self.arguments).ok_or(ProtocolError::UnbalancedQuotes)?;
        limits.check_count(i64::try_from(self.arguments.len()).unwrap_or(i64::MAX))?;
        let name = self.arguments.first().map_or(&[][..], |name| &line[name.clone()]);
        if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
            return Err(ProtocolError::Http);
        }
        self.at = newline + 1;
        Ok(0)
    }

    /// Finds the `byte` that ends the line at `self.at`, where no search has been yet.
    fn find(
        &mut self,
        byte: u8,
        buffer: &[u8],
        line_bytes: usize,
        too_long: ProtocolError,
    ) -> Result<Option<usize>, ProtocolError> {
        let from = self.searched.max(self.at);
        let to = buffer.len().min(self.at + line_bytes + 1).max(from);
        let found = buffer[from..to].iter().position(|&b| b == byte).map(|place| from + place);
        self.searched = found.unwrap_or(to);
        self.count_steps(self.searched - from + 1);
        match found {
            None if to - self.at > line_bytes => Err(too_long),
            _ => Ok(found),
        }
    }

    #[cfg(test)]
    fn count_steps(&mut self, steps: usize) {
        self.steps += steps;
    }

    #[cfg(not(test))]
    #[inline(always)]
    fn count_steps(&mut self, _: usize) {}
}

/// Reads a short number behind the first byte. Returns it and the bytes of its header; `None` if that is not complete,
/// or must be looked at more closely.
#[inline]
fn short_header(header: &[u8]) -> Option<(i64, usize)> {
    let mut number = 0;
    for place in 1..SHORT_HEADER_BYTES - 1 {
        match *header.get(place)? {
            digit @ b'0'..=b'9' => number = number * 10 + i64::from(digit - b'0'),
            b'\r' => {
                let is_number = place == 2 || (place > 2 && header[1] != b'0');
                return (is_number && header.len() > place + 1).then_some((number, place + 2));
            }
            _ => return None,
        }
    }
    None
}
