//! A bucket of the index: one cache line with seven slots, and a summary of the entries that belong in this bucket but
//! are stored elsewhere.
//!
//! A slot is a word of 64 bits: 48 bits of the entry's address, 15 bits of the key's hash (the tag), and a bit that
//! says whether the entry is away from its home bucket. An eighth slot instead of the summary would save 12 % of the
//! memory. The summary makes most lookups read one cache line instead of two, avoids lookups in the stash, and tells a
//! scan where the entries of the bucket are; see the module documentation of [`index`](super).

use crate::slab::EntryAddress;

/// Number of slots of a bucket.
pub const SLOTS: usize = 7;

/// Bytes of a bucket: a cache line.
pub const BUCKET_BYTES: usize = 64;

/// Number of bits of a route, the highest bits of the tag. Reason for 6: a summary of 64 bits has one bit per route.
const ROUTE_BITS: u32 = 6;

/// Bit of a slot that says whether the entry is away from its home bucket.
const AWAY: u64 = 1 << 63;
const TAG_BITS: u32 = 15;
/// Bits of a slot that hold the entry's address.
const PLACE: u64 = (1 << EntryAddress::BITS) - 1;

const _: () = assert!(EntryAddress::BITS + TAG_BITS + 1 == u64::BITS && 1 << ROUTE_BITS == u64::BITS);

/// The route of a key: which of 64 constants is the XOR of the key's two bucket numbers. The route is part of the tag,
/// so that the other bucket of an entry is known without reading its key (partial-key cuckoo hashing, MemC3 section
/// 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route(u64);

impl Route {
    /// Returns the XOR of the key's two bucket numbers, 64 bits of which the table uses the low ones. The result is
    /// odd, so that the two buckets differ if the table has at least two.
    #[inline]
    pub fn distance(self) -> u64 {
        let product = (self.0 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (product ^ product >> 29) | 1
    }
}

/// A key's hash after the permutation of its index (a bijection seeded per index, see
/// [`IndexOrder`](super::IndexOrder)). The low bits select the home bucket; the highest 15 bits are the tag, and the
/// highest 6 of these the route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// Returns the key's first bucket number: its low bits select the home bucket.
    #[inline]
    pub fn home(self) -> u64 {
        self.0
    }

    /// Returns the key's second bucket number: its low bits select the other bucket.
    #[inline]
    pub fn other(self) -> u64 {
        self.0 ^ self.route().distance()
    }

    #[inline]
    pub fn route(self) -> Route {
        Route(self.0 >> (u64::BITS - ROUTE_BITS))
    }

    /// Returns the slot content for the entry at `place` in its home bucket. The content is never zero, which would
    /// mean a free slot, because a tag of zero is replaced by one.
    #[inline]
    pub fn slot(self, place: EntryAddress) -> BucketSlot {
        debug_assert!(place.to_bits() <= PLACE, "a place of more than {} bits", EntryAddress::BITS);
        let tag = (self.0 >> (u64::BITS - TAG_BITS)).max(1);
        BucketSlot(tag << EntryAddress::BITS | place.to_bits())
    }
}

/// The content of a slot of a bucket: address, tag and away bit of an entry; zero for a free slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketSlot(u64);

impl BucketSlot {
    pub const EMPTY: BucketSlot = BucketSlot(0);

    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether the entry is away, that is, in the second bucket of its key.
    #[inline]
    pub fn is_away(self) -> bool {
        self.0 & AWAY != 0
    }

    /// Returns the slot content for the same entry in the other bucket of its key.
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

    /// Returns the tag and the away bit, which a lookup compares.
    #[inline]
    fn mark(self) -> u64 {
        self.0 >> EntryAddress::BITS
    }
}

/// The summary of a bucket: the set of routes of entries that have this home bucket but are stored elsewhere, one bit
/// per route. A lookup whose route is not in the set ends in the home bucket.
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

    /// Iterates over the routes in the set.
    pub fn routes(self) -> impl Iterator<Item = Route> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let route = (rest != 0).then(|| Route(u64::from(rest.trailing_zeros())));
            rest &= rest.wrapping_sub(1);
            route
        })
    }

    /// Returns the union with another bucket's summary, for merging the two buckets.
    #[must_use]
    pub fn and(self, other: Summary) -> Summary {
        Summary(self.0 | other.0)
    }
}

/// A view of a bucket in the table's memory. Lookups use it instead of [`Bucket`], because a copy would be written to
/// the stack.
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

    /// Returns the number of the first slot that has the tag and away bit of `like` and for whose address `is_it`
    /// returns true; `None` if there is none.
    #[inline]
    pub fn find(self, like: BucketSlot, is_it: impl Fn(EntryAddress) -> bool) -> Option<usize> {
        // Compares all slots without branches, because the processor could not predict them.
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

/// A copy of a bucket, to be changed and written back.
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

    /// Returns the number of the first free slot; `None` if the bucket is full.
    #[inline]
    pub fn free_slot(&self) -> Option<usize> {
        let free = self.mask(|slot| slot.is_empty());
        (free != 0).then(|| free.trailing_zeros() as usize)
    }

    /// Returns the number of slots in use.
    pub fn count(&self) -> usize {
        self.mask(|slot| !slot.is_empty()).count_ones() as usize
    }

    /// Iterates over the slots of entries that are at home.
    pub fn at_home(&self) -> impl Iterator<Item = BucketSlot> {
        self.slots.iter().copied().filter(|slot| !slot.is_empty() && !slot.is_away())
    }

    /// Returns whether the bucket has an entry that is away and has this route.
    #[inline]
    pub fn has_away_by(&self, route: Route) -> bool {
        self.mask(|slot| slot.0 >> (u64::BITS - 1 - ROUTE_BITS) == 1 << ROUTE_BITS | route.0) != 0
    }

    /// Iterates over the slots of entries that are away and have this route.
    pub fn away_by(&self, route: Route) -> impl Iterator<Item = BucketSlot> {
        self.slots.iter().copied().filter(move |slot| slot.is_away() && slot.route() == route)
    }

    /// Returns a bitmap of the slots for which `is_set` returns true, computed without branches.
    #[inline]
    fn mask(&self, is_set: impl Fn(BucketSlot) -> bool) -> u32 {
        self.slots.iter().enumerate().fold(0, |mask, (i, slot)| mask | u32::from(is_set(*slot)) << i)
    }
}
