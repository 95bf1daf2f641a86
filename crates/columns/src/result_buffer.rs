//! Memory into which result values are decoded: pages that are reused for later results.
//!
//! Fresh memory costs several times as much as writing to it, because the system clears each page in a page fault. So
//! results are written to pages of a recycling pool ([`Pool::recycling`]). The pages become free when their last array
//! is dropped, and keep their memory until [`ResultMemory::trim`]. Buffers for which there is no page, and those too
//! small for one, come from the allocator.
//!
//! Invariant: every byte that an array exposes has been written for that array.

use crate::arch::Writer;
use arrow_buffer::{ArrowNativeType, Buffer, ScalarBuffer};
use bytes::Bytes;
use farpool_memory::{Extent, Pool, PoolConfig};
use farpool_model::limits::PAGE_BYTES;
use farpool_model::{Result, TenantName};
use std::sync::Arc;

/// Alignment of every buffer: a cache line, as Arrow recommends.
const ALIGNMENT: usize = 64;

/// Minimum size, in bytes, of a buffer that is placed in pages. Smaller buffers come from the allocator.
const BYTES_MIN: usize = 16 << 10;

/// Minimum bytes of results that are held at once for assuming that the reader keeps its results: more than the caches
/// of a core. New results are then written past the caches (by non-temporal stores), which saves reading the memory
/// first: 256 MiB took 13 instead of 33 ms. Pages that the system has just cleared are in the caches, and are written
/// normally.
const KEPT_BYTES_MIN: usize = 16 << 20;

/// Memory that all results of a process share which are being read.
#[derive(Debug)]
pub struct ResultMemory {
    pool: Arc<Pool>,
    owner: TenantName,
}

impl ResultMemory {
    /// Creates memory for results, which takes at most `bytes_max` bytes, including those kept for reuse.
    ///
    /// # Errors
    /// If the system does not grant the memory.
    pub fn new(bytes_max: usize) -> Result<Arc<ResultMemory>> {
        let pool = Pool::recycling(PoolConfig { bytes_limit: bytes_max })?;
        Ok(Arc::new(ResultMemory { pool, owner: TenantName::default() }))
    }

    /// Returns the bytes that results hold.
    pub fn bytes_used(&self) -> usize {
        self.pool.bytes_used()
    }

    /// Returns the bytes that are kept for reuse.
    pub fn bytes_kept(&self) -> usize {
        self.pool.bytes_kept()
    }

    /// Returns the memory that is kept for reuse to the system.
    pub fn trim(&self) {
        self.pool.trim();
    }
}

/// Allocator of result buffers for one reader.
#[derive(Debug, Default)]
pub struct ResultBuffer {
    memory: Option<Arc<ResultMemory>>,
    /// Bytes to take from the allocator before pages are used. Reason: the unused part of the last page is then no
    /// larger than the result's other memory, even if many small results are kept.
    bytes_before: usize,
    /// Unused end of the pages that were allocated last.
    rest: Option<Extent>,
    /// Whether results are assumed to be kept, so that new ones are written past the caches.
    kept: bool,
    past_caches: bool,
    /// Reusable buffer in which strings are decoded.
    text: Vec<u8>,
}

impl ResultBuffer {
    /// Creates an allocator from `memory`; with `None`, all buffers come from the system's allocator.
    pub fn new(memory: Option<Arc<ResultMemory>>) -> ResultBuffer {
        ResultBuffer { memory, bytes_before: PAGE_BYTES, ..ResultBuffer::default() }
    }

    /// Creates an allocator that uses pages from the first buffer on.
    #[cfg(test)]
    pub(crate) fn of_pages(memory: &Arc<ResultMemory>) -> ResultBuffer {
        ResultBuffer { bytes_before: 0, ..ResultBuffer::new(Some(memory.clone())) }
    }

    /// Returns whether results are assumed to be kept. Batches should then be large, because each has a fixed cost and
    /// will not be read from the caches anyway.
    pub fn is_kept(&self) -> bool {
        self.kept
    }

    /// Returns a buffer of `count` values, which `fill` appends piece by piece; `None` if the caller must use the
    /// system's allocator.
    ///
    /// # Panics
    /// When `fill` does not append exactly `count` values.
    pub(crate) fn buffer<T: ArrowNativeType>(
        &mut self,
        count: usize,
        fill: impl FnOnce(&mut Writer<'_, T>),
    ) -> Option<ScalarBuffer<T>> {
        let filled = self.try_buffer(count, |writer| {
            fill(writer);
            Ok(())
        });
        filled.ok().flatten()
    }

    /// Fills a buffer as [`Self::buffer`] does, but `fill` may return an error.
    ///
    /// # Errors
    /// The error of `fill`.
    ///
    /// # Panics
    /// As [`ResultBuffer::buffer`].
    pub(crate) fn try_buffer<T: ArrowNativeType>(
        &mut self,
        count: usize,
        fill: impl FnOnce(&mut Writer<'_, T>) -> Result<()>,
    ) -> Result<Option<ScalarBuffer<T>>> {
        let bytes = count * size_of::<T>();
        let Some(mut extent) = self.extent(bytes) else { return Ok(None) };
        let mut writer = Writer::new(&mut extent.as_mut_slice()[..bytes], self.past_caches);
        fill(&mut writer)?;
        assert_eq!(writer.missing(), 0, "bytes of a buffer that were not written");
        drop(writer);
        let lease = extent.freeze(bytes);
        let buffer = Buffer::from(Bytes::from_owner(lease.slice(0..bytes)));
        Ok(Some(ScalarBuffer::new(buffer, 0, count)))
    }

    /// Takes the reusable string buffer, which is empty but has capacity.
    pub(crate) fn take_text(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.text)
    }

    /// Gives the string buffer back for reuse.
    pub(crate) fn give_text(&mut self, mut text: Vec<u8>) {
        text.clear();
        self.text = text;
    }

    /// Allocates `bytes` bytes of pages; `None` if the buffer should come from the system's allocator, or no pages are
    /// left.
    fn extent(&mut self, bytes: usize) -> Option<Extent> {
        let memory = self.memory.as_ref().filter(|_| bytes >= BYTES_MIN)?;
        if self.bytes_before > 0 {
            self.bytes_before = self.bytes_before.saturating_sub(bytes);
            return None;
        }
        let wanted = bytes.next_multiple_of(ALIGNMENT);
        if self.rest.as_ref().is_none_or(|rest| rest.len() < wanted) {
            self.kept = memory.bytes_used() >= KEPT_BYTES_MIN;
            let rest = memory.pool.allocate(&memory.owner, wanted).ok()?;
            self.past_caches = self.kept && rest.is_warm();
            self.rest = Some(rest);
        }
        self.rest.as_mut().map(|rest| rest.split_to(wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_hold_what_was_appended_and_give_their_pages_back() {
        let memory = ResultMemory::new(32 * PAGE_BYTES).unwrap();
        // In the first round all buffers are written through the caches; in the second, buffers are written past them
        // from some buffer on.
        for past_caches in [false, true] {
            fill_and_drop(&memory, past_caches);
        }
        assert!(memory.bytes_kept() >= KEPT_BYTES_MIN);
        memory.trim();
        assert_eq!(memory.bytes_kept(), 0);
    }

    fn fill_and_drop(memory: &Arc<ResultMemory>, past_caches: bool) {
        let mut room = ResultBuffer::of_pages(memory);
        let mut kept = Vec::new();
        for round in 0..40_i64 {
            let values: Vec<i64> = (0..60_001).map(|i| i * round).collect();
            let buffer = room.buffer::<i64>(values.len(), |writer| {
                values.chunks(1 + round as usize * 999).for_each(|piece| writer.append(piece));
            });
            kept.push((buffer.unwrap(), values));
        }
        assert!(kept.iter().all(|(buffer, values)| buffer[..] == values[..]));
        assert!(memory.bytes_used() >= KEPT_BYTES_MIN);
        assert_eq!(room.past_caches, past_caches);
        drop((kept, room));
        assert_eq!(memory.bytes_used(), 0);
    }

    #[test]
    fn what_is_small_or_too_much_is_left_to_the_allocator() {
        let memory = ResultMemory::new(PAGE_BYTES).unwrap();
        let mut room = ResultBuffer::of_pages(&memory);
        assert!(room.buffer::<u8>(BYTES_MIN - 1, |_| ()).is_none());
        assert!(room.buffer::<u8>(PAGE_BYTES + 1, |_| ()).is_none());
        assert_eq!(memory.bytes_used(), 0);
        let whole = room.buffer::<u8>(PAGE_BYTES, |writer| writer.append(&vec![1; PAGE_BYTES])).unwrap();
        assert!(whole.len() == PAGE_BYTES && whole.iter().all(|byte| *byte == 1));
        drop(whole);
        drop(room);
        assert!(ResultBuffer::default().buffer::<u8>(PAGE_BYTES, |_| ()).is_none());
        let mut room = ResultBuffer::new(Some(memory));
        assert!(room.buffer::<u8>(PAGE_BYTES, |_| ()).is_none());
        assert!(room.buffer::<u8>(BYTES_MIN, |writer| writer.append(&[2; BYTES_MIN])).is_some());
    }
}
