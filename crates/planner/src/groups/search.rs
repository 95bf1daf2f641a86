//! The search for the partition of programs into groups that is predicted to cost least.

use super::{Joint, Kind};

/// Maximum number of programs for which the best partition is computed. Reason: the time grows exponentially with their
/// number.
const EXACT_MAX: usize = 8;
/// Maximum number of groups and of programs for which the heuristic partition is improved. Reason: the time grows
/// faster than their number.
const MOVED_MAX: usize = 64;
const ROUNDS_MAX: usize = 4;

impl Kind {
    /// Returns all members, partitioned into groups of one or more.
    pub(super) fn grouped(&self) -> Vec<Joint> {
        if self.members.len() <= EXACT_MAX { self.best() } else { self.searched() }
    }

    /// Returns the partition that is predicted to cost least, by dynamic programming over subsets.
    fn best(&self) -> Vec<Joint> {
        let count = 1_usize << self.members.len();
        // Both lists are indexed by a set of members (a bitmap). The first has the set as one group, or `None` if it
        // may not be one. The second has the least cost of a partition of the set, and one of the groups of that
        // partition.
        let mut joints: Vec<Option<Joint>> = vec![None; count];
        let mut least = vec![(0.0, 0); count];
        for set in 1..count {
            let first = set.trailing_zeros() as usize;
            let (single, rest) = (self.alone(first), set & (set - 1));
            joints[set] = match (rest, &joints[rest]) {
                (0, _) => Some(single),
                (_, Some(others)) if self.may_join(&single, others) => Some(self.join(&single, others)),
                _ => None,
            };
            let mut found = (f64::INFINITY, set);
            // Tries as a group the first member of the set, together with each subset of the others.
            let mut others = rest;
            loop {
                let group = others | 1 << first;
                let is_allowed = |joint: &&Joint| others == 0 || joint.expected.bytes_plain <= self.bytes_max;
                if let Some(joint) = joints[group].as_ref().filter(is_allowed) {
                    let ns = joint.expected.ns + least[set ^ group].0;
                    // Smaller groups are tried later, and win if costs are equal.
                    if ns <= found.0 {
                        found = (ns, group);
                    }
                }
                if others == 0 {
                    break;
                }
                others = (others - 1) & rest;
            }
            least[set] = found;
        }
        let (mut groups, mut left) = (Vec::new(), count - 1);
        while left > 0 {
            let group = least[left].1;
            groups.extend(joints[group].take());
            left ^= group;
        }
        groups
    }

    /// Returns a good partition, found by a heuristic. It does not cost more than all programs apart.
    pub(super) fn searched(&self) -> Vec<Joint> {
        let mut singles: Vec<Joint> = (0..self.members.len()).map(|at| self.alone(at)).collect();
        singles.sort_by(|a, b| b.expected.ns.total_cmp(&a.expected.ns));
        let begun = |least: f64| {
            let mut groups = Vec::new();
            singles.iter().for_each(|single| self.put(&mut groups, single.clone(), least));
            groups
        };
        if self.members.len() > MOVED_MAX {
            return begun(0.0);
        }
        // Three programs may save time together although no two of them do. Therefore the search starts twice: with all
        // programs apart, and with all together.
        let [apart, together] = [0.0, f64::NEG_INFINITY].map(|least| {
            let mut groups = begun(least);
            self.improve(&mut groups);
            groups
        });
        if total(&together) < total(&apart) { together } else { apart }
    }

    /// Moves members to other groups and merges groups, as long as that lowers the predicted cost.
    fn improve(&self, groups: &mut Vec<Joint>) {
        for _ in 0..ROUNDS_MAX {
            let moved = self.rearrange(groups);
            if !self.merge(groups) && !moved {
                break;
            }
        }
    }

    /// Adds a group to `groups`: combines it with the group where that saves most, if it saves more than `least` ns;
    /// otherwise appends it.
    fn put(&self, groups: &mut Vec<Joint>, new: Joint, least: f64) {
        let best = groups.iter().enumerate().filter_map(|(at, group)| {
            let joint = self.joined(group, &new)?;
            let saved = group.expected.ns + new.expected.ns - joint.expected.ns;
            (saved > least).then_some((saved, at, joint))
        });
        match best.max_by(|a, b| a.0.total_cmp(&b.0)) {
            Some((_, at, joint)) => groups[at] = joint,
            None => groups.push(new),
        }
    }

    /// Merges groups as long as that lowers the predicted cost; returns whether any were merged.
    fn merge(&self, groups: &mut Vec<Joint>) -> bool {
        let before = groups.len();
        for _ in 0..before {
            let count = groups.len();
            if let Some(group) = groups.pop() {
                self.put(groups, group, 0.0);
            }
            // Nothing was merged. The order of the groups has changed, so that another group is the last one, which
            // is tried next.
            if groups.len() == count {
                groups.rotate_right(1);
            }
        }
        groups.len() < before
    }

    /// Moves each member to the group where the predicted cost is least; returns whether any was moved.
    fn rearrange(&self, groups: &mut Vec<Joint>) -> bool {
        let mut any = false;
        for member in 0..self.members.len() {
            let Some(at) = groups.iter().position(|group| group.members.contains(&member)) else { continue };
            if groups[at].members.len() < 2 {
                continue;
            }
            let others = groups[at].members.iter().filter(|other| **other != member);
            let rest = others.map(|other| self.alone(*other));
            let Some(Some(rest)) = rest.map(Some).reduce(|a, b| self.joined(&a?, &b?)) else { continue };
            let mut moved = groups.clone();
            moved[at] = rest;
            self.put(&mut moved, self.alone(member), 0.0);
            // The cost must fall by more than rounding errors, or members could move back and forth.
            if total(&moved) < total(groups) * (1.0 - 1e-9) {
                (*groups, any) = (moved, true);
            }
        }
        any
    }
}

fn total(groups: &[Joint]) -> f64 {
    groups.iter().map(|group| group.expected.ns).sum()
}
