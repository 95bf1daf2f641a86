//! Extents, which one owner writes, and leases, which many read.
//!
//! A run is what one allocation gave: contiguous pages, or a piece of pages that others of the tenant share. Extents
//! are disjoint ranges of a run; freezing one turns its range into a lease. Invariant: a byte of a run is in at most
//! one extent or, frozen, in one lease and its clones and slices, so that writes and reads never meet. The bytes of a
//! run go back when nothing points to the run any more; unused whole pages at its end go back when the last extent is
//! frozen.

#![expect(unsafe_code, reason = "bytes of the mapping are handed out as slices")]

use crate::PageId;
use crate::pool::Pool;
use crate::table::TenantIndex;
use farpool_model::limits::PAGE_BYTES;
use std::fmt;
use std::ops::{Deref, Range};
use std::panic::RefUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Contiguous bytes that were given out together.
pub(crate) struct Run {
    pool: Arc<Pool>,
    tenant: TenantIndex,
    /// Where they lie in the pool.
    place: Range<usize>,
    /// The pages that they reach into.
    ids: Box<[PageId]>,
    /// Whether they may share pages with other runs; otherwise they are whole pages.
    is_piece: bool,
    /// Of whole pages: those, from the start, that have not gone back yet.
    pages_kept: AtomicUsize,
    /// Never grows again once it is zero.
    extents: AtomicUsize,
    /// Whether all pages had memory of an earlier use.
    warm: bool,
}

impl Run {
    /// Whole pages, with one extent. To be made under the lock of the page table.
    pub fn pages(pool: Arc<Pool>, tenant: TenantIndex, pages: Range<usize>, warm: bool) -> Run {
        let place = pages.start * PAGE_BYTES..pages.end * PAGE_BYTES;
        Run::new(pool, tenant, place, false, warm)
    }

    /// A piece of pages, with one extent. To be made under the lock of the page table.
    pub fn piece(pool: Arc<Pool>, tenant: TenantIndex, place: Range<usize>) -> Run {
        Run::new(pool, tenant, place, true, false)
    }

    fn new(pool: Arc<Pool>, tenant: TenantIndex, place: Range<usize>, is_piece: bool, warm: bool) -> Run {
        let pages = pages_of(&place);
        pool.writer_comes(pages.clone());
        let pages_kept = AtomicUsize::new(pages.len());
        let ids = pages.map(|page| PageId(farpool_model::cast::u32_checked(page))).collect();
        Run { pool, tenant, place, ids, is_piece, pages_kept, extents: AtomicUsize::new(1), warm }
    }

    /// The run as a piece of its first `bytes`, and the rest as what has to be given back.
    pub fn into_piece(mut self, bytes: usize) -> (Run, Rest) {
        let middle = self.place.start + bytes;
        let rest = Rest { pool: Arc::clone(&self.pool), tenant: self.tenant, place: middle..self.place.end };
        (self.is_piece, self.place.end) = (true, middle);
        (self, rest)
    }

    fn first(&self) -> usize {
        self.place.start / PAGE_BYTES
    }

    fn bytes(&self) -> usize {
        self.place.len()
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.pool.mapping().at(self.place.start + offset).as_ptr()
    }

    /// Gives back the whole pages behind the first `bytes`; of a piece nothing, for it is as long as was asked for.
    ///
    /// # Safety
    /// No extent or lease reaches bytes at or behind `bytes`.
    unsafe fn truncate(&self, bytes: usize) {
        if self.is_piece {
            return;
        }
        let keep = bytes.div_ceil(PAGE_BYTES);
        let kept = self.pages_kept.fetch_min(keep, Ordering::AcqRel).max(keep);
        if self.extents.load(Ordering::Relaxed) > 0 {
            self.pool.writer_goes(self.first() + keep..self.first() + kept);
        }
        // SAFETY: the caller vouches for the pages.
        unsafe { self.pool.give_back(self.tenant, self.first() + keep, kept - keep) }
    }

    fn extent_goes(&self) {
        // Acquire and release: whoever lets the last one go does so after the writes of all.
        if self.extents.fetch_sub(1, Ordering::AcqRel) == 1 {
            let kept = self.pages_kept.load(Ordering::Relaxed);
            self.pool.writer_goes(self.first()..self.first() + kept);
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if *self.extents.get_mut() > 0 {
            // It never became an extent.
            self.extent_goes();
        }
        if self.is_piece {
            // SAFETY: extents and leases hold the run, so there are none left.
            unsafe { self.pool.give_piece_back(self.tenant, self.place.clone()) }
        } else {
            // SAFETY: as above.
            unsafe { self.truncate(0) }
        }
    }
}

/// The end of pages whose beginning became a piece: given back when it is dropped.
pub(crate) struct Rest {
    pool: Arc<Pool>,
    tenant: TenantIndex,
    place: Range<usize>,
}

impl Drop for Rest {
    fn drop(&mut self) {
        // SAFETY: it was cut off a run that had no extents or leases yet.
        unsafe { self.pool.give_piece_back(self.tenant, self.place.clone()) }
    }
}

/// The pages that a range of a pool's bytes reaches into.
fn pages_of(place: &Range<usize>) -> Range<usize> {
    place.start / PAGE_BYTES..place.end.div_ceil(PAGE_BYTES)
}

/// A range of fresh memory with one owner, who may write to it.
pub struct Extent {
    run: Arc<Run>,
    range: Range<usize>,
}

impl Extent {
    pub(crate) fn new(run: Run) -> Extent {
        let range = 0..run.bytes();
        Extent { run: Arc::new(run), range }
    }

    /// Bytes that can be written: whole pages, unless the extent was split or is a piece.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether all its pages have memory from an earlier use: only others cost page faults.
    pub fn is_warm(&self) -> bool {
        self.run.warm
    }

    /// Whether everything was split off.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The bytes, zero where nothing was written yet; unspecified there in a piece, and in a pool that recycles its
    /// pages.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the range is mapped and, by the invariant of this module, ours alone.
        unsafe { std::slice::from_raw_parts_mut(self.run.at(self.range.start), self.range.len()) }
    }

    /// Cuts the first `bytes` off as an extent of their own: several owners can then fill the pages of one
    /// run, which saves the unused end of a page per owner.
    ///
    /// # Panics
    /// When the extent is shorter than `bytes`.
    pub fn split_to(&mut self, bytes: usize) -> Extent {
        assert!(bytes <= self.len(), "an extent of {} bytes cannot be split at {bytes}", self.len());
        let middle = self.range.start + bytes;
        let front = self.range.start..middle;
        self.range.start = middle;
        self.run.extents.fetch_add(1, Ordering::Relaxed);
        Extent { run: Arc::clone(&self.run), range: front }
    }

    /// Ends the writing. The lease has the first `bytes_used`; whole unused pages at the end go back.
    ///
    /// # Panics
    /// When the extent is shorter than `bytes_used`.
    pub fn freeze(mut self, bytes_used: usize) -> Lease {
        assert!(bytes_used <= self.len(), "{bytes_used} bytes used of an extent of {}", self.len());
        let frozen = self.range.start..self.range.start + bytes_used;
        self.range.start = frozen.end;
        Lease { run: Arc::clone(&self.run), range: frozen }
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        if self.range.end == self.run.bytes() {
            // SAFETY: what is left of this extent reaches to the end of the run, and nobody else sees it.
            unsafe { self.run.truncate(self.range.start) }
        }
        self.run.extent_goes();
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extent({} bytes from page {})", self.len(), self.run.first())
    }
}

/// Frozen bytes of the pool. They stay where they are until the last clone and slice is dropped.
#[derive(Clone)]
pub struct Lease {
    run: Arc<Run>,
    range: Range<usize>,
}

impl Lease {
    /// A part of the bytes, which keeps the lease.
    ///
    /// # Panics
    /// When the range does not lie in the lease.
    pub fn slice(&self, range: Range<usize>) -> LeaseSlice {
        assert!(range.start <= range.end && range.end <= self.len(), "a slice outside its lease: {range:?}");
        let start = self.range.start + range.start;
        LeaseSlice(Lease { run: Arc::clone(&self.run), range: start..start + range.len() })
    }

    /// The pages that the bytes lie in.
    pub fn pages(&self) -> &[PageId] {
        if self.range.is_empty() {
            return &[];
        }
        let start = self.run.place.start;
        let pages = pages_of(&(start + self.range.start..start + self.range.end));
        &self.run.ids[pages.start - self.run.first()..pages.end - self.run.first()]
    }
}

impl Deref for Lease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the run keeps the range mapped; it is frozen, so nobody writes to it.
        unsafe { std::slice::from_raw_parts(self.run.at(self.range.start), self.range.len()) }
    }
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({} bytes from page {})", self.len(), self.run.first())
    }
}

// The lock inside the pool is what keeps this from being derived; a lease never shows what it guards.
impl RefUnwindSafe for Lease {}

/// A part of a lease.
#[derive(Clone, Debug)]
pub struct LeaseSlice(Lease);

impl LeaseSlice {
    /// The pages that the bytes lie in.
    pub fn pages(&self) -> &[PageId] {
        self.0.pages()
    }
}

impl Deref for LeaseSlice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for LeaseSlice {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
