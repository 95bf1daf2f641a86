//! The Redis protocol, versions RESP2 and RESP3: parses requests and writes replies. Does no I/O.
//!
//! Contract: [`Parser`] finds one request after the other in a buffer that the caller owns and fills; an argument is a
//! range of that buffer. Memory is allocated for bytes that have arrived, never for a length that was only announced.
//! Each byte of a header is examined once, however the bytes were split into packets, and bytes of arguments are not
//! examined at all. [`Replies`] appends to a buffer that the caller sends. Protocol errors end the connection; their
//! texts are Redis' own.
//!
//! Source: the Redis serialization protocol specification (<https://redis.io/docs/reference/protocol-spec/>), and the
//! behaviour of Redis 7 where the specification leaves something open.

mod big;
mod extended;
mod inline;
mod number;
mod parse;
mod reply;

pub use extended::ExtendedFloat;
pub use number::{INTEGER_TEXT_BYTES, double_text, integer_text, parse_integer};
pub use parse::{Parser, ParserLimits, ProtocolError, Request, Step};
pub use reply::{Protocol, Replies};

#[cfg(test)]
mod tests;
