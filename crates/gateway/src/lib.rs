//! The gateway: servers of protocols that other tools speak, over pools. A session of such a protocol is a session of
//! the SQL engine, which runs in this process and asks the pool as any client does, with the token of the session's
//! user.
//!
//! Each protocol is a room of its own ([`postgres`], [`flight`]); the pools and the engines of the users are shared ([`Gateway`]).
//!
//! Invariant: a session may do what its token may do at the pool, and nothing else: it reads and writes no files of this
//! machine. What a session holds is bounded by `farpool_model::limits`.

#![forbid(unsafe_code)]
// The compiler follows futures of sessions down into the syntax trees of statements.
#![recursion_limit = "256"]

mod engines;
pub mod flight;
pub mod postgres;

pub use engines::{DATABASE, Door, Gateway};
