//! Scans of the hash index of a space, as for `SCAN`: the entries are returned bucket by bucket in several calls,
//! between which the only state is a cursor, which the client sends with the next call. Also choosing a random entry.

use super::Index;
use super::bucket::SLOTS;
use crate::slab::EntryAddress;

/// Number of random slots tried for a random entry, before the next entry in the table is taken. At half load, one in
/// 2^64 calls needs more.
const TRIES: usize = 64;

impl Index {
    /// Appends the addresses of the entries whose home is the bucket of the cursor, a handful, to `out`. Returns the
    /// next cursor; 0 at the end. A scan begins with cursor 0, and any number is a valid cursor. An entry that is in
    /// the index from the beginning to the end of a scan is returned at least once, whatever is inserted or removed
    /// meanwhile. Entries that are added or removed during the scan may be returned, and any entry may be returned
    /// twice if the table is resized. `hash_of` returns the hash of an entry's key.
    ///
    /// As in Redis (dict.c), a cursor is incremented from the highest bit of the bucket number down, so that buckets
    /// are visited in the order of their bit-reversed numbers. In this order, the two halves of a split bucket are
    /// adjacent where the bucket was, so that the visited buckets stay a prefix of the order. Example: with 4 buckets
    /// the order is 0, 2, 1, 3. The scan has visited 0 and 2 when the table grows to 8 buckets. The order becomes 0, 4,
    /// 2, 6, 1, 5, 3, 7, and the scan continues at 1, past all halves of 0 and 2. In ascending order, a scan at bucket
    /// 5 of 8 would miss the entries of buckets 5 to 7 when these are merged into 1 to 3.
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

    /// Appends the addresses of the entries whose home is `bucket`, wherever they are stored.
    fn of_home(&self, bucket: usize, hash_of: impl Fn(EntryAddress) -> u64, out: &mut Vec<EntryAddress>) {
        let home = self.table.read(bucket);
        out.extend(home.at_home().map(|slot| slot.place()));
        for route in home.summary.routes() {
            let (first, second) = self.table.candidate_buckets(bucket, route);
            for other in [Some(first), second].into_iter().flatten() {
                let other = self.table.read(other);
                let places = other.away_by(route).map(|slot| slot.place());
                // Entries of other home buckets may be away here with the same route.
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

    /// Returns the address of an entry chosen by the random number `random`, each with almost the same probability;
    /// `None` if the index is empty.
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

    /// Returns the address of the entry in a slot of a bucket; `None` if the slot is free.
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
