//! Moments of columns: their sums, sums of squares and sums of products of all pairs, computed in one pass as one
//! state that can be merged (M. Chiosa's thesis, ETH Zurich no. 29551, chapter 3). Means, variances, covariances,
//! correlations, regressions and cosine similarities of any pair follow from them.
//!
//! - Input: columns of 8- to 64-bit integers, decimals and floats, mixed as one likes. An integer in a pair
//!   with a float counts as the nearest float.
//! - Exact for pairs of integers and decimals, at any length up to 2^62 rows: no sum wraps, none is rounded
//!   before the mean is off. Floats: co-moments around the mean of each block, joined block by block.
//! - A NaN or an infinity in a float column makes all answers on pairs with the column NaN, except the mean,
//!   which is the infinity if only one kind occurs; other pairs are not affected. numpy does the same; DuckDB
//!   refuses infinities.
//! - Memory: one number for each pair of columns; six once a NULL was seen and NULLs count pair by pair.

mod arch;
mod blocks;
mod codec;
mod exact;
mod few;
mod floats;
mod integers;
mod layout;
mod matrix;
mod mean;
mod pair;
mod scalar;
mod shared;
mod split;
mod values;
mod wide;

#[cfg(test)]
mod tests;

pub use codec::{MOMENTS_VERSION, sealed_moments};
pub use pair::{Form, Regression};

use arrow_array::ArrayRef;
use arrow_schema::DataType;
use farpool_model::{Error, NullHandling, Result, limits};
use layout::Layout;
use pair::Pair;
use shared::Shared;
use split::Split;
use std::borrow::Cow;

/// Moments: sums of columns, of their squares, and of the products of all pairs.
#[derive(Clone, Debug)]
pub struct Moments {
    layout: Layout,
    /// Sums over the rows in which no column is NULL.
    whole: Shared,
    /// Sums over blocks with NULLs, if there are any and a NULL is left out of the pairs with its column only.
    split: Option<Box<Split>>,
    /// Number of all rows that were added, an upper bound of the number of rows of any pair.
    rows: u64,
    room: blocks::Room,
}

impl Moments {
    /// Creates moments without rows.
    ///
    /// # Errors
    /// `Invalid` for a type that is not numeric; `OverLimit` for more than [`limits::MOMENT_COLUMNS_MAX`] columns.
    pub fn new(types: &[DataType], nulls: NullHandling) -> Result<Moments> {
        Ok(Moments::of(Layout::new(types, nulls)?))
    }

    fn of(layout: Layout) -> Moments {
        Moments { whole: Shared::new(&layout), split: None, rows: 0, room: blocks::Room::default(), layout }
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        self.layout.columns()
    }

    /// Returns the types of the columns.
    pub fn types(&self) -> &[DataType] {
        &self.layout.types
    }

    /// Returns how NULLs are handled: which rows count for a pair of columns.
    pub fn nulls(&self) -> NullHandling {
        self.layout.nulls
    }

    /// Returns the number of rows per block. Adding rows in multiples of this number gives, bit for bit, the same state
    /// as adding all rows at once.
    pub fn block_rows(&self) -> usize {
        blocks::rows(&self.layout)
    }

    /// Adds rows, given as one array per column.
    ///
    /// # Errors
    /// `Invalid` when the columns have the wrong number, types or lengths; `OverLimit` beyond
    /// [`limits::MOMENT_ROWS_MAX`] rows.
    pub fn update(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let rows = values::check(&self.layout.types, columns)?;
        self.rows = rows_together(self.rows, rows as u64)?;
        let step = blocks::rows(&self.layout);
        for start in (0..rows).step_by(step) {
            let length = step.min(rows - start);
            let block = columns.iter().map(|column| values::narrowed(column.slice(start, length)));
            let block: Vec<ArrayRef> = block.collect();
            if blocks::splits(&self.layout, &block) {
                let split = self.split.get_or_insert_with(|| Box::new(Split::new(&self.layout)));
                blocks::add_split(&self.layout, &block, &mut self.room, split);
            } else {
                blocks::add_shared(&self.layout, &block, &mut self.room, &mut self.whole);
            }
        }
        Ok(())
    }

    /// Merges the rows of another state into this one.
    ///
    /// # Errors
    /// `Invalid` when the other state has other types or treats NULLs differently; `OverLimit` beyond
    /// [`limits::MOMENT_ROWS_MAX`] rows.
    pub fn merge(&mut self, other: &Moments) -> Result<()> {
        if self.layout != other.layout {
            return Err(Error::invalid(format!(
                "moments over {:?} ({:?}) do not merge with moments over {:?} ({:?})",
                self.layout.types, self.layout.nulls, other.layout.types, other.layout.nulls
            )));
        }
        self.rows = rows_together(self.rows, other.rows)?;
        self.whole.merge(&self.layout, &other.whole);
        if let Some(theirs) = &other.split {
            self.split.get_or_insert_with(|| Box::new(Split::new(&self.layout))).merge(theirs);
        }
        Ok(())
    }

    /// Encodes the state.
    pub fn to_bytes(&self) -> Vec<u8> {
        codec::write(self)
    }

    /// Decodes a state that [`Moments::to_bytes`] encoded.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not a valid state of this version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Moments> {
        codec::read(bytes)
    }

    /// Frees scratch memory, which the next update allocates again. Useful if there are many states.
    pub fn shrink(&mut self) {
        self.room = blocks::Room::default();
    }

    /// Returns the bytes of memory that the state takes.
    pub fn bytes_held(&self) -> usize {
        size_of::<Moments>()
            + self.whole.bytes_held()
            + self.room.bytes_held()
            + self.split.as_ref().map_or(0, |split| size_of::<Split>() + split.bytes_held())
    }

    /// Returns the sums over all rows, separately for each pair of columns; `None` if there were no NULLs, so that all
    /// pairs have the same rows.
    fn as_split(&self) -> Option<Cow<'_, Split>> {
        let split = self.split.as_deref()?;
        if self.whole.rows == 0 {
            return Some(Cow::Borrowed(split));
        }
        let mut split = split.clone();
        split.merge_shared(&self.layout, &self.whole);
        Some(Cow::Owned(split))
    }

    fn pair(&self, i: usize, j: usize) -> Pair {
        let (p, q) = (self.layout.places[i], self.layout.places[j]);
        match self.split.as_deref() {
            None => self.whole.pair(&self.layout, p, q),
            Some(split) => split.pair_with(&self.layout, &self.whole, p, q),
        }
    }

    /// Returns the number of rows that count for a pair of columns. Depending on [`Moments::nulls`], these are the rows
    /// in which neither of the two columns is NULL, or in which no column at all is NULL.
    pub fn count(&self, i: usize, j: usize) -> u64 {
        self.pair(i, j).count
    }

    /// Returns the mean of a column, over the rows that count for the column itself; NaN without rows.
    pub fn mean(&self, i: usize) -> f64 {
        self.pair(i, i).x.mean()
    }

    /// Returns the variance of a column; NaN with too few rows.
    pub fn variance(&self, i: usize, form: Form) -> f64 {
        self.covariance(i, i, form)
    }

    /// Returns the covariance of a pair; NaN with too few rows.
    pub fn covariance(&self, i: usize, j: usize, form: Form) -> f64 {
        self.pair(i, j).covariance(form)
    }

    /// Returns Pearson's correlation coefficient of a pair, between -1 and 1; NaN if a column is constant.
    pub fn correlation(&self, i: usize, j: usize) -> f64 {
        self.pair(i, j).correlation()
    }

    /// Returns the correlation coefficients of all pairs, as a matrix row by row.
    pub fn correlations(&self) -> Vec<f64> {
        let columns = 0..self.columns();
        columns.clone().flat_map(|i| columns.clone().map(move |j| self.correlation(i, j))).collect()
    }

    /// Returns the least-squares line y = slope x + intercept through the rows of a pair.
    pub fn regression(&self, y: usize, x: usize) -> Regression {
        self.pair(x, y).regression()
    }

    /// Returns the cosine similarity of two columns; NaN if one of them is 0 in all rows.
    pub fn cosine_similarity(&self, i: usize, j: usize) -> f64 {
        self.pair(i, j).cosine()
    }
}

fn rows_together(left: u64, right: u64) -> Result<u64> {
    left.checked_add(right).filter(|rows| *rows <= limits::MOMENT_ROWS_MAX).ok_or_else(|| {
        Error::over_limit(format!("moments count {} rows at most", limits::MOMENT_ROWS_MAX))
            .advise("start another state")
    })
}
