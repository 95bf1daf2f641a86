//! The memory node: the server that owns the memory pool with its tables and keys, the threads that run pushed-down
//! programs, and the sockets of clients.
//!
//! Invariant: whatever a client does or fails to do, it cannot block a worker thread or another client's program, and
//! it cannot hold more memory than the limits in `farpool_model::limits` allow.

pub mod accept;
pub mod access;
mod admission;
mod background;
mod backups;
mod caller;
pub mod certificate;
mod chores;
mod chunks;
pub mod clock;
mod cpu_placement;
mod disk;
pub mod follow;
mod job;
mod key_controls;
pub mod native;
mod node;
mod outcomes;
mod pause;
mod precedence;
mod prepared_programs;
mod profiles;
mod queries;
pub mod resp;
mod shares;
mod spaces;
mod threads;
mod totals;
mod turns;
mod version_choice;

pub use accept::Listener;
pub use access::{Access, TenantLimits};
pub use backups::Backup;
pub use caller::{Caller, Shape};
pub use disk::SteppedDisk;
pub use farpool_catalog::{
    AccessKind, AccessTrace, Commit, PlaceOnDisk, Recorded, Recovery, adopt_backup, check_data, place_on_disk,
};
pub use farpool_disk::{
    Codec, CompressionPolicy, Directory, KeySource, Keys, LocalDirectory, MasterKey, Tier, TornEnd, Wiping,
    compressing, node_key, rotate_master_key, unlock,
};
pub use farpool_keystore::{Fsync, KeysFound, SteppedKeys, adopt_keys, check_keys};
pub use farpool_model::rights::{self, Reach, Right, VERBS, Verb};
pub use farpool_wire::ServerTls;
pub use farpool_wire::sealed::{PrivateKey, PublicKey};
pub use follow::Followed;
pub use node::{Environment, Node, NodeConfig};
pub use spaces::SteppedHost;
pub use version_choice::{HeldVersions, VersionChoice};
