//! Ids and outcomes of loads: with an id a client can ask for an outcome that did not reach it.

use crate::{Error, Version};

/// Identifies one load: 128 bits that its client chooses at random, so that no two loads of a tenant share an
/// id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoadId(pub u128);

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
