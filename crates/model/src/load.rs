//! Loads that are known by an id, so that their outcome can be asked for where it did not come.

use crate::{Error, Version};

/// Names one load: 128 bits that its client has chosen at random, so that no two loads of a tenant have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoadId(pub u128);

/// What became of a load.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadOutcome {
    /// It made a version.
    Loaded(LoadedVersion),
    /// It failed, and left no trace.
    Failed(Error),
    /// Nothing of it was loaded, nor will be: it did not come, or not whole.
    NotLoaded,
}

/// The version that a load has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedVersion {
    /// Which.
    pub version: Version,
    /// Its rows.
    pub rows: u64,
    /// As in [`crate::TableInfo`].
    pub bytes_plain: u64,
    /// As in [`crate::TableInfo`].
    pub bytes_encoded: u64,
}
