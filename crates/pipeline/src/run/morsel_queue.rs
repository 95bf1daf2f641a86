//! Queue of the row groups that a run (an execution of a program) has yet to process.
//!
//! A run that needs its own order has a list: for example, a top-k that begins with the most promising row groups.
//! All other runs take first the row groups that other runs have just read or filtered, then those in memory, and
//! then those that must be read, from the position on that all runs over the table have reached
//! ([`crate::shared_scan`]).
//!
//! Invariant: each row group is taken once or closed off, and completions reach the total exactly once. Example: an
//! *offer* of row group 5 (the message of another run that has read it) arrives after this run has taken row group 5.
//! Taking it again would count its rows twice; so the offer is dropped, because 5 is no longer in the sets.

use super::{Run, read_ahead};
use crate::shared_scan::{RunSharing, SharedScan};
use farpool_columns::{HeldValues, Table};
use farpool_model::limits;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The row groups of a run.
pub(super) struct MorselQueue {
    order: Mutex<Order>,
    total: usize,
    /// Number of row groups that no thread has taken and that are not closed off.
    left: AtomicUsize,
    completed: AtomicUsize,
    /// Number of offers of row groups whose needed values are all in memory.
    offers: AtomicUsize,
}

/// A row group that a thread has taken from the queue.
pub(super) struct TakenGroup {
    /// Index of the row group in the table.
    pub place: usize,
    /// Whether another run has read it.
    pub is_shared: bool,
    /// Keeps the values of the row group in memory; `None` if no offer came with them.
    pub kept: Option<HeldValues>,
}

enum Order {
    /// Indices in the order of a list, and the position of the next one in it.
    Listed(Vec<usize>, usize),
    Free(Free),
}

struct Free {
    /// Row groups that were not taken yet and whose values were in memory when last checked.
    here: PositionSet,
    /// Row groups that were not taken yet and of which some values must be read.
    absent: PositionSet,
    /// Offers of row groups of which all needed values are in memory, the latest last. Some of these row groups may
    /// have been taken since.
    whole: Vec<Offer>,
    /// Offers of row groups of which some needed values are in memory.
    partial: Vec<Offer>,
    /// Bytes of the values that offers keep in memory.
    bytes_kept: usize,
}

/// Offer of a row group that another run has read or filtered.
struct Offer {
    place: usize,
    bytes: usize,
    kept: Option<HeldValues>,
    is_read: bool,
}

/// Set of row group indices.
struct PositionSet {
    words: Vec<u64>,
    /// Index of the first word that may be nonzero.
    first: usize,
}

impl MorselQueue {
    /// Creates the queue of all row groups of `table`; if `order` is given, in that order.
    pub fn new(table: &Table, columns: &[usize], order: Option<Vec<usize>>) -> MorselQueue {
        let order = match order {
            Some(list) => Order::Listed(list, 0),
            None => Order::Free(Free::new(table, columns)),
        };
        let total = match &order {
            Order::Listed(list, _) => {
                let is_within = list.iter().all(|place| *place < table.row_groups.len());
                assert!(is_within, "a list names row groups of the table only");
                list.len()
            }
            Order::Free(free) => {
                debug_assert!(free.is_disjoint(), "a row group is either in memory or absent");
                table.row_groups.len()
            }
        };
        MorselQueue {
            order: Mutex::new(order),
            total,
            left: AtomicUsize::new(total),
            completed: AtomicUsize::new(0),
            offers: AtomicUsize::new(0),
        }
    }

    /// Returns whether row groups may be taken in any order.
    pub fn is_free(&self) -> bool {
        matches!(&*self.order.lock(), Order::Free(_))
    }

    /// Returns whether all row groups were taken or closed off.
    pub fn is_empty(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Returns whether there are offers of row groups of which all needed values are in memory.
    pub fn has_offers(&self) -> bool {
        self.offers.load(Ordering::Relaxed) > 0
    }

    /// Takes the next row group of `run`. Returns `None` if there is none, or if it must be read and `run` may not read
    /// further ahead now. Does not block.
    pub fn take(&self, run: &Run, table: &Table, sharing: Option<&RunSharing>) -> Option<TakenGroup> {
        let may_read = !run.read_ahead.is_enough();
        // Avoids taking the lock for idle threads that poll.
        if self.is_empty() || !may_read && !self.has_offers() {
            return None;
        }
        let mut order = self.order.lock();
        let taken = match &mut *order {
            Order::Listed(list, next) => {
                let place = if may_read { list.get(*next).copied() } else { None };
                *next += usize::from(place.is_some());
                place.map(TakenGroup::alone)
            }
            Order::Free(free) => {
                let taken = free.take(run, table, sharing, may_read);
                self.offers.store(free.whole.len(), Ordering::Relaxed);
                taken
            }
        };
        if taken.is_some() {
            // `left` changes only while the lock of the order is held, as do the sets that it counts.
            let left = self.left.fetch_sub(1, Ordering::Relaxed);
            assert!(left > 0, "a row group was taken that was taken or closed off before");
        }
        taken
    }

    /// Adds an offer: another run has read values of the row group at index `place`, of which this run needs `bytes`.
    /// Returns whether the row group can be taken now.
    pub fn offer_read(&self, place: usize, bytes: usize, kept: Option<HeldValues>, is_whole: bool) -> bool {
        self.offer(Offer { place, bytes, kept, is_read: true }, is_whole)
    }

    /// Adds an offer: another run has recorded which rows of the row group at index `place` pass the filter.
    pub fn offer_judged(&self, place: usize) {
        self.offer(Offer { place, bytes: 0, kept: None, is_read: false }, true);
    }

    fn offer(&self, offer: Offer, is_whole: bool) -> bool {
        let mut order = self.order.lock();
        let Order::Free(free) = &mut *order else { return false };
        if self.is_empty() || !free.has(offer.place) {
            return false;
        }
        let let_go = free.offer(offer, is_whole);
        self.offers.store(free.whole.len(), Ordering::Relaxed);
        drop(order);
        // Dropped after the lock is released, since freeing memory may take long.
        drop(let_go);
        is_whole
    }

    /// Releases the values that offers keep in memory.
    pub fn let_go(&self) {
        let let_go: Vec<Option<HeldValues>> = match &mut *self.order.lock() {
            Order::Listed(..) => Vec::new(),
            Order::Free(free) => free.let_go(usize::MAX),
        };
        drop(let_go);
    }

    /// Closes the queue: no more row groups can be taken. Returns those that were not taken, which the caller must
    /// complete.
    pub fn close(&self) -> Vec<usize> {
        let mut order = self.order.lock();
        let rest = match &mut *order {
            Order::Listed(list, next) => list.split_off((*next).min(list.len())),
            Order::Free(free) => {
                let rest = free.here.iter().chain(free.absent.iter()).collect();
                *free = Free::nothing();
                rest
            }
        };
        let left = self.left.swap(0, Ordering::Relaxed);
        assert_eq!(rest.len(), left, "the row groups that are closed off are those that nobody has taken");
        self.offers.store(0, Ordering::Relaxed);
        rest
    }

    /// Records that `count` taken or closed row groups are complete. Returns true for exactly one call, the one that
    /// completes the last row group. The caller then sees all that other threads wrote before their calls.
    pub fn complete(&self, count: usize) -> bool {
        if count == 0 {
            return false;
        }
        let completed = self.completed.fetch_add(count, Ordering::AcqRel) + count;
        assert!(
            completed <= self.total,
            "{completed} of {} row groups are complete: one counts twice",
            self.total
        );
        completed == self.total
    }
}

impl Free {
    fn new(table: &Table, columns: &[usize]) -> Free {
        let total = table.row_groups.len();
        let mut free =
            Free { here: PositionSet::none(total), absent: PositionSet::none(total), ..Free::nothing() };
        for (place, group) in table.row_groups.iter().enumerate() {
            let places =
                if read_ahead::is_absent(group, columns) { &mut free.absent } else { &mut free.here };
            places.add(place);
        }
        free
    }

    fn nothing() -> Free {
        let (here, absent) = (PositionSet::none(0), PositionSet::none(0));
        Free { here, absent, whole: Vec::new(), partial: Vec::new(), bytes_kept: 0 }
    }

    fn has(&self, place: usize) -> bool {
        self.here.has(place) || self.absent.has(place)
    }

    /// Returns true if no row group is in both sets; for assertions.
    fn is_disjoint(&self) -> bool {
        self.here.words.iter().zip(&self.absent.words).all(|(here, absent)| here & absent == 0)
    }

    /// Returns true if `bytes_kept` is the sum over the offers; for assertions.
    fn is_balanced(&self) -> bool {
        let kept: usize = self.whole.iter().chain(&self.partial).map(Offer::bytes_kept).sum();
        kept == self.bytes_kept
    }

    fn remove(&mut self, place: usize) -> bool {
        self.here.remove(place) || self.absent.remove(place)
    }

    fn take(
        &mut self,
        run: &Run,
        table: &Table,
        sharing: Option<&RunSharing>,
        may_read: bool,
    ) -> Option<TakenGroup> {
        debug_assert!(self.is_disjoint() && self.is_balanced(), "sets and offers agree before a take");
        let columns = &run.columns;
        let is_absent = |place: usize| read_ahead::is_absent(&table.row_groups[place], columns);
        // The latest offer first, so that a slow run takes values that are still in memory.
        while let Some(offer) = self.whole.pop() {
            self.bytes_kept -= offer.bytes_kept();
            // If the values were evicted since the offer, the row group stays in `absent`.
            if !is_absent(offer.place) && self.remove(offer.place) {
                return Some(offer.taken());
            }
        }
        if !may_read {
            return None;
        }
        while let Some(offer) = self.partial.pop() {
            self.bytes_kept -= offer.bytes_kept();
            if self.remove(offer.place) {
                return Some(offer.taken());
            }
        }
        let judging = sharing.and_then(RunSharing::judging).map(|cache_entry| &cache_entry.runs);
        while let Some(place) = self.here.next(judging.map_or(0, SharedScan::hand)) {
            self.here.remove(place);
            if !is_absent(place) {
                judging.inspect(|judging| judging.move_hand(place + 1));
                return Some(TakenGroup::alone(place));
            }
            self.absent.add(place);
        }
        let shared_scan = sharing.and_then(|sharing| sharing.shared_scan.as_deref());
        let place = self.next_absent(run, shared_scan)?;
        self.absent.remove(place);
        Some(TakenGroup::alone(place))
    }

    /// Returns the next row group that must be read. If other runs of the shared scan already read far enough ahead
    /// for all, returns one that they wait for.
    fn next_absent(&mut self, run: &Run, shared_scan: Option<&SharedScan>) -> Option<usize> {
        let Some(shared_scan) = shared_scan else { return self.absent.next(0) };
        let awaited = shared_scan.awaited(run);
        let bytes: usize = awaited.values().sum();
        if bytes >= run.read_ahead.most()
            && let Some(place) = awaited.into_keys().find(|place| self.absent.has(*place))
        {
            // The values of this row group are read once for all runs.
            return Some(place);
        }
        if run.read_ahead.is_enough_with(bytes) {
            return None;
        }
        let place = self.absent.next(shared_scan.hand())?;
        shared_scan.move_hand(place + 1);
        Some(place)
    }

    /// Adds an offer. Returns values that are released to make room for it.
    fn offer(&mut self, offer: Offer, is_whole: bool) -> Vec<Option<HeldValues>> {
        self.bytes_kept += offer.bytes_kept();
        if is_whole {
            self.whole.push(offer)
        } else {
            self.partial.push(offer)
        }
        // A row group is offered each time that another run reads it, so the number of offers is limited.
        let total = self.here.len().max(self.absent.len());
        let mut let_go = Vec::new();
        for offers in [&mut self.whole, &mut self.partial] {
            if offers.len() > total {
                let oldest = offers.remove(0);
                self.bytes_kept -= oldest.bytes_kept();
                let_go.push(oldest.kept);
            }
        }
        let_go.extend(self.let_go(self.bytes_kept.saturating_sub(limits::READ_AHEAD_BYTES)));
        assert!(self.bytes_kept <= limits::READ_AHEAD_BYTES, "offers hold no more than a run may read ahead");
        let_go
    }

    /// Releases at least `bytes` of the values that offers keep in memory, the oldest offers first.
    fn let_go(&mut self, bytes: usize) -> Vec<Option<HeldValues>> {
        let mut let_go = Vec::new();
        let mut freed = 0;
        for offer in self.partial.iter_mut().chain(&mut self.whole) {
            if freed >= bytes || self.bytes_kept == freed {
                break;
            }
            freed += offer.bytes_kept();
            let_go.push(offer.kept.take());
        }
        self.bytes_kept -= freed;
        debug_assert!(self.is_balanced(), "released values are no longer counted");
        let_go
    }
}

impl Offer {
    fn bytes_kept(&self) -> usize {
        if self.kept.is_some() { self.bytes } else { 0 }
    }

    fn taken(self) -> TakenGroup {
        TakenGroup { place: self.place, is_shared: self.is_read, kept: self.kept }
    }
}

impl TakenGroup {
    /// Creates the record of a row group that no other run has offered.
    fn alone(place: usize) -> TakenGroup {
        TakenGroup { place, is_shared: false, kept: None }
    }
}

impl PositionSet {
    /// Creates an empty set of positions below `total`.
    fn none(total: usize) -> PositionSet {
        PositionSet { words: vec![0; total.div_ceil(64)], first: 0 }
    }

    /// Returns the capacity: the number of possible positions, rounded up to whole words.
    fn len(&self) -> usize {
        self.words.len() * 64
    }

    fn has(&self, place: usize) -> bool {
        self.words.get(place / 64).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    fn add(&mut self, place: usize) {
        self.words[place / 64] |= 1 << (place % 64);
        self.first = self.first.min(place / 64);
    }

    fn remove(&mut self, place: usize) -> bool {
        let had = self.has(place);
        if had {
            self.words[place / 64] &= !(1 << (place % 64));
        }
        had
    }

    /// Returns the first index from `from` on that is in the set, or if there is none the first of all.
    fn next(&mut self, from: usize) -> Option<usize> {
        while self.words.get(self.first).is_some_and(|word| *word == 0) {
            self.first += 1;
        }
        let from = if from < self.len() { from } else { 0 };
        let mask = u64::MAX << (from % 64);
        let begun = (from / 64).max(self.first);
        let word = |index: usize| self.words[index] & if index == from / 64 { mask } else { u64::MAX };
        let of_word = |index: usize, word: u64| index * 64 + word.trailing_zeros() as usize;
        let behind = (begun..self.words.len()).find(|index| word(*index) != 0);
        let behind = behind.map(|index| of_word(index, word(index)));
        let next = behind.or_else(|| self.words.get(self.first).map(|word| of_word(self.first, *word)));
        debug_assert!(next.is_none_or(|place| self.has(place)), "the next position is one of the set");
        next
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).filter(|place| self.has(*place))
    }
}
