//! A handful of groups: rows are added two at a time.
//!
//! Two rows have one of 256 pairs of groups. The sums of a pair's two groups lie side by side, so that one load, one
//! addition and one store serve both rows, and rows of one group that follow each other seldom have to wait for each
//! other's stores. The rows of a group are counted in the upper bits of its first sum.
//!
//! Eligible are row groups of at most [`GROUPS_MAX`] groups where every sum is of a packed column as it lies, whose
//! distances over all rows fit below the count. Numbers of groups are bytes then.

use super::tables::SumTables;
use crate::aggregate::dense::{DenseRows, KeyBuffers, ROWS_AT_A_TIME, SumOf};
use crate::lanes::{LaneBuffers, LaneId, RowSet};
use farpool_columns::{Integers, Kernel, Level, Simd};
use farpool_model::{Result, limits};

/// Groups whose pairs have numbers of a byte.
const GROUPS_MAX: usize = 16;

/// Rows that are added in one step, the pairs of each in a table of their own.
const STEP: usize = 8;

/// The bit of a sum from which on it counts rows.
const COUNT_BIT: u32 = 44;

/// What a row adds to the first sum besides its distance.
const ONE_ROW: u64 = 1 << COUNT_BIT;

/// A distance is below this, so that the sum over a row group does not reach the count.
const DISTANCE_MAX: u64 = ONE_ROW / limits::ROW_GROUP_ROWS as u64 - 1;

const _: () = assert!((limits::ROW_GROUP_ROWS as u64) < 1 << (u64::BITS - COUNT_BIT));
const _: () = assert!(ROWS_AT_A_TIME.is_multiple_of(STEP));

/// The sums of a row group.
pub(crate) struct FewSums<'a> {
    /// The columns that are added up, and the sums of their distances; without any, rows are counted in the one that
    /// is left.
    columns: Vec<Option<Integers<'a>>>,
    sums: Vec<PairSums>,
    groups: Vec<u8>,
    values: Vec<u64>,
    keys: KeyBuffers,
    numbers: Vec<u32>,
}

impl<'a> FewSums<'a> {
    /// No sums yet, if the row group is eligible.
    pub(super) fn of(rows: &DenseRows<'a>) -> Option<FewSums<'a>> {
        let measures = &rows.measures;
        if rows.keys.is_empty() || rows.keys.domain > GROUPS_MAX || !measures.folds.is_empty() {
            return None;
        }
        let column = |sum: &SumOf| match sum {
            // The first mask lets all pass.
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
    /// Adds the selected ones of the rows from `start` to `end`, at most [`ROWS_AT_A_TIME`].
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
        // What is behind the rows adds nothing to whatever group.
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

    /// Adds what was added up to `sums`.
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
                // It fits, or the row group would not go the fused way; what is on the way there may not.
                let least = column.min().wrapping_mul(count);
                sums.add_total(index, group, least.wrapping_add(distances.cast_signed()));
            }
        }
    }
}

/// Sums by pairs of groups, in a table for each pair of rows of a step: in one, long runs of a group would wait.
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

/// Adds each value to the sum of its group, which is below [`GROUPS_MAX`].
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
            // In every second byte the number of a pair: the one's group below, the other's above.
            let pairs = groups | groups >> 4;
            for (index, table) in tables.iter_mut().enumerate() {
                let sums = &mut table[usize::from((pairs >> (16 * index)) as u8)];
                *sums = [sums[0] + values[2 * index], sums[1] + values[2 * index + 1]];
            }
        }
    }
}

/// Makes values 0 whose bit is not set; the number of values is a multiple of [`STEP`].
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
            // Runs of a group, and each group beside each other.
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
