//! A bucket: one cache line with seven slots and a summary of the keys whose home it is.
//!
//! A slot is a word: 48 bits of place, 15 bits of tag, and a bit that says whether the entry is away from home. An
//! eighth slot instead of the summary would save 12 % of the memory. The summary makes most lookups touch one line
//! instead of two, avoids lookups in the stash, and tells a scan where the bucket's keys are; see the module above.

use crate::slab::EntryAddress;

/// Number of slots of a bucket.
pub const SLOTS: usize = 7;

/// Bytes of a bucket: a cache line.
pub const BUCKET_BYTES: usize = 64;

/// Bits of a route: the highest of the tag. A word then has a bit for each route.
const ROUTE_BITS: u32 = 6;

const AWAY: u64 = 1 << 63;
const TAG_BITS: u32 = 15;
const PLACE: u64 = (1 << EntryAddress::BITS) - 1;

const _: () = assert!(EntryAddress::BITS + TAG_BITS + 1 == u64::BITS && 1 << ROUTE_BITS == u64::BITS);

/// The route of a key: the distance between its two buckets, one of 64. The tag determines the route, so that an
/// entry's other bucket is known without its key (partial-key cuckoo hashing, MemC3 section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route(u64);

impl Route {
    /// Returns the exclusive or of the two bucket numbers, of arbitrary length. It is odd, so that the buckets differ
    /// if there are at least two.
    #[inline]
    pub fn distance(self) -> u64 {
        let product = (self.0 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (product ^ product >> 29) | 1
    }
}

/// A hash of a key in the order of its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// Returns a number whose low bits select the home bucket.
    #[inline]
    pub fn home(self) -> u64 {
        self.0
    }

    /// Returns a number whose low bits select the other bucket.
    #[inline]
    pub fn other(self) -> u64 {
        self.0 ^ self.route().distance()
    }

    #[inline]
    pub fn route(self) -> Route {
        Route(self.0 >> (u64::BITS - ROUTE_BITS))
    }

    /// Returns the slot of an entry that is at home. A slot in use is never zero, as no tag is zero.
    #[inline]
    pub fn slot(self, place: EntryAddress) -> BucketSlot {
        debug_assert!(place.to_bits() <= PLACE, "a place of more than {} bits", EntryAddress::BITS);
        let tag = (self.0 >> (u64::BITS - TAG_BITS)).max(1);
        BucketSlot(tag << EntryAddress::BITS | place.to_bits())
    }
}

/// The word of an entry in a bucket; zero for a free slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketSlot(u64);

impl BucketSlot {
    pub const EMPTY: BucketSlot = BucketSlot(0);

    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether the entry is in the other bucket of its key.
    #[inline]
    pub fn is_away(self) -> bool {
        self.0 & AWAY != 0
    }

    /// Returns the slot of the same entry in the other one of its key's buckets.
    #[inline]
    pub fn moved(self) -> BucketSlot {
        BucketSlot(self.0 ^ AWAY)
    }

    #[inline]
    pub fn place(self) -> EntryAddress {
        EntryAddress::from_bits(self.0 & PLACE)
    }

    #[inline]
    pub fn route(self) -> Route {
        Route(self.0 << 1 >> (u64::BITS - ROUTE_BITS))
    }

    #[inline]
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// Returns the tag and the away bit.
    #[inline]
    fn mark(self) -> u64 {
        self.0 >> EntryAddress::BITS
    }
}

/// The set of routes of keys at home in this bucket but stored elsewhere, one bit per route.
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

    /// Iterates over the routes.
    pub fn routes(self) -> impl Iterator<Item = Route> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let route = (rest != 0).then(|| Route(u64::from(rest.trailing_zeros())));
            rest &= rest.wrapping_sub(1);
            route
        })
    }

    /// Returns the union with another summary.
    #[must_use]
    pub fn and(self, other: Summary) -> Summary {
        Summary(self.0 | other.0)
    }
}

/// A view of a bucket in place, for lookups; a copy would be written to the stack.
#[derive(Clone, Copy)]
pub struct BucketRef<'a>(pub &'a [u8; BUCKET_BYTES]);

impl BucketRef<'_> {
    #[inline]
    pub fn summary(self) -> Summary {
        Summary(self.word(SLOTS))
    }

    #[inline]
    pub fn slot(self, i: usize) -> BucketSlot {
        BucketSlot(self.word(i))
    }

    /// Returns the index of the slot for which `is_it` is true, among those with the tag and away bit of `like`.
    #[inline]
    pub fn find(self, like: BucketSlot, is_it: impl Fn(EntryAddress) -> bool) -> Option<usize> {
        // Branch-free, because the branches could not be predicted.
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
    pub slots: [BucketSlot; SLOTS],
    pub summary: Summary,
}

impl Bucket {
    pub const EMPTY: Bucket = Bucket { slots: [BucketSlot::EMPTY; SLOTS], summary: Summary(0) };

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

    /// Iterates over the entries that are at home.
    pub fn at_home(&self) -> impl Iterator<Item = BucketSlot> {
        self.slots.iter().copied().filter(|slot| !slot.is_empty() && !slot.is_away())
    }

    /// Returns whether an entry came here by a route.
    #[inline]
    pub fn has_away_by(&self, route: Route) -> bool {
        self.mask(|slot| slot.0 >> (u64::BITS - 1 - ROUTE_BITS) == 1 << ROUTE_BITS | route.0) != 0
    }

    /// Iterates over the entries that came here by a route.
    pub fn away_by(&self, route: Route) -> impl Iterator<Item = BucketSlot> {
        self.slots.iter().copied().filter(move |slot| slot.is_away() && slot.route() == route)
    }

    /// Returns a bit for each slot, computed without branches.
    #[inline]
    fn mask(&self, is_set: impl Fn(BucketSlot) -> bool) -> u32 {
        self.slots.iter().enumerate().fold(0, |mask, (i, slot)| mask | u32::from(is_set(*slot)) << i)
    }
}
