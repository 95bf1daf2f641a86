//! Messages of Arrow Flight's clients: rows of any flat type as Arrow IPC messages, whose metadata and body come apart,
//! and the tickets that this project has given them.
//!
//! Invariants are those of [`crate::decode_batch`]: every count and offset is checked before Arrow's own decoder reads
//! it. A column encoded by a dictionary is returned as its values, which share the dictionary's memory, so that rows
//! cost no more than their keys. Nested columns and compressed buffers are refused.

mod reader;
mod schema;
#[cfg(test)]
mod tests;
mod ticket;

pub use reader::FlightReader;
pub use ticket::{Ticket, TicketTarget};
