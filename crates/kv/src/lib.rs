//! The key-value store: keys and values in the memory of the pool, read and written by commands of the Redis protocol
//! and by SQL. Each tenant has a [`Keyspace`] with several *spaces* (namespaces of keys).
//!
//! A [`Session`] takes commands and appends replies to a buffer. This crate opens no sockets, starts no threads and
//! reads no clock: time and randomness are arguments of a command, so that the same commands give the same keys in
//! every run.

#![forbid(unsafe_code)]

mod ahead;
#[cfg(test)]
mod churn_tests;
mod commands;
mod cut;
mod digest;
mod effects;
mod entry;
pub mod evict;
mod fields;
mod holds;
pub mod index;
mod journal;
mod keyspace;
mod limits;
mod meter;
mod packing;
pub mod predicate;
mod rebuild;
pub mod resp;
mod row_filter;
mod rows;
mod session;
mod shard;
pub mod slab;
mod spaces;
mod table;
mod walk;

pub use ahead::{LookAhead, PrefetchList};
pub use commands::{
    Args, COMMANDS, ChangeAgain, Command, HostCommand, KeyChange, KeyState, KeyUse, Keys, Pattern, Refusal,
    command,
};
pub use cut::{Fingerprint, KeyCut, KeyCutPart, ReadCount, ReadEntry};
pub use digest::KeyDigest;
pub use journal::{Journal, Replay, WhenFull};
pub use keyspace::{KeyCount, Keyspace};
pub use limits::{Limits, UsageCounters};
pub use packing::{Compression, Packer};
pub use rebuild::Rebuild;
pub use row_filter::RowFilter;
pub use rows::{Column, ColumnType, RowSchema};
pub use session::{
    DeferReason, ExecutedCommand, ExecutionMode, Host, NoHost, Outcome, Session, TimeAndRandom, wrong_number,
};
pub use shard::SpaceId;
pub use spaces::{Space, Spaces};
pub use walk::Walk;
