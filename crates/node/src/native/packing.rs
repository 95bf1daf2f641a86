//! Chooses the form in which the rows of one result are sent: plain Arrow batches, or *parcels* (rows in the encoding
//! of the pool).
//!
//! Rows that are still encoded as in the pool are sent in that form, which takes the least time and the fewest bytes.
//! Rows that were decoded or computed are packed (encoded again) if the network to the client is so slow that sending
//! the saved bytes would take longer than packing, which is measured, and unpacking. Each result begins with a trial of
//! packing, which also makes the messages of small results small.

use arrow_array::RecordBatch;
use farpool_columns::{Chunk, RowGroup, pack_array, pack_chunks};
use farpool_model::{Clock, Encoding, Receipt, Result, ResultForm, cast, limits};
use farpool_wire::{ChunkImage, FrameKind, Outgoing, encode_batch};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of plain rows that are packed as a trial at the beginning of a result.
const TRIAL_BYTES: u64 = 256 << 10;

/// Plain bytes per second that a client unpacks, measured with `cargo run -p farpool-node --example loopback`.
const UNPACKED_BYTES_PER_S: f64 = 4e9;

/// The form of the rows of one result, and counters of what has been sent.
#[derive(Debug)]
pub(super) struct ResultPacker {
    clock: Arc<dyn Clock>,
    form: ResultForm,
    plain: Tally,
    packed: Tally,
    /// Total nanoseconds of packing; the next fields are the total bytes before and after packing.
    packing_ns: AtomicU64,
    packing_bytes_plain: AtomicU64,
    packing_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Tally {
    messages: AtomicU64,
    bytes_plain: AtomicU64,
}

impl Tally {
    fn add(&self, bytes_plain: usize) {
        self.messages.fetch_add(1, Relaxed);
        self.bytes_plain.fetch_add(cast::u64_from(bytes_plain), Relaxed);
    }
}

impl ResultPacker {
    /// Creates the state for a result that the client requested in `form`; `clock` measures the time of packing.
    pub fn new(form: ResultForm, clock: Arc<dyn Clock>) -> Self {
        let (plain, packed) = Default::default();
        let (packing_ns, packing_bytes_plain, packing_bytes) = Default::default();
        ResultPacker { clock, form, plain, packed, packing_ns, packing_bytes_plain, packing_bytes }
    }

    /// Encodes `batch` as messages. With [`ResultForm::Auto`], they are packed (compressed) if that pays on a
    /// connection that accepts `link_bytes_per_s` bytes per second.
    ///
    /// # Errors
    /// `OverLimit` when a row does not fit a message.
    pub fn batch(&self, batch: RecordBatch, link_bytes_per_s: f64) -> Result<Vec<Outgoing>> {
        // A batch without columns has no bytes to pack.
        if batch.num_columns() == 0 || !self.packs(link_bytes_per_s) {
            return self.plain(&batch);
        }
        let mut messages = Vec::with_capacity(1);
        for start in (0..batch.num_rows()).step_by(limits::ROW_GROUP_ROWS) {
            let rows = limits::ROW_GROUP_ROWS.min(batch.num_rows() - start);
            messages.extend(self.packed(&batch.slice(start, rows))?);
        }
        Ok(messages)
    }

    /// Returns the messages for rows that are still encoded as in the pool. `schema` is the schema of the result.
    ///
    /// # Errors
    /// Errors of [`ResultPacker::batch`].
    pub fn encoded(&self, group: &RowGroup, schema: &arrow_schema::SchemaRef) -> Result<Vec<Outgoing>> {
        let pieces = pack_chunks(group.rows, &group.chunks);
        if let Ok(message) = Outgoing::new(FrameKind::Parcel, pieces) {
            self.packed.add(group.bytes_plain());
            return Ok(vec![message]);
        }
        // The encoded rows are too large for one message, so they are decoded and sent as several plain batches.
        let mut messages = Vec::new();
        for start in (0..group.rows).step_by(limits::BATCH_ROWS) {
            let rows = start..group.rows.min(start + limits::BATCH_ROWS);
            let columns =
                group.chunks.iter().map(|chunk| chunk.decode(rows.clone())).collect::<Result<_>>()?;
            let batch = RecordBatch::try_new(schema.clone(), columns)
                .map_err(|error| farpool_model::Error::internal(error.to_string()))?;
            messages.extend(self.plain(&batch)?);
        }
        Ok(messages)
    }

    /// Returns the messages for whole column chunks of the row group with the index `place`, encoded as in the pool.
    ///
    /// # Errors
    /// Errors of [`ResultPacker::batch`]; `Corrupt` for a chunk whose data are corrupt.
    pub fn fetched(&self, place: usize, group: &RowGroup) -> Result<Vec<Outgoing>> {
        self.packed.add(group.bytes_plain());
        let message = |(column, chunk): (usize, &Arc<Chunk>)| {
            let image = chunk.to_image()?;
            let front = ChunkImage::front(place, column, &image.head);
            let pieces = std::iter::once(front).chain(image.pieces()).collect();
            Outgoing::new(FrameKind::Chunk, pieces)
        };
        group.chunks.iter().enumerate().map(message).collect()
    }

    /// Records the form in which the rows were sent in the execution statistics (`receipt`).
    pub fn settle(&self, receipt: &mut Receipt) {
        let form = |tally: &Tally, form| if tally.messages.load(Relaxed) > 0 { form } else { Encoding::None };
        let of_plain = match self.form {
            ResultForm::Compressed(_) => Encoding::Compressed,
            _ => Encoding::Plain,
        };
        receipt.encoding = form(&self.plain, of_plain).and(form(&self.packed, Encoding::Packed));
        receipt.bytes_plain = self.plain.bytes_plain.load(Relaxed) + self.packed.bytes_plain.load(Relaxed);
    }

    fn packs(&self, link_bytes_per_s: f64) -> bool {
        match self.form {
            ResultForm::Plain | ResultForm::Compressed(_) => false,
            ResultForm::Packed => true,
            ResultForm::Auto => {
                let (plain, packed) =
                    (self.packing_bytes_plain.load(Relaxed), self.packing_bytes.load(Relaxed));
                plain < TRIAL_BYTES || pays(plain, packed, self.packing_ns.load(Relaxed), link_bytes_per_s)
            }
        }
    }

    fn plain(&self, batch: &RecordBatch) -> Result<Vec<Outgoing>> {
        let compression = match self.form {
            ResultForm::Compressed(compression) => Some(compression),
            _ => None,
        };
        let encoded = encode_batch(FrameKind::Batch, batch, compression)?;
        self.plain.add(encoded.bytes_plain);
        Ok(encoded.messages)
    }

    fn packed(&self, batch: &RecordBatch) -> Result<Vec<Outgoing>> {
        let start = self.clock.thread_cpu_ns();
        let pack = |column| pack_array(column).map(Arc::new);
        let chunks: Vec<Arc<Chunk>> = batch.columns().iter().map(pack).collect::<Result<_>>()?;
        let bytes_plain: usize = chunks.iter().map(|chunk| chunk.bytes_plain()).sum();
        let pieces = pack_chunks(batch.num_rows(), &chunks);
        let bytes = pieces.iter().map(|piece| piece.len()).sum();
        let Ok(message) = Outgoing::new(FrameKind::Parcel, pieces) else { return self.plain(batch) };
        self.packing_ns.fetch_add(self.clock.thread_cpu_ns().saturating_sub(start), Relaxed);
        self.packing_bytes_plain.fetch_add(cast::u64_from(bytes_plain), Relaxed);
        self.packing_bytes.fetch_add(cast::u64_from(bytes), Relaxed);
        self.packed.add(bytes_plain);
        Ok(vec![message])
    }
}

/// Returns whether sending the bytes that packing saves would take longer than packing and unpacking.
fn pays(bytes_plain: u64, bytes_packed: u64, packing_ns: u64, link_bytes_per_s: f64) -> bool {
    let saved_s = bytes_plain.saturating_sub(bytes_packed) as f64 / link_bytes_per_s;
    let spent_s = packing_ns as f64 / 1e9 + bytes_plain as f64 / UNPACKED_BYTES_PER_S;
    saved_s > spent_s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_pays_on_slow_links_only() {
        // 1 MB is compressed to 312,500 bytes (ratio 3.2), in 500 µs (2 GB/s).
        let pays_at = |link_bytes_per_s| pays(1_000_000, 312_500, 500_000, link_bytes_per_s);
        assert!(pays_at(125e6) && pays_at(900e6), "networks of 1 and 7 Gbit/s");
        assert!(!pays_at(2.5e9), "loopback");
        assert!(!pays(1_000_000, 1_000_100, 1, 1e6), "nothing is saved");
    }
}
