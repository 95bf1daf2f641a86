//! Profiles (statistics of tables) that recovery leaves on disk, in segments. They are read on demand or in the
//! background, because reading the profiles of thousands of tables takes longer than the rest of a start.
//!
//! If all profiles together are small, recovery reads them itself, so that even the first statement is planned
//! with them.

use super::locations::{Location, SegmentFile};
use super::proto;
use crate::Catalog;
use crate::tap::{KnownProfile, Tap};
use bytes::Bytes;
use farpool_disk::TableKey;
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{Error, Result};
use prost::Message;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};

/// Maximum number of bytes of all profiles together that recovery reads itself. Reading that many takes about 10
/// milliseconds.
const READ_AT_START_BYTES: u64 = 1 << 20;

/// Number of profiles that one background job reads, which takes about 5 milliseconds. Other reads get a turn after
/// each job.
const READ_AT_ONCE: usize = 16;

/// A profile of a table that is in a segment.
#[derive(Debug)]
pub(crate) struct StoredProfile {
    location: OnceLock<farpool_columns::Location>,
}

impl StoredProfile {
    /// Creates a reference to the profile with id `number` in a segment, of a table with the encryption key `key`.
    pub(super) fn found(number: u64, file: &Arc<SegmentFile>, key: Option<&Arc<TableKey>>) -> StoredProfile {
        let location = OnceLock::new();
        Location::found(&location, number, Some((file.clone(), key.cloned())), 0);
        StoredProfile { location }
    }

    /// Returns the location of the profile.
    pub fn location(&self) -> &OnceLock<farpool_columns::Location> {
        &self.location
    }

    /// Reads the states of the profile. Blocks on the disk.
    ///
    /// # Errors
    /// `Corrupt` if they are corrupted; errors of the disk.
    pub fn states(&self) -> Result<Vec<Bytes>> {
        let location = Location::existing_at(&self.location).ok_or_else(nowhere)?;
        let file = location.file().ok_or_else(nowhere)?;
        let part = file.part(location.number)?;
        let mut data = vec![0; usize_saturating(part.bytes)];
        file.segment.read(part, location.key(), &mut data)?;
        let mut data = Bytes::from(data);
        let damaged = || Error::corrupt("a profile that cannot be decoded");
        let head = proto::Profile::decode(&file.segment.head(part, location.key())?[..]);
        let state = |length: u64| {
            let is_there = length <= u64_from(data.len());
            is_there.then(|| data.split_to(usize_saturating(length))).ok_or_else(damaged)
        };
        head.map_err(|_| damaged())?.lengths.into_iter().map(state).collect()
    }

    /// Returns the id of the profile's segment, the id of the profile, and its length in bytes; `None` if it is in no
    /// segment.
    fn place(&self) -> Option<(u64, u64, u64)> {
        let location = Location::existing_at(&self.location)?;
        let file = location.file()?;
        Some((file.number, location.number, file.part(location.number).ok()?.bytes))
    }
}

fn nowhere() -> Error {
    Error::internal("a profile that is nowhere")
}

/// Background job with the profiles that are still to be read.
struct ReadingAhead {
    catalog: Weak<Catalog>,
    taps: VecDeque<Weak<Tap>>,
}

impl Catalog {
    /// Reads the profiles of all tables, ordered by their position on disk; in the background if they are large
    /// together.
    pub(super) fn read_profiles(self: &Arc<Self>) {
        let state = self.state.read();
        let tables = state.visible.tables.values().flat_map(|tables| tables.values());
        let stored = tables.filter_map(|current| match current.tap.as_ref()?.known()? {
            KnownProfile::Stored(stored) => {
                Some((stored.place()?, current.tap.as_ref().map(Arc::downgrade)?))
            }
            KnownProfile::Gathered(_) => None,
        });
        let mut stored: Vec<_> = stored.collect();
        drop(state);
        stored.sort_unstable_by_key(|(place, _)| *place);
        let bytes: u64 = stored.iter().map(|((.., bytes), _)| bytes).sum();
        let taps = stored.into_iter().map(|(_, tap)| tap);
        if bytes <= READ_AT_START_BYTES {
            return taps.filter_map(|tap| tap.upgrade()).for_each(|tap| tap.read());
        }
        ReadingAhead { catalog: Arc::downgrade(self), taps: taps.collect() }.go_on();
    }
}

impl ReadingAhead {
    /// Queues the next profiles.
    fn go_on(mut self) {
        let Some(catalog) = self.catalog.upgrade() else { return };
        if self.taps.is_empty() || catalog.durable.get().is_some_and(|durable| durable.is_closed()) {
            return;
        }
        catalog.background.read(Box::new(move || {
            let some = self.taps.drain(..READ_AT_ONCE.min(self.taps.len()));
            some.filter_map(|tap| tap.upgrade()).for_each(|tap| tap.read());
            self.go_on();
        }));
    }
}
