//! The parser of requests of the Redis protocol: arrays of bulk strings, and inline commands.
//!
//! Invariant: the result of parsing, and the error that a peer gets, do not depend on how the bytes were split into
//! packets. As in Redis, a header ends with a carriage return and any byte after it, and an argument is followed by any
//! two bytes, because only lengths delimit them.

use super::inline;
use super::number::parse_integer;
use farpool_model::limits::{
    RESP_ARGUMENT_BYTES_MAX, RESP_ARGUMENTS_MAX, RESP_INLINE_BYTES_MAX,
    RESP_UNAUTHENTICATED_ARGUMENT_BYTES_MAX, RESP_UNAUTHENTICATED_ARGUMENTS_MAX,
};
use std::error::Error;
use std::fmt;
use std::ops::Range;

/// Bytes of a header, including its first and last two, that are parsed without searching for its end: enough for
/// lengths below a million.
const SHORT_HEADER_BYTES: usize = 9;

/// Maximum capacity for argument ranges that is kept between requests, because requests with very many arguments are
/// rare.
const RANGES_KEPT: usize = 128;

/// The limits of a request, checked as soon as a length has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParserLimits {
    /// Maximum number of arguments per request, including the command's name.
    pub arguments_max: usize,
    /// Maximum bytes per argument.
    pub argument_bytes_max: usize,
    /// Maximum bytes of an inline command or a header; at least [`ParserLimits::INLINE_BYTES_LEAST`].
    pub inline_bytes_max: usize,
    /// Whether the client is authenticated or need not be; affects only texts of errors.
    pub is_authenticated: bool,
}

impl ParserLimits {
    /// Limits of an authenticated client.
    pub const AUTHENTICATED: Self = Self {
        arguments_max: RESP_ARGUMENTS_MAX,
        argument_bytes_max: RESP_ARGUMENT_BYTES_MAX,
        inline_bytes_max: RESP_INLINE_BYTES_MAX,
        is_authenticated: true,
    };

    /// Limits of a client before authentication: room for `AUTH` and `HELLO`.
    pub const UNAUTHENTICATED: Self = Self {
        arguments_max: RESP_UNAUTHENTICATED_ARGUMENTS_MAX,
        argument_bytes_max: RESP_UNAUTHENTICATED_ARGUMENT_BYTES_MAX,
        inline_bytes_max: RESP_UNAUTHENTICATED_ARGUMENT_BYTES_MAX,
        is_authenticated: false,
    };

    /// Minimum of `inline_bytes_max`. Reason for a minimum: short headers then need no check.
    pub const INLINE_BYTES_LEAST: usize = 16;

    fn line_bytes(&self) -> usize {
        self.inline_bytes_max.max(Self::INLINE_BYTES_LEAST)
    }

    fn check_count(&self, count: i64) -> Result<usize, ProtocolError> {
        // Redis treats a negative count as an empty request.
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

/// A protocol error. The caller sends [`ProtocolError::reply`], if any, and closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// The header of a request does not end.
    CountTooLong,
    /// The header of a request is not a number, or exceeds the protocol's limit.
    InvalidCount,
    /// A request has too many arguments for a client that is not authenticated.
    UnauthenticatedCount,
    /// An argument begins with this byte instead of `$`.
    ExpectedArgument(u8),
    /// The header of an argument does not end.
    LengthTooLong,
    /// The header of an argument is not a length, or exceeds the limit.
    InvalidLength,
    /// An argument is too long for a client that is not authenticated.
    UnauthenticatedLength,
    /// An inline command does not end.
    InlineTooLong,
    /// An inline command has unclosed quotes, or a closing quote within a word.
    UnbalancedQuotes,
    /// The peer speaks HTTP. It may be a browser that a web page makes send commands, so nothing is replied.
    Http,
}

impl ProtocolError {
    /// Returns the error reply for the client; `None` if it gets none.
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

/// The result of one parsing step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// The request is incomplete: at least `bytes` more are needed, those of the current argument. A reader may
    /// allocate them at once, after charging the client for them.
    NeedMore {
        /// Number of bytes, at least one.
        bytes: usize,
    },
    /// The request is complete.
    Request(Request<'a>),
}

/// A complete request, as ranges in the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Number of bytes of the request; the next one begins after them.
    pub bytes: usize,
    /// Ranges of the command's name and its arguments in the buffer. Empty for an empty line or array, to which Redis
    /// replies nothing.
    pub arguments: &'a [Range<usize>],
}

/// The parser of one connection's requests.
#[derive(Debug, Default)]
pub struct Parser {
    /// Complete arguments of the current request.
    pub(super) arguments: Vec<Range<usize>>,
    /// Number of arguments still missing.
    missing: usize,
    /// Announced length of the argument at `at`, if its header has been read.
    open: Option<usize>,
    /// Number of parsed bytes of the request.
    at: usize,
    /// Number of bytes of the request that were searched for the end of the line at `at`.
    searched: usize,
    /// Whether the request was returned, so that the next call begins another one.
    is_complete: bool,
    /// Number of steps taken, for tests of the cost.
    #[cfg(test)]
    pub(super) steps: usize,
}

impl Parser {
    /// Creates a parser for a new connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses the request at the beginning of `buffer`, continuing where the last call stopped.
    ///
    /// After [`Step::NeedMore`], the buffer of the next call must begin with the same bytes; after a request, with the
    /// bytes that follow it. Arguments of inline commands are unescaped in place.
    ///
    /// # Errors
    /// Returns [`ProtocolError`] when the bytes are not a request or exceed `limits`. The connection must be closed:
    /// the parser cannot continue.
    pub fn parse(&mut self, buffer: &mut [u8], limits: &ParserLimits) -> Result<Step<'_>, ProtocolError> {
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

    /// Returns the complete arguments of the current request, or of the last one.
    pub fn arguments(&self) -> &[Range<usize>] {
        &self.arguments
    }

    /// Takes the arguments of the last request without copying them.
    pub fn take_arguments(&mut self) -> Vec<Range<usize>> {
        std::mem::take(&mut self.arguments)
    }

    /// Returns the range in the buffer of the argument that is incomplete; `None` if its length is not known yet.
    pub fn open_argument(&self) -> Option<Range<usize>> {
        self.open.map(|bytes| self.at..self.at + bytes)
    }

    fn restart(&mut self) {
        self.arguments.clear();
        self.arguments.shrink_to(RANGES_KEPT);
        (self.at, self.searched, self.is_complete) = (0, 0, false);
    }

    /// Parses as much of the request as has been received; returns the minimum number of missing bytes, 0 if the
    /// request is complete.
    fn parse_array(&mut self, buffer: &[u8], limits: &ParserLimits) -> Result<usize, ProtocolError> {
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
    fn argument_bytes(
        &mut self,
        buffer: &[u8],
        limits: &ParserLimits,
    ) -> Result<Option<usize>, ProtocolError> {
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

    /// Reads the number in the header at `self.at` and advances past it; `None` if the header is incomplete. The errors
    /// are for a header that is too long, and for one that is not a number.
    fn parse_header(
        &mut self,
        buffer: &[u8],
        limits: &ParserLimits,
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

    /// Parses an inline command; returns the minimum number of missing bytes, 0 if the command is complete.
    fn parse_inline(&mut self, buffer: &mut [u8], limits: &ParserLimits) -> Result<usize, ProtocolError> {
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

    /// Finds the `byte` that ends the line at `self.at`; skips bytes that were searched before.
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

/// Parses a short number after the first byte; returns it and the length of its header, or `None` if the header is
/// incomplete or not a short number.
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
