//! Stateless scans in steps, and random entries.

use super::Index;
use super::bucket::SLOTS;
use crate::slab::EntryAddress;

/// Slots tried for a random entry; a table is hardly ever less than half full.
const TRIES: usize = 64;

impl Index {
    /// Appends the entries whose keys are at home in the bucket of the cursor, a handful, and returns the next cursor,
    /// or 0 at the end. A scan begins at 0. An entry that is present from the beginning to the end of a scan is
    /// returned at least once, whatever happens meanwhile; entries that come or go may be returned, and any may be
    /// returned twice if the table is resized. Any number is a valid cursor.
    ///
    /// As in Redis (dict.c), cursors count from the highest known bit of the bucket number down, so that buckets are
    /// visited in the order of their reversed numbers. In this order, the two parts of a split bucket lie where the
    /// bucket was, so that visited numbers stay visited. Example: with 4 buckets the order is 0, 2, 1, 3. The scan has
    /// visited 0 and 2 when the table grows to 8; the order becomes 0, 4, 2, 6, 1, 5, 3, 7, and the scan continues at
    /// 1, past all parts of 0 and 2. In ascending order, a scan at bucket 5 of 8 would miss the keys of buckets 5 to 7
    /// when these are merged into 1 to 3.
    pub fn scan(
        &self,
        cursor: u64,
        hash_of: impl Fn(EntryAddress) -> u64,
        out: &mut Vec<EntryAddress>,
    ) -> u64 {
        if self.table.len() == 0 {
            return 0;
        }
        let bucket = self.table.address(cursor);
        self.of_home(bucket, hash_of, out);
        (cursor | !self.table.known(bucket)).reverse_bits().wrapping_add(1).reverse_bits()
    }

    /// Appends the entries that are at home in a bucket, wherever they are stored.
    fn of_home(&self, bucket: usize, hash_of: impl Fn(EntryAddress) -> u64, out: &mut Vec<EntryAddress>) {
        let home = self.table.read(bucket);
        out.extend(home.at_home().map(|slot| slot.place()));
        for route in home.summary.routes() {
            let (first, second) = self.table.candidate_buckets(bucket, route);
            for other in [Some(first), second].into_iter().flatten() {
                let other = self.table.read(other);
                let places = other.away_by(route).map(|slot| slot.place());
                // Keys of other homes may have come here by the same route.
                out.extend(
                    places.filter(|place| self.table.address(self.ordered(hash_of(*place)).home()) == bucket),
                );
            }
        }
        if home.summary.routes().next().is_some() {
            let stashed = self.stash.of_home(bucket, self.table.known(bucket));
            out.extend(stashed.map(|entry| entry.place()));
        }
    }

    /// Returns an entry chosen by a random number, each with almost the same probability.
    pub fn any(&self, random: u64) -> Option<EntryAddress> {
        let candidates = (self.slots() + self.stash.len()) as u64;
        if self.len == 0 {
            return None;
        }
        let mut state = random;
        let mut at = 0;
        for _ in 0..TRIES {
            state = mixed(state);
            at = (state % candidates) as usize;
            let place = match at < self.slots() {
                false => self.stash.any(mixed(!state)),
                true => self.place_in(at / SLOTS, at % SLOTS),
            };
            if place.is_some() {
                return place;
            }
        }
        let all = (at..self.slots()).chain(0..self.slots());
        let mut places = all.filter_map(|slot| self.place_in(slot / SLOTS, slot % SLOTS));
        places.next().or_else(|| self.stash.any(random))
    }

    fn place_in(&self, bucket: usize, slot: usize) -> Option<EntryAddress> {
        let slot = self.table.get(bucket).slot(slot);
        (!slot.is_empty()).then(|| slot.place())
    }
}

/// Returns the next number of a pseudo-random sequence (SplitMix64).
fn mixed(state: u64) -> u64 {
    let state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let state = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let state = (state ^ state >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    state ^ state >> 31
}
