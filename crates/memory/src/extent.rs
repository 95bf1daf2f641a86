//! Extents (ranges of pool memory that one owner may write) and leases (ranges that many readers share).
//!
//! A run is the memory of one allocation: contiguous whole pages, or a piece of pages that are shared with other pieces
//! of the tenant. Extents are disjoint ranges of a run; freezing an extent turns its range into a lease. Invariant: a
//! byte of a run is in at most one extent or, once frozen, in one lease with its clones and slices, so that no byte is
//! written while it can be read. The memory of a run is freed when no extent or lease of it is left. Unused whole pages
//! at its end are freed earlier, when the last extent is frozen.

#![expect(unsafe_code, reason = "bytes of the mapping are handed out as slices")]

use crate::PageId;
use crate::pool::Pool;
use crate::table::{TenantIndex, Tenure};
use farpool_model::limits::PAGE_BYTES;
use std::fmt;
use std::ops::{Deref, Range};
use std::panic::RefUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A run: the contiguous memory of one allocation.
pub(crate) struct Run {
    pool: Arc<Pool>,
    tenant: TenantIndex,
    /// Range of bytes in the pool's address range.
    place: Range<usize>,
    /// Ids of the pages that contain bytes of `place`.
    ids: Box<[PageId]>,
    /// Tenure of a piece, which may share its pages with other pieces; `None` for a run of whole pages.
    piece: Option<Tenure>,
    /// Number of pages that are not freed yet, from the start of the run; used for whole pages only.
    pages_kept: AtomicUsize,
    /// Number of extents that are not frozen or dropped. Once it is zero, the run gets no further extents.
    extents: AtomicUsize,
    /// Whether all pages had memory from an earlier use, so that writing them costs no page faults.
    warm: bool,
}

impl Run {
    /// Creates the run of an allocation of whole pages, with one extent. The lock of the pool's page table must be held
    /// from before the pages are taken until this returns: [`Pool::read_raw`] holds it too, and must not find pages
    /// that are in use but not yet counted as being written.
    pub fn pages(pool: Arc<Pool>, tenant: TenantIndex, pages: Range<usize>, warm: bool) -> Run {
        let place = pages.start * PAGE_BYTES..pages.end * PAGE_BYTES;
        Run::new(pool, tenant, place, None, warm)
    }

    /// Creates the run of an allocation that is a piece of pages, with one extent. The lock of the pool's page table
    /// must be held, for the reason that [`Run::pages`] gives.
    pub fn piece(pool: Arc<Pool>, tenant: TenantIndex, place: Range<usize>, tenure: Tenure) -> Run {
        Run::new(pool, tenant, place, Some(tenure), false)
    }

    fn new(
        pool: Arc<Pool>,
        tenant: TenantIndex,
        place: Range<usize>,
        piece: Option<Tenure>,
        warm: bool,
    ) -> Run {
        let pages = pages_of(&place);
        pool.writer_comes(pages.clone());
        let pages_kept = AtomicUsize::new(pages.len());
        let ids = pages.map(|page| PageId(farpool_model::cast::u32_checked(page))).collect();
        Run { pool, tenant, place, ids, piece, pages_kept, extents: AtomicUsize::new(1), warm }
    }

    /// Divides a run of whole pages into a piece (the first `bytes`) and the rest, whose memory is freed when it is
    /// dropped.
    pub fn into_piece(mut self, bytes: usize, tenure: Tenure) -> (Run, RunTail) {
        assert!(self.piece.is_none(), "only a run of whole pages becomes a piece");
        assert!(bytes <= self.bytes(), "a piece of {bytes} bytes does not fit its run of {}", self.bytes());
        let middle = self.place.start + bytes;
        let (pool, tenant) = (Arc::clone(&self.pool), self.tenant);
        let rest = RunTail { pool, tenant, place: middle..self.place.end, tenure };
        (self.piece, self.place.end) = (Some(tenure), middle);
        (self, rest)
    }

    fn first(&self) -> usize {
        self.place.start / PAGE_BYTES
    }

    fn bytes(&self) -> usize {
        self.place.len()
    }

    fn at(&self, offset: usize) -> FirstByte {
        FirstByte(self.pool.mapping().at(self.place.start + offset))
    }

    /// Frees the whole pages behind the first `bytes`. Does nothing for a piece, which has exactly the length that was
    /// asked for.
    ///
    /// # Safety
    /// No extent or lease may have bytes at or behind offset `bytes`.
    unsafe fn truncate(&self, bytes: usize) {
        if self.piece.is_some() {
            return;
        }
        assert!(bytes <= self.bytes(), "a run of {} bytes cannot be cut at {bytes}", self.bytes());
        let keep = bytes.div_ceil(PAGE_BYTES);
        let kept = self.pages_kept.fetch_min(keep, Ordering::AcqRel).max(keep);
        if self.extents.load(Ordering::Relaxed) > 0 {
            self.pool.writer_goes(self.first() + keep..self.first() + kept);
        }
        // SAFETY: the caller guarantees that no extent or lease has bytes of these pages.
        unsafe { self.pool.give_back(self.tenant, self.first() + keep, kept - keep) }
    }

    fn extent_goes(&self) {
        // Acquire and release ordering: the thread that drops the last extent sees the writes of all extents.
        let before = self.extents.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "an extent is dropped once");
        if before == 1 {
            let kept = self.pages_kept.load(Ordering::Relaxed);
            self.pool.writer_goes(self.first()..self.first() + kept);
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if *self.extents.get_mut() > 0 {
            // No extent was made of the run, so that its initial extent is still counted.
            self.extent_goes();
        }
        if let Some(tenure) = self.piece {
            // SAFETY: every extent and lease holds a reference to the run, so that none is left.
            unsafe { self.pool.give_piece_back(self.tenant, self.place.clone(), tenure) }
        } else {
            // SAFETY: every extent and lease holds a reference to the run, so that none is left.
            unsafe { self.truncate(0) }
        }
    }
}

/// Rest of a run of whole pages whose beginning became a piece. Freed on drop.
pub(crate) struct RunTail {
    pool: Arc<Pool>,
    tenant: TenantIndex,
    place: Range<usize>,
    tenure: Tenure,
}

impl Drop for RunTail {
    fn drop(&mut self) {
        // SAFETY: the memory was cut off a run that had no extents or leases yet.
        unsafe { self.pool.give_piece_back(self.tenant, self.place.clone(), self.tenure) }
    }
}

/// Returns the range of pages that contain bytes of `place`.
fn pages_of(place: &Range<usize>) -> Range<usize> {
    place.start / PAGE_BYTES..place.end.div_ceil(PAGE_BYTES)
}

/// Address of the first byte of an extent or a lease. Stored in it, so that its bytes are reached without reading the
/// run.
#[derive(Clone, Copy)]
struct FirstByte(NonNull<u8>);

// SAFETY: it is only an address; `Extent` and `Lease` control who may access the memory there.
unsafe impl Send for FirstByte {}
// SAFETY: it is only an address; `Extent` and `Lease` control who may access the memory there.
unsafe impl Sync for FirstByte {}

/// Range of newly allocated memory with one owner, which may write to it.
pub struct Extent {
    run: Arc<Run>,
    range: Range<usize>,
    start: FirstByte,
}

impl Extent {
    pub(crate) fn new(run: Run) -> Extent {
        let range = 0..run.bytes();
        Extent::of(Arc::new(run), range)
    }

    fn of(run: Arc<Run>, range: Range<usize>) -> Extent {
        assert!(range.end <= run.bytes(), "an extent lies in its run");
        let start = run.at(range.start);
        Extent { run, range, start }
    }

    /// Returns the number of bytes that can be written: whole pages, except after [`Self::split_to`] and for a piece.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Returns whether all pages of the allocation have memory from an earlier use, so that writing them costs no page
    /// faults.
    pub fn is_warm(&self) -> bool {
        self.run.warm
    }

    /// Returns how many bytes of the page in which the extent begins are in use, by this extent and others of the
    /// tenant. If these are few, [`Self::allocate_lower`] can help to free the page.
    pub fn page_bytes_used(&self) -> usize {
        self.run.pool.page_bytes_used(self.run.tenant, self.page())
    }

    /// Allocates a piece of the same length in a page at a lower address that already has pieces of the tenant. Moving
    /// the contents of sparsely used pages there frees those pages. Since pieces only move to lower addresses, none is
    /// ever moved back. Returns `None` if there is no room, and for an extent of whole pages.
    pub fn allocate_lower(&self) -> Option<Extent> {
        let (run, bytes) = (&self.run, self.range.len());
        run.pool.take_piece_before(self.page(), run.tenant, bytes, run.piece?).map(Extent::new)
    }

    fn page(&self) -> usize {
        (self.run.place.start + self.range.start) / PAGE_BYTES
    }

    /// Returns whether no bytes are left, because all were split off.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Returns the bytes of the extent, to be read by its owner, which may write to them later.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the range is mapped and initialized, the system maps zeros; by the invariant of this module it
        // is ours alone, and only `&mut self` writes to it.
        unsafe { std::slice::from_raw_parts(self.start.0.as_ptr(), self.range.len()) }
    }

    /// Returns the bytes of the extent. Bytes not written yet are zero; in a piece, and in a pool that recycles its
    /// pages, they are unspecified.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the range is mapped and, by the invariant of this module, ours alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.0.as_ptr(), self.range.len()) }
    }

    /// Splits off the first `bytes` as a separate extent. Several owners can then fill the pages of one allocation,
    /// instead of each leaving the end of a page unused.
    ///
    /// # Panics
    /// When the extent is shorter than `bytes`.
    pub fn split_to(&mut self, bytes: usize) -> Extent {
        assert!(bytes <= self.len(), "an extent of {} bytes cannot be split at {bytes}", self.len());
        let middle = self.range.start + bytes;
        let front = self.range.start..middle;
        (self.range.start, self.start) = (middle, self.run.at(middle));
        let before = self.run.extents.fetch_add(1, Ordering::Relaxed);
        assert!(before > 0, "a run gets no extents after its last one was dropped");
        Extent::of(Arc::clone(&self.run), front)
    }

    /// Ends writing and returns the first `bytes_used` bytes as a lease. Unused whole pages at the end of the
    /// allocation are freed.
    ///
    /// # Panics
    /// When the extent is shorter than `bytes_used`.
    pub fn freeze(mut self, bytes_used: usize) -> Lease {
        assert!(bytes_used <= self.len(), "{bytes_used} bytes used of an extent of {}", self.len());
        let frozen = self.range.start..self.range.start + bytes_used;
        self.range.start = frozen.end;
        Lease::of(Arc::clone(&self.run), frozen)
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        if self.range.end == self.run.bytes() {
            // SAFETY: the rest of this extent reaches to the end of the run, and no other owner has bytes there.
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

/// Frozen, immutable bytes of the pool. They stay at their address until the last clone and slice is dropped.
#[derive(Clone)]
pub struct Lease {
    run: Arc<Run>,
    range: Range<usize>,
    start: FirstByte,
}

impl Lease {
    fn of(run: Arc<Run>, range: Range<usize>) -> Lease {
        assert!(range.end <= run.bytes(), "a lease lies in its run");
        let start = run.at(range.start);
        Lease { run, range, start }
    }

    /// Returns a part of the bytes, which keeps the memory of the lease in use.
    ///
    /// # Panics
    /// When the range does not lie in the lease.
    pub fn slice(&self, range: Range<usize>) -> LeaseSlice {
        assert!(range.start <= range.end && range.end <= self.len(), "a slice outside its lease: {range:?}");
        let start = self.range.start + range.start;
        LeaseSlice(Lease::of(Arc::clone(&self.run), start..start + range.len()))
    }

    /// Returns the ids of the pages that contain the bytes.
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

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the run keeps the range mapped; it is frozen, so nobody writes to it.
        unsafe { std::slice::from_raw_parts(self.start.0.as_ptr(), self.range.len()) }
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

// Implemented by hand because of the lock inside the pool; a lease never exposes what the lock guards.
impl RefUnwindSafe for Lease {}

/// A part of a lease, which keeps the lease alive.
#[derive(Clone, Debug)]
pub struct LeaseSlice(Lease);

impl LeaseSlice {
    /// Returns the ids of the pages that contain the bytes.
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
