//! Ids and outcomes of loads: with an id a client can ask for an outcome that did not reach it.

use crate::{Error, Tier, Version};

/// Behaviour of a load if the table exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoadMode {
    /// Fail.
    Create,
    /// Add the rows to the table; the schemas must agree.
    Append,
    /// Replace the table.
    Replace,
    /// Replace the table if it is still at this version once all rows have arrived; otherwise fail as
    /// `Stale`.
    ReplaceVersion(Version),
}

/// Options of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LoadOptions {
    /// Behaviour if the table exists already.
    pub mode: LoadMode,
    /// Tier of the encryption of the table's values in memory. `None` leaves that to the table: one that is replaced or
    /// appended to keeps its tier, and a new one is not encrypted.
    pub encryption: Option<Tier>,
    /// Residency of the rows in memory.
    pub residency: Residency,
}

impl From<LoadMode> for LoadOptions {
    fn from(mode: LoadMode) -> LoadOptions {
        LoadOptions { mode, encryption: None, residency: Residency::Cached }
    }
}

impl LoadOptions {
    /// Returns whether more is asked for than a mode.
    pub fn has_more(&self) -> bool {
        *self != LoadOptions::from(self.mode)
    }
}

/// Identifies one load: 128 bits that its client chooses at random, so that no two loads of a tenant share an
/// id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoadId(pub u128);

/// Residency of the values of a load in memory, if there is a data directory from which they can be read again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Residency {
    /// Values stay until they are evicted to make room.
    #[default]
    Cached,
    /// Values stay as long as the table exists.
    Pinned,
    /// Values are evicted as soon as they are on disk.
    Passing,
}

/// Outcome of a load.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadOutcome {
    /// The load made a version.
    Loaded(LoadedVersion),
    /// The load failed, and left no trace.
    Failed(Error),
    /// Nothing was loaded nor will be: the load did not arrive, or not completely.
    NotLoaded,
}

/// The version that a load has made.
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
