//! The memory pool: allocates extents (writable ranges of its pages) within its limit and the tenants' quotas, and
//! accounts for them.
//!
//! Terms: a *page* has 2 MiB. A *run* is the memory of one allocation; a *piece* is a run that shares its pages with
//! other pieces of its tenant.

#![expect(unsafe_code, reason = "pages go back when nobody reads or writes them any more")]

use crate::extent::{Extent, Run};
use crate::mapping::Mapping;
use crate::size_text;
use crate::table::{PageTable, TenantIndex, Tenure};
use crate::{HugePages, PageId};
use farpool_model::limits::PAGE_BYTES;
use farpool_model::{Error, ErrorKind, Result, TenantName};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Alignment of the starts and lengths of pieces, in bytes: a cache line, as Arrow recommends.
pub(crate) const PIECE_ALIGNMENT: usize = 64;

/// Alignment of the starts of large pieces, those of at least `LARGE_BYTES`: a page of the operating system, so that
/// direct I/O can read into them.
const LARGE_ALIGNMENT: usize = 4096;
const LARGE_BYTES: usize = 64 << 10;

/// Configuration of a pool: its limit.
#[derive(Clone, Copy, Debug)]
pub struct PoolConfig {
    /// Maximum number of bytes in use at once, rounded down to whole pages.
    pub bytes_limit: usize,
}

/// Makes allocations of a pool fail although there is room, for simulations and tests.
pub trait Failures: Send + Sync + std::fmt::Debug {
    /// Returns whether the next allocation fails.
    fn next_fails(&self) -> bool;
}

/// Evicts contents of a pool that can be restored, to make room. Implemented by a cache.
pub trait Reclaim: Send + Sync + std::fmt::Debug {
    /// Evicts something to make room for an allocation of `bytes`. If `tenant` is given, its quota is used up, so that
    /// only its own memory helps; otherwise memory of any tenant does. Returns false if nothing can be evicted.
    fn reclaim(&self, tenant: Option<&TenantName>, bytes: usize) -> bool;
}

/// Memory usage of a pool.
#[derive(Clone, Debug)]
pub struct PoolUsage {
    /// Maximum number of bytes in use at once.
    pub bytes_limit: u64,
    /// Bytes of the pages in use.
    pub bytes_used: u64,
    /// Kind of memory that backs the pages.
    pub huge_pages: HugePages,
    /// For each tenant that the pool knows, the bytes of its pages in use; ordered by tenant name.
    pub tenants: Vec<(TenantName, u64)>,
}

/// Pool of memory pages for several tenants. Extents and leases keep it alive.
#[derive(Debug)]
pub struct Pool {
    mapping: Mapping,
    pages_limit: usize,
    recycles: bool,
    failures: Option<Arc<dyn Failures>>,
    reclaim: OnceLock<Weak<dyn Reclaim>>,
    /// Whether pages keep their memory when they are freed, instead of returning it to the system.
    keeps: AtomicBool,
    table: Mutex<PageTable>,
    /// For each page, the number of runs (allocations) with bytes in it that may still be written. Incremented only
    /// under the lock of the page table, so that [`Pool::read_raw`] reads no page that is being written.
    writers: Box<[AtomicU32]>,
}

impl Pool {
    /// Creates a pool of which nothing is in use.
    ///
    /// # Errors
    /// `Invalid` when the limit is less than one page; `OverLimit` when the system does not grant the address
    /// range.
    pub fn new(config: PoolConfig) -> Result<Arc<Pool>> {
        Pool::failing(config, None)
    }

    /// Creates a pool in which `failures` may make allocations fail, for tests of error handling.
    ///
    /// # Errors
    /// As [`Pool::new`].
    pub fn failing(config: PoolConfig, failures: Option<Arc<dyn Failures>>) -> Result<Arc<Pool>> {
        let pool = Pool::over(Mapping::reserve(pages_of(config)?)?, config, false);
        Ok(Arc::new(Pool { failures, ..pool }))
    }

    /// Creates a pool in which freed pages keep their memory until [`Pool::trim`], so that reusing them costs no page
    /// faults. After a trim this begins again with the next allocation. The contents of an extent before it is written
    /// are unspecified, so such a pool is for a single owner. Pages in use and freed pages that keep their memory never
    /// exceed the limit together.
    ///
    /// # Errors
    /// As [`Pool::new`].
    pub fn recycling(config: PoolConfig) -> Result<Arc<Pool>> {
        Ok(Arc::new(Pool::over(Mapping::reserve_exactly(pages_of(config)?)?, config, true)))
    }

    fn over(mapping: Mapping, config: PoolConfig, recycles: bool) -> Pool {
        let table = Mutex::new(PageTable::new(mapping.pages()));
        let writers = (0..mapping.pages()).map(|_| AtomicU32::new(0)).collect();
        let pages_limit = config.bytes_limit / PAGE_BYTES;
        Pool {
            mapping,
            pages_limit,
            recycles,
            failures: None,
            reclaim: OnceLock::new(),
            keeps: AtomicBool::new(recycles),
            table,
            writers,
        }
    }

    /// Allocates contiguous whole pages: at least one, with at least `bytes` bytes. They are filled with zeros,
    /// unless the pool recycles its pages.
    ///
    /// # Errors
    /// `OverLimit` when the pool or the tenant's quota has not enough memory left, even after evicting what can be
    /// evicted.
    pub fn allocate(self: &Arc<Self>, tenant: &TenantName, bytes: usize) -> Result<Extent> {
        self.check_luck()?;
        self.with_room(tenant, bytes, || self.take_pages(tenant, bytes)).map(Extent::new)
    }

    /// Sets the object that evicts memory when an allocation finds no room. Only the first call has an effect.
    pub fn set_reclaim(&self, reclaim: Weak<dyn Reclaim>) {
        // The error means that an object is set already, which stays.
        let _ = self.reclaim.set(reclaim);
    }

    /// Returns whether contents of the pool can be evicted, so that the pool may hold tables larger than itself.
    pub fn reclaims(&self) -> bool {
        self.reclaim.get().is_some()
    }

    /// Repeats an allocation, evicting memory in between, until it succeeds or nothing more can be evicted.
    fn with_room(
        &self,
        tenant: &TenantName,
        bytes: usize,
        take: impl Fn() -> Result<Run, Shortage>,
    ) -> Result<Run> {
        loop {
            let shortage = match take() {
                Ok(run) => return Ok(run),
                Err(shortage) => shortage,
            };
            let reclaim =
                self.reclaim.get().filter(|_| shortage.of != ScarceResource::System).and_then(Weak::upgrade);
            let Some(reclaim) = reclaim else { return Err(shortage.error) };
            let tenant = (shortage.of == ScarceResource::Quota).then_some(tenant);
            if !reclaim.reclaim(tenant, bytes) {
                return Err(shortage.error.advise(
                    "what is in memory is in use or pinned: try again, or give the pool, or the tenant, more memory",
                ));
            }
        }
    }

    /// Allocates exactly `bytes` bytes, rounded up to a multiple of 64 (a piece). The address is a multiple of 64, or
    /// of 4096 for pieces of 64 KiB and more. Pieces may share pages with other pieces of the tenant and of the same
    /// tenure; if there is no further page, also with those of the other tenure. A page is freed when no piece has
    /// bytes in it; until then its free parts are used for further pieces. The contents before the first write are
    /// unspecified: zeros, or those of an earlier piece of the same tenant.
    ///
    /// # Errors
    /// As [`Pool::allocate`].
    pub fn allocate_piece(
        self: &Arc<Self>,
        tenant: &TenantName,
        bytes: usize,
        tenure: Tenure,
    ) -> Result<Extent> {
        self.check_luck()?;
        let bytes = bytes.max(1).next_multiple_of(PIECE_ALIGNMENT);
        let take = || {
            if let Some(run) = self.take_free_piece(tenant, bytes, tenure) {
                return Ok(run);
            }
            let (piece, rest) = self.take_pages(tenant, bytes)?.into_piece(bytes, tenure);
            // The rest of the pages becomes free for other pieces only here, when the pages are ready to be written.
            drop(rest);
            Ok(piece)
        };
        let taken = self.with_room(tenant, bytes, take);
        let beside = |short| self.take_free_piece(tenant, bytes, tenure.other()).ok_or(short);
        taken.or_else(beside).map(Extent::new)
    }

    fn take_free_piece(self: &Arc<Self>, tenant: &TenantName, bytes: usize, tenure: Tenure) -> Option<Run> {
        let mut table = self.table.lock();
        let index = table.tenant_index(tenant);
        let start = table.free_pieces(index, tenure).take(bytes, alignment_of(bytes))?;
        Some(Run::piece(Arc::clone(self), index, start..start + bytes, tenure))
    }

    /// Takes a free piece in a page before `page`, at the lowest possible address. Returns `None` if none was found.
    pub(crate) fn take_piece_before(
        self: &Arc<Self>,
        page: usize,
        index: TenantIndex,
        bytes: usize,
        tenure: Tenure,
    ) -> Option<Run> {
        let mut table = self.table.lock();
        let pieces = table.free_pieces(index, tenure);
        let start = pieces.take_before(page * PAGE_BYTES, bytes, alignment_of(bytes))?;
        Some(Run::piece(Arc::clone(self), index, start..start + bytes, tenure))
    }

    /// Takes whole pages for at least `bytes`, and prepares them for writing.
    fn take_pages(self: &Arc<Self>, tenant: &TenantName, bytes: usize) -> Result<Run, Shortage> {
        let count = bytes.div_ceil(PAGE_BYTES).max(1);
        self.keeps.store(self.recycles, Ordering::Relaxed);
        let mut table = self.table.lock();
        let index = table.tenant_index(tenant);
        self.check_room(&table, index, bytes, count)?;
        let first = table.take(index, count).ok_or_else(|| {
            let error = Error::over_limit(format!(
                "the pool has no contiguous {} left: its free pages are scattered",
                size_text(bytes as u64)
            ));
            Shortage { of: ScarceResource::Pages, error: error.advise("drop a table") }
        })?;
        let tenant = table.tenant(index);
        let is_within_quota = tenant.pages_quota.is_none_or(|quota| tenant.pages_used <= quota);
        let is_within = table.pages_used() <= self.pages_limit && is_within_quota;
        assert!(is_within, "pages in use exceed neither the limit of the pool nor the tenant's quota");
        let warm = table.is_warm(first, count);
        let run = Run::pages(Arc::clone(self), index, first..first + count, warm);
        drop(table);
        // SAFETY: the pages were free until now, and only the run knows them.
        unsafe { self.mapping.prepare(first, count) }
            .map_err(|error| Shortage { of: ScarceResource::System, error })?;
        Ok(run)
    }

    /// Counts one more run (allocation) that may write to these pages. Must be called under the lock of the page table,
    /// because [`Pool::read_raw`] checks the count under it and then reads the page.
    pub(crate) fn writer_comes(&self, pages: Range<usize>) {
        for writers in &self.writers[pages] {
            writers.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts one run (allocation) less that may write to these pages.
    pub(crate) fn writer_goes(&self, pages: Range<usize>) {
        for writers in &self.writers[pages] {
            // Release ordering: a thread that reads a count of zero also sees all that was written to the page.
            let before = writers.fetch_sub(1, Ordering::Release);
            assert!(before > 0, "a run leaves the pages that it came to");
        }
    }

    fn check_luck(&self) -> Result<()> {
        match self.failures.as_ref().is_some_and(|failures| failures.next_fails()) {
            true => Err(Error::over_limit("the pool has no room: this allocation was made to fail")),
            false => Ok(()),
        }
    }

    fn check_room(
        &self,
        table: &PageTable,
        index: TenantIndex,
        bytes: usize,
        count: usize,
    ) -> Result<(), Shortage> {
        let size = |pages: usize| size_text((pages * PAGE_BYTES) as u64);
        let wanted = size_text((bytes as u64).max(PAGE_BYTES as u64));
        let free = self.pages_limit.saturating_sub(table.pages_used());
        if count > free {
            let limit = size(self.pages_limit);
            let message =
                format!("the pool cannot give {wanted}: {} of its {limit} of memory are free", size(free));
            let error = Error::over_limit(message)
                .advise("drop a table that is no longer needed, or start the pool with more memory");
            return Err(Shortage { of: ScarceResource::Pages, error });
        }
        let tenant = table.tenant(index);
        let left = tenant.pages_quota.map(|quota| quota.saturating_sub(tenant.pages_used));
        if let (Some(left), Some(quota)) = (left, tenant.pages_quota)
            && count > left
        {
            let error = Error::over_limit(format!(
                "tenant {} cannot have {wanted}: {} of its quota of {} are free",
                tenant.name,
                size(left),
                size(quota)
            ));
            let error = error.advise("drop a table that is no longer needed, or ask for a larger quota");
            return Err(Shortage { of: ScarceResource::Quota, error });
        }
        Ok(())
    }

    /// Returns the bytes of pages that the tenant can still allocate: free in the pool, and within the tenant's quota.
    pub fn bytes_free(&self, tenant: &TenantName) -> u64 {
        let table = self.table.lock();
        let free = self.pages_limit.saturating_sub(table.pages_used());
        let tenant = table.find_tenant(tenant).map(|index| table.tenant(index));
        let left = tenant.and_then(|t| Some(t.pages_quota?.saturating_sub(t.pages_used)));
        (left.map_or(free, |left| left.min(free)) * PAGE_BYTES) as u64
    }

    /// Returns the free bytes within the tenant's pages for long-lived pieces ([`Tenure::Staying`]).
    pub fn bytes_free_for_pieces(&self, tenant: &TenantName) -> u64 {
        let mut table = self.table.lock();
        let index = table.find_tenant(tenant);
        index.map_or(0, |index| table.free_pieces(index, Tenure::Staying).bytes() as u64)
    }

    /// Returns the current usage of the pool.
    pub fn usage(&self) -> PoolUsage {
        let table = self.table.lock();
        let bytes = |pages: usize| (pages * PAGE_BYTES) as u64;
        let mut tenants: Vec<(TenantName, u64)> =
            table.tenants().iter().map(|t| (t.name.clone(), bytes(t.pages_used))).collect();
        tenants.sort();
        PoolUsage {
            bytes_limit: bytes(self.pages_limit),
            bytes_used: bytes(table.pages_used()),
            huge_pages: self.mapping.huge_pages(),
            tenants,
        }
    }

    /// Returns the bytes of pages in use.
    pub fn bytes_used(&self) -> usize {
        self.table.lock().pages_used() * PAGE_BYTES
    }

    /// Returns how many bytes of the page `page` of the tenant `index` are occupied: all but those in which another
    /// piece (an allocation that shares pages with others of its tenant) could be placed. A page of which little is
    /// occupied is worth emptying.
    pub(crate) fn page_bytes_used(&self, index: TenantIndex, page: usize) -> usize {
        let mut table = self.table.lock();
        let free = |tenure| table.free_pieces(index, tenure).bytes_in(page);
        PAGE_BYTES - [Tenure::Staying, Tenure::Passing].map(free).iter().sum::<usize>()
    }

    /// Returns the bytes of free pages that keep their memory for reuse.
    pub fn bytes_kept(&self) -> usize {
        self.table.lock().pages_kept() * PAGE_BYTES
    }

    /// Returns the memory of all free pages to the system. Until the next allocation, pages that are freed also return
    /// their memory.
    pub fn trim(&self) {
        self.keeps.store(false, Ordering::Relaxed);
        // The lock is held throughout, so that no page is taken meanwhile. That is acceptable because this is called
        // only when the process is idle.
        let mut table = self.table.lock();
        let free: Vec<(usize, usize)> = table.free_runs().collect();
        for (first, count) in free {
            table.set_warm(first, count, false);
            // SAFETY: neither an extent nor a lease reaches free pages, and none are taken under the lock.
            unsafe { self.mapping.release(first, count) };
        }
    }

    /// Limits the bytes of pages that a tenant may hold, rounded down to whole pages; `None` lifts the limit. Pages
    /// that the tenant already holds stay, even if they exceed it.
    pub fn set_quota(&self, tenant: &TenantName, bytes: Option<usize>) {
        let mut table = self.table.lock();
        let index = table.tenant_index(tenant);
        table.set_quota(index, bytes.map(|bytes| bytes / PAGE_BYTES));
    }

    /// Returns the maximum number of bytes that a tenant may hold; `None` if it has no quota.
    pub fn quota(&self, tenant: &TenantName) -> Option<u64> {
        let table = self.table.lock();
        let pages = table.find_tenant(tenant).and_then(|index| table.tenant(index).pages_quota)?;
        Some((pages * PAGE_BYTES) as u64)
    }

    /// Copies bytes of a page of the tenant.
    ///
    /// # Errors
    /// `Denied` unless the page is the tenant's (a free page belongs to no tenant); `Invalid` when the range
    /// does not lie in a page; `Unavailable` while the page is being written.
    pub fn read_raw(&self, tenant: &TenantName, page: PageId, range: Range<usize>) -> Result<Vec<u8>> {
        if range.start > range.end || range.end > PAGE_BYTES {
            return Err(Error::invalid(format!("bytes {range:?} do not lie in a page of {PAGE_BYTES}")));
        }
        // The lock is held during the copy, so that the page cannot be returned to the system meanwhile.
        let table = self.table.lock();
        if table.entry(page).is_none_or(|entry| table.tenant(entry.tenant).name != *tenant) {
            let message = format!("page {} does not belong to tenant {tenant}", page.0);
            return Err(Error::new(ErrorKind::Denied, message));
        }
        if self.writers[page.0 as usize].load(Ordering::Acquire) > 0 {
            return Err(Error::unavailable(format!("page {} is being written", page.0)));
        }
        let start = self.mapping.at(page.0 as usize * PAGE_BYTES + range.start);
        // SAFETY: the page is in use, so that the range is mapped. No extent can write to it, because none existed
        // and none is created while the lock is held; leases only read.
        Ok(unsafe { std::slice::from_raw_parts(start.as_ptr(), range.len()) }.to_vec())
    }

    #[inline]
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Frees a piece for further allocations of the tenant. Pages without any piece become free for all tenants.
    ///
    /// # Safety
    /// Neither an extent nor a lease may have these bytes.
    pub(crate) unsafe fn give_piece_back(&self, index: TenantIndex, bytes: Range<usize>, tenure: Tenure) {
        let pages = self.table.lock().free_pieces(index, tenure).give(bytes);
        // SAFETY: no piece reaches into these pages, and they are no longer among those that are free for pieces.
        unsafe { self.give_back(index, pages.start, pages.len()) }
    }

    /// Frees pages and returns their memory to the system, unless the pool keeps it.
    ///
    /// # Safety
    /// Neither an extent nor a lease may have bytes of these pages.
    pub(crate) unsafe fn give_back(&self, index: TenantIndex, first: usize, count: usize) {
        if count == 0 {
            return;
        }
        if self.keeps.load(Ordering::Relaxed) {
            let mut table = self.table.lock();
            table.retire(index, first, count);
            table.set_warm(first, count, true);
            return table.give_back(index, first, count);
        }
        self.table.lock().retire(index, first, count);
        // Outside the lock, because the system takes long to release many pages. SAFETY: the caller guarantees that
        // no extent or lease has bytes of the pages; `read_raw` refuses retired pages.
        unsafe { self.mapping.release(first, count) };
        let mut table = self.table.lock();
        table.set_warm(first, count, false);
        table.give_back(index, first, count);
    }
}

/// Reason why an allocation found no room.
struct Shortage {
    of: ScarceResource,
    error: Error,
}

/// Resource that an allocation lacks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScarceResource {
    /// Free pages of the pool, or enough contiguous ones.
    Pages,
    /// Unused pages of the tenant's quota.
    Quota,
    /// Memory of the system.
    System,
}

/// Returns the alignment of the start of a piece.
fn alignment_of(bytes: usize) -> usize {
    if bytes < LARGE_BYTES { PIECE_ALIGNMENT } else { LARGE_ALIGNMENT }
}

fn pages_of(config: PoolConfig) -> Result<usize> {
    let pages = config.bytes_limit / PAGE_BYTES;
    if pages == 0 {
        return Err(Error::invalid(format!(
            "a pool needs at least {}, not {}",
            size_text(PAGE_BYTES as u64),
            size_text(config.bytes_limit as u64)
        )));
    }
    Ok(pages)
}
