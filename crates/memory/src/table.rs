//! Page table of the pool: which pages are free, which tenant owns each other page, how many pages each tenant has, and
//! the free ranges within them.
//!
//! Free pages are kept as runs (consecutive pages) ordered by address. An allocation takes the first run that is long
//! enough (first fit), so that the used part of the address range stays short. Invariant: a page of a free run has no
//! entry, and neither has a page that is being freed; no two free runs touch; `pages_used` is the sum over the tenants.
//!
//! Pages are freed in two steps, [`PageTable::retire`] and [`PageTable::give_back`]. Reason: the system takes long to
//! release many pages, and the lock is not held meanwhile. Example of what would go wrong in one step:
//! 1. Page 7 of tenant A becomes free, and the lock is released.
//! 2. Tenant B takes page 7, and writes to it.
//! 3. The release of step 1 reaches the system, and the bytes of B are gone.

use crate::pieces::FreePieces;
use farpool_model::TenantName;
use std::collections::{BTreeMap, HashMap};

/// Id of a page: its index in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(pub u32);

/// Index of a tenant in the page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TenantIndex(usize);

/// Expected lifetime of a piece. A page holds pieces of one tenure only, as long as there are free pages. Otherwise a
/// few long-lived pieces would keep pages in use after their short-lived pieces are freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tenure {
    /// Long-lived: as long as its table.
    Staying,
    /// Short-lived: until the memory is needed for something else.
    Passing,
}

impl Tenure {
    pub(crate) fn other(self) -> Tenure {
        match self {
            Tenure::Staying => Tenure::Passing,
            Tenure::Passing => Tenure::Staying,
        }
    }
}

/// Entry of a page that is in use: who owns it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageEntry {
    pub tenant: TenantIndex,
}

#[derive(Debug)]
pub(crate) struct Tenant {
    pub name: TenantName,
    pub pages_used: usize,
    pub pages_quota: Option<usize>,
    /// Free ranges of the pages that pieces of the tenant share, for each tenure.
    pub free_pieces: [FreePieces; 2],
}

#[derive(Debug)]
pub(crate) struct PageTable {
    entries: Vec<Option<PageEntry>>,
    /// Free runs (consecutive free pages): the number of pages by the index of the first page.
    free: BTreeMap<usize, usize>,
    tenants: Vec<Tenant>,
    by_name: HashMap<TenantName, TenantIndex>,
    pages_used: usize,
    /// For each page, whether it is free and has kept its memory.
    warm: Vec<bool>,
}

impl PageTable {
    pub fn new(pages: usize) -> Self {
        PageTable {
            entries: vec![None; pages],
            warm: vec![false; pages],
            free: if pages == 0 { BTreeMap::new() } else { BTreeMap::from([(0, pages)]) },
            tenants: Vec::new(),
            by_name: HashMap::new(),
            pages_used: 0,
        }
    }

    pub fn pages_used(&self) -> usize {
        self.pages_used
    }

    /// Returns whether all these pages have kept the memory of an earlier use.
    pub fn is_warm(&self, first: usize, count: usize) -> bool {
        self.warm[first..first + count].iter().all(|warm| *warm)
    }

    /// Records whether these pages have kept their memory.
    pub fn set_warm(&mut self, first: usize, count: usize, warm: bool) {
        self.warm[first..first + count].fill(warm);
    }

    /// Returns the first page and the number of pages of each free run.
    pub fn free_runs(&self) -> impl Iterator<Item = (usize, usize)> {
        self.free.iter().map(|(first, count)| (*first, *count))
    }

    /// Returns the number of free pages that have kept their memory.
    pub fn pages_kept(&self) -> usize {
        let kept = |(first, count): (usize, usize)| {
            self.warm[first..first + count].iter().filter(|warm| **warm).count()
        };
        self.free_runs().map(kept).sum()
    }

    pub fn tenants(&self) -> &[Tenant] {
        &self.tenants
    }

    pub fn tenant(&self, index: TenantIndex) -> &Tenant {
        &self.tenants[index.0]
    }

    pub fn entry(&self, page: PageId) -> Option<&PageEntry> {
        self.entries.get(page.0 as usize)?.as_ref()
    }

    pub fn find_tenant(&self, name: &TenantName) -> Option<TenantIndex> {
        self.by_name.get(name).copied()
    }

    pub fn tenant_index(&mut self, name: &TenantName) -> TenantIndex {
        if let Some(index) = self.find_tenant(name) {
            return index;
        }
        let index = TenantIndex(self.tenants.len());
        self.tenants.push(Tenant {
            name: name.clone(),
            pages_used: 0,
            pages_quota: None,
            free_pieces: Default::default(),
        });
        self.by_name.insert(name.clone(), index);
        index
    }

    /// Returns the free ranges within the pages of a tenant that have pieces of `tenure`.
    pub fn free_pieces(&mut self, index: TenantIndex, tenure: Tenure) -> &mut FreePieces {
        &mut self.tenants[index.0].free_pieces[tenure as usize]
    }

    pub fn set_quota(&mut self, index: TenantIndex, pages: Option<usize>) {
        self.tenants[index.0].pages_quota = pages;
    }

    /// Takes `count` pages of the first free run that is long enough, for the tenant `index`. Returns the first page;
    /// `None` if no run is long enough.
    pub fn take(&mut self, index: TenantIndex, count: usize) -> Option<usize> {
        let (&first, &length) = self.free.iter().find(|(_, length)| **length >= count)?;
        self.free.remove(&first);
        if length > count {
            self.free.insert(first + count, length - count);
        }
        let pages = &mut self.entries[first..first + count];
        assert!(pages.iter().all(Option::is_none), "a free page has no owner");
        pages.fill(Some(PageEntry { tenant: index }));
        self.tenants[index.0].pages_used += count;
        self.pages_used += count;
        Some(first)
    }

    /// Takes the ownership of pages from the tenant `index`, so that nobody can access them. They count as used until
    /// [`Self::give_back`].
    pub fn retire(&mut self, index: TenantIndex, first: usize, count: usize) {
        for entry in &mut self.entries[first..first + count] {
            let owner = entry.take().expect("a page is given back once");
            assert_eq!(owner.tenant, index, "a page is given back by its owner");
        }
    }

    /// Makes pages free that were retired by [`Self::retire`].
    pub fn give_back(&mut self, index: TenantIndex, first: usize, count: usize) {
        let is_retired = self.entries[first..first + count].iter().all(Option::is_none);
        assert!(is_retired, "pages are retired before they are free");
        let of_tenant = self.tenants[index.0].pages_used;
        assert!(
            count <= of_tenant && of_tenant <= self.pages_used,
            "pages are counted as used until they are free"
        );
        self.tenants[index.0].pages_used -= count;
        self.pages_used -= count;
        self.insert_free(first, count);
        debug_assert!(self.is_balanced(), "pages in use are the sum over the tenants");
    }

    /// Returns whether the pages in use are those of all tenants together; for assertions.
    fn is_balanced(&self) -> bool {
        self.pages_used == self.tenants.iter().map(|tenant| tenant.pages_used).sum::<usize>()
    }

    /// Adds a free run, after joining it with the free runs next to it.
    fn insert_free(&mut self, mut first: usize, mut count: usize) {
        if let Some((&before, &length)) = self.free.range(..first).next_back() {
            assert!(before + length <= first, "page {first} is free already");
            if before + length == first {
                self.free.remove(&before);
                first = before;
                count += length;
            }
        }
        if let Some(length) = self.free.remove(&(first + count)) {
            count += length;
        }
        let next = self.free.range(first..).next();
        assert!(next.is_none_or(|(next, _)| first + count < *next), "no two free runs touch");
        self.free.insert(first, count);
    }
}
