//! Which chunks queries have used, remembered across starts, so that these are read into memory first.
//!
//! The file [`USED`] is written at a clean stop and when the log was shortened. It has the numbers of chunks, most used first,
//! 8 bytes each, little-endian. Nothing depends on it: where it is missing, damaged or of another version, small tables are
//! read first.

use super::Durable;
use farpool_disk::{read_sealed, write_sealed};
use farpool_model::limits::USED_CHUNKS_MAX;

const USED: &str = "used";
const FORMAT: u32 = 1;

impl Durable {
    /// Remembers what is in memory and was used. What was remembered stays where nothing was.
    pub(super) fn write_hot_chunks(&self) {
        let mut used = self.reads.cache.used();
        used.truncate(USED_CHUNKS_MAX);
        if used.is_empty() {
            return;
        }
        let contents: Vec<u8> = used.into_iter().flat_map(u64::to_le_bytes).collect();
        // The next start is slower without.
        let _ = write_sealed(&*self.directory, USED, FORMAT, &contents);
    }

    /// The numbers of chunks that were used before the start, most used first; none where that is not known.
    pub(super) fn read_hot_chunks(&self) -> Vec<u64> {
        let contents = read_sealed(&*self.directory, USED, FORMAT).unwrap_or_default();
        let (numbers, _) = contents.as_chunks::<8>();
        numbers.iter().take(USED_CHUNKS_MAX).map(|number| u64::from_le_bytes(*number)).collect()
    }
}
