//! Tests random pieces (allocations that share pages) of several tenants against a model that only knows the
//! address range of each piece.

use super::{pool, tenant};
use crate::{Extent, Lease, PageId, Pool, Tenure};
use farpool_model::ErrorKind;
use farpool_model::limits::PAGE_BYTES;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

const PAGES: usize = 24;
const TENANTS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Allocate { kind: usize, bytes: usize },
    Freeze { which: usize },
    Lower { which: usize },
    DropExtent { which: usize },
    DropLease { which: usize },
}

fn tenure(kind: usize) -> Tenure {
    if kind.is_multiple_of(2) { Tenure::Staying } else { Tenure::Passing }
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![
        4 => 0..2_000usize,
        3 => 0..PAGE_BYTES / 3,
        1 => PAGE_BYTES - 100..PAGE_BYTES + 100,
        1 => 0..3 * PAGE_BYTES,
    ];
    prop_oneof![
        6 => (0..2 * TENANTS, bytes).prop_map(|(kind, bytes)| Step::Allocate { kind, bytes }),
        6 => (0..64usize).prop_map(|which| Step::Freeze { which }),
        1 => (0..64usize).prop_map(|which| Step::Lower { which }),
        1 => (0..64usize).prop_map(|which| Step::DropExtent { which }),
        4 => (0..64usize).prop_map(|which| Step::DropLease { which }),
    ]
}

/// A piece (an allocation that shares pages) in the model.
struct Live<T> {
    held: T,
    /// Kind of the piece: twice the index of its tenant, plus one if it is short-lived.
    kind: usize,
    /// Range of bytes of the piece, relative to the start of the pool, where the very first piece is.
    place: Range<usize>,
    mark: u8,
}

#[derive(Default)]
struct World {
    base: usize,
    extents: Vec<Live<Extent>>,
    leases: Vec<Live<Lease>>,
    mark: u8,
}

impl World {
    fn take<T>(list: &mut Vec<T>, which: usize) -> Option<T> {
        (!list.is_empty()).then(|| list.swap_remove(which % list.len()))
    }

    fn places(&self) -> impl Iterator<Item = (usize, &Range<usize>)> {
        let extents = self.extents.iter().map(|live| (live.kind, &live.place));
        extents.chain(self.leases.iter().map(|live| (live.kind, &live.place)))
    }

    /// Returns the pages that have bytes of pieces, with the kinds of these pieces.
    fn pages(&self) -> BTreeMap<usize, BTreeSet<usize>> {
        let mut pages: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (kind, place) in self.places() {
            let of_piece = place.start / PAGE_BYTES..place.end.div_ceil(PAGE_BYTES);
            for page in of_piece {
                pages.entry(page).or_default().insert(kind);
            }
        }
        pages
    }

    fn apply(&mut self, pool: &Arc<Pool>, step: &Step) {
        match *step {
            Step::Allocate { kind, bytes } => {
                self.mark = self.mark.wrapping_add(1);
                let pages = self.pages();
                let is_full = pages.len() + bytes.div_ceil(PAGE_BYTES).max(1) > PAGES;
                let mut held = match pool.allocate_piece(&tenant(kind / 2), bytes, tenure(kind)) {
                    Ok(held) => held,
                    Err(error) => {
                        assert_eq!(error.kind, ErrorKind::OverLimit);
                        assert!(is_full, "{error}");
                        return;
                    }
                };
                assert_eq!(held.len(), bytes.max(1).next_multiple_of(64));
                let start = held.as_mut_slice().as_ptr() as usize - self.base;
                assert!(start.is_multiple_of(if bytes < 64 << 10 { 64 } else { 4096 }));
                held.as_mut_slice().fill(self.mark);
                let place = start..start + held.len();
                let of_others = |kinds: &BTreeSet<usize>| kinds.iter().any(|other| *other != kind);
                let is_shared = pages.get(&(start / PAGE_BYTES)).is_some_and(of_others);
                assert!(is_full || !is_shared, "a page is of one tenure as long as there are others");
                self.extents.push(Live { held, kind, place, mark: self.mark });
            }
            Step::Freeze { which } => {
                let Some(Live { held, kind, place, mark }) = Self::take(&mut self.extents, which) else {
                    return;
                };
                let held = held.freeze(place.len());
                self.leases.push(Live { held, kind, place, mark });
            }
            Step::Lower { which } => self.lower(which),
            Step::DropExtent { which } => drop(Self::take(&mut self.extents, which)),
            Step::DropLease { which } => drop(Self::take(&mut self.leases, which)),
        }
    }

    /// Replaces an extent by one in a page at a lower address.
    fn lower(&mut self, which: usize) {
        let Some(old) = Self::take(&mut self.extents, which) else { return };
        let Some(mut held) = old.held.allocate_lower() else { return self.extents.push(old) };
        assert_eq!(held.len(), old.place.len());
        let start = held.as_mut_slice().as_ptr() as usize - self.base;
        assert!(start.is_multiple_of(if old.place.len() < 64 << 10 { 64 } else { 4096 }));
        let place = start..start + held.len();
        assert!(place.end.div_ceil(PAGE_BYTES) <= old.place.start / PAGE_BYTES, "{place:?}, {:?}", old.place);
        held.as_mut_slice().fill(old.mark);
        assert!(held.as_slice().iter().all(|byte| *byte == old.mark));
        self.extents.push(Live { held, place, ..old });
    }

    /// Returns the number of bytes of a page that belong to pieces.
    fn bytes_used(&self, page: usize) -> usize {
        let (from, to) = (page * PAGE_BYTES, (page + 1) * PAGE_BYTES);
        let within = |place: &Range<usize>| place.end.min(to).saturating_sub(place.start.max(from));
        self.places().map(|(_, place)| within(place)).sum()
    }

    fn check(&self, pool: &Pool) {
        for live in &self.extents {
            assert_eq!(live.held.page_bytes_used(), self.bytes_used(live.place.start / PAGE_BYTES));
        }
        let mut places: Vec<&Range<usize>> = self.places().map(|(_, place)| place).collect();
        places.sort_by_key(|place| place.start);
        assert!(places.is_sorted_by(|one, next| one.end <= next.start), "pieces overlap");
        for live in &self.leases {
            assert!(live.held.iter().step_by(97).all(|byte| *byte == live.mark));
        }
        let pages = self.pages();
        let tenants =
            |kinds: &BTreeSet<usize>| kinds.iter().map(|kind| kind / 2).collect::<BTreeSet<_>>().len();
        assert!(pages.values().all(|kinds| tenants(kinds) == 1), "a page is of one tenant");
        for (name, bytes) in &pool.usage().tenants {
            let number = (0..TENANTS).find(|number| tenant(*number) == *name).unwrap();
            let is_own = |kinds: &&BTreeSet<usize>| kinds.iter().any(|kind| kind / 2 == number);
            let own = pages.values().filter(is_own).count();
            assert_eq!(*bytes, (own * PAGE_BYTES) as u64, "whole pages are counted, and given back");
        }
        pages.iter().for_each(|(page, kinds)| self.check_raw(pool, *page, kinds.first().unwrap() / 2));
    }

    fn check_raw(&self, pool: &Pool, page: usize, owner: usize) {
        let id = PageId(page as u32);
        let within =
            |place: &Range<usize>| place.start < (page + 1) * PAGE_BYTES && place.end > page * PAGE_BYTES;
        let stranger = tenant((owner + 1) % TENANTS);
        assert_eq!(pool.read_raw(&stranger, id, 0..1).unwrap_err().kind, ErrorKind::Denied);
        let read = pool.read_raw(&tenant(owner), id, 0..PAGE_BYTES);
        if self.extents.iter().any(|live| within(&live.place)) {
            return assert_eq!(read.unwrap_err().kind, ErrorKind::Unavailable);
        }
        let read = read.unwrap();
        for live in self.leases.iter().filter(|live| within(&live.place)) {
            assert!(live.held.pages().contains(&id));
            let first = live.place.start.max(page * PAGE_BYTES) - page * PAGE_BYTES;
            assert_eq!(read[first], live.mark);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn pieces_agree_with_a_naive_model(steps in prop::collection::vec(step(), 1..120)) {
        let pool = pool(PAGES);
        let base = pool.mapping().at(0).as_ptr() as usize;
        let mut world = World { base, ..World::default() };
        for step in &steps {
            world.apply(&pool, step);
            world.check(&pool);
        }
        drop(world);
        prop_assert_eq!(pool.usage().bytes_used, 0);
    }
}

#[test]
fn a_piece_finds_room_in_a_page_before_its_own() {
    let pool = pool(4);
    let piece = || pool.allocate_piece(&tenant(0), PAGE_BYTES / 2, Tenure::Staying).unwrap();
    let mut pieces: Vec<Extent> = (0..5).map(|_| piece()).collect();
    let last = pieces.pop().unwrap();
    assert!(last.allocate_lower().is_none(), "the pages before are full");
    assert_eq!(last.page_bytes_used(), PAGE_BYTES / 2);
    pieces.remove(1);
    let lower = last.allocate_lower().unwrap();
    assert_eq!(lower.page_bytes_used(), PAGE_BYTES);
    drop(last);
    assert_eq!(pool.bytes_used(), 2 * PAGE_BYTES);
    assert!(pool.allocate(&tenant(0), 1).unwrap().allocate_lower().is_none(), "not a piece");
}

#[test]
fn where_no_page_is_left_pieces_that_stay_lie_beside_others() {
    let pool = pool(1);
    let passing = pool.allocate_piece(&tenant(0), 100_000, Tenure::Passing).unwrap();
    let staying = pool.allocate_piece(&tenant(0), 100, Tenure::Staying).unwrap();
    assert_eq!(
        pool.allocate_piece(&tenant(0), PAGE_BYTES, Tenure::Staying).unwrap_err().kind,
        ErrorKind::OverLimit
    );
    drop(passing);
    drop(staying);
    assert_eq!(pool.usage().bytes_used, 0);
}

#[test]
fn small_pieces_share_pages_and_what_is_free_is_used_again() {
    let pool = pool(4);
    let piece = |bytes: usize| pool.allocate_piece(&tenant(0), bytes, Tenure::Staying).unwrap().freeze(bytes);
    let mut pieces: Vec<Lease> = (0..2 * PAGE_BYTES / 1024).map(|_| piece(1000)).collect();
    assert_eq!(pool.bytes_used(), 2 * PAGE_BYTES);
    // Frees every second piece, which leaves gaps that a smaller piece fits and a larger one does not.
    let mut index = 0;
    pieces.retain(|_| {
        index += 1;
        index % 2 == 0
    });
    let small: Vec<Lease> = pieces.iter().map(|_| piece(900)).collect();
    assert_eq!(pool.bytes_used(), 2 * PAGE_BYTES);
    let large = piece(2000);
    assert_eq!(pool.bytes_used(), 3 * PAGE_BYTES);
    let last = pieces.pop();
    drop((pieces, small, large));
    assert_eq!(pool.bytes_used(), PAGE_BYTES, "a piece keeps its page and no other");
    drop(last);
    assert_eq!(pool.bytes_used(), 0);
}

#[test]
fn a_page_that_went_back_reads_as_zeros_for_the_next_tenant() {
    let pool = pool(1);
    let mut extent = pool.allocate_piece(&tenant(0), 100, Tenure::Staying).unwrap();
    extent.as_mut_slice().fill(7);
    assert_eq!(pool.allocate_piece(&tenant(1), 1, Tenure::Staying).unwrap_err().kind, ErrorKind::OverLimit);
    drop(extent);
    let mut extent = pool.allocate_piece(&tenant(1), PAGE_BYTES, Tenure::Staying).unwrap();
    assert!(extent.as_mut_slice().iter().all(|byte| *byte == 0));
}
