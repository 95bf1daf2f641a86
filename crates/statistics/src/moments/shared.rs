//! Moments over rows that count for all pairs of columns: one row count, one sum per column, and one sum of products
//! per pair.
//!
//! Invariant: sums of integers are exact, whatever the order of rows and merges. For pairs with a float column, the
//! co-moment (the sum of the products of the differences from the means) is kept. Co-moments are merged by the
//! formula of Chan, Golub and LeVeque (1979), which never subtracts large numbers from each other.
//!
//! *Exact* columns are those of integers and decimals; others are floats.

use super::integers::Integers;
use super::layout::{Layout, pair_at, triangle};
use super::mean::Mean;
use super::pair::{Odd, Pair, Side, central};

/// Mean of a column that is processed as floats.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FloatColumn {
    pub(crate) mean: Mean,
    pub(crate) odd: Odd,
}

/// Moments over rows that count for all pairs of columns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shared {
    pub(crate) rows: u64,
    /// Sum of each exact column (of integers or decimals).
    pub(crate) sums: Integers,
    /// Sum of products of each pair of exact columns.
    pub(crate) products: Integers,
    /// Mean of every column, if at least one column has floats; otherwise empty.
    pub(crate) floats: Vec<FloatColumn>,
    /// Co-moment of each pair with a float column. These pairs come after the pairs of exact columns in the triangle
    /// of all pairs.
    pub(crate) comoments: Vec<f64>,
}

impl Shared {
    pub(crate) fn new(layout: &Layout) -> Shared {
        let (exact, all) = (layout.exact, layout.columns());
        Shared {
            rows: 0,
            sums: Integers::new(layout.words, exact),
            products: Integers::new(layout.words, triangle(exact)),
            floats: vec![FloatColumn::default(); if exact < all { all } else { 0 }],
            comoments: vec![0.0; triangle(all) - triangle(exact)],
        }
    }

    /// Sets the number of rows to `rows` and the exact sums to 0. The caller must then set the moments of float
    /// columns.
    pub(crate) fn clear(&mut self, rows: u64) {
        self.rows = rows;
        self.sums.clear();
        self.products.clear();
    }

    pub(crate) fn bytes_held(&self) -> usize {
        self.sums.bytes_held()
            + self.products.bytes_held()
            + size_of::<FloatColumn>() * self.floats.capacity()
            + 8 * self.comoments.capacity()
    }

    /// Returns the moments of the column at `place` (its position in the reordered columns).
    fn side(&self, layout: &Layout, place: usize) -> Side {
        let pair = pair_at(place, place);
        let Some(float) = pair.checked_sub(triangle(layout.exact)) else {
            let squares = self.products.get(pair);
            return Side::exact(self.rows, self.sums.get(place), squares, layout.scale(place));
        };
        let FloatColumn { mean, odd } = self.floats[place];
        Side::float(self.rows, mean, self.comoments[float], odd, 0)
    }

    /// Returns the moments of the pair of columns at the places `p` and `q` (positions in the reordered columns).
    pub(crate) fn pair(&self, layout: &Layout, p: usize, q: usize) -> Pair {
        let (x, y) = (self.side(layout, p), self.side(layout, q));
        let (products, raw) = if p.max(q) < layout.exact {
            let product = self.products.get(pair_at(p, q));
            (central(self.rows, self.sums.get(p), self.sums.get(q), product), product.to_f64())
        } else {
            let products = self.comoments[pair_at(p, q) - triangle(layout.exact)];
            (products, products + self.rows as f64 * x.mean * y.mean)
        };
        Pair { count: self.rows, x, y, products, raw }
    }

    /// Merges the moments of other rows. Together there must be at most the maximum number of rows of a state.
    pub(crate) fn merge(&mut self, layout: &Layout, other: &Shared) {
        if other.rows == 0 {
            return;
        }
        self.merge_comoments(layout, other);
        self.sums.merge(&other.sums);
        self.products.merge(&other.products);
        self.rows += other.rows;
    }

    fn merge_comoments(&mut self, layout: &Layout, other: &Shared) {
        if self.floats.is_empty() {
            return;
        }
        let columns = layout.columns();
        let means = self.floats.iter().zip(&other.floats);
        let apart: Vec<f64> = means.map(|(mine, theirs)| theirs.mean.minus(mine.mean)).collect();
        let (here, there) = (self.rows as f64, other.rows as f64);
        let share = there / (here + there);
        let mut at = 0;
        for p in layout.exact..columns {
            let factor = if self.rows == 0 { 0.0 } else { apart[p] * here * share };
            let row = &mut self.comoments[at..=at + p];
            for ((mine, theirs), apart) in row.iter_mut().zip(&other.comoments[at..=at + p]).zip(&apart) {
                *mine += theirs + factor * apart;
            }
            at += p + 1;
        }
        for ((mine, theirs), apart) in self.floats.iter_mut().zip(&other.floats).zip(&apart) {
            mine.mean = if self.rows == 0 { theirs.mean } else { mine.mean.plus(apart * share) };
            mine.odd.add(theirs.odd);
        }
    }
}
