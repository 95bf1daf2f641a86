//! Moments of pairs of columns, each over the rows in which neither column of the pair is NULL.
//!
//! Invariant: sums of integers are exact, as in [`super::shared`], which is the special case without NULLs. Here each
//! pair has six numbers.
//!
//! *Exact* columns are those of integers and decimals; others are floats. The *place* of a column is its position in
//! the state, where exact columns come first.

use super::integers::Integers;
use super::layout::{Layout, pair_at, triangle};
use super::mean::Mean;
use super::pair::{Odd, Pair, Side, central};
use super::shared::Shared;
use super::wide::Wide;

/// Sums of a pair of exact columns (integers or decimals): of the column at the later place, of the other column, of
/// the squares of each, and of the products.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExactSums {
    pub(crate) count: u64,
    pub(crate) of: [Wide; 5],
}

/// Moments of a pair with a float column: the means, and the sums of squares and products of the differences from them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FloatSums {
    pub(crate) count: u64,
    pub(crate) mean: [Mean; 2],
    pub(crate) squares: [f64; 2],
    pub(crate) products: f64,
    pub(crate) odd: [Odd; 2],
}

/// Moments of all pairs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Split {
    /// Number of rows of each pair of exact columns.
    pub(crate) counts: Vec<u64>,
    /// Five sums for each pair of exact columns, as in [`ExactSums`].
    pub(crate) sums: Integers,
    /// Moments of each pair with a float column.
    pub(crate) floats: Vec<FloatSums>,
}

impl Split {
    pub(crate) fn new(layout: &Layout) -> Split {
        let exact = triangle(layout.exact);
        Split {
            counts: vec![0; exact],
            sums: Integers::new(layout.words, 5 * exact),
            floats: vec![FloatSums::default(); triangle(layout.columns()) - exact],
        }
    }

    pub(crate) fn bytes_held(&self) -> usize {
        8 * self.counts.capacity() + self.sums.bytes_held() + size_of::<FloatSums>() * self.floats.capacity()
    }

    /// Returns the maximum number of rows of a pair.
    pub(crate) fn rows(&self) -> u64 {
        self.counts.iter().copied().chain(self.floats.iter().map(|pair| pair.count)).max().unwrap_or(0)
    }

    pub(crate) fn add_exact(&mut self, pair: usize, sums: &ExactSums) {
        self.counts[pair] += sums.count;
        sums.of.iter().enumerate().for_each(|(k, sum)| self.sums.add(5 * pair + k, *sum));
    }

    fn exact(&self, pair: usize) -> ExactSums {
        ExactSums { count: self.counts[pair], of: std::array::from_fn(|k| self.sums.get(5 * pair + k)) }
    }

    /// Returns the moments of the pair of columns at the places `p` and `q`, including the rows of `whole`.
    pub(crate) fn pair_with(&self, layout: &Layout, whole: &Shared, p: usize, q: usize) -> Pair {
        let (pair, exact) = (pair_at(p, q), triangle(layout.exact));
        let (later, earlier) = (p.max(q), p.min(q));
        let scales = [layout.scale(later), layout.scale(earlier)];
        let found = match pair.checked_sub(exact) {
            Some(float) => {
                let mut sums = self.floats[float];
                sums.merge(&FloatSums::of(layout, whole, later, earlier));
                sums.pair(scales)
            }
            None => self.exact(pair).with(&shared_sums(whole, later, earlier)).pair(scales),
        };
        if p >= q { found } else { found.swapped() }
    }

    pub(crate) fn merge(&mut self, other: &Split) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.sums.merge(&other.sums);
        self.floats.iter_mut().zip(&other.floats).for_each(|(mine, theirs)| mine.merge(theirs));
    }

    /// Adds rows in which no column is NULL.
    pub(crate) fn merge_shared(&mut self, layout: &Layout, other: &Shared) {
        if other.rows == 0 {
            return;
        }
        for p in 0..layout.columns() {
            for q in 0..=p {
                let pair = pair_at(p, q);
                match pair.checked_sub(triangle(layout.exact)) {
                    None => self.add_exact(pair, &shared_sums(other, p, q)),
                    Some(float) => self.floats[float].merge(&FloatSums::of(layout, other, p, q)),
                }
            }
        }
    }
}

fn shared_sums(shared: &Shared, p: usize, q: usize) -> ExactSums {
    let square = |k| shared.products.get(pair_at(k, k));
    let of =
        [shared.sums.get(p), shared.sums.get(q), square(p), square(q), shared.products.get(pair_at(p, q))];
    ExactSums { count: shared.rows, of }
}

impl ExactSums {
    fn with(mut self, other: &ExactSums) -> ExactSums {
        self.count += other.count;
        self.of.iter_mut().zip(other.of).for_each(|(mine, theirs)| *mine = *mine + theirs);
        self
    }

    fn pair(&self, scales: [i32; 2]) -> Pair {
        let [p, q, pp, qq, pq] = self.of;
        Pair {
            count: self.count,
            x: Side::exact(self.count, p, pp, scales[0]),
            y: Side::exact(self.count, q, qq, scales[1]),
            products: central(self.count, p, q, pq),
            raw: pq.to_f64(),
        }
    }
}

impl FloatSums {
    fn of(layout: &Layout, shared: &Shared, p: usize, q: usize) -> FloatSums {
        let pair = shared.pair(layout, p, q);
        FloatSums {
            count: pair.count,
            mean: [p, q].map(|place| shared.floats[place].mean),
            squares: [pair.x.squares, pair.y.squares],
            products: pair.products,
            odd: [pair.x.odd, pair.y.odd],
        }
    }

    fn pair(&self, scales: [i32; 2]) -> Pair {
        let side = |k: usize| Side::float(self.count, self.mean[k], self.squares[k], self.odd[k], scales[k]);
        Pair {
            count: self.count,
            x: side(0),
            y: side(1),
            products: self.products,
            raw: self.products + self.count as f64 * self.mean[0].value() * self.mean[1].value(),
        }
    }

    pub(crate) fn merge(&mut self, other: &FloatSums) {
        (0..2).for_each(|k| self.odd[k].add(other.odd[k]));
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = FloatSums { odd: self.odd, ..*other };
            return;
        }
        let (here, there) = (self.count as f64, other.count as f64);
        let share = there / (here + there);
        let apart: [f64; 2] = std::array::from_fn(|k| other.mean[k].minus(self.mean[k]));
        for (k, apart) in apart.iter().enumerate() {
            self.squares[k] += other.squares[k] + apart * apart * here * share;
            self.mean[k] = self.mean[k].plus(apart * share);
        }
        self.products += other.products + apart[0] * apart[1] * here * share;
        self.count += other.count;
    }
}
