//! Moments (sums and sums of products of pairs of columns) of a block of exact columns, that is, integers and
//! decimals. The least value of each column is subtracted, and these distances are split into bytes. The sums of
//! products of all pairs of byte columns then give those of all pairs of columns.
//!
//! So one kernel serves all types, its work depends on the values and not on their type, and nothing overflows: the
//! sums over a block fit 32 bits for each pair of byte columns, and only totals over blocks are added in wide
//! integers.
//!
//! A *tile* is some byte columns of the matrix whose products with those of another tile are computed together. The
//! *place* of a column is its position in the state.

use super::arch::{Kernel, Level};
use super::few::{self, Distances};
use super::integers::Integers;
use super::layout::{Layout, pair_at};
use super::matrix::{Bytes, GROUP};
use super::scalar;
use super::split::{ExactSums, Split};
use super::values::for_exact;
use super::wide::Wide;
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef};
use std::ops::Range;

/// Number of byte columns that are multiplied with as many others at once. Reason: together they fill the L2 cache.
const TILE_BYTES: usize = 256;

/// Scratch memory for processing the blocks of one state.
#[derive(Default)]
pub(crate) struct Room {
    distances: Distances,
    matrix: Bytes,
    sums: Vec<u32>,
    products: Vec<u32>,
    squares: Vec<u128>,
}

impl Room {
    pub(crate) fn bytes_held(&self) -> usize {
        self.matrix.bytes_held()
            + self.distances.bytes_held()
            + 4 * (self.sums.capacity() + self.products.capacity())
            + 16 * self.squares.capacity()
    }
}

/// An exact column of a block.
#[derive(Clone, Copy, Debug)]
struct Column {
    low: i128,
    /// Index in the matrix of the first byte column of this column.
    first: usize,
    /// Number of bytes that the distances of the values from `low` need.
    bytes: usize,
    /// Sum of the distances of the values from `low`.
    above: Wide,
    /// Sum of the values.
    sum: Wide,
}

/// A range of columns whose bytes are adjacent in the matrix.
struct Tile {
    places: Range<usize>,
    bytes: Range<usize>,
}

/// Type of the values of an exact column.
pub(crate) trait Number: Copy + Ord + Into<i128> {
    const LOWEST: Self;
    const HIGHEST: Self;
    /// Returns the byte at bit `shift` of the distance of this value from `low`. `low` must be at most the value.
    fn byte(self, low: Self, shift: u32) -> u8;
    /// Returns the lowest 32 bits of the distance of this value from `low`.
    fn low_distance(self, low: Self) -> u32;
    /// Returns the difference of this value and `from`, as the nearest float.
    fn distance(self, from: Self) -> f64;
}

macro_rules! numbers {
    ($($t:ty, $distance:expr);*) => {$(
        impl Number for $t {
            const LOWEST: $t = <$t>::MIN;
            const HIGHEST: $t = <$t>::MAX;

            #[inline(always)]
            #[allow(clippy::cast_sign_loss, reason = "modulo the type")]
            fn byte(self, low: $t, shift: u32) -> u8 {
                const MASK: $t = (u8::MAX as $t);
                ((self.wrapping_sub(low) >> shift) & MASK) as u8
            }

            #[inline(always)]
            #[allow(clippy::cast_sign_loss, reason = "modulo the type")]
            fn low_distance(self, low: $t) -> u32 {
                // The mask undoes the sign extension of narrower signed types.
                const MASK: u128 = u128::MAX >> (u128::BITS - <$t>::BITS);
                (self.wrapping_sub(low) as u32) & MASK as u32
            }

            #[inline(always)]
            fn distance(self, from: $t) -> f64 {
                $distance(self, from)
            }
        }
    )*};
}
numbers!(
    i8, |a, b| f64::from(a) - f64::from(b);
    i16, |a, b| f64::from(a) - f64::from(b);
    i32, |a, b| f64::from(a) - f64::from(b);
    i64, |a: i64, b: i64| halves((a >> 32, a & HALF), (b >> 32, b & HALF));
    i128, scalar::distance;
    u8, |a, b| f64::from(a) - f64::from(b);
    u16, |a, b| f64::from(a) - f64::from(b);
    u32, |a, b| f64::from(a) - f64::from(b);
    u64, |a: u64, b: u64| halves(
        ((a >> 32).cast_signed(), a.cast_signed() & HALF),
        ((b >> 32).cast_signed(), b.cast_signed() & HALF)
    )
);

/// Mask of the lower half of 64 bits.
const HALF: i64 = 0xffff_ffff;

/// Returns the difference of two 64-bit numbers, which are given by their upper and lower halves.
#[inline(always)]
fn halves(value: (i64, i64), from: (i64, i64)) -> f64 {
    (value.0 - from.0) as f64 * (1u64 << 32) as f64 + (value.1 - from.1) as f64
}

/// Kernel that finds the least and the greatest of the values whose mask byte is set.
struct Ends<'a, T>(&'a [T], Option<&'a [u8]>);

impl<T: Number> Kernel for Ends<'_, T> {
    type Output = (T, T);

    #[inline(always)]
    fn run(self) -> (T, T) {
        let (mut low, mut high) = (T::HIGHEST, T::LOWEST);
        match self.1 {
            None => self.0.iter().for_each(|value| (low, high) = (low.min(*value), high.max(*value))),
            Some(mask) => self.0.iter().zip(mask).for_each(|(value, mask)| {
                low = low.min(if *mask != 0 { *value } else { T::HIGHEST });
                high = high.max(if *mask != 0 { *value } else { T::LOWEST });
            }),
        }
        (low, high)
    }
}

/// Kernel that writes one byte of the distance of each value from the least; 0 where the mask is not set, and behind
/// the last value.
struct Cut<'a, T> {
    values: &'a [T],
    mask: Option<&'a [u8]>,
    low: T,
    shift: u32,
    to: &'a mut [u8],
}

impl<T: Number> Kernel for Cut<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (to, behind) = self.to.split_at_mut(self.values.len());
        behind.fill(0);
        to.iter_mut().zip(self.values).for_each(|(to, value)| *to = value.byte(self.low, self.shift));
        if let Some(mask) = self.mask {
            to.iter_mut().zip(mask).for_each(|(to, mask)| *to &= mask);
        }
    }
}

/// Kernel that writes the lowest 32 bits of the distance of each value from the least; 0 where the mask is not set.
struct CutDistances<'a, T> {
    values: &'a [T],
    mask: Option<&'a [u8]>,
    low: T,
    to: &'a mut [u32],
}

impl<T: Number> Kernel for CutDistances<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let values = self.to.iter_mut().zip(self.values);
        match self.mask {
            None => values.for_each(|(to, value)| *to = value.low_distance(self.low)),
            Some(mask) => values.zip(mask).for_each(|((to, value), mask)| {
                *to = if *mask != 0 { value.low_distance(self.low) } else { 0 };
            }),
        }
    }
}

/// Returns the minimum of a column, and the number of bytes that the greatest distance from the minimum needs.
fn ends(level: Level, array: &ArrayRef, mask: Option<&[u8]>) -> (i128, usize) {
    let (low, span): (i128, u128) = for_exact!(array.data_type(), T => {
        let (low, high) = level.run(Ends(array.as_primitive::<T>().values(), mask));
        let (low, high): (i128, i128) = (low.into(), high.into());
        if low > high { (0, 0) } else { (low, high.wrapping_sub(low).cast_unsigned()) }
    });
    (low, (u128::BITS - span.leading_zeros()).div_ceil(8) as usize)
}

/// Splits the distances of a column's values into bytes, and writes them to the matrix from byte column `first` on.
fn cut(level: Level, array: &ArrayRef, mask: Option<&[u8]>, column: &Column, matrix: &mut Bytes) {
    for_exact!(array.data_type(), T => {
        for byte in 0..column.bytes {
            let (to, shift) = (matrix.column_mut(column.first + byte), 8 * byte as u32);
            let low = <T as ArrowPrimitiveType>::Native::try_from(column.low).unwrap_or_default();
            level.run(Cut { values: array.as_primitive::<T>().values(), mask, low, shift, to });
        }
    });
}

/// Writes the distances of a column's values as 32-bit integers.
fn cut_distances(level: Level, array: &ArrayRef, mask: Option<&[u8]>, low: i128, to: &mut [u32]) {
    for_exact!(array.data_type(), T => {
        let low = <T as ArrowPrimitiveType>::Native::try_from(low).unwrap_or_default();
        level.run(CutDistances { values: array.as_primitive::<T>().values(), mask, low, to })
    });
}

/// Assigns each column its bytes in the matrix, including `extra` bytes per value; returns the tiles.
fn arrange(columns: &mut [Column], extra: impl Fn(usize) -> usize) -> Vec<Tile> {
    let mut tiles: Vec<Tile> = Vec::new();
    let (mut start, mut next, mut from) = (0, 0, 0);
    let tile =
        |places, bytes: Range<usize>| Tile { places, bytes: bytes.start..bytes.end.next_multiple_of(GROUP) };
    for (place, column) in columns.iter_mut().enumerate() {
        let wanted = column.bytes + extra(column.bytes);
        if next - start + wanted > TILE_BYTES {
            tiles.push(tile(from..place, start..next));
            (start, from) = (next.next_multiple_of(GROUP), place);
            next = start;
        }
        column.first = next;
        next += wanted;
    }
    tiles.push(tile(from..columns.len(), start..next));
    tiles
}

/// Adds to `sums` and `products` the sums over those rows in which no column is NULL.
pub(crate) fn add_shared(
    layout: &Layout,
    arrays: &[ArrayRef],
    (mask, count): (Option<&[u8]>, u64),
    room: &mut Room,
    (sums, products): (&mut Integers, &mut Integers),
) {
    if layout.exact == 0 || count == 0 {
        return;
    }
    let level = Level::best();
    let array = |place: usize| &arrays[layout.at[place]];
    let mut columns: Vec<Column> =
        (0..layout.exact).map(|place| Column::new(ends(level, array(place), mask))).collect();
    if few::fits(columns.iter().map(|column| column.bytes)) {
        let arrays = (0..layout.exact).map(array);
        return add_few(layout.words, arrays, (mask, count), &mut columns, room, (sums, products));
    }
    let tiles = arrange(&mut columns, |_| 0);
    room.matrix.reshape(tiles.last().map_or(0, |tile| tile.bytes.end), arrays[0].len());
    for (place, column) in columns.iter().enumerate() {
        cut(level, array(place), mask, column, &mut room.matrix);
    }
    room.seal(level);
    for (place, column) in columns.iter_mut().enumerate() {
        column.settle(&room.sums, count);
        sums.add(place, column.sum);
    }
    if layout.words == 2 {
        let columns: Vec<NarrowColumn> = columns.iter().map(NarrowColumn::of).collect();
        room.each_pair(level, &tiles, |to, p, q| {
            products.add_narrow(pair_at(p, q), columns[p].product(&columns[q], to));
        });
    } else {
        room.each_pair(level, &tiles, |to, p, q| {
            let above = to.total(columns[p].value(), columns[q].value());
            products.add(pair_at(p, q), columns[p].product(&columns[q], above, layout.words));
        });
    }
}

/// Adds rows as [`add_shared`] does, for few columns of narrow values, by [`few`].
fn add_few<'a>(
    words: usize,
    arrays: impl Iterator<Item = &'a ArrayRef>,
    (mask, count): (Option<&[u8]>, u64),
    columns: &mut [Column],
    room: &mut Room,
    (sums, products): (&mut Integers, &mut Integers),
) {
    let (level, mut rows) = (Level::best(), 0);
    for (place, (array, column)) in arrays.zip(&mut *columns).enumerate() {
        rows = array.len();
        cut_distances(level, array, mask, column.low, room.distances.column_mut(place, rows));
        column.set_sums(room.distances.sum(level, place, rows).into(), count);
        sums.add(place, column.sum);
    }
    for (p, column) in columns.iter().enumerate() {
        for (q, other) in columns[..=p].iter().enumerate() {
            let above = room.distances.product(level, (p, q), rows);
            products.add(pair_at(p, q), column.product(other, above.into(), words));
        }
    }
}

/// Adds for each pair of columns the sums over the rows in which neither column is NULL. Returns false, without
/// adding anything, if distances exceed 64 bits.
pub(crate) fn add_split(
    layout: &Layout,
    arrays: &[ArrayRef],
    masks: &[Option<Vec<u8>>],
    room: &mut Room,
    split: &mut Split,
) -> bool {
    let level = Level::best();
    let array = |place: usize| (&arrays[layout.at[place]], masks[layout.at[place]].as_deref());
    let mut columns: Vec<Column> =
        (0..layout.exact).map(|place| Column::new(ends(level, array(place).0, array(place).1))).collect();
    if columns.iter().any(|column| column.bytes > 8) {
        return false;
    }
    // The bytes of the distances are followed by those of the squared distances, and by one byte that is set if there
    // is a value.
    let tiles = arrange(&mut columns, |bytes| 2 * bytes + 1);
    let rows = arrays[0].len();
    room.matrix.reshape(tiles.last().map_or(0, |tile| tile.bytes.end), rows);
    for (place, column) in columns.iter().enumerate() {
        let (array, mask) = array(place);
        cut(level, array, mask, column, &mut room.matrix);
        room.cut_squares(column, rows);
        let valid = room.matrix.column_mut(column.valid().0);
        valid.fill(0);
        let valid = &mut valid[..rows];
        match mask {
            None => valid.fill(1),
            Some(mask) => valid.iter_mut().zip(mask).for_each(|(to, mask)| *to = mask & 1),
        }
    }
    room.seal(level);
    room.each_pair(level, &tiles, |to, p, q| {
        split.add_exact(pair_at(p, q), &columns[p].split_sums(&columns[q], to));
    });
    true
}

impl Column {
    fn new((low, bytes): (i128, usize)) -> Column {
        Column { low, first: 0, bytes, above: Wide::default(), sum: Wide::default() }
    }

    fn settle(&mut self, sums: &[u32], count: u64) {
        let bytes = sums[self.first..][..self.bytes].iter().enumerate();
        let above =
            bytes.fold(Wide::default(), |sum, (k, byte)| sum + Wide::from(u64::from(*byte)).shifted_left(k));
        self.set_sums(above, count);
    }

    fn set_sums(&mut self, above: Wide, count: u64) {
        self.above = above;
        self.sum = above + Wide::product(self.low, i128::from(count));
    }

    /// Returns the sum of products with another column. It is computed from that of the distances, corrected for the
    /// least values.
    fn product(&self, other: &Column, above: Wide, words: usize) -> Wide {
        // For 64-bit integers, the sums of a block fit 128 bits.
        let times = |low: i128, sum: Wide| match words {
            4 => Wide::product(low, sum.low_i128()),
            _ => Wide::from(low) * sum,
        };
        above + times(self.low, other.above) + times(other.low, self.sum)
    }

    fn value(&self) -> (usize, usize) {
        (self.first, self.bytes)
    }

    fn square(&self) -> (usize, usize) {
        (self.first + self.bytes, 2 * self.bytes)
    }

    fn valid(&self) -> (usize, usize) {
        (self.first + 3 * self.bytes, 1)
    }

    fn split_sums(&self, other: &Column, to: &Products) -> ExactSums {
        let count = to.total(self.valid(), other.valid());
        let above = [to.total(self.value(), other.valid()), to.total(self.valid(), other.value())];
        let squares = [to.total(self.square(), other.valid()), to.total(self.valid(), other.square())];
        let lows = [self, other].map(|column| Wide::from(column.low));
        let sums = [0, 1].map(|k| above[k] + lows[k] * count);
        // (u + low)^2 = u^2 + low (u + u + low), and so on for products.
        let square = |k: usize| squares[k] + lows[k] * (above[k] + sums[k]);
        let product = to.total(self.value(), other.value()) + lows[0] * above[1] + lows[1] * sums[0];
        ExactSums { count: count.0[0], of: [sums[0], sums[1], square(0), square(1), product] }
    }
}

impl Room {
    /// Splits the squares of a column's distances into bytes, and writes them after the bytes of the distances.
    fn cut_squares(&mut self, column: &Column, rows: usize) {
        self.squares.clear();
        self.squares.resize(rows, 0);
        for byte in 0..column.bytes {
            let bytes = self.matrix.column(column.first + byte);
            self.squares.iter_mut().zip(bytes).for_each(|(to, from)| *to |= u128::from(*from) << (8 * byte));
        }
        self.squares.iter_mut().for_each(|value| *value *= *value);
        let (first, bytes) = column.square();
        for byte in 0..bytes {
            let to = self.matrix.column_mut(first + byte);
            to.fill(0);
            let squares = self.squares.iter();
            to.iter_mut().zip(squares).for_each(|(to, square)| *to = (square >> (8 * byte)) as u8);
        }
    }

    /// Prepares the filled matrix for the kernels: computes the sums of bytes, and the interleaved copy.
    fn seal(&mut self, level: Level) {
        self.sums.resize(self.matrix.columns(), 0);
        level.byte_sums(&self.matrix, &mut self.sums);
        level.interleave(&mut self.matrix);
    }

    /// Calls `f` with the products and the places of each pair of columns, the later place first.
    fn each_pair(&mut self, level: Level, tiles: &[Tile], mut f: impl FnMut(&Products, usize, usize)) {
        for (k, left) in tiles.iter().enumerate() {
            for right in &tiles[..=k] {
                let (width, ranges) = (right.bytes.len(), (left.bytes.clone(), right.bytes.clone()));
                self.products.resize(left.bytes.len() * width, 0);
                if width > 0 && !left.bytes.is_empty() {
                    level.byte_products(&self.matrix, &self.sums, ranges, &mut self.products, width);
                }
                let to = Products { all: &self.products, at: (left.bytes.start, right.bytes.start), width };
                for p in left.places.clone() {
                    right.places.clone().take_while(|q| *q <= p).for_each(|q| f(&to, p, q));
                }
            }
        }
    }
}

/// A column of a block whose type has at most 32 bits: its sums fit 128 bits.
struct NarrowColumn {
    low: i128,
    first: usize,
    bytes: usize,
    above: i128,
    sum: i128,
}

impl NarrowColumn {
    fn of(column: &Column) -> NarrowColumn {
        let Column { low, first, bytes, above, sum } = *column;
        NarrowColumn { low, first, bytes, above: above.low_i128(), sum: sum.low_i128() }
    }

    #[inline]
    fn product(&self, other: &NarrowColumn, to: &Products) -> i128 {
        let above = to.narrow_total((self.first, self.bytes), (other.first, other.bytes));
        above + self.low * other.above + other.low * self.sum
    }
}

/// Sums of the products of all byte columns of one tile with those of another.
struct Products<'a> {
    all: &'a [u32],
    at: (usize, usize),
    width: usize,
}

impl Products<'_> {
    /// Returns the sum of the products of two columns' bytes, each shifted to its weight, for columns whose values have
    /// at most four bytes.
    #[inline]
    fn narrow_total(&self, left: (usize, usize), right: (usize, usize)) -> i128 {
        let from = (left.0 - self.at.0) * self.width + right.0 - self.at.1;
        let mut total = 0u128;
        for a in 0..left.1 {
            let row = &self.all[from + a * self.width..][..right.1];
            let sum = row.iter().rev().fold(0u128, |sum, product| (sum << 8) + u128::from(*product));
            total += sum << (8 * a);
        }
        total.cast_signed()
    }

    /// Returns the sum of the products of two columns. Each is given by the index of its first byte column and the
    /// number of its byte columns.
    #[inline]
    fn total(&self, left: (usize, usize), right: (usize, usize)) -> Wide {
        let mut sums = [0u64; 40];
        for a in 0..left.1 {
            let at = (left.0 - self.at.0 + a) * self.width + right.0 - self.at.1;
            let row = &self.all[at..at + right.1];
            sums[a..].iter_mut().zip(row).for_each(|(sum, product)| *sum += u64::from(*product));
        }
        let used = &sums[..(left.1 + right.1).max(1)];
        let part = |part: &[u64]| part.iter().rev().fold(0u128, |sum, one| (sum << 8) + u128::from(*one));
        let total = Wide::from(part(&used[..used.len().min(8)]));
        used.chunks(8)
            .enumerate()
            .skip(1)
            .fold(total, |total, (k, sums)| total + Wide::from(part(sums)).shifted_left(8 * k))
    }
}
