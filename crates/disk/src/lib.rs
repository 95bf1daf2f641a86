//! The data directory of a node: the log that makes changes durable, segments with the data of tables, and sealed files.
//!
//! Everything above the traits [`Directory`] and [`File`] runs on a real file system ([`LocalDirectory`]) and on one in
//! memory that loses power ([`SimulatedDirectory`]) alike.

#![forbid(unsafe_code)]

mod files;
mod local;
mod log;
mod sealed;
mod segment;
mod simulated;

pub use files::{Directory, File};
pub use local::LocalDirectory;
pub use log::{Dropped, Log, Observer, Recovered, Urgency};
pub use sealed::{read_sealed, write_sealed};
pub use segment::{Part, Segment, SegmentWriter, segment_name, segment_number};
pub use simulated::{Faults, SimulatedDirectory};
