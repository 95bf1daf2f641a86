//! Estimates the number of rows that joins return, and chooses the order of joins of several relations (inputs of
//! joins).
//!
//! The rows of a join follow from the distinct values of its join keys (Selinger et al. 1979): of all pairs of rows,
//! one in `d` matches, where `d` is the larger number of distinct values of the two sides before any filter. This
//! assumes that values are equally frequent. If there are sketches (Fast-AGMS) of both columns, which tell how many
//! pairs match, they are used instead ([`Share`]).
//!
//! The order is found by dynamic programming over connected subsets (Selinger et al. 1979), including bushy trees, for
//! up to [`RELATIONS_MAX`] relations. It minimizes the number of rows that hash joins build, probe and return.
//! Relations and keys are represented by numbers; only the caller knows what they stand for.
//!
//! Join keys that are equal by transitivity form one key class: with `a = b` and `b = c`, `a` and `c` can be joined.
//!
//! Invariant: the resulting tree joins every relation exactly once, each join on at least one key class.

pub mod eager;
pub mod estimate;
pub mod sizes;

use crate::estimate::distinct_met;

/// Maximum number of relations whose joins are ordered. Reason: the search would take too long for more, and estimates
/// of so many joins mean nothing.
pub const RELATIONS_MAX: usize = 12;

/// Cost of inserting a row into a hash table, relative to that of a look-up.
const BUILD_COST: f64 = 2.0;

/// A relation: one input of the joins, such as a table with a filter.
#[derive(Clone, Debug)]
pub struct Relation {
    /// Number of rows after the relation's own filters.
    pub rows: f64,
    /// Number of rows before filters, to which the distinct values of its join keys refer.
    pub rows_unfiltered: f64,
    /// The relation's join keys: the key class of each, and its number of distinct values before filters.
    pub keys: Vec<(usize, f64)>,
}

/// The fraction of all pairs of rows of two tables that match on a join key, as estimated from sketches, with bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The most likely value.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Share {
    /// Returns the fraction to use, where `guess` is the estimate without sketches: the sketches' value, or, if its
    /// bounds are far apart, the guess clamped to the bounds.
    pub fn refine(self, guess: f64) -> f64 {
        if self.high - self.low <= self.value { self.value } else { guess.min(self.high).max(self.low) }
    }
}

/// The fraction of matching pairs of two relations, as estimated from sketches.
#[derive(Clone, Copy, Debug)]
pub struct Matches {
    /// The key class of the join keys.
    pub class: usize,
    /// The two relations, by their positions.
    pub relations: (usize, usize),
    /// The fraction of all pairs of their rows that match.
    pub share: Share,
}

/// One side of a join on several join keys.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// Number of rows before filters.
    pub rows: f64,
    /// Whether the join keys come from several tables that were independent of each other before they were joined.
    pub apart: bool,
}

/// Returns the fraction of all pairs of rows that match on all of `keys`; a key is given by its numbers of distinct
/// values on the left and the right side.
pub fn share(keys: &[(f64, f64)], left: Side, right: Side) -> f64 {
    match keys {
        [] => 1.0,
        [(d, e)] => 1.0 / d.max(*e).max(1.0),
        several => {
            let combinations = |side: Side, of: fn(&(f64, f64)) -> f64| {
                let product = several.iter().map(of).product::<f64>();
                if side.apart { product } else { product.min(side.rows) }
            };
            let (ours, theirs) = (combinations(left, |k| k.0), combinations(right, |k| k.1));
            // Join keys of one table are seldom independent, so that the smaller number of combinations is used; keys
            // of several tables are independent.
            let all = if left.apart || right.apart { ours.max(theirs) } else { ours.min(theirs) };
            1.0 / all.max(1.0)
        }
    }
}

/// Returns the fraction of a side's rows that have a match on the other side. `distinct` and `other` are the distinct
/// values of the join key on this and on the other side before filters; `rows` is the number of rows of the other side
/// after filters.
pub fn share_matched(distinct: f64, other: f64, rows: f64) -> f64 {
    let left = distinct_met(other.max(1.0), rows);
    (left / distinct.max(other).max(1.0)).min(1.0)
}

/// A join order, as a binary tree.
#[derive(Clone, Debug, PartialEq)]
pub enum Tree {
    /// A relation, by its index.
    Leaf(usize),
    /// A join; the first child is the smaller side, on which the hash table is built.
    Join(Box<Tree>, Box<Tree>),
}

#[derive(Clone, Debug)]
struct Best {
    cost: f64,
    rows: f64,
    split: Option<(usize, usize)>,
}

/// Returns the cheapest order in which to join `relations` on their key classes. Returns `None` if there are too few to
/// order, too many, or they are not connected by key classes. If a build side has at most `keys_pushed` rows, its join
/// keys are sent to the other side's scan, so that rows without a match are never read. `known` has the fractions of
/// matching pairs that sketches give for some relations.
pub fn order(relations: &[Relation], known: &[Matches], keys_pushed: f64) -> Option<Tree> {
    if relations.len() < 3 || relations.len() > RELATIONS_MAX {
        return None;
    }
    let full = (1usize << relations.len()) - 1;
    let mut best: Vec<Option<Best>> = vec![None; full + 1];
    for (i, relation) in relations.iter().enumerate() {
        best[1 << i] = Some(Best { cost: 0.0, rows: relation.rows.max(1.0), split: None });
    }
    for set in 1..=full {
        if set.count_ones() < 2 {
            continue;
        }
        // To consider every split of the set only once, the lowest relation is always in the first part.
        let lowest = set & set.wrapping_neg();
        let mut part = (set - 1) & set;
        while part > 0 {
            if part & lowest != 0 {
                let share = selectivity(relations, known, part, set & !part);
                consider(&mut best, (part, set & !part), share, keys_pushed);
            }
            part = (part - 1) & set;
        }
    }
    tree(&best, full)
}

fn consider(best: &mut [Option<Best>], (a, b): (usize, usize), share: Option<f64>, keys_pushed: f64) {
    let (Some(left), Some(right), Some(share)) = (&best[a], &best[b], share) else { return };
    let rows = (left.rows * right.rows * share).max(1.0);
    let (build, probe) = if left.rows <= right.rows { (left, right) } else { (right, left) };
    let probed = if build.rows <= keys_pushed { probe.rows.min(rows) } else { probe.rows };
    let cost = left.cost + right.cost + build.rows * BUILD_COST + probed + rows;
    let split = if left.rows <= right.rows { (a, b) } else { (b, a) };
    if best[a | b].as_ref().is_none_or(|known| cost < known.cost) {
        best[a | b] = Some(Best { cost, rows, split: Some(split) });
    }
}

/// Returns the fraction of all pairs that match; `None` if the two sets of relations have no key class in common.
fn selectivity(relations: &[Relation], known: &[Matches], a: usize, b: usize) -> Option<f64> {
    let (left, right) = (keys_of(relations, a), keys_of(relations, b));
    let shared: Vec<(usize, (f64, f64))> = left
        .iter()
        .filter_map(|(class, d)| right.iter().find(|(c, _)| c == class).map(|(_, e)| (*class, (*d, *e))))
        .collect();
    let keys: Vec<(f64, f64)> = shared.iter().map(|(_, distinct)| *distinct).collect();
    let side = |set| Side { rows: rows_unfiltered(relations, set), apart: !has_all(relations, set, &shared) };
    let guess = share(&keys, side(a), side(b));
    let [(class, _)] = shared.as_slice() else { return (!shared.is_empty()).then_some(guess) };
    let across =
        |(i, j): (usize, usize)| (a >> i & 1 == 1 && b >> j & 1 == 1) || (a >> j & 1 == 1 && b >> i & 1 == 1);
    // If sketches give fractions for several pairs of relations, the largest is used, because it is the pair in which
    // frequent values match each other.
    let known = known.iter().filter(|m| m.class == *class && across(m.relations));
    Some(known.map(|m| m.share.refine(guess)).reduce(f64::max).unwrap_or(guess))
}

/// Returns whether a single relation of a set has join keys of all these classes.
fn has_all(relations: &[Relation], set: usize, shared: &[(usize, (f64, f64))]) -> bool {
    let has = |r: &Relation| shared.iter().all(|(class, _)| r.keys.iter().any(|(c, _)| c == class));
    relations.iter().enumerate().any(|(i, r)| set >> i & 1 == 1 && has(r))
}

/// Returns the key classes of a set of relations, each with the smallest number of distinct values in any member of the
/// set.
fn keys_of(relations: &[Relation], set: usize) -> Vec<(usize, f64)> {
    let mut keys: Vec<(usize, f64)> = Vec::new();
    for (_, relation) in relations.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1) {
        for (class, distinct) in &relation.keys {
            match keys.iter_mut().find(|(c, _)| c == class) {
                Some((_, fewest)) => *fewest = fewest.min(*distinct),
                None => keys.push((*class, *distinct)),
            }
        }
    }
    keys
}

/// Returns the number of rows of the largest relation of a set.
fn rows_unfiltered(relations: &[Relation], set: usize) -> f64 {
    let members = relations.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1);
    members.map(|(_, r)| r.rows_unfiltered).fold(1.0, f64::max)
}

fn tree(best: &[Option<Best>], set: usize) -> Option<Tree> {
    match best[set].as_ref()?.split {
        None => Some(Tree::Leaf(set.trailing_zeros() as usize)),
        Some((build, probe)) => Some(Tree::Join(Box::new(tree(best, build)?), Box::new(tree(best, probe)?))),
    }
}
