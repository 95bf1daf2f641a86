//! The key store: the keyspaces of all tenants, the clock of keys, and the log that makes changes of keys durable.
//!
//! A command changes keys in memory and, while it holds the locks of their shards, appends a record of its effects to
//! the log. Recovery applies the same records, in the same order, to empty keyspaces.
//!
//! # Progress of the log
//! Records have sequence numbers from 0 on, in the order in which they were appended, across all tenants. Three counts
//! of records describe the progress of the log. Record `n` is included in a count that is greater than `n`:
//!
//! | count | records that it counts | where |
//! | --- | --- | --- |
//! | appended | all that exist; their changes are visible in memory | [`KeyLog::appended`] |
//! | committed | those that no failure can undo; replies that depend on them may be sent | [`KeyLog::committed`] |
//! | durable | those on this node's disk, behind a sync | [`KeyLog::durable`] |
//!
//! Invariant: durable ≤ appended, committed ≤ appended, and no count decreases while the log is open. At a single node,
//! a record is committed as soon as it is durable. Where a group of nodes keeps copies of the log, a record is
//! committed when it is durable at a majority of the nodes, which need not include this one. So code that decides
//! whether a reply may be sent must use the count of committed records; code that removes files or takes snapshots must
//! use the count of durable records.
//!
//! Example: records 0 to 9 were appended, and records 0 to 6 were synced to disk. The count of appended records is 10,
//! that of durable records 7, and the reply to the command that appended record 7 must wait.

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
