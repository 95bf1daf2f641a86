//! Compaction: segments of which less than half is needed any more are written anew.
//!
//! A segment is removed when nothing needs it, and one row group keeps a whole one. Once what is not needed in such segments
//! is a part of all, a checkpoint moves what is. So the segments of a directory are at most about twice as large as what
//! tables have in them.
//!
//! Invariant: a segment that was written anew stays until a manifest is durable that does not name it.

use super::Durable;
use super::chunk_writer::ChunkWriter;
use super::locations::{Location, SegmentFile};
use super::profiles::StoredProfile;
use crate::Catalog;
use farpool_columns::Chunk;
use farpool_model::Result;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// From how many bytes on that are not needed in such segments compaction begins, and what part of all segments these are.
const DEAD_BYTES_MIN: u64 = 8 << 20;
const DEAD_PART: u64 = 8;

/// Bytes that one checkpoint moves, if one segment has no more.
const MOVED_BYTES: u64 = 256 << 20;

/// Segments that are written anew by a checkpoint, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Sparse(BTreeMap<u64, Arc<SegmentFile>>);

impl Sparse {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has(&self, file: &SegmentFile) -> bool {
        self.0.contains_key(&file.number)
    }

    pub fn files(&self) -> impl Iterator<Item = &Arc<SegmentFile>> {
        self.0.values()
    }

    /// Writes those of `chunks` again that are in one of the segments.
    pub fn rewrite<'a>(
        &self,
        chunks: impl Iterator<Item = &'a Arc<Chunk>>,
        writer: &mut ChunkWriter,
    ) -> Result<()> {
        // First: on a full disk it would otherwise be tried again with each chunk that goes.
        self.files().for_each(|file| file.is_compacted());
        // Row groups may share a chunk of NULLs.
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

    /// Writes a profile that was not read yet again if it is in one of the segments.
    pub fn rewrite_profile(&self, profile: &StoredProfile, writer: &mut ChunkWriter) -> Result<()> {
        let Some(location) = Location::existing_at(profile.location()) else { return Ok(()) };
        match location.file().filter(|file| self.has(file)) {
            Some(file) => writer.write_again(location, true, &file),
            None => Ok(()),
        }
    }
}

impl Durable {
    /// The segments of which least is needed, as many as one checkpoint writes anew.
    pub(super) fn sparse_segments(&self) -> Sparse {
        let mut sparse: Vec<_> =
            self.segments.lock().values().filter(|file| file.is_sparse()).cloned().collect();
        sparse.sort_by_key(|file| file.bytes_live());
        let mut bytes = 0;
        let fits = |file: &Arc<SegmentFile>| {
            bytes += file.bytes_live();
            bytes <= MOVED_BYTES || bytes == file.bytes_live()
        };
        Sparse(sparse.into_iter().take_while(fits).map(|file| (file.number, file)).collect())
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
    /// Compacts segments if there is much in them that is not needed: for the thread that waits for the disk.
    pub(super) fn compact_where_it_pays(self: &Arc<Self>) {
        let Some(durable) = self.durable.get() else { return };
        if !durable.is_closed() && durable.is_worth_compacting() && self.compact().is_ok() {
            // What is more than one checkpoint moves.
            durable.sweep.want();
        }
    }

    /// Makes a checkpoint that writes sparse segments anew.
    ///
    /// # Errors
    /// As [`Catalog::checkpoint`].
    pub(super) fn compact(self: &Arc<Self>) -> Result<()> {
        let Some(durable) = self.durable.get() else { return Ok(()) };
        let sparse = durable.sparse_segments();
        let made = self.checkpoint_and(&sparse, |_| Ok(()));
        drop(sparse);
        durable.remove_unused_segments();
        made
    }
}
