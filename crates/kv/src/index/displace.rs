//! Displacement in the hash index, a cuckoo hash table in which each entry may be in either of two buckets: frees a
//! slot in a full bucket by moving entries to their other buckets, along the shortest path to a free slot, found
//! breadth first as in libcuckoo (Li et al., EuroSys 2014, section 4.3).

use super::Index;
use super::bucket::{BucketSlot, KeyHash, SLOTS};
use crate::slab::EntryAddress;

/// Maximum number of entries that are moved to free a slot for one entry.
const MOVES: usize = 5;

/// Maximum number of buckets per search whose entries are considered for a move; the search reads at most seven times
/// as many buckets. Reason for 32: at a load of 91 %, a search reads 10 buckets on average, and four out of five
/// searches move a single entry; a table that cannot grow gets 95 % full.
const NODES: usize = 32;

/// A full bucket that the search has reached.
#[derive(Clone, Copy, Default)]
struct SearchNode {
    bucket: usize,
    /// Index of the node from which the search reached this bucket, and the slot there of the entry that would move
    /// here; `None` for the buckets where the search began.
    from: Option<(usize, usize)>,
    depth: usize,
}

/// The state of a search: the full buckets in the order in which the search reached them.
struct Search {
    nodes: [SearchNode; NODES],
    len: usize,
}

impl Search {
    fn new() -> Search {
        Search { nodes: [SearchNode::default(); NODES], len: 0 }
    }

    fn push(&mut self, node: SearchNode) {
        if self.len < NODES {
            self.nodes[self.len] = node;
            self.len += 1;
        }
    }

    /// Returns whether the path to `node` passes through `bucket`. A path must not visit a bucket twice, because it
    /// would be longer than necessary and could move an entry twice.
    fn passes(&self, node: usize, bucket: usize) -> bool {
        let node = self.nodes[node];
        node.bucket == bucket || node.from.is_some_and(|(earlier, _)| self.passes(earlier, bucket))
    }
}

impl Index {
    /// Tries to move the next entry of the stash to a bucket; returns whether it was moved.
    pub(super) fn empty_stash(&mut self, hash_of: &impl Fn(EntryAddress) -> u64) -> bool {
        let Some(entry) = self.stash.next_untried() else { return false };
        let is_put = self.put_directly(entry.hash(), entry.place())
            || self.put_by_displacement(entry.hash(), entry.place(), hash_of);
        if is_put {
            self.take_from_stash(entry);
        }
        is_put
    }

    /// Adds an entry to one of its key's two buckets, both of which are full, by moving other entries; returns whether
    /// a path to a free slot was found. Nothing is changed if not.
    pub(super) fn put_by_displacement(
        &mut self,
        hash: KeyHash,
        place: EntryAddress,
        hash_of: &impl Fn(EntryAddress) -> u64,
    ) -> bool {
        let (home, other) = (self.table.address(hash.home()), self.table.address(hash.other()));
        let mut search = Search::new();
        search.push(SearchNode { bucket: home, from: None, depth: 0 });
        if other != home {
            search.push(SearchNode { bucket: other, from: None, depth: 0 });
        }
        let free = self.free_by_displacement(&mut search, hash_of);
        if let Some((bucket, slot)) = free {
            self.put(bucket, slot, hash, place);
        }
        free.is_some()
    }

    /// Frees a slot in one of the buckets where `search` begins; returns the bucket and the slot, or `None` if no path
    /// was found.
    fn free_by_displacement(
        &mut self,
        search: &mut Search,
        hash_of: &impl Fn(EntryAddress) -> u64,
    ) -> Option<(usize, usize)> {
        let mut at = 0;
        while at < search.len {
            let node = search.nodes[at];
            let bucket = self.table.read(node.bucket);
            debug_assert!(bucket.free_slot().is_none(), "only full buckets are searched from");
            for slot in 0..SLOTS {
                let to = self.other_bucket(node.bucket, bucket.slots[slot], hash_of);
                if search.passes(at, to) {
                    continue;
                }
                if let Some(free) = self.table.read(to).free_slot() {
                    return Some(self.move_along(search, (at, slot), (to, free)));
                }
                if node.depth + 1 < MOVES {
                    search.push(SearchNode { bucket: to, from: Some((at, slot)), depth: node.depth + 1 });
                }
            }
            at += 1;
        }
        None
    }

    /// Moves the entry at the end of a path to the slot `free`, the entry before it to the slot that becomes free by
    /// this, and so on. Returns the bucket and slot that are free in the end, in the first bucket of the path.
    fn move_along(
        &mut self,
        search: &Search,
        end: (usize, usize),
        mut free: (usize, usize),
    ) -> (usize, usize) {
        let mut from = Some(end);
        while let Some((node, slot)) = from {
            let node = search.nodes[node];
            self.relocate((node.bucket, slot), free);
            (free, from) = ((node.bucket, slot), node.from);
        }
        free
    }

    /// Moves an entry to a free slot of its other bucket; `from` and `to` are pairs of bucket and slot.
    pub(super) fn relocate(&mut self, from: (usize, usize), to: (usize, usize)) {
        let entry = self.table.get(from.0).slot(from.1);
        self.table.write_slot(to.0, to.1, entry.moved());
        if !entry.is_away() {
            self.remember(from.0, entry.route());
        }
        self.vacate(from.0, from.1);
    }

    /// Returns the other bucket of an entry that is in `bucket`. The hash of its key is needed only if the other bucket
    /// has been split and `bucket` has not.
    fn other_bucket(
        &self,
        bucket: usize,
        entry: BucketSlot,
        hash_of: &impl Fn(EntryAddress) -> u64,
    ) -> usize {
        let (first, second) = self.table.candidate_buckets(bucket, entry.route());
        if second.is_none() {
            return first;
        }
        let hash = self.ordered(hash_of(entry.place()));
        self.table.address(if entry.is_away() { hash.home() } else { hash.other() })
    }
}
