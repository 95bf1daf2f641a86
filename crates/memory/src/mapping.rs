//! The address range of a pool. Only this module asks the system for memory.
//!
//! The range is reserved once, several times larger than the memory that may be used, so that contiguous pages are
//! found even when the free pages are scattered. Reserving takes no memory: a page takes memory from its first write
//! until [`Mapping::release`].
//!
//! Invariant: a page that is not in use reads as zeros.

#![expect(unsafe_code, reason = "memory is mapped and given back by system calls")]

use crate::HugePages;
use farpool_model::limits::PAGE_BYTES;
use farpool_model::{Error, Result};
use std::ptr::NonNull;

/// Sizes of the reserved range that are tried in this order, as multiples of the pool's limit. A system that does not
/// overcommit memory grants only small ones. The last, 0, stands for the limit itself, reserved without overcommitting.
const RESERVE_FACTORS: [usize; 4] = [4, 2, 1, 0];

/// A reserved range of pages, aligned to [`PAGE_BYTES`].
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    pages: usize,
    huge_pages: HugePages,
    reserved: sys::Reserved,
}

// SAFETY: the mapping is plain memory; `Extent` and `Lease` control who may access which part.
unsafe impl Send for Mapping {}
// SAFETY: the mapping is plain memory; `Extent` and `Lease` control who may access which part.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves a range of at least `pages_limit` pages, if possible several times as many.
    pub fn reserve(pages_limit: usize) -> Result<Mapping> {
        Mapping::of(reserve_best(pages_limit), pages_limit)
    }

    /// Reserves a range of exactly `pages_limit` pages. They are not taken from the explicit huge pages that the
    /// administrator set aside, because those would have to be prepared again for each use.
    pub fn reserve_exactly(pages_limit: usize) -> Result<Mapping> {
        Mapping::of(reserve(pages_limit, true), pages_limit)
    }

    fn of(reserved: Option<(sys::Reserved, usize, HugePages)>, pages_limit: usize) -> Result<Mapping> {
        let (reserved, pages, huge_pages) = reserved.ok_or_else(|| {
            Error::over_limit(format!(
                "the system does not give {} for the pool",
                crate::size_text((pages_limit * PAGE_BYTES) as u64)
            ))
            .advise("ask for less memory")
        })?;
        let start = reserved.start();
        let offset = start.align_offset(PAGE_BYTES);
        // SAFETY: one page more than `pages` was reserved, so that the aligned start lies inside.
        let base = unsafe { NonNull::new_unchecked(start.add(offset)) };
        Ok(Mapping { base, pages, huge_pages, reserved })
    }

    /// Returns the number of pages of the range.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Returns the kind of memory that backs the pages.
    pub fn huge_pages(&self) -> HugePages {
        self.huge_pages
    }

    /// Returns the address of byte `offset` of the range.
    #[inline]
    pub fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.pages * PAGE_BYTES, "an address outside the pool");
        // SAFETY: the address is within the one reserved allocation, as just checked.
        unsafe { self.base.add(offset) }
    }

    /// Prepares pages for writing. Does nothing except for explicit huge pages. These are taken from the system's stock
    /// here, so that a stock which another process has exhausted is noticed now, and not by a signal when the page is
    /// written; ordinary pages are then used instead.
    ///
    /// # Errors
    /// `OverLimit` when the system has no memory left.
    ///
    /// # Safety
    /// Nothing else may use these pages.
    pub unsafe fn prepare(&self, first: usize, count: usize) -> Result<()> {
        assert!(first + count <= self.pages, "pages outside the pool");
        if self.huge_pages != HugePages::Explicit {
            return Ok(());
        }
        // SAFETY: the range is part of this mapping, and the caller guarantees that nothing else uses it.
        let prepared =
            unsafe { self.reserved.prepare(self.at(first * PAGE_BYTES).as_ptr(), count * PAGE_BYTES) };
        let message = || Error::over_limit("the system has no memory left for the pool");
        if prepared { Ok(()) } else { Err(message()) }
    }

    /// Returns the memory of these pages to the system. From then on they read as zeros.
    ///
    /// # Safety
    /// Nothing else may read or write these pages until the call returns.
    pub unsafe fn release(&self, first: usize, count: usize) {
        assert!(first + count <= self.pages, "pages outside the pool");
        let explicit = self.huge_pages == HugePages::Explicit;
        // SAFETY: the range is part of this mapping, and the caller guarantees that nothing else uses it.
        unsafe { self.reserved.release(self.at(first * PAGE_BYTES).as_ptr(), count * PAGE_BYTES, explicit) }
    }
}

fn reserve_best(pages_limit: usize) -> Option<(sys::Reserved, usize, HugePages)> {
    RESERVE_FACTORS.into_iter().find_map(|factor| {
        let pages = pages_limit.checked_mul(factor)?.max(pages_limit);
        let (reserved, pages, huge_pages) = reserve(pages, factor > 0)?;
        let explicit = crate::huge::explicit_pages_free() >= pages_limit;
        Some((reserved, pages, if explicit { HugePages::Explicit } else { huge_pages }))
    })
}

/// Reserves a range of `pages` pages and one more for alignment; `None` if the system refuses.
fn reserve(pages: usize, counted_lazily: bool) -> Option<(sys::Reserved, usize, HugePages)> {
    let bytes = pages.checked_add(1)?.checked_mul(PAGE_BYTES)?;
    let reserved = sys::Reserved::new(bytes, counted_lazily)?;
    let transparent = reserved.ask_for_huge_pages() && crate::huge::transparent_granted();
    Some((reserved, pages, if transparent { HugePages::Transparent } else { HugePages::None }))
}

#[cfg(unix)]
mod sys {
    //! The implementation by `mmap` and `madvise`.

    const ACCESS: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
    const PRIVATE: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

    /// Maps fresh pages over a range, in place of those that are there. Returns whether that succeeded.
    ///
    /// # Safety
    /// The range must be mapped by this process, and nobody may use it during the call.
    unsafe fn replace(start: *mut u8, bytes: usize, flags: libc::c_int) -> bool {
        let flags = PRIVATE | libc::MAP_FIXED | flags;
        // SAFETY: the caller guarantees that the range is mapped and not used.
        unsafe { libc::mmap(start.cast(), bytes, ACCESS, flags, -1, 0) != libc::MAP_FAILED }
    }

    /// A mapping that is unmapped on drop.
    #[derive(Debug)]
    pub struct Reserved {
        start: *mut libc::c_void,
        bytes: usize,
    }

    impl Reserved {
        /// Creates a private mapping filled with zeros. With `counted_lazily`, memory is committed page by page when it
        /// is written; otherwise the system commits all of it now.
        pub fn new(bytes: usize, counted_lazily: bool) -> Option<Reserved> {
            let flags = PRIVATE | if counted_lazily { libc::MAP_NORESERVE } else { 0 };
            // SAFETY: a new anonymous mapping at an address of the system's choice touches nothing of ours.
            let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, ACCESS, flags, -1, 0) };
            (start != libc::MAP_FAILED).then_some(Reserved { start, bytes })
        }

        /// Maps explicit huge pages over a range, or ordinary ones if there are none. Returns whether that succeeded.
        ///
        /// # Safety
        /// The range must lie in this mapping, and nobody may use it during the call.
        pub unsafe fn prepare(&self, start: *mut u8, bytes: usize) -> bool {
            #[cfg(target_os = "linux")]
            const HUGE: libc::c_int = libc::MAP_HUGETLB | 21 << libc::MAP_HUGE_SHIFT;
            #[cfg(not(target_os = "linux"))]
            const HUGE: libc::c_int = 0;
            // SAFETY: the caller guarantees that the range is in this mapping and not used.
            [HUGE, 0].into_iter().any(|flags| unsafe { replace(start, bytes, flags) })
        }

        pub fn start(&self) -> *mut u8 {
            self.start.cast()
        }

        /// Asks for transparent huge pages, and excludes the pool from core dumps.
        pub fn ask_for_huge_pages(&self) -> bool {
            #[cfg(target_os = "linux")]
            // SAFETY: advice on our own mapping; neither changes its contents.
            unsafe {
                libc::madvise(self.start, self.bytes, libc::MADV_DONTDUMP);
                libc::madvise(self.start, self.bytes, libc::MADV_HUGEPAGE) == 0
            }
            #[cfg(not(target_os = "linux"))]
            false
        }

        /// # Safety
        /// The range lies in this mapping, and nobody uses it during the call.
        pub unsafe fn release(&self, start: *mut u8, bytes: usize, was_prepared: bool) {
            // A prepared range is replaced by one that is only reserved, like the rest of the mapping.
            // SAFETY: the caller guarantees that the range is in this mapping and not used.
            if was_prepared && unsafe { replace(start, bytes, libc::MAP_NORESERVE) } {
                return;
            }
            // Only Linux promises zeros afterwards, and it refuses on huge pages before version 5.18.
            // SAFETY: the caller guarantees that the range is in this mapping and not used.
            let zeroed = unsafe { libc::madvise(start.cast(), bytes, libc::MADV_DONTNEED) } == 0
                && cfg!(target_os = "linux");
            if !zeroed {
                // SAFETY: the caller guarantees that the range is in this mapping and not used.
                unsafe { start.write_bytes(0, bytes) }
            }
        }
    }

    impl Drop for Reserved {
        fn drop(&mut self) {
            // SAFETY: our own mapping; extents and leases keep the pool, and so this, alive.
            unsafe { libc::munmap(self.start, self.bytes) };
        }
    }
}

#[cfg(not(unix))]
mod sys {
    //! The implementation by the allocator, for systems without `mmap`: memory is taken at once, and released
    //! pages are only zeroed.

    use std::alloc::{Layout, alloc_zeroed, dealloc};

    /// An allocation that is freed when it is dropped.
    #[derive(Debug)]
    pub struct Reserved {
        start: *mut u8,
        layout: Layout,
    }

    impl Reserved {
        pub fn new(bytes: usize, counted_lazily: bool) -> Option<Reserved> {
            if counted_lazily {
                return None;
            }
            let layout = Layout::from_size_align(bytes, 4096).ok()?;
            // SAFETY: the size is not zero: there is always one page more than asked for.
            let start = unsafe { alloc_zeroed(layout) };
            (!start.is_null()).then_some(Reserved { start, layout })
        }

        pub unsafe fn prepare(&self, _start: *mut u8, _bytes: usize) -> bool {
            true
        }

        pub fn start(&self) -> *mut u8 {
            self.start
        }

        pub fn ask_for_huge_pages(&self) -> bool {
            false
        }

        /// # Safety
        /// The range lies in this allocation, and nobody uses it during the call.
        pub unsafe fn release(&self, start: *mut u8, bytes: usize, _was_prepared: bool) {
            // SAFETY: the caller guarantees that the range is in this allocation and not used.
            unsafe { start.write_bytes(0, bytes) }
        }
    }

    impl Drop for Reserved {
        fn drop(&mut self) {
            // SAFETY: allocated in `new` with this layout.
            unsafe { dealloc(self.start, self.layout) }
        }
    }
}
