//! The memory node: the pool, its tables, the threads that run programs, and the socket through which
//! others reach them.
//!
//! Invariant: nothing that a client does or fails to do can hold a worker thread, another client's
//! program, or memory beyond the bounds in `farpool_model::limits`.

#![deny(unsafe_code)]

pub mod clock;
mod node;
mod seats;
pub mod server;
pub mod tokens;
mod totals;

pub use node::{Node, NodeConfig};
pub use tokens::Tokens;
