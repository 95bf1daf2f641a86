//! The array of buckets of an index, in segments of pool memory. It grows and shrinks at its end by one bucket at a
//! time.
//!
//! A bucket is selected as in linear hashing (Litwin 1980). With 2^L to 2^(L+1) buckets, a 64-bit bucket number selects
//! the bucket with the index of its L+1 low bits if there is one, and otherwise the bucket with the index of its L low
//! bits. The bucket added next takes over entries of exactly one other bucket, its parent. A bit is *known* for a
//! bucket if all bucket numbers that select the bucket agree in this bit: L or L+1 low bits.
//!
//! Invariant: the memory of a segment is written before it is read, because adding a bucket writes it.

use super::bucket::{BUCKET_BYTES, Bucket, BucketRef, BucketSlot, Route, SLOTS, Summary};
use crate::meter::Meter;
use farpool_memory::{Extent, Pool, Tenure};
use farpool_model::{Result, TenantName};
use std::sync::Arc;

/// Binary logarithm of the number of buckets in the first segments. Reason for four buckets (256 bytes): they hold the
/// 25 keys of a small space.
const FIRST_SHIFT: u32 = 2;

/// Binary logarithm of the number of buckets in the largest segments. Reason for 4096 buckets (256 KiB): the list of
/// segments for 10^7 keys stays in the L2 cache, and less than 1 % of a large table is allocated ahead of use.
const LAST_SHIFT: u32 = 12;

/// Binary logarithm of the number of segments by which the table doubles while segments have sizes in between. Reason
/// for eight segments: at most an eighth of the memory is allocated ahead of use.
const PARTS_SHIFT: u32 = 3;

/// Bytes of a pool allocation that accounts for memory of the stash, which is not memory of the pool; enough for some
/// 80 stashed entries.
const BESIDE_BYTES: usize = 4096;

/// The array of buckets of a hash index, which grows and shrinks at its end by one bucket at a time.
pub struct BucketTable {
    pool: Arc<Pool>,
    tenant: TenantName,
    meter: Arc<Meter>,
    segments: Vec<Extent>,
    /// Unused pool allocations that account for the memory of the stash, so that the pool's limits cover the stash,
    /// too.
    beside: Vec<Extent>,
    buckets: usize,
    bytes: usize,
}

/// The one or two buckets that an entry's other bucket can be, given one of its buckets and its route.
pub type CandidateBuckets = (usize, Option<usize>);

impl BucketTable {
    pub fn new(pool: Arc<Pool>, tenant: TenantName) -> BucketTable {
        BucketTable {
            pool,
            tenant,
            meter: Arc::default(),
            segments: Vec::new(),
            beside: Vec::new(),
            buckets: 0,
            bytes: 0,
        }
    }

    pub fn metered(mut self, meter: Arc<Meter>) -> BucketTable {
        self.meter = meter;
        self
    }

    /// Returns the number of buckets.
    pub fn len(&self) -> usize {
        self.buckets
    }

    /// Returns the bytes of all pool allocations.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the index of the bucket that a bucket number selects. The table must not be empty.
    #[inline]
    pub fn address(&self, number: u64) -> usize {
        let low = self.low_mask();
        let (wide, narrow) = (number & (low << 1 | 1), number & low);
        (if wide < self.buckets as u64 { wide } else { narrow }) as usize
    }

    /// Returns a mask of the *known* bits of a bucket: those low bits in which all bucket numbers that select the
    /// bucket agree.
    pub fn known(&self, bucket: usize) -> u64 {
        let low = self.low_mask();
        let is_split = bucket as u64 > low || (bucket as u64 + low + 1) < self.buckets as u64;
        if is_split { low << 1 | 1 } else { low }
    }

    /// Returns the buckets that `route` connects to `bucket`. The relation is symmetric: `bucket` is among the results
    /// for each of them.
    pub fn candidate_buckets(&self, bucket: usize, route: Route) -> CandidateBuckets {
        let known = self.known(bucket);
        let number = (bucket as u64 ^ route.distance()) & known;
        let first = self.address(number);
        // If the selection depends on one more bit than is known for `bucket`, both values of the bit are possible.
        let second = self.address(number | (known + 1));
        (first, (second != first).then_some(second))
    }

    /// Returns the index of the bucket that the next added bucket is split from.
    pub fn next_parent(&self) -> usize {
        parent(self.buckets)
    }

    #[inline]
    pub fn read(&self, bucket: usize) -> Bucket {
        Bucket::read(self.get(bucket))
    }

    #[inline]
    pub fn get(&self, bucket: usize) -> BucketRef<'_> {
        let (segment, at) = position(bucket);
        let bytes = self.segments[segment].as_slice()[at..].first_chunk();
        BucketRef(bytes.expect("segments are whole buckets"))
    }

    pub fn write(&mut self, bucket: usize, content: &Bucket) {
        content.write(self.bytes_mut(bucket));
    }

    /// Writes a slot of a bucket.
    #[inline]
    pub fn write_slot(&mut self, bucket: usize, slot: usize, content: BucketSlot) {
        self.bytes_mut(bucket)[slot * 8..][..8].copy_from_slice(&content.to_bytes());
    }

    /// Writes the summary of a bucket.
    #[inline]
    pub fn write_summary(&mut self, bucket: usize, summary: Summary) {
        self.bytes_mut(bucket)[SLOTS * 8..].copy_from_slice(&summary.to_bytes());
    }

    #[inline]
    fn bytes_mut(&mut self, bucket: usize) -> &mut [u8; BUCKET_BYTES] {
        let (segment, at) = position(bucket);
        let bytes = self.segments[segment].as_mut_slice()[at..].first_chunk_mut();
        bytes.expect("segments are whole buckets")
    }

    /// Adds an empty bucket at the end.
    ///
    /// # Errors
    /// Errors of [`Pool::allocate_piece`] and [`Meter::check`]; nothing is changed then.
    pub fn push(&mut self) -> Result<()> {
        if position(self.buckets).0 == self.segments.len() {
            let extent = self.take(BUCKET_BYTES << shift(self.buckets))?;
            self.segments.push(extent);
        }
        self.buckets += 1;
        self.write(self.buckets - 1, &Bucket::EMPTY);
        Ok(())
    }

    /// Removes the last bucket and frees segments without buckets.
    pub fn pop(&mut self) {
        self.buckets -= 1;
        let used = self.buckets.checked_sub(1).map_or(0, |last| position(last).0 + 1);
        while self.segments.len() > used {
            let extent = self.segments.pop();
            self.give_back(extent);
        }
    }

    /// Allocates (unused) pool memory until at least `bytes` bytes account for the stash, whose own memory is not in
    /// the pool, so that the limits of the pool cover the stash.
    ///
    /// # Errors
    /// Errors of [`BucketTable::push`].
    pub fn stand_for(&mut self, bytes: usize) -> Result<()> {
        while self.beside.len() * BESIDE_BYTES < bytes {
            let extent = self.take(BESIDE_BYTES)?;
            self.beside.push(extent);
        }
        Ok(())
    }

    /// Frees pool memory that accounts for more than `bytes` bytes of the stash. One allocation more than necessary is
    /// kept, so that a change by a few entries frees nothing; with 0 bytes, all are freed.
    pub fn stand_down(&mut self, bytes: usize) {
        while self.beside.len() * BESIDE_BYTES >= bytes + 2 * BESIDE_BYTES
            || (bytes == 0 && !self.beside.is_empty())
        {
            let extent = self.beside.pop();
            self.give_back(extent);
        }
    }

    fn take(&mut self, bytes: usize) -> Result<Extent> {
        self.meter.check(bytes)?;
        let extent = self.pool.allocate_piece(&self.tenant, bytes, Tenure::Staying)?;
        self.bytes += extent.len();
        self.meter.took(extent.len());
        Ok(extent)
    }

    fn give_back(&mut self, extent: Option<Extent>) {
        let bytes = extent.map_or(0, |extent| extent.len());
        self.bytes -= bytes;
        self.meter.gave(bytes);
    }

    /// Removes all buckets and frees all memory.
    pub fn clear(&mut self) {
        self.meter.gave(self.bytes);
        (self.segments, self.beside, self.buckets, self.bytes) = (Vec::new(), Vec::new(), 0, 0);
    }

    #[inline]
    fn low_mask(&self) -> u64 {
        (1 << self.buckets.ilog2()) - 1
    }
}

impl Drop for BucketTable {
    fn drop(&mut self) {
        self.meter.gave(self.bytes);
    }
}

/// Returns the index of the bucket that `bucket`, which is not 0, was split from.
pub fn parent(bucket: usize) -> usize {
    bucket ^ 1 << bucket.ilog2()
}

/// Returns the binary logarithm of the number of buckets in the segment of this bucket.
#[inline]
fn shift(bucket: usize) -> u32 {
    (bucket | 1).ilog2().saturating_sub(PARTS_SHIFT).clamp(FIRST_SHIFT, LAST_SHIFT)
}

/// Returns the index of a bucket's segment, and the offset of the bucket's first byte in the segment.
#[inline]
fn position(bucket: usize) -> (usize, usize) {
    let shift = shift(bucket);
    let segment = (((shift - FIRST_SHIFT) as usize) << PARTS_SHIFT) + (bucket >> shift);
    (segment, (bucket & ((1 << shift) - 1)) * BUCKET_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_fill_segments_in_order() {
        let (mut segment, mut at) = (0, 0);
        for bucket in 0..3 << 16 {
            assert_eq!(position(bucket), (segment, at), "bucket {bucket}");
            at += BUCKET_BYTES;
            if at == BUCKET_BYTES << shift(bucket) {
                (segment, at) = (segment + 1, 0);
            }
        }
    }
}
