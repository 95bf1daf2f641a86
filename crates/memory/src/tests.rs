//! Tests random sequences of pool operations against a model that counts in plain integers.
//!
//! A *run* is the memory of one allocation, which extents write and leases read.

use crate::{Extent, Lease, LeaseSlice, PageId, Pool, PoolConfig};
use farpool_model::limits::PAGE_BYTES;
use farpool_model::{ErrorKind, TenantName};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

mod pieces;

fn tenant(number: usize) -> TenantName {
    TenantName::new(format!("tenant-{number}")).unwrap()
}

fn pool(pages: usize) -> Arc<Pool> {
    Pool::new(PoolConfig { bytes_limit: pages * PAGE_BYTES + 17 }).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Allocate { tenant: usize, bytes: usize },
    Split { which: usize, permille: usize },
    Freeze { which: usize, permille: usize },
    CloneLease { which: usize },
    Slice { which: usize, from: usize, to: usize },
    DropExtent { which: usize },
    DropLease { which: usize },
    Quota { tenant: usize, pages: Option<usize> },
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0..64usize;
    prop_oneof![
        3 => (0..3usize, 0..5 * PAGE_BYTES).prop_map(|(tenant, bytes)| Step::Allocate { tenant, bytes }),
        1 => (which.clone(), 0..=1000usize).prop_map(|(which, permille)| Step::Split { which, permille }),
        3 => (which.clone(), 0..=1000usize).prop_map(|(which, permille)| Step::Freeze { which, permille }),
        1 => which.clone().prop_map(|which| Step::CloneLease { which }),
        1 => (which.clone(), 0..=1000usize, 0..=1000usize)
            .prop_map(|(which, from, to)| Step::Slice { which, from: from.min(to), to: from.max(to) }),
        1 => which.clone().prop_map(|which| Step::DropExtent { which }),
        2 => which.prop_map(|which| Step::DropLease { which }),
        1 => (0..3usize, prop::option::of(0..12usize)).prop_map(|(tenant, pages)| Step::Quota { tenant, pages }),
    ]
}

/// A run (allocation) in the model: its tenant, its pages, and the number of its extents and leases.
struct ModelRun {
    tenant: usize,
    pages_kept: usize,
    parts: usize,
    writers: usize,
}

struct LiveExtent {
    extent: Extent,
    run: usize,
    start: usize,
    is_tail: bool,
}

struct LiveLease {
    lease: Lease,
    run: usize,
    /// The value that every byte of the lease was set to, and must still have.
    mark: u8,
}

#[derive(Default)]
struct World {
    runs: HashMap<usize, ModelRun>,
    extents: Vec<LiveExtent>,
    leases: Vec<LiveLease>,
    slices: Vec<(LeaseSlice, usize, u8)>,
    quotas: HashMap<usize, usize>,
    runs_made: usize,
    mark: u8,
}

const PAGES: usize = 16;

impl World {
    fn used(&self, of: Option<usize>) -> usize {
        self.runs.values().filter(|run| of.is_none_or(|t| t == run.tenant)).map(|run| run.pages_kept).sum()
    }

    fn take<T>(list: &mut Vec<T>, which: usize) -> Option<T> {
        (!list.is_empty()).then(|| list.swap_remove(which % list.len()))
    }

    fn part_gone(&mut self, run: usize) {
        let model = self.runs.get_mut(&run).unwrap();
        model.parts -= 1;
        if model.parts == 0 {
            self.runs.remove(&run);
        }
    }

    fn allocate(&mut self, pool: &Arc<Pool>, number: usize, bytes: usize) {
        let pages = bytes.div_ceil(PAGE_BYTES).max(1);
        let quota_ok = self.quotas.get(&number).is_none_or(|q| self.used(Some(number)) + pages <= *q);
        let fits = self.used(None) + pages <= PAGES && quota_ok;
        let got = pool.allocate(&tenant(number), bytes);
        assert_eq!(got.is_ok(), fits, "{got:?}");
        let Ok(mut extent) = got else {
            return assert_eq!(got.unwrap_err().kind, ErrorKind::OverLimit);
        };
        assert_eq!(extent.len(), pages * PAGE_BYTES);
        assert!(extent.as_mut_slice().iter().step_by(509).all(|b| *b == 0), "fresh pages are zero");
        let run = self.runs_made;
        self.runs_made += 1;
        self.runs.insert(run, ModelRun { tenant: number, pages_kept: pages, parts: 1, writers: 1 });
        self.extents.push(LiveExtent { extent, run, start: 0, is_tail: true });
    }

    fn split(&mut self, which: usize, permille: usize) {
        let Some(mut live) = Self::take(&mut self.extents, which) else { return };
        let bytes = live.extent.len() * permille / 1000;
        let all = bytes == live.extent.len();
        let front = live.extent.split_to(bytes);
        let model = self.runs.get_mut(&live.run).unwrap();
        model.parts += 1;
        model.writers += 1;
        let is_tail = live.is_tail && all;
        let front = LiveExtent { extent: front, run: live.run, start: live.start, is_tail };
        live.start += bytes;
        self.extents.extend([front, live]);
    }

    /// Records that an extent was frozen or dropped. If it was the last one of its run (`is_tail`), the whole pages
    /// behind byte `start` of the run are freed.
    fn writer_gone(&mut self, run: usize, start: usize, is_tail: bool) {
        let model = self.runs.get_mut(&run).unwrap();
        model.writers -= 1;
        if is_tail {
            model.pages_kept = model.pages_kept.min(start.div_ceil(PAGE_BYTES));
        }
    }

    fn freeze(&mut self, which: usize, permille: usize) {
        let Some(mut live) = Self::take(&mut self.extents, which) else { return };
        let used = live.extent.len() * permille / 1000;
        self.mark = self.mark.wrapping_add(1).max(1);
        live.extent.as_mut_slice()[..used].fill(self.mark);
        let lease = live.extent.freeze(used);
        assert_eq!(lease.len(), used);
        self.writer_gone(live.run, live.start + used, live.is_tail);
        self.leases.push(LiveLease { lease, run: live.run, mark: self.mark });
    }

    fn apply(&mut self, pool: &Arc<Pool>, step: &Step) {
        match *step {
            Step::Allocate { tenant, bytes } => self.allocate(pool, tenant, bytes),
            Step::Split { which, permille } => self.split(which, permille),
            Step::Freeze { which, permille } => self.freeze(which, permille),
            Step::CloneLease { which } if !self.leases.is_empty() => {
                let live = &self.leases[which % self.leases.len()];
                let copy = LiveLease { lease: live.lease.clone(), ..*live };
                self.runs.get_mut(&copy.run).unwrap().parts += 1;
                self.leases.push(copy);
            }
            Step::Slice { which, from, to } if !self.leases.is_empty() => {
                let live = &self.leases[which % self.leases.len()];
                let at = |permille: usize| live.lease.len() * permille / 1000;
                let slice = (live.lease.slice(at(from)..at(to)), live.run, live.mark);
                self.runs.get_mut(&slice.1).unwrap().parts += 1;
                self.slices.push(slice);
            }
            Step::CloneLease { .. } | Step::Slice { .. } => {}
            Step::DropExtent { which } => {
                if let Some(live) = Self::take(&mut self.extents, which) {
                    drop(live.extent);
                    self.writer_gone(live.run, live.start, live.is_tail);
                    self.part_gone(live.run);
                }
            }
            Step::DropLease { which } => {
                if let Some((slice, run, _)) = Self::take(&mut self.slices, which) {
                    drop(slice);
                    self.part_gone(run);
                } else if let Some(live) = Self::take(&mut self.leases, which) {
                    drop(live.lease);
                    self.part_gone(live.run);
                }
            }
            Step::Quota { tenant: number, pages } => {
                pool.set_quota(&tenant(number), pages.map(|pages| pages * PAGE_BYTES + 5));
                match pages {
                    Some(pages) => self.quotas.insert(number, pages),
                    None => self.quotas.remove(&number),
                };
            }
        }
    }

    fn check(&self, pool: &Pool) {
        let usage = pool.usage();
        assert_eq!(usage.bytes_limit, (PAGES * PAGE_BYTES) as u64);
        assert_eq!(usage.bytes_used, (self.used(None) * PAGE_BYTES) as u64);
        for (name, bytes) in &usage.tenants {
            let number = (0..3).find(|n| tenant(*n) == *name).unwrap();
            assert_eq!(*bytes, (self.used(Some(number)) * PAGE_BYTES) as u64);
        }
        // Each lease has only the bytes that were written to it; if extents overlapped, that would show here.
        for live in &self.leases {
            assert!(live.lease.iter().step_by(251).all(|byte| *byte == live.mark));
            self.check_raw(pool, live);
        }
        assert!(self.slices.iter().all(|(slice, _, mark)| slice.iter().step_by(251).all(|b| b == mark)));
    }

    fn check_raw(&self, pool: &Pool, live: &LiveLease) {
        let Some(page) = live.lease.pages().first() else { return };
        let run = &self.runs[&live.run];
        let stranger = tenant((run.tenant + 1) % 3);
        assert_eq!(pool.read_raw(&stranger, *page, 0..1).unwrap_err().kind, ErrorKind::Denied);
        let own = pool.read_raw(&tenant(run.tenant), *page, 0..PAGE_BYTES);
        match run.writers {
            0 => assert_eq!(own.unwrap().len(), PAGE_BYTES),
            _ => assert_eq!(own.unwrap_err().kind, ErrorKind::Unavailable),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_pool_agrees_with_a_naive_model(steps in prop::collection::vec(step(), 1..60)) {
        let pool = pool(PAGES);
        let mut world = World::default();
        for step in &steps {
            world.apply(&pool, step);
            world.check(&pool);
        }
        drop(world);
        prop_assert_eq!(pool.usage().bytes_used, 0);
    }
}

#[test]
fn a_refusal_names_what_was_wanted_and_what_is_free() {
    let pool = pool(4);
    let _held = pool.allocate(&tenant(0), 3 * PAGE_BYTES).unwrap();
    let error = pool.allocate(&tenant(0), 2 * PAGE_BYTES).unwrap_err();
    assert_eq!(error.message, "the pool cannot give 4.0 MiB: 2.0 MiB of its 8.0 MiB of memory are free");
    pool.set_quota(&tenant(1), Some(PAGE_BYTES));
    let held = pool.allocate(&tenant(1), 1).unwrap();
    drop(held);
    let error = pool.allocate(&tenant(1), PAGE_BYTES + 1).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit);
}

#[test]
fn free_memory_is_what_both_limit_and_quota_leave() {
    let pool = pool(4);
    assert_eq!(pool.bytes_free(&tenant(0)), 4 * PAGE_BYTES as u64);
    pool.set_quota(&tenant(0), Some(2 * PAGE_BYTES));
    let _held = pool.allocate(&tenant(0), 1).unwrap();
    assert_eq!(pool.bytes_free(&tenant(0)), PAGE_BYTES as u64);
    assert_eq!(pool.bytes_free(&tenant(1)), 3 * PAGE_BYTES as u64);
}

#[test]
fn a_free_page_is_nobodys_and_reads_as_zeros_when_it_is_given_out_again() {
    let pool = pool(1);
    let mut extent = pool.allocate(&tenant(0), 1).unwrap();
    extent.as_mut_slice().fill(0xAB);
    let lease = extent.freeze(PAGE_BYTES);
    let page = lease.pages()[0];
    assert_eq!(pool.read_raw(&tenant(0), page, 5..7).unwrap(), [0xAB, 0xAB]);
    drop(lease);
    assert_eq!(pool.read_raw(&tenant(0), page, 0..1).unwrap_err().kind, ErrorKind::Denied);
    assert_eq!(pool.read_raw(&tenant(0), PageId(u32::MAX), 0..1).unwrap_err().kind, ErrorKind::Denied);
    let mut extent = pool.allocate(&tenant(1), PAGE_BYTES).unwrap();
    assert!(extent.as_mut_slice().iter().all(|byte| *byte == 0));
}

#[test]
fn less_than_a_page_is_no_pool() {
    assert_eq!(Pool::new(PoolConfig { bytes_limit: PAGE_BYTES - 1 }).unwrap_err().kind, ErrorKind::Invalid);
}

#[test]
fn a_lease_outlives_every_other_handle_to_its_pool() {
    let pool = pool(2);
    let mut extent = pool.allocate(&tenant(0), 10).unwrap();
    extent.as_mut_slice()[..5].copy_from_slice(b"still");
    let slice = extent.freeze(5).slice(0..5);
    drop(pool);
    assert_eq!(&*slice, b"still");
}

#[test]
fn a_recycling_pool_gives_its_pages_out_again_and_lets_them_go_when_it_is_trimmed() {
    let pool = Pool::recycling(PoolConfig { bytes_limit: 3 * PAGE_BYTES }).unwrap();
    let owner = tenant(0);
    let filled = |bytes: usize, value: u8| {
        let mut extent = pool.allocate(&owner, bytes).unwrap();
        extent.as_mut_slice().fill(value);
        extent.freeze(bytes)
    };
    let (first, second) = (filled(PAGE_BYTES + 1, 7), filled(10, 8));
    assert_eq!(pool.bytes_used(), 3 * PAGE_BYTES);
    assert_eq!(pool.allocate(&owner, 1).unwrap_err().kind, ErrorKind::OverLimit);
    drop(first);
    assert_eq!(pool.bytes_used(), PAGE_BYTES);
    let mut again = pool.allocate(&owner, 2 * PAGE_BYTES).unwrap();
    assert!(again.is_warm());
    again.as_mut_slice().fill(9);
    assert!(second.iter().all(|byte| *byte == 8));
    drop(again);
    assert_eq!(pool.bytes_kept(), 2 * PAGE_BYTES);
    pool.trim();
    assert_eq!(pool.bytes_kept(), 0);
    assert!(second.iter().all(|byte| *byte == 8));
    let mut fresh = pool.allocate(&owner, 2 * PAGE_BYTES).unwrap();
    assert!(!fresh.is_warm() && fresh.as_mut_slice().iter().all(|byte| *byte == 0));
    assert!(Pool::recycling(PoolConfig { bytes_limit: PAGE_BYTES - 1 }).is_err());
}
