//! The column chunks that queries used, saved across restarts, so that the warm-up reads them first.
//!
//! The file [`USED`] is written at a clean stop and after checkpoints. It has the ids of chunks, most used first, 8
//! bytes each, little-endian. Best effort: without an intact file of this version, small tables are read first.

use super::Durable;
use farpool_disk::{read_sealed, write_sealed};
use farpool_model::limits::USED_CHUNKS_MAX;

const USED: &str = "used";
const FORMAT: u32 = 1;

impl Durable {
    /// Saves the ids of used chunks that are in memory. Keeps the previous file if none was used.
    pub(super) fn write_hot_chunks(&self) {
        let mut used = self.reads.cache.used();
        used.truncate(USED_CHUNKS_MAX);
        if used.is_empty() {
            return;
        }
        let contents: Vec<u8> = used.into_iter().flat_map(u64::to_le_bytes).collect();
        // The result is ignored: without the file the next warm-up reads chunks without an order of use.
        let _ = write_sealed(&*self.directory, USED, FORMAT, &contents);
    }

    /// Returns the ids of chunks that were used before the last stop, most used first; empty if they are not known.
    pub(super) fn read_hot_chunks(&self) -> Vec<u64> {
        let contents = read_sealed(&*self.directory, USED, FORMAT).unwrap_or_default();
        let (numbers, _) = contents.as_chunks::<8>();
        numbers.iter().take(USED_CHUNKS_MAX).map(|number| u64::from_le_bytes(*number)).collect()
    }
}
