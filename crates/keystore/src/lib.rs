//! The key store: the keyspaces of all tenants, the clock of keys, and the log that makes changes of keys durable.
//!
//! A change enters the store as a record of the log: a command changes keys in memory and appends a record of its
//! effects while it holds the shards of its keys, and recovery applies the same records to empty keyspaces.

#![forbid(unsafe_code)]

mod keyspaces;
mod log;
mod time;

pub use keyspaces::Keyspaces;
pub use log::{
    Follower, Fsync, KeyBackup, KeyLog, KeyLogOptions, KeysFound, LogThresholds, ProgressRelay, Snapshot,
    Snapshots, SteppedKeys, adopt_keys, check_keys, has_keys,
};
pub use time::KeyTime;
