//! Moments of a block with float columns. The mean of each column over the block is subtracted; the sums of
//! products of these differences are the co-moments of the block.
//!
//! Before that, one value of the column is subtracted from all its values. So the mean of a constant column is
//! exactly that value, and its differences are exactly 0.
//!
//! A *tile* is some columns of the matrix whose products with those of another tile are computed together. The
//! *place* of a column is its position in the state, where exact columns come first.

use super::arch::{Kernel, Level};
use super::exact::Number;
use super::layout::{Layout, pair_at, triangle};
use super::matrix::{Floats, LANES};
use super::mean::Mean;
use super::pair::Odd;
use super::scalar;
use super::shared::Shared;
use super::split::{FloatSums, Split};
use super::values::for_exact;
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use std::ops::Range;

/// Number of columns that are multiplied with as many others at once. Reason: with 1024 rows, together they fill the L2
/// cache.
const TILE: usize = 96;

/// Scratch memory for processing the blocks of one state.
#[derive(Default)]
pub(crate) struct Room {
    matrix: Floats,
    products: Vec<f64>,
}

impl Room {
    pub(crate) fn bytes_held(&self) -> usize {
        self.matrix.bytes_held() + 8 * self.products.capacity()
    }

    /// Calls `f` with the products and the places of each pair of columns that has a float column, the later place
    /// first. Each place has `each` columns of the matrix.
    fn each_pair(&mut self, layout: &Layout, each: usize, mut f: impl FnMut(&Products, usize, usize)) {
        let (level, step) = (Level::best(), TILE / each / LANES * LANES);
        if each * layout.columns() <= LANES {
            return self.each_pair_of_few(layout, each, f);
        }
        let bytes = |places: &Range<usize>| each * places.start..(each * places.end).next_multiple_of(LANES);
        self.matrix.interleave();
        let all = layout.columns();
        let tile = |start: usize| start..(start + step).min(all);
        for left in (layout.exact / step * step..all).step_by(step).map(tile) {
            for right in (0..=left.start).step_by(step).map(tile) {
                let (rows, columns) = (bytes(&left), bytes(&right));
                let width = columns.len();
                self.products.resize(rows.len() * width, 0.0);
                let ranges = (rows.clone(), columns.clone());
                level.float_products(&self.matrix, ranges, &mut self.products, width);
                let to = Products { all: &self.products, at: (rows.start, columns.start), width };
                for p in left.clone().filter(|p| *p >= layout.exact) {
                    right.clone().take_while(|q| *q <= p).for_each(|q| f(&to, p, q));
                }
            }
        }
    }

    /// Visits pairs as [`Self::each_pair`] does, for columns that fit one group. Computes pair by pair, because a
    /// tile would compute more products than there are pairs.
    fn each_pair_of_few(&mut self, layout: &Layout, each: usize, mut f: impl FnMut(&Products, usize, usize)) {
        self.products.resize(LANES * LANES, 0.0);
        for i in 0..each * layout.columns() {
            for j in 0..=i {
                let product = Level::best().run(Dot(self.matrix.column(i), self.matrix.column(j)));
                (self.products[i * LANES + j], self.products[j * LANES + i]) = (product, product);
            }
        }
        let to = Products { all: &self.products, at: (0, 0), width: LANES };
        for p in layout.exact..layout.columns() {
            (0..=p).for_each(|q| f(&to, p, q));
        }
    }
}

/// The sum of the products of two columns.
struct Dot<'a>(&'a [f64], &'a [f64]);

impl Kernel for Dot<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let mut sums = [0.0; 2 * LANES];
        let ((left, left_rest), (right, right_rest)) =
            (self.0.as_chunks::<{ 2 * LANES }>(), self.1.as_chunks::<{ 2 * LANES }>());
        for (left, right) in left.iter().zip(right) {
            (0..2 * LANES).for_each(|lane| sums[lane] += left[lane] * right[lane]);
        }
        let rest = left_rest.iter().zip(right_rest).map(|(a, b)| a * b).sum::<f64>();
        sums.iter().sum::<f64>() + rest
    }
}

/// Sums of the products of all columns of one tile with those of another.
struct Products<'a> {
    all: &'a [f64],
    at: (usize, usize),
    width: usize,
}

impl Products<'_> {
    #[inline]
    fn of(&self, i: usize, j: usize) -> f64 {
        self.all[(i - self.at.0) * self.width + j - self.at.1]
    }
}

/// Mean that was subtracted from a column, and the remaining sum of the differences.
#[derive(Clone, Copy, Debug, Default)]
struct Column {
    mean: Mean,
    /// Sum of the differences from the mean: close to 0, because of rounding.
    rest: f64,
    odd: Odd,
}

/// Computes the moments over the rows in which no column is NULL, and stores them in a block without rows.
pub(crate) fn set_shared(
    layout: &Layout,
    arrays: &[ArrayRef],
    (mask, count): (Option<&[u8]>, u64),
    room: &mut Room,
    block: &mut Shared,
) {
    let rows = arrays.first().map_or(0, |array| array.len());
    room.matrix.reshape(layout.columns(), rows);
    let mut columns = Vec::with_capacity(layout.columns());
    for (place, column) in layout.at.iter().enumerate() {
        let to = room.matrix.column_mut(place);
        columns.push(center(&arrays[*column], mask, count, to));
    }
    for (to, column) in block.floats.iter_mut().zip(&columns) {
        (to.mean, to.odd) = (column.mean.plus(column.rest / count as f64), column.odd);
    }
    let skipped = triangle(layout.exact);
    room.each_pair(layout, 1, |products, p, q| {
        let rest = columns[p].rest * columns[q].rest / count as f64;
        block.comoments[pair_at(p, q) - skipped] = products.of(p, q) - rest;
    });
}

/// Adds for each pair with a float column the moments over the rows in which neither column is NULL.
pub(crate) fn add_split(
    layout: &Layout,
    arrays: &[ArrayRef],
    masks: &[Option<Vec<u8>>],
    room: &mut Room,
    split: &mut Split,
) {
    let rows = arrays.first().map_or(0, |array| array.len());
    room.matrix.reshape(3 * layout.columns(), rows);
    let mut columns = Vec::with_capacity(layout.columns());
    for (place, column) in layout.at.iter().enumerate() {
        let mask = masks[*column].as_deref();
        let count = mask.map_or(rows, |mask| mask.iter().filter(|byte| **byte != 0).count());
        columns.push(center(&arrays[*column], mask, count as u64, room.matrix.column_mut(3 * place)));
        let squares: Vec<f64> = room.matrix.column(3 * place).iter().map(|value| value * value).collect();
        room.matrix.column_mut(3 * place + 1).copy_from_slice(&squares);
        let valid = room.matrix.column_mut(3 * place + 2);
        valid.fill(1.0);
        let mask = mask.into_iter().flatten();
        valid.iter_mut().zip(mask).for_each(|(to, mask)| *to = f64::from(mask & 1));
    }
    let skipped = triangle(layout.exact);
    room.each_pair(layout, 3, |products, p, q| {
        let odd = columns[p].odd.any() || columns[q].odd.any();
        let sums = block_sums(products, p, q, [&columns[p], &columns[q]]).filter(|_| !odd);
        let places = [layout.at[p], layout.at[q]];
        let pair = places.map(|column| (&arrays[column], masks[column].as_deref()));
        split.floats[pair_at(p, q) - skipped].merge(&sums.unwrap_or_else(|| pair_sums(pair)));
    });
}

/// Returns the moments of a pair over its own rows. Returns `None` if the mean of a column over these rows is far from
/// its mean over all rows, which was subtracted, because then the result would consist mostly of rounding errors.
fn block_sums(products: &Products, p: usize, q: usize, columns: [&Column; 2]) -> Option<FloatSums> {
    const VALUE: usize = 0;
    const SQUARE: usize = 1;
    const VALID: usize = 2;
    let of = |a: usize, b: usize| products.of(3 * p + a, 3 * q + b);
    let count = of(VALID, VALID);
    if count == 0.0 {
        return Some(FloatSums::default());
    }
    let (sums, squares) = ([of(VALUE, VALID), of(VALID, VALUE)], [of(SQUARE, VALID), of(VALID, SQUARE)]);
    let around: [f64; 2] = std::array::from_fn(|k| (squares[k] - sums[k] * sums[k] / count).max(0.0));
    if (0..2).any(|k| around[k] <= 1e-3 * squares[k]) {
        return None;
    }
    Some(FloatSums {
        count: count as u64,
        mean: std::array::from_fn(|k| columns[k].mean.plus(sums[k] / count)),
        squares: around,
        products: of(VALUE, VALUE) - sums[0] * sums[1] / count,
        odd: Default::default(),
    })
}

/// Computes the moments of a pair over its own rows, row by row.
fn pair_sums(pair: [(&ArrayRef, Option<&[u8]>); 2]) -> FloatSums {
    let valid = |row: &usize| pair.iter().all(|(_, mask)| mask.is_none_or(|mask| mask[*row] != 0));
    let rows: Vec<usize> = (0..pair[0].0.len()).filter(valid).collect();
    let [x, y] = pair.map(|(array, _)| scalar::Values::of(array));
    scalar::floats(&x, &y, &rows)
}

/// Writes the differences of a column's values from their mean; 0 for NULLs.
fn center(array: &ArrayRef, mask: Option<&[u8]>, count: u64, to: &mut [f64]) -> Column {
    let level = Level::best();
    let usable = |row: &usize| mask.is_none_or(|mask| mask[*row] != 0);
    let first = (0..to.len()).find(usable).unwrap_or(0);
    let mut base = Mean::default();
    match array.data_type() {
        DataType::Float32 => {
            level.run(Convert(array.as_primitive::<Float32Type>().values(), f64::from, to));
        }
        DataType::Float64 => to.copy_from_slice(array.as_primitive::<Float64Type>().values()),
        data_type => for_exact!(data_type, T => {
            let values = array.as_primitive::<T>().values();
            let from = values[first];
            base = Mean::of(from.into());
            level.run(Convert(values, |value: <T as ArrowPrimitiveType>::Native| value.distance(from), to))
        }),
    }
    if count == 0 {
        to.fill(0.0);
        return Column::default();
    }
    let odd = if level.run(Finite(to)) { Odd::default() } else { set_odd_aside(to, mask) };
    let first = to[first];
    let apart = level.run(TakeOff { values: to, mask, from: first });
    let shift = apart / count as f64;
    let rest = level.run(TakeOff { values: to, mask, from: shift });
    Column { mean: base.plus(first).plus(shift), rest, odd }
}

/// Replaces every NaN and infinity by a finite value of a row that is not NULL, so that it has no effect. Returns
/// which of these non-finite kinds there were.
fn set_odd_aside(values: &mut [f64], mask: Option<&[u8]>) -> Odd {
    let counts = |row: usize| mask.is_none_or(|mask| mask[row] != 0);
    let usable = (0..values.len()).find(|row| counts(*row) && values[*row].is_finite());
    let instead = usable.map_or(0.0, |row| values[row]);
    let mut odd = Odd::default();
    for (row, value) in values.iter_mut().enumerate().filter(|(_, value)| !value.is_finite()) {
        if counts(row) {
            odd.add(Odd::of(*value));
        }
        *value = instead;
    }
    odd
}

struct Convert<'a, T, F>(&'a [T], F, &'a mut [f64]);

impl<T: Copy, F: Fn(T) -> f64> Kernel for Convert<'_, T, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.2.iter_mut().zip(self.0).for_each(|(to, value)| *to = self.1(*value));
    }
}

struct Finite<'a>(&'a [f64]);

impl Kernel for Finite<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let high = |values: &[f64]| values.iter().map(|value| value.abs().to_bits()).fold(0, u64::max);
        self.0.chunks(256).all(|values| high(values) < f64::INFINITY.to_bits())
    }
}

/// Kernel that subtracts a number from all values that are not NULL, sets the others to 0, and returns the sum.
struct TakeOff<'a> {
    values: &'a mut [f64],
    mask: Option<&'a [u8]>,
    from: f64,
}

impl Kernel for TakeOff<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let mut sums = [0.0; 2 * LANES];
        match self.mask {
            None => self.values.iter_mut().for_each(|value| *value -= self.from),
            Some(mask) => self.values.iter_mut().zip(mask).for_each(|(value, mask)| {
                *value = if *mask != 0 { *value - self.from } else { 0.0 };
            }),
        }
        let (lines, rest) = self.values.as_chunks::<{ 2 * LANES }>();
        for line in lines {
            sums.iter_mut().zip(line).for_each(|(sum, value)| *sum += value);
        }
        sums.iter().chain(rest).sum()
    }
}
