//! Whose turn it is in a tree of shares: start-time fair queueing (Goyal, Vin, Cheng: SIGCOMM 1996) at every level.
//!
//! Each member carries what it was served, divided by its weight. Of the members of one parent that have something
//! to do, the one that was served least goes next. A member that had nothing to do for a while starts from the
//! present, which is what the last one to go was served by then: it can neither save up its share nor be starved by
//! newcomers.
//!
//! Invariant: a member stands in its parent's line exactly when it is a leaf that is ready, or has such a leaf below.
//! Every operation costs the logarithm of the number of members, whatever their number.

use super::ShareUse;
use std::collections::{BTreeSet, HashMap};

/// The member above all others.
pub(super) const ROOT: u64 = 0;

/// Served nanoseconds are multiplied by this before they are divided by a weight.
const SCALE: i128 = 1 << 20;

/// See the file's comment. Members are named by numbers that are not used again.
#[derive(Debug)]
pub(super) struct FairTree {
    members: HashMap<u64, Member>,
}

#[derive(Debug)]
struct Member {
    parent: u64,
    weight: u32,
    /// Weighted service. It may run ahead of what was really served while steps are under way.
    served: i128,
    /// What it was charged, in nanoseconds.
    charged_ns: i128,
    /// Whether it stands in its parent's line.
    queued: bool,
    /// How often it has left that line.
    rests: u64,
    /// Its children that have something to do, the one that was served least first.
    line: BTreeSet<(i128, u64)>,
    /// What the child that went last had been served when it went.
    now: i128,
}

impl FairTree {
    /// A tree of the root alone.
    pub fn new() -> Self {
        let mut tree = FairTree { members: HashMap::new() };
        tree.insert(ROOT, ROOT, 1);
        tree
    }

    /// Adds `member` below `parent`, with nothing to do.
    pub fn insert(&mut self, member: u64, parent: u64, weight: u32) {
        let weight = weight.max(1);
        let line = BTreeSet::new();
        let (served, charged_ns, rests, now) = Default::default();
        let queued = false;
        self.members.insert(member, Member { parent, weight, served, charged_ns, queued, rests, line, now });
    }

    /// Has what `member` is served from now on count by this weight.
    pub fn set_weight(&mut self, member: u64, weight: u32) {
        if let Some(member) = self.members.get_mut(&member) {
            member.weight = weight.max(1);
        }
    }

    /// Removes a member that has no members below.
    pub fn remove(&mut self, member: u64) {
        self.set_waiting(member);
        self.members.remove(&member);
    }

    /// Whether any leaf is ready.
    pub fn has_ready(&self) -> bool {
        self.members.get(&ROOT).is_some_and(|root| !root.line.is_empty())
    }

    /// Whether a leaf is ready.
    pub fn is_ready(&self, leaf: u64) -> bool {
        self.members.get(&leaf).is_some_and(|leaf| leaf.queued)
    }

    /// A leaf has something to do.
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
            above.line.insert((served, at));
            if let Some(member) = self.members.get_mut(&at) {
                (member.served, member.queued) = (served, true);
            }
            at = parent;
        }
    }

    /// A leaf has nothing to do for now.
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
            above.line.remove(&(served, at));
            if !above.line.is_empty() {
                return;
            }
            at = parent;
        }
    }

    /// The ready leaf whose turn it is. It stays ready.
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

    /// What the members right below the root have had, in no order.
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

    /// Adds `ns` to what a member and those above it were served; negative where less was used than was charged.
    pub fn charge(&mut self, member: u64, ns: i64) {
        let mut at = member;
        while at != ROOT {
            let Some(member) = self.members.get_mut(&at) else { return };
            let before = member.served;
            member.served += i128::from(ns) * SCALE / i128::from(member.weight);
            member.charged_ns += i128::from(ns);
            let (after, parent, queued) = (member.served, member.parent, member.queued);
            if queued && let Some(above) = self.members.get_mut(&parent) {
                above.line.remove(&(before, at));
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

    /// Runs `turns` turns of 1 ns each, or as `cost` says, and counts them by leaf.
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
            // Leaves 4 to 12 below parents 1 to 3.
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
