//! Key-value spaces: keys and values that clients read and write one by one, in the pool's memory.
//!
//! Commands go in and replies come out: what is here opens no sockets, starts no threads and reads no clock. Time and
//! randomness come with a command, so that the same commands give the same spaces wherever they are carried out.

#![forbid(unsafe_code)]

mod commands;
mod entry;
mod fields;
pub mod index;
mod keyspace;
pub mod resp;
mod session;
mod shard;
pub mod slab;
mod table;

pub use commands::{Args, COMMANDS, Command, Keys, Refusal, command, matches};
pub use keyspace::{KeyCount, Keyspace};
pub use session::{Host, Moment, Session, wrong_number};
pub use shard::SpaceId;

use session::space_number;
