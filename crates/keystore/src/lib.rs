//! The key store: the keyspaces of all tenants, the clock of keys, and the log that makes changes of keys durable.
//!
//! A change enters the store as a record of the log: a command changes keys in memory and appends a record of its
//! effects while it holds the shards of its keys, and recovery applies the same records to empty keyspaces.
//!
//! # The numbers of the log
//! Records are numbered from 0 on in the order in which they were appended, across all tenants. Three numbers describe
//! how far the log has come; each is a count, so record `n` is covered by a number that is greater than `n`:
//!
//! | number | records that it counts | where |
//! | --- | --- | --- |
//! | appended | all that exist; their changes are visible in memory | [`KeyLog::appended`] |
//! | committed | those that no failure can undo; replies that depend on them may be sent | [`KeyLog::committed`] |
//! | durable | those on this node's disk, behind a sync | [`KeyLog::durable`] |
//!
//! Invariant: durable ≤ appended, committed ≤ appended, and none of the three ever decreases while the log is open. At a
//! single node a record is committed as soon as it is durable. Where a group of nodes keeps copies of the log, a record
//! is committed once it is durable at a majority of them, whether or not this node is among these. Code that decides
//! whether a reply may be sent must therefore ask for the committed records, and code that removes files or takes
//! snapshots for the durable ones.
//!
//! Example: records 0 to 9 were appended, and a sync has covered 0 to 6. Appended is 10, durable is 7, and the reply to
//! the command that appended record 7 waits.

#![forbid(unsafe_code)]

mod keyspaces;
mod log;
mod time;

pub use keyspaces::Keyspaces;
pub use log::{
    Applier, Follower, Fsync, KeyBackup, KeyLog, KeyLogOptions, KeysFound, LogThresholds, ProgressRelay,
    Snapshot, Snapshots, SteppedKeys, adopt_keys, check_keys, has_keys,
};
pub use time::KeyTime;
