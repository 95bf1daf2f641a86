//! The data directory of a node: the log that makes changes durable, segments with the data of tables, and sealed
//! files.
//!
//! All other modules use the file system through the traits [`Directory`] and [`File`], so that the same code runs on a
//! real file system ([`LocalDirectory`]) and on one in memory that simulates loss of power ([`SimulatedDirectory`]). In
//! a directory with keys ([`unlock`]) every file is encrypted and authenticated: code that writes and reads files gets
//! the keys from the directory ([`Directory::keys`]), as well as the compression of segments
//! ([`Directory::codec_selector`]).

#![forbid(unsafe_code)]

mod blocks;
mod change_log;
mod compression;
mod encrypted;
mod files;
mod heads;
mod keys;
mod local;
mod log;
mod node_key;
mod over;
mod part_id;
mod parts;
mod prefixed;
mod recorded;
mod sealed;
mod segment;
mod simulated;
mod table_keys;

pub use change_log::{ChangeLog, LogOver};
pub use compression::{CodecSelector, CompressionPolicy, compressing};
pub use encrypted::{KEYS as KEYS_NAME, rotate_master_key, unlock};
pub use farpool_cipher::{KeySource, MasterKey, Tier, Wiping, WrappedKey, WrappedKeyId};
pub use farpool_codec::Codec;
pub use files::{Directory, File};
pub use keys::Keys;
pub use local::LocalDirectory;
pub use log::{Log, Observer, RecoveredLog, ReservePolicy, TornEnd};
pub use node_key::node_key;
pub use part_id::{PartId, segment_name, segment_number};
pub use parts::Part;
pub use prefixed::prefixed;
pub use recorded::Records;
pub use sealed::{read_sealed, read_sealed_formats, sealed, write_sealed};
pub use segment::{NewPart, Segment, SegmentWriter};
pub use simulated::{Faults, SimulatedDirectory};
pub use table_keys::{TableKey, TenantKey};
