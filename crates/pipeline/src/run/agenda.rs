//! Which row groups a run has still to take, and in which order.
//!
//! A run whose result depends on the order (a top-k that begins with the best row groups, for one) has a list. All others
//! take first what others have just read for themselves or judged, then what is in memory, and then what has to be read, from
//! where all are that read the same table ([`crate::pass`]).
//!
//! Invariant: each row group is taken once, or closed off; completions count to the number of all exactly once.

use super::{Run, reading};
use crate::pass::{Company, Pass};
use farpool_columns::{Kept, Table};
use farpool_model::limits;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The row groups of a run.
pub(super) struct Agenda {
    order: Mutex<Order>,
    total: usize,
    /// Those that are neither taken nor closed off.
    left: AtomicUsize,
    completed: AtomicUsize,
    /// Offers that can be taken without reading anything.
    offers: AtomicUsize,
}

/// A row group that was taken.
pub(super) struct Taken {
    /// Its position in the table.
    pub place: usize,
    /// Whether another run has read it.
    pub is_shared: bool,
    /// What keeps its values in memory.
    pub kept: Option<Kept>,
}

enum Order {
    /// In this one, from the index on.
    Listed(Vec<usize>, usize),
    Free(Free),
}

struct Free {
    /// Row groups whose values were in memory when it was last looked.
    here: Places,
    /// Those of which some have to be read.
    absent: Places,
    /// Those that others have read, the latest last. Some may have been taken since.
    whole: Vec<Offer>,
    /// Those of which others have read some columns.
    partial: Vec<Offer>,
    /// Bytes of offers whose values are kept.
    bytes_kept: usize,
}

/// A row group that another run has read, or judged.
struct Offer {
    place: usize,
    bytes: usize,
    kept: Option<Kept>,
    is_read: bool,
}

/// A set of positions in a table.
struct Places {
    words: Vec<u64>,
    /// No word before it has a bit.
    first: usize,
}

impl Agenda {
    /// All row groups of `table` in this order; without one, in any.
    pub fn new(table: &Table, columns: &[usize], order: Option<Vec<usize>>) -> Agenda {
        let order = match order {
            Some(list) => Order::Listed(list, 0),
            None => Order::Free(Free::new(table, columns)),
        };
        let total = match &order {
            Order::Listed(list, _) => list.len(),
            Order::Free(_) => table.row_groups.len(),
        };
        Agenda {
            order: Mutex::new(order),
            total,
            left: AtomicUsize::new(total),
            completed: AtomicUsize::new(0),
            offers: AtomicUsize::new(0),
        }
    }

    /// Whether row groups may be taken in any order.
    pub fn is_free(&self) -> bool {
        matches!(&*self.order.lock(), Order::Free(_))
    }

    /// Whether all were taken or closed off.
    pub fn is_empty(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Whether there are row groups that others have read, all that is needed of them.
    pub fn has_offers(&self) -> bool {
        self.offers.load(Ordering::Relaxed) > 0
    }

    /// Takes the next row group of `run`; `None` when there is none, or enough is being read.
    pub fn take(&self, run: &Run, table: &Table, company: Option<&Company>) -> Option<Taken> {
        let may_read = !run.reading.is_enough();
        // Keeps idle threads that ask again and again from the lock.
        if self.is_empty() || !may_read && !self.has_offers() {
            return None;
        }
        let mut order = self.order.lock();
        let taken = match &mut *order {
            Order::Listed(list, next) => {
                let place = if may_read { list.get(*next).copied() } else { None };
                *next += usize::from(place.is_some());
                place.map(Taken::alone)
            }
            Order::Free(free) => {
                let taken = free.take(run, table, company, may_read);
                self.offers.store(free.whole.len(), Ordering::Relaxed);
                taken
            }
        };
        if taken.is_some() {
            self.left.fetch_sub(1, Ordering::Relaxed);
        }
        taken
    }

    /// Notes that another run has read values of the row group at `place`. `bytes` are those that are needed here. Returns
    /// whether it can be taken at once.
    pub fn offer_read(&self, place: usize, bytes: usize, kept: Option<Kept>, is_whole: bool) -> bool {
        self.offer(Offer { place, bytes, kept, is_read: true }, is_whole)
    }

    /// Notes that another run has found out which rows of the row group at `place` pass.
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
        // What they kept may take a while to free.
        drop(let_go);
        is_whole
    }

    /// Lets go of what offers keep in memory.
    pub fn let_go(&self) {
        let let_go: Vec<Option<Kept>> = match &mut *self.order.lock() {
            Order::Listed(..) => Vec::new(),
            Order::Free(free) => free.let_go(usize::MAX),
        };
        drop(let_go);
    }

    /// Stops handing out row groups. Returns those that were not taken; the caller must complete them.
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
        self.left.store(0, Ordering::Relaxed);
        self.offers.store(0, Ordering::Relaxed);
        rest
    }

    /// Records that `count` row groups that were taken or closed off are complete. Returns true for the one call that
    /// completes the last; what other threads wrote before their calls is visible to that caller.
    pub fn complete(&self, count: usize) -> bool {
        count > 0 && self.completed.fetch_add(count, Ordering::AcqRel) + count == self.total
    }
}

impl Free {
    fn new(table: &Table, columns: &[usize]) -> Free {
        let total = table.row_groups.len();
        let mut free = Free { here: Places::none(total), absent: Places::none(total), ..Free::nothing() };
        for (place, group) in table.row_groups.iter().enumerate() {
            let places = if reading::is_absent(group, columns) { &mut free.absent } else { &mut free.here };
            places.add(place);
        }
        free
    }

    fn nothing() -> Free {
        let (here, absent) = (Places::none(0), Places::none(0));
        Free { here, absent, whole: Vec::new(), partial: Vec::new(), bytes_kept: 0 }
    }

    fn has(&self, place: usize) -> bool {
        self.here.has(place) || self.absent.has(place)
    }

    fn remove(&mut self, place: usize) -> bool {
        self.here.remove(place) || self.absent.remove(place)
    }

    fn take(&mut self, run: &Run, table: &Table, company: Option<&Company>, may_read: bool) -> Option<Taken> {
        let columns = &run.columns;
        let is_absent = |place: usize| reading::is_absent(&table.row_groups[place], columns);
        // The latest first: whoever is slower than the others takes what is still there.
        while let Some(offer) = self.whole.pop() {
            self.bytes_kept -= offer.bytes_kept();
            // What has left memory since is read in its turn.
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
        let judging = company.and_then(Company::judging).map(|judgement| &judgement.company);
        while let Some(place) = self.here.next(judging.map_or(0, Pass::hand)) {
            self.here.remove(place);
            if !is_absent(place) {
                judging.inspect(|judging| judging.move_hand(place + 1));
                return Some(Taken::alone(place));
            }
            self.absent.add(place);
        }
        let pass = company.and_then(|company| company.pass.as_deref());
        let place = self.next_absent(run, pass)?;
        self.absent.remove(place);
        Some(Taken::alone(place))
    }

    /// The next row group that has to be read: one that others wait for, where they read enough ahead for all.
    fn next_absent(&mut self, run: &Run, pass: Option<&Pass>) -> Option<usize> {
        let Some(pass) = pass else { return self.absent.next(0) };
        let awaited = pass.awaited(run);
        let bytes: usize = awaited.values().sum();
        if bytes >= run.reading.most()
            && let Some(place) = awaited.into_keys().find(|place| self.absent.has(*place))
        {
            // It is asked for once for all.
            return Some(place);
        }
        if run.reading.is_enough_with(bytes) {
            return None;
        }
        let place = self.absent.next(pass.hand())?;
        pass.move_hand(place + 1);
        Some(place)
    }

    /// Returns what is not kept any more.
    fn offer(&mut self, offer: Offer, is_whole: bool) -> Vec<Option<Kept>> {
        self.bytes_kept += offer.bytes_kept();
        if is_whole {
            self.whole.push(offer)
        } else {
            self.partial.push(offer)
        }
        // Row groups are offered once for each time that somebody reads them.
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
        let_go
    }

    /// Takes what keeps at least `bytes` of values in memory from the oldest offers.
    fn let_go(&mut self, bytes: usize) -> Vec<Option<Kept>> {
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
        let_go
    }
}

impl Offer {
    fn bytes_kept(&self) -> usize {
        if self.kept.is_some() { self.bytes } else { 0 }
    }

    fn taken(self) -> Taken {
        Taken { place: self.place, is_shared: self.is_read, kept: self.kept }
    }
}

impl Taken {
    /// One that no other run has told of.
    fn alone(place: usize) -> Taken {
        Taken { place, is_shared: false, kept: None }
    }
}

impl Places {
    /// The empty set of positions below `total`.
    fn none(total: usize) -> Places {
        Places { words: vec![0; total.div_ceil(64)], first: 0 }
    }

    /// The number of positions that may be in it, rounded up.
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

    /// The first position from `from` on, or else the first of all.
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
        behind.or_else(|| self.words.get(self.first).map(|word| of_word(self.first, *word)))
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).filter(|place| self.has(*place))
    }
}
