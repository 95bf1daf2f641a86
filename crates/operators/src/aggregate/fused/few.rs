//! Fast path of the *fused way* of aggregation (groups are added in an array, directly from bit-packed columns),
//! for few groups: rows are added two at a time.
//!
//! The groups of two rows form one of 256 pairs. Each pair has two sums next to each other, one for each row's group.
//! So one load, one addition and one store serve both rows, and consecutive rows of one group seldom wait for each
//! other's stores. The upper bits of a group's first sum count its rows.
//!
//! This path can be used for a row group with at most [`GROUPS_MAX`] groups in which every sum is that of a
//! bit-packed column without a mask. Also, the distances of a column's values from the least one, summed over all
//! rows, must fit the bits below the row count.

use super::tables::SumTables;
use crate::aggregate::dense::{DenseRows, KeyBuffers, ROWS_AT_A_TIME, SumOf};
use crate::lanes::{LaneBuffers, LaneId, RowSet};
use farpool_columns::{Integers, Kernel, Level, Simd};
use farpool_model::{Result, limits};

/// Maximum number of groups. Reason: the index of a pair of groups must fit a byte.
const GROUPS_MAX: usize = 16;

/// Number of rows added per iteration. Each two of them have a table of pairs of their own.
const STEP: usize = 8;

/// Lowest of the bits of a sum that count rows instead of distances.
const COUNT_BIT: u32 = 44;

/// Addend that counts one row in the upper bits of a sum.
const ONE_ROW: u64 = 1 << COUNT_BIT;

/// Maximum distance of a value from the least value of its column. Reason: the sum of the distances over a row group
/// must stay below the bits that count rows.
const DISTANCE_MAX: u64 = ONE_ROW / limits::ROW_GROUP_ROWS as u64 - 1;

const _: () = assert!((limits::ROW_GROUP_ROWS as u64) < 1 << (u64::BITS - COUNT_BIT));
const _: () = assert!(ROWS_AT_A_TIME.is_multiple_of(STEP));

/// Sums of a row group for each pair of groups.
pub(crate) struct FewSums<'a> {
    /// Columns whose distances from the least value are summed in `sums`. If there is no column to sum, the only
    /// entry is `None`, whose sums count rows.
    columns: Vec<Option<Integers<'a>>>,
    sums: Vec<PairSums>,
    groups: Vec<u8>,
    values: Vec<u64>,
    keys: KeyBuffers,
    numbers: Vec<u32>,
}

impl<'a> FewSums<'a> {
    /// Creates empty sums; `None` if the row group or its aggregation does not satisfy the conditions of this fast
    /// path.
    pub(super) fn of(rows: &DenseRows<'a>) -> Option<FewSums<'a>> {
        let measures = &rows.measures;
        if rows.keys.is_empty() || rows.keys.domain > GROUPS_MAX || !measures.folds.is_empty() {
            return None;
        }
        let column = |sum: &SumOf| match sum {
            // Mask 0 passes all rows.
            SumOf::Lane(lane, 0) => {
                rows.lanes.integers(*lane).filter(|i| i.max().abs_diff(i.min()) <= DISTANCE_MAX).map(Some)
            }
            _ => None,
        };
        let mut columns = measures.sums.iter().map(column).collect::<Option<Vec<_>>>()?;
        if columns.is_empty() {
            columns.push(None);
        }
        Some(FewSums {
            sums: columns.iter().map(|_| PairSums::new()).collect(),
            columns,
            groups: Vec::new(),
            values: Vec::new(),
            keys: KeyBuffers::default(),
            numbers: Vec::new(),
        })
    }
}

impl FewSums<'_> {
    /// Adds those of the rows from `start` to `end` (at most [`ROWS_AT_A_TIME`] rows) that passed the query's filter.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn add(
        &mut self,
        of: &DenseRows<'_>,
        (start, end): (usize, usize),
        selected: Option<&[u64]>,
        buffers: &mut LaneBuffers,
    ) -> Result<()> {
        let (keys, all) = (&of.keys, RowSet::Range(start, end));
        let wanted: Vec<LaneId> = keys.lanes().collect();
        of.lanes.evaluate(&wanted, all, buffers);
        if !keys.bytes(start..end, &mut self.groups) {
            keys.number(all, buffers, &mut self.keys, &mut self.numbers)?;
            self.groups.clear();
            self.groups.extend(self.numbers.iter().map(|group| *group as u8));
        }
        // The rows are padded to whole steps. Padding rows are of group 0 and have the value 0, so that they add
        // nothing.
        let (rows, padded) = (end - start, (end - start).next_multiple_of(STEP));
        self.groups.resize(padded, 0);
        for (index, (column, sums)) in self.columns.iter().zip(&mut self.sums).enumerate() {
            let of_row = if index == 0 { ONE_ROW } else { 0 };
            match column {
                Some(column) => column.unpack_deltas_from(of_row, start..end, &mut self.values),
                None => {
                    self.values.clear();
                    self.values.resize(rows, of_row);
                }
            }
            self.values.resize(padded, 0);
            if let Some(selected) = selected {
                Level::best().run(Keep { values: &mut self.values, selected });
            }
            Level::best().run(Add { groups: &self.groups, values: &self.values, sums });
        }
        Ok(())
    }

    /// Adds the totals of each group to `sums`.
    pub(super) fn finish(&self, sums: &mut SumTables) {
        let totals: Vec<[u64; GROUPS_MAX]> = self.sums.iter().map(PairSums::totals).collect();
        let Some(counted) = totals.first() else { return };
        for group in 0..GROUPS_MAX {
            let count = (counted[group] >> COUNT_BIT).cast_signed();
            if count == 0 {
                continue;
            }
            sums.add_rows(group, count);
            let columns = self.columns.iter().flatten().zip(&totals).enumerate();
            for (index, (column, totals)) in columns {
                let distances = if index == 0 { totals[group] & (ONE_ROW - 1) } else { totals[group] };
                // The total fits 64 bits, because the fused way requires that; intermediate results may wrap.
                let least = column.min().wrapping_mul(count);
                sums.add_total(index, group, least.wrapping_add(distances.cast_signed()));
            }
        }
    }
}

/// Sums for each pair of groups, with a table for each two rows of an iteration. With a single table, each addition
/// in a long run of rows of one group would wait for the store of the one before.
struct PairSums(Vec<[[u64; 2]; PAIRS]>);

const PAIRS: usize = GROUPS_MAX * GROUPS_MAX;

impl PairSums {
    fn new() -> Self {
        PairSums(vec![[[0; 2]; PAIRS]; STEP / 2])
    }

    fn totals(&self) -> [u64; GROUPS_MAX] {
        let mut totals = [0; GROUPS_MAX];
        for table in &self.0 {
            for (pair, [first, second]) in table.iter().enumerate() {
                totals[pair % GROUPS_MAX] += first;
                totals[pair / GROUPS_MAX] += second;
            }
        }
        totals
    }
}

/// Adds each value to the sum of its group, whose number is less than [`GROUPS_MAX`].
struct Add<'a> {
    groups: &'a [u8],
    values: &'a [u64],
    sums: &'a mut PairSums,
}

impl Kernel for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (groups, values) = (self.groups.as_chunks::<STEP>().0, self.values.as_chunks::<STEP>().0);
        let Some(tables) = self.sums.0.first_chunk_mut::<{ STEP / 2 }>() else { return };
        for (groups, values) in groups.iter().zip(values) {
            let groups = u64::from_le_bytes(*groups);
            // Every second byte is the index of a pair: the first row's group in the low four bits, the second row's
            // in the high four.
            let pairs = groups | groups >> 4;
            for (index, table) in tables.iter_mut().enumerate() {
                let sums = &mut table[usize::from((pairs >> (16 * index)) as u8)];
                *sums = [sums[0] + values[2 * index], sums[1] + values[2 * index + 1]];
            }
        }
    }
}

/// Replaces values whose bit is clear by zero. The number of values must be a multiple of [`STEP`].
struct Keep<'a> {
    values: &'a mut [u64],
    selected: &'a [u64],
}

impl Kernel for Keep<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (steps, _) = self.values.as_chunks_mut::<STEP>();
        for (steps, word) in steps.chunks_mut(64 / STEP).zip(self.selected) {
            for (index, values) in steps.iter_mut().enumerate() {
                *values = simd.keep_u64(values, word >> (STEP * index) & 0xff);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_rows_add_up_to_what_single_rows_do() {
        for (rows, last) in [(0, 0), (8, 0), (64, 15), (2048, 15), (2048, 1), (2048, 0)] {
            // The groups have both long runs of one group and neighbours of different groups.
            let groups: Vec<u8> =
                (0..rows).map(|row: usize| ((row / 7 + row * (row / 300)) % (last + 1)) as u8).collect();
            let values: Vec<u64> = (0..rows as u64).map(|row| (row * row % DISTANCE_MAX) | ONE_ROW).collect();
            let mut sums = PairSums::new();
            let levels = Level::all().count() as u64;
            for level in Level::all() {
                level.run(Add { groups: &groups, values: &values, sums: &mut sums });
            }
            let mut expected = [0; GROUPS_MAX];
            groups
                .iter()
                .zip(&values)
                .for_each(|(group, value)| expected[usize::from(*group)] += levels * value);
            assert_eq!(sums.totals(), expected, "{rows} rows of {last} groups");
        }
    }

    #[test]
    fn values_are_kept_by_their_bits_on_every_level() {
        for level in Level::all() {
            let mut values: Vec<u64> = (1..=136).collect();
            let selected = [0x8000_0000_ffff_0105, 0, u64::MAX];
            level.run(Keep { values: &mut values, selected: &selected });
            let bit = |row: usize| selected[row / 64] >> (row % 64) & 1;
            let expected: Vec<u64> = (0..136).map(|row| (row as u64 + 1) * bit(row)).collect();
            assert_eq!(values, expected, "{level:?}");
        }
    }
}
