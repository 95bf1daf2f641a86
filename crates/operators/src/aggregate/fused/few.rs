//! A handful of groups: what is added up stays in registers.
//!
//! Eligible are row groups of at most [`GROUPS_MAX`] groups where every sum is of a packed column as it lies,
//! narrow enough that a part's distances are added in 32 bits. Numbers of groups are bytes then.

use super::ROWS_AT_A_TIME;
use super::bind::Fused;
use super::measures::SumOf;
use super::tables::SumTables;
use crate::aggregate::keys::{DenseKeys, KeyBuffers};
use crate::bits;
use crate::lanes::{LaneBuffers, RowSet};
use farpool_columns::{Integers, Kernel, Level, Simd};
use farpool_model::Result;

/// Registers that hold sums.
const GROUPS_MAX: usize = 16;

/// The group of rows that are not selected: none that has a sum.
const ASIDE: u8 = 31;

/// A distance is below this: every sixteenth row of a part is added in 32 bits.
const DISTANCE_MAX: u64 = u32::MAX as u64 / (ROWS_AT_A_TIME as u64 / 16);

/// The sums of a row group.
pub(super) struct FewSums<'a> {
    columns: Vec<Integers<'a>>,
    /// The sums of the distances of each column, by group.
    sums: Vec<[u64; GROUPS_MAX]>,
    counts: [u64; GROUPS_MAX],
    groups: Vec<u8>,
    distances: Vec<u32>,
    keys: KeyBuffers,
    numbers: Vec<u32>,
}

impl<'a> Fused<'a> {
    /// No sums yet, if the row group is eligible.
    pub(super) fn few(&self) -> Option<FewSums<'a>> {
        if self.keys.is_empty() || self.keys.domain > GROUPS_MAX || !self.measures.extremes.is_empty() {
            return None;
        }
        let column = |sum: &SumOf| match sum {
            // The first mask lets all pass.
            SumOf::Lane(lane, 0) => {
                self.lanes.integers(*lane).filter(|i| i.max().abs_diff(i.min()) <= DISTANCE_MAX)
            }
            _ => None,
        };
        let columns = self.measures.sums.iter().map(column).collect::<Option<Vec<_>>>()?;
        Some(FewSums {
            sums: vec![[0; GROUPS_MAX]; columns.len()],
            columns,
            counts: [0; GROUPS_MAX],
            groups: Vec::new(),
            distances: Vec::new(),
            keys: KeyBuffers::default(),
            numbers: Vec::new(),
        })
    }
}

impl FewSums<'_> {
    /// Adds the rows from `start` to `end`, at most [`ROWS_AT_A_TIME`], that are selected. `lanes` holds what
    /// keys are read from.
    pub(super) fn add(
        &mut self,
        keys: &DenseKeys<'_>,
        (start, end): (usize, usize),
        lanes: &LaneBuffers,
        selected: Option<&[u64]>,
    ) -> Result<()> {
        if !keys.bytes(start..end, &mut self.groups) {
            keys.number(RowSet::Range(start, end), lanes, &mut self.keys, &mut self.numbers)?;
            self.groups.clear();
            self.groups.extend(self.numbers.iter().map(|group| *group as u8));
        }
        if let Some(selected) = selected {
            let groups = self.groups.iter_mut().enumerate();
            groups.for_each(|(row, group)| *group = if bits::get(selected, row) { *group } else { ASIDE });
        }
        let level = Level::best();
        level.run(Count { groups: &self.groups, counts: &mut self.counts });
        for (column, sums) in self.columns.iter().zip(&mut self.sums) {
            column.widen_deltas_u32(start..end, &mut self.distances);
            level.run(Add { groups: &self.groups, values: &self.distances, sums });
        }
        Ok(())
    }

    /// Adds what was added up to `sums`.
    pub(super) fn finish(&self, sums: &mut SumTables) {
        for (group, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = count.cast_signed();
            sums.add_rows(group, count);
            for (index, (column, of)) in self.columns.iter().zip(&self.sums).enumerate() {
                // It fits, or the row group would not go the fused way; what is on the way there may not.
                let least = column.min().wrapping_mul(count);
                sums.add_total(index, group, least.wrapping_add(of[group].cast_signed()));
            }
        }
    }
}

struct Add<'a> {
    groups: &'a [u8],
    values: &'a [u32],
    sums: &'a mut [u64; GROUPS_MAX],
}

impl Kernel for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        simd.add_by_group(self.groups, self.values, self.sums);
    }
}

struct Count<'a> {
    groups: &'a [u8],
    counts: &'a mut [u64; GROUPS_MAX],
}

impl Kernel for Count<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        simd.count_by_group(self.groups, self.counts);
    }
}
