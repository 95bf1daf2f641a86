//! The bodies of messages as protocol buffers, and how they are encoded from the model and decoded to it; `docs/wire.md`
//! has the bodies as `.proto` text.
//!
//! Invariant: a field keeps its number and meaning for ever; new fields are optional; a reader skips fields that it
//! does not know. The structs are written by hand with derive macros rather than generated, so that building needs no
//! `protoc`.
//!
//! Repeated messages are declared as bytes and decoded one by one. Otherwise a peer could send many empty messages,
//! which take fifty times as much memory as on the wire.

#![expect(
    missing_docs,
    reason = "the fields are described where they come from, in farpool_model and docs/wire.md"
)]

mod connection;
mod loads;
mod operations;
mod programs;
mod tables;

pub use connection::*;
pub use loads::*;
pub use operations::*;
pub use programs::*;
pub use tables::*;

/// Checks a count before memory is allocated: entries of a few bytes on the wire may take hundreds in memory.
pub(crate) fn check_count(what: &str, count: usize, most: usize) -> farpool_model::Result<()> {
    match count <= most {
        true => Ok(()),
        false => {
            Err(farpool_model::Error::over_limit(format!("there may be {most} {what}, here are {count}")))
        }
    }
}
