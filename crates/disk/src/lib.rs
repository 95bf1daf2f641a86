//! The data directory of a node: its files, and the log that makes changes durable.
//!
//! Everything above the traits [`Directory`] and [`File`] runs on a real file system ([`LocalDirectory`]) and on one in
//! memory that loses power ([`SimulatedDirectory`]) alike.

#![forbid(unsafe_code)]

mod files;
mod local;
mod log;
mod simulated;

pub use files::{Directory, File};
pub use local::LocalDirectory;
pub use log::{Dropped, Log, Recovered, Urgency};
pub use simulated::{Faults, SimulatedDirectory};
