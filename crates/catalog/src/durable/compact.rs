//! Compaction: a checkpoint copies the live chunks of sparse segments to new segments. A segment is sparse if less than
//! half of it is live.
//!
//! A segment is removed when nothing in it is needed, but a single row group keeps all of it. When the dead bytes of
//! sparse segments are a certain part of all segments, a checkpoint copies their live chunks. The segments of a
//! directory therefore take at most about twice the bytes of the live chunks.
//!
//! Invariant: a compacted segment stays until a manifest that does not name it is durable. Example: segment 3 is copied
//! to segment 8, and a crash occurs before manifest 5 is written. Manifest 4 still names segment 3, which must still
//! exist.

use super::Durable;
use super::chunk_writer::ChunkWriter;
use super::locations::{Location, SegmentFile};
use super::profiles::StoredProfile;
use crate::Catalog;
use farpool_columns::Chunk;
use farpool_model::Result;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Minimum number of dead bytes in sparse segments for which compaction starts. They must also be at least one part
/// in `DEAD_PART` of the bytes of all segments.
const DEAD_BYTES_MIN: u64 = 8 << 20;
const DEAD_PART: u64 = 8;

/// Maximum number of bytes that one checkpoint copies, except that it copies at least one segment.
const MOVED_BYTES: u64 = 256 << 20;

/// Sparse segments that a checkpoint compacts, by id.
#[derive(Debug, Default)]
pub(super) struct SparseSegments(BTreeMap<u64, Arc<SegmentFile>>);

impl SparseSegments {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has(&self, file: &SegmentFile) -> bool {
        self.0.contains_key(&file.number)
    }

    pub fn files(&self) -> impl Iterator<Item = &Arc<SegmentFile>> {
        self.0.values()
    }

    /// Copies those of `chunks` that are in one of the sparse segments to new segments.
    pub fn rewrite<'a>(
        &self,
        chunks: impl Iterator<Item = &'a Arc<Chunk>>,
        writer: &mut ChunkWriter,
    ) -> Result<()> {
        // The segments are marked first. Otherwise, on a full disk, every dropped chunk would queue another attempt.
        self.files().for_each(|file| file.is_compacted());
        // Row groups may share a chunk of NULLs, which is copied once.
        let mut moved = HashSet::new();
        for chunk in chunks {
            let Some(location) = Location::existing(chunk) else { continue };
            if let Some(file) = location.file().filter(|file| self.has(file))
                && moved.insert(location.number)
            {
                writer.write_again(location, !chunk.is_encrypted(), &file)?;
            }
        }
        Ok(())
    }

    /// Copies a profile that is not in memory to a new segment, if it is in one of the sparse segments.
    pub fn rewrite_profile(&self, profile: &StoredProfile, writer: &mut ChunkWriter) -> Result<()> {
        let Some(location) = Location::existing_at(profile.location()) else { return Ok(()) };
        match location.file().filter(|file| self.has(file)) {
            Some(file) => writer.write_again(location, true, &file),
            None => Ok(()),
        }
    }
}

impl Durable {
    /// Returns the segments to compact in one checkpoint: those with the fewest live bytes.
    pub(super) fn sparse_segments(&self) -> SparseSegments {
        let mut sparse: Vec<_> =
            self.segments.lock().values().filter(|file| file.is_sparse()).cloned().collect();
        sparse.sort_by_key(|file| file.bytes_live());
        let mut bytes = 0;
        let fits = |file: &Arc<SegmentFile>| {
            bytes += file.bytes_live();
            bytes <= MOVED_BYTES || bytes == file.bytes_live()
        };
        SparseSegments(sparse.into_iter().take_while(fits).map(|file| (file.number, file)).collect())
    }

    fn is_worth_compacting(&self) -> bool {
        let segments = self.segments.lock();
        let all: u64 = segments.values().map(|file| file.bytes_of_parts()).sum();
        let sparse = segments.values().filter(|file| file.is_sparse());
        let dead: u64 = sparse.map(|file| file.bytes_of_parts().saturating_sub(file.bytes_live())).sum();
        dead >= DEAD_BYTES_MIN.max(all / DEAD_PART)
    }
}

impl Catalog {
    /// Compacts segments if they have enough dead bytes. Blocks on the disk, and therefore runs on a background thread.
    pub(super) fn compact_where_it_pays(self: &Arc<Self>) {
        let Some(durable) = self.durable.get() else { return };
        if !durable.is_closed() && durable.is_worth_compacting() && self.compact().is_ok() {
            // Queues the next compaction, in case there is more than one checkpoint copies.
            durable.collector.want();
        }
    }

    /// Makes a checkpoint that compacts sparse segments.
    ///
    /// # Errors
    /// Errors of [`Catalog::checkpoint`].
    pub(super) fn compact(self: &Arc<Self>) -> Result<()> {
        let Some(durable) = self.durable.get() else { return Ok(()) };
        let sparse = durable.sparse_segments();
        let made = self.checkpoint_and(&sparse, |_| Ok(()));
        drop(sparse);
        durable.remove_unused_segments();
        made
    }
}
