//! The bytes of the Redis protocol, RESP2 and RESP3: requests that clients send, and replies to them. Does no IO.
//!
//! Contract: [`Parser`] finds one request after the other in a buffer that the caller owns and fills; an argument is a
//! range of that buffer. It takes memory for what has arrived, never for what was only announced, looks at each byte
//! of a header once however the bytes were cut into packets, and never at those of an argument. [`Replies`] appends to
//! a buffer that the caller sends. Errors of the protocol end the connection; their texts are Redis' own.
//!
//! Source: the Redis serialization protocol specification (<https://redis.io/docs/reference/protocol-spec/>), and what
//! Redis 7 does where that leaves something open.

mod big;
mod extended;
mod inline;
mod number;
mod parse;
mod reply;

pub use extended::ExtendedFloat;
pub use number::{INTEGER_TEXT_BYTES, double_text, integer_text, parse_integer};
pub use parse::{Limits, Parser, ProtocolError, Request, Step};
pub use reply::{Protocol, Replies};

#[cfg(test)]
mod tests;
