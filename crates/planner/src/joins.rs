//! In which order to join several relations.
//!
//! Dynamic programming over connected subsets (Selinger et al. 1979), bushy trees included, up to
//! [`RELATIONS_MAX`] relations. What is minimized is the rows that hash joins build, probe and give. The
//! relations and their keys are numbers here: what they stand for is the caller's business.
//!
//! Keys that are equal through others are one class: of `a = b` and `b = c`, `a` and `c` can be joined.
//! Invariant: the tree that comes out joins every relation exactly once, each join on at least one class.

/// Relations that are put in order; more would take too long, and their estimates mean nothing.
pub const RELATIONS_MAX: usize = 12;

/// What a row costs that is put into a hash table, against one that is only looked up.
const BUILD_COST: f64 = 2.0;

/// One relation.
#[derive(Clone, Debug)]
pub struct Relation {
    /// Rows after its own filters.
    pub rows: f64,
    /// Rows before: the number that the distinct values of its keys refer to.
    pub rows_unfiltered: f64,
    /// Its keys: the class of each, and the distinct values before filters.
    pub keys: Vec<(usize, f64)>,
}

/// An order of joins.
#[derive(Clone, Debug, PartialEq)]
pub enum Tree {
    /// A relation, by its position.
    Leaf(usize),
    /// A join; the first is the smaller side, on which the hash table is built.
    Join(Box<Tree>, Box<Tree>),
}

#[derive(Clone, Debug)]
struct Best {
    cost: f64,
    rows: f64,
    split: Option<(usize, usize)>,
}

/// The cheapest order in which to join `relations` on their classes of equal keys. `None` when they are
/// too few to order, too many, or not connected. A build side of at most `keys_pushed` rows has its keys
/// sent to the other side's scan, so that rows which do not match are never seen.
pub fn order(relations: &[Relation], keys_pushed: f64) -> Option<Tree> {
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
        // Every split once: the part with the lowest relation comes first.
        let lowest = set & set.wrapping_neg();
        let mut part = (set - 1) & set;
        while part > 0 {
            if part & lowest != 0 {
                consider(&mut best, relations, part, set & !part, keys_pushed);
            }
            part = (part - 1) & set;
        }
    }
    tree(&best, full)
}

fn consider(best: &mut [Option<Best>], relations: &[Relation], a: usize, b: usize, keys_pushed: f64) {
    let (Some(left), Some(right)) = (&best[a], &best[b]) else { return };
    let Some(share) = selectivity(relations, a, b) else { return };
    let rows = (left.rows * right.rows * share).max(1.0);
    let (build, probe) = if left.rows <= right.rows { (left, right) } else { (right, left) };
    let probed = if build.rows <= keys_pushed { probe.rows.min(rows) } else { probe.rows };
    let cost = left.cost + right.cost + build.rows * BUILD_COST + probed + rows;
    let split = if left.rows <= right.rows { (a, b) } else { (b, a) };
    if best[a | b].as_ref().is_none_or(|known| cost < known.cost) {
        best[a | b] = Some(Best { cost, rows, split: Some(split) });
    }
}

/// The share of all pairs that match; `None` if the two sets have no class in common.
fn selectivity(relations: &[Relation], a: usize, b: usize) -> Option<f64> {
    let left = keys_of(relations, a);
    let right = keys_of(relations, b);
    let shared: Vec<(f64, f64)> = left
        .iter()
        .filter_map(|(class, d)| right.iter().find(|(c, _)| c == class).map(|(_, e)| (*d, *e)))
        .collect();
    match shared.as_slice() {
        [] => None,
        [(d, e)] => Some(1.0 / d.max(*e).max(1.0)),
        several => {
            // Keys of several columns are seldom independent, and no side has more of them than rows.
            let product = |side: fn(&(f64, f64)) -> f64| several.iter().map(side).product::<f64>();
            let combinations = product(|s| s.0).min(rows_unfiltered(relations, a));
            let others = product(|s| s.1).min(rows_unfiltered(relations, b));
            Some(1.0 / combinations.min(others).max(1.0))
        }
    }
}

/// The classes of a set of relations, each with the fewest distinct values that a member has.
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

/// Rows of the largest relation of a set.
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
