//! The bytes of PostgreSQL's protocol, version 3: messages of both sides, values of all types as text and in binary, and
//! the codes of errors (PostgreSQL documentation, "Frontend/Backend Protocol"). Nothing here reads a socket or knows a
//! session.
//!
//! Invariant: bytes of a client may be hostile. Decoding them gives a value or an error, in time and memory that are
//! proportional to the bytes that have come.

#![forbid(unsafe_code)]

pub mod copies;
pub mod failure;
pub mod messages;
pub mod output;
pub mod types;
pub mod values;
