//! Options, ids and outcomes of loads. With the id of a load a client can ask for the outcome if the connection broke
//! before it arrived.

use crate::{Error, Tier, Version};

/// Behaviour of a load if the table exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoadMode {
    /// Fails.
    Create,
    /// Appends the rows to the table; the schemas must match.
    Append,
    /// Replaces the table.
    Replace,
    /// Replaces the table if it still has this version when all rows have arrived; otherwise fails with `Stale`.
    ReplaceVersion(Version),
}

/// Options of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LoadOptions {
    /// Behaviour if the table exists already.
    pub mode: LoadMode,
    /// Encryption tier of the table's values in memory. With `None`, a table that is replaced or appended to keeps its
    /// tier, and a new table is not encrypted.
    pub encryption: Option<Tier>,
    /// Whether the rows stay in memory.
    pub residency: Residency,
}

impl From<LoadMode> for LoadOptions {
    fn from(mode: LoadMode) -> LoadOptions {
        LoadOptions { mode, encryption: None, residency: Residency::Cached }
    }
}

impl LoadOptions {
    /// Returns whether any option except the mode is set.
    pub fn has_more(&self) -> bool {
        *self != LoadOptions::from(self.mode)
    }
}

/// Id of a load: a random number of 128 bits that the client generates, so that no two loads of a tenant have the
/// same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoadId(pub u128);

/// Whether the values of a load stay in memory, if there is a data directory from which they can be read again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Residency {
    /// Values stay until they are evicted to make room.
    #[default]
    Cached,
    /// Values stay as long as the table exists.
    Pinned,
    /// Values are evicted when they are on disk.
    Passing,
}

/// Outcome of a load.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadOutcome {
    /// The load succeeded and created a table version.
    Loaded(LoadedVersion),
    /// The load failed and changed nothing.
    Failed(Error),
    /// The load did not arrive, or not completely. It has changed nothing, and will not change anything later.
    NotLoaded,
}

/// The table version that a load created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedVersion {
    /// The version.
    pub version: Version,
    /// Number of rows of the version.
    pub rows: u64,
    /// Size as plain Arrow arrays, in bytes, as in [`crate::TableInfo`].
    pub bytes_plain: u64,
    /// Size of the encoded chunks, in bytes, as in [`crate::TableInfo`].
    pub bytes_encoded: u64,
}
