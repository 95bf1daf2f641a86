//! A bucket: one cache line with seven slots and a summary of the keys whose home it is.
//!
//! A slot is a word: 48 bits of place, 15 bits of tag, and whether the entry is away from home. An eighth slot instead of
//! the summary would save 12 % of the memory. The summary makes most lookups touch one line instead of two, keeps the
//! stash out of them, and tells a scan where the keys of a bucket are; see the module above.

use crate::slab::Place;

/// Slots of a bucket.
pub const SLOTS: usize = 7;

/// Bytes of a bucket: a cache line.
pub const BUCKET_BYTES: usize = 64;

/// Bits of a route, so that a word has a bit for each route. They are the highest of the tag.
const ROUTE_BITS: u32 = 6;

const AWAY: u64 = 1 << 63;
const TAG_BITS: u32 = 15;
const PLACE: u64 = (1 << Place::BITS) - 1;

const _: () = assert!(Place::BITS + TAG_BITS + 1 == u64::BITS && 1 << ROUTE_BITS == u64::BITS);

/// One of the distances that there are between the two buckets of a key. A key has the route that its tag says, so that the
/// other bucket of an entry is known without its key (partial-key cuckoo hashing, MemC3 section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route(u64);

impl Route {
    /// What the numbers of the two buckets differ by, as an exclusive or; of arbitrary length. It is odd, so that the
    /// buckets differ where there are two.
    #[inline]
    pub fn distance(self) -> u64 {
        let product = (self.0 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (product ^ product >> 29) | 1
    }
}

/// The hash of a key, as the index uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// The low bits of this are the number of the bucket where the key is at home.
    #[inline]
    pub fn home(self) -> u64 {
        self.0
    }

    /// The low bits of this are the number of the key's other bucket.
    #[inline]
    pub fn other(self) -> u64 {
        self.0 ^ self.route().distance()
    }

    #[inline]
    pub fn route(self) -> Route {
        Route(self.0 >> (u64::BITS - ROUTE_BITS))
    }

    /// Returns the slot of an entry that is at home. No slot in use is zero, as no tag is.
    #[inline]
    pub fn slot(self, place: Place) -> Slot {
        debug_assert!(place.to_bits() <= PLACE, "a place of more than {} bits", Place::BITS);
        let tag = (self.0 >> (u64::BITS - TAG_BITS)).max(1);
        Slot(tag << Place::BITS | place.to_bits())
    }
}

/// The word of an entry in a bucket, or zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u64);

impl Slot {
    pub const EMPTY: Slot = Slot(0);

    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the entry is in the other bucket of its key.
    #[inline]
    pub fn is_away(self) -> bool {
        self.0 & AWAY != 0
    }

    /// Returns the slot that the entry has in the other one of its key's buckets.
    #[inline]
    pub fn moved(self) -> Slot {
        Slot(self.0 ^ AWAY)
    }

    #[inline]
    pub fn place(self) -> Place {
        Place::from_bits(self.0 & PLACE)
    }

    #[inline]
    pub fn route(self) -> Route {
        Route(self.0 << 1 >> (u64::BITS - ROUTE_BITS))
    }

    #[inline]
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// The bits of a key that the slot of its entry has, and whether that is away.
    #[inline]
    fn mark(self) -> u64 {
        self.0 >> Place::BITS
    }
}

/// What is known in a bucket about the keys that are at home there: the routes of those that are not there, a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary(u64);

impl Summary {
    #[inline]
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    #[inline]
    pub fn has(self, route: Route) -> bool {
        self.0 >> route.0 & 1 != 0
    }

    #[must_use]
    pub fn with(self, route: Route, is_used: bool) -> Summary {
        Summary(self.0 & !(1 << route.0) | u64::from(is_used) << route.0)
    }

    /// The routes of keys that are not at home.
    pub fn routes(self) -> impl Iterator<Item = Route> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let route = (rest != 0).then(|| Route(u64::from(rest.trailing_zeros())));
            rest &= rest.wrapping_sub(1);
            route
        })
    }

    /// Returns the summary of the keys of two buckets.
    #[must_use]
    pub fn and(self, other: Summary) -> Summary {
        Summary(self.0 | other.0)
    }
}

/// A bucket where it lies, for lookups: a copy would be written to the stack.
#[derive(Clone, Copy)]
pub struct BucketRef<'a>(pub &'a [u8; BUCKET_BYTES]);

impl BucketRef<'_> {
    #[inline]
    pub fn summary(self) -> Summary {
        Summary(self.word(SLOTS))
    }

    #[inline]
    pub fn slot(self, i: usize) -> Slot {
        Slot(self.word(i))
    }

    /// Returns the index of the entry that `is_it` is true for, among those with the tag of `like` that are away as `like`
    /// is.
    #[inline]
    pub fn find(self, like: Slot, is_it: impl Fn(Place) -> bool) -> Option<usize> {
        // Without branches, as the one that is taken could not be predicted.
        let is_like = |i| u32::from(self.slot(i).mark() == like.mark()) << i;
        let mut found = (0..SLOTS).fold(0, |found, i| found | is_like(i));
        while found != 0 {
            let i = found.trailing_zeros() as usize;
            if is_it(self.slot(i).place()) {
                return Some(i);
            }
            found &= found - 1;
        }
        None
    }

    #[inline]
    fn word(self, i: usize) -> u64 {
        let (words, _) = self.0.as_chunks();
        u64::from_le_bytes(words[i])
    }
}

/// A copy of a bucket.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    pub slots: [Slot; SLOTS],
    pub summary: Summary,
}

impl Bucket {
    pub const EMPTY: Bucket = Bucket { slots: [Slot::EMPTY; SLOTS], summary: Summary(0) };

    #[inline]
    pub fn read(bucket: BucketRef<'_>) -> Bucket {
        Bucket { slots: std::array::from_fn(|i| bucket.slot(i)), summary: bucket.summary() }
    }

    pub fn write(&self, bytes: &mut [u8; BUCKET_BYTES]) {
        for (slot, word) in self.slots.iter().zip(bytes.chunks_exact_mut(8)) {
            word.copy_from_slice(&slot.to_bytes());
        }
        bytes[SLOTS * 8..].copy_from_slice(&self.summary.to_bytes());
    }

    #[inline]
    pub fn free_slot(&self) -> Option<usize> {
        let free = self.mask(|slot| slot.is_empty());
        (free != 0).then(|| free.trailing_zeros() as usize)
    }

    pub fn count(&self) -> usize {
        self.mask(|slot| !slot.is_empty()).count_ones() as usize
    }

    /// The entries that are at home.
    pub fn at_home(&self) -> impl Iterator<Item = Slot> {
        self.slots.iter().copied().filter(|slot| !slot.is_empty() && !slot.is_away())
    }

    /// Whether an entry came here by a route.
    #[inline]
    pub fn has_away_by(&self, route: Route) -> bool {
        self.mask(|slot| slot.0 >> (u64::BITS - 1 - ROUTE_BITS) == 1 << ROUTE_BITS | route.0) != 0
    }

    /// The entries that came here by a route.
    pub fn away_by(&self, route: Route) -> impl Iterator<Item = Slot> {
        self.slots.iter().copied().filter(move |slot| slot.is_away() && slot.route() == route)
    }

    /// A bit for each slot, computed without branches.
    #[inline]
    fn mask(&self, is_set: impl Fn(Slot) -> bool) -> u32 {
        self.slots.iter().enumerate().fold(0, |mask, (i, slot)| mask | u32::from(is_set(*slot)) << i)
    }
}
