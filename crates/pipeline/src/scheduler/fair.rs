//! Tree of shares that selects the next task, by start-time fair queueing (Goyal, Vin, Cheng: SIGCOMM 1996) at every
//! level.
//!
//! Each member of the tree (a tenant, a client's region or a task) records its service: CPU time or equivalent,
//! divided by its weight. Of the children of a parent that have work, the one with the least service goes next. A
//! member that gets work again after it had none starts from the service of the child that went last. So it can
//! neither save up its share while it has no work nor be starved by newcomers.
//!
//! Invariant: a member is in its parent's queue exactly if it is a ready leaf or has a ready leaf below it. Every
//! operation costs the logarithm of the number of members. Example: when the last ready task of a region is parked, the
//! region leaves the queue of its tenant, too; otherwise [`FairTree::next`] would descend to a region without a ready
//! task.

use super::ShareUse;
use std::collections::{BTreeSet, HashMap};

/// Id of the root of the tree.
pub(super) const ROOT: u64 = 0;

/// Factor by which nanoseconds are multiplied before they are divided by a weight, for precision.
const SCALE: i128 = 1 << 20;

/// A tree of shares. Members have ids that are not reused.
#[derive(Debug)]
pub(super) struct FairTree {
    members: HashMap<u64, Member>,
}

#[derive(Debug)]
struct Member {
    parent: u64,
    weight: u32,
    /// Service: nanoseconds divided by weight. While steps are in progress, it includes their expected cost.
    served: i128,
    /// Nanoseconds that were charged to the member, not divided by the weight.
    charged_ns: i128,
    /// Whether the member is in its parent's queue.
    queued: bool,
    /// Number of times that the member has left its parent's queue because it had no ready leaf.
    rests: u64,
    /// Queue of the children that have work, ordered by service, the least first.
    line: BTreeSet<(i128, u64)>,
    /// Service of the child that went last, as it was at that time.
    now: i128,
}

impl FairTree {
    /// Creates a tree with the root only.
    pub fn new() -> Self {
        let mut tree = FairTree { members: HashMap::new() };
        tree.insert(ROOT, ROOT, 1);
        tree
    }

    /// Adds `member` below `parent`, without work.
    pub fn insert(&mut self, member: u64, parent: u64, weight: u32) {
        let weight = weight.max(1);
        let line = BTreeSet::new();
        let (served, charged_ns, rests, now) = Default::default();
        let queued = false;
        self.members.insert(member, Member { parent, weight, served, charged_ns, queued, rests, line, now });
    }

    /// Sets the weight by which further service of `member` is divided.
    pub fn set_weight(&mut self, member: u64, weight: u32) {
        if let Some(member) = self.members.get_mut(&member) {
            member.weight = weight.max(1);
        }
    }

    /// Removes a member, which must have no children.
    pub fn remove(&mut self, member: u64) {
        self.set_waiting(member);
        self.members.remove(&member);
    }

    /// Returns true if any leaf is ready.
    pub fn has_ready(&self) -> bool {
        self.members.get(&ROOT).is_some_and(|root| !root.line.is_empty())
    }

    /// Returns true if `leaf` is ready.
    pub fn is_ready(&self, leaf: u64) -> bool {
        self.members.get(&leaf).is_some_and(|leaf| leaf.queued)
    }

    /// Marks a leaf as ready and queues it.
    pub fn set_ready(&mut self, leaf: u64) {
        let mut at = leaf;
        while at != ROOT {
            let Some(member) = self.members.get(&at) else { return };
            if member.queued {
                return;
            }
            let (parent, served) = (member.parent, member.served);
            let Some(above) = self.members.get_mut(&parent) else { return };
            let served = served.max(above.now);
            let is_new = above.line.insert((served, at));
            assert!(is_new, "a member that is not queued is in no queue");
            if let Some(member) = self.members.get_mut(&at) {
                (member.served, member.queued) = (served, true);
            }
            at = parent;
        }
    }

    /// Marks a leaf as not ready and removes it from its queue.
    pub fn set_waiting(&mut self, leaf: u64) {
        let mut at = leaf;
        while at != ROOT {
            let Some(member) = self.members.get_mut(&at) else { return };
            if !std::mem::take(&mut member.queued) {
                return;
            }
            member.rests += 1;
            let (parent, served) = (member.parent, member.served);
            let Some(above) = self.members.get_mut(&parent) else { return };
            let was_queued = above.line.remove(&(served, at));
            assert!(was_queued, "a queued member is in its parent's queue");
            if !above.line.is_empty() {
                return;
            }
            at = parent;
        }
    }

    /// Returns the ready leaf that goes next; `None` if no leaf is ready. The leaf stays ready.
    pub fn next(&mut self) -> Option<u64> {
        let mut at = ROOT;
        loop {
            let member = self.members.get_mut(&at)?;
            match member.line.first() {
                Some(&(served, child)) => {
                    member.now = member.now.max(served);
                    at = child;
                }
                None => return (at != ROOT).then_some(at),
            }
        }
    }

    /// Returns the share of time used by each child of the root (each tenant), in no particular order.
    pub fn top(&self) -> impl Iterator<Item = ShareUse> + '_ {
        let is_top = |(id, member): &(&u64, &Member)| **id != ROOT && member.parent == ROOT;
        self.members.iter().filter(is_top).map(|(id, member)| ShareUse {
            id: *id,
            weight: member.weight,
            charged_ns: member.charged_ns,
            is_backlogged: member.queued,
            rests: member.rests,
        })
    }

    /// Adds `ns` to the service of a member and of its ancestors. A negative number corrects a charge that was too
    /// high.
    pub fn charge(&mut self, member: u64, ns: i64) {
        let mut at = member;
        while at != ROOT {
            let Some(member) = self.members.get_mut(&at) else { return };
            let before = member.served;
            member.served += i128::from(ns) * SCALE / i128::from(member.weight);
            member.charged_ns += i128::from(ns);
            let (after, parent, queued) = (member.served, member.parent, member.queued);
            if queued && let Some(above) = self.members.get_mut(&parent) {
                let was_queued = above.line.remove(&(before, at));
                assert!(was_queued, "a queued member is in its parent's queue, by its service");
                above.line.insert((after, at));
            }
            at = parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Executes `turns` steps whose costs are given by `cost`, and returns the sum of the costs by leaf.
    fn served(tree: &mut FairTree, turns: usize, cost: impl Fn(u64) -> i64) -> HashMap<u64, i64> {
        let mut served = HashMap::new();
        for _ in 0..turns {
            let leaf = tree.next().expect("a leaf is ready");
            tree.charge(leaf, cost(leaf));
            *served.entry(leaf).or_default() += cost(leaf);
        }
        served
    }

    #[test]
    fn parents_share_by_weight_and_their_leaves_equally() {
        let mut tree = FairTree::new();
        tree.insert(1, ROOT, 3);
        tree.insert(2, ROOT, 1);
        for leaf in 10..14 {
            tree.insert(leaf, 1, 1);
            tree.set_ready(leaf);
        }
        tree.insert(20, 2, 1);
        tree.set_ready(20);
        let served = served(&mut tree, 8_000, |leaf| if leaf == 10 { 7 } else { 1 });
        let all: i64 = served.values().sum();
        assert!((served[&20] - all / 4).abs() <= 8, "{served:?}");
        assert!((10..14).all(|leaf| (served[&leaf] - all * 3 / 16).abs() <= 8), "{served:?}");
    }

    #[test]
    fn who_was_idle_starts_from_the_present() {
        let mut tree = FairTree::new();
        for leaf in [1, 2] {
            tree.insert(leaf, ROOT, 1);
            tree.set_ready(leaf);
        }
        tree.set_waiting(2);
        served(&mut tree, 1_000, |_| 10);
        tree.set_ready(2);
        let served = served(&mut tree, 100, |_| 10);
        assert!(served[&1].abs_diff(served[&2]) <= 20, "{served:?}");
    }

    #[test]
    fn what_was_charged_too_much_comes_back() {
        let mut tree = FairTree::new();
        for leaf in [1, 2] {
            tree.insert(leaf, ROOT, 1);
            tree.set_ready(leaf);
        }
        assert_eq!(tree.next(), Some(1));
        tree.charge(1, 100);
        assert_eq!(tree.next(), Some(2));
        tree.charge(2, 50);
        tree.charge(1, -99);
        assert_eq!(tree.next(), Some(1));
    }

    proptest! {
        #[test]
        fn a_member_stands_in_line_exactly_while_a_leaf_below_it_is_ready(
            steps in prop::collection::vec((1..13_u64, 0..4_u8, 0..1000_i64), 1..200),
        ) {
            let mut tree = FairTree::new();
            (1..4).for_each(|parent| tree.insert(parent, ROOT, parent as u32));
            // Leaves 4 to 12 are inserted below parents 1 to 3.
            (4..13).for_each(|leaf| tree.insert(leaf, 1 + leaf % 3, 1));
            let mut ready = BTreeSet::new();
            for (member, what, ns) in steps {
                match what {
                    0 if member > 3 => { tree.set_ready(member); ready.insert(member); }
                    1 if member > 3 => { tree.set_waiting(member); ready.remove(&member); }
                    2 => tree.charge(member, ns - 300),
                    _ => if let Some(leaf) = tree.next() {
                        prop_assert!(ready.contains(&leaf));
                        tree.charge(leaf, ns);
                    },
                }
                prop_assert_eq!(tree.has_ready(), !ready.is_empty());
                for (id, member) in tree.members.iter().filter(|(id, _)| **id != ROOT) {
                    let expected = ready.iter().any(|leaf| leaf == id || *id < 4 && 1 + leaf % 3 == *id);
                    prop_assert_eq!(member.queued, expected);
                    prop_assert_eq!(tree.members[&member.parent].line.contains(&(member.served, *id)), expected);
                }
            }
        }
    }
}
