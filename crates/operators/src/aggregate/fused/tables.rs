//! Partial sums and extremes per dense group.

use crate::bits;
use std::cmp::Ordering;

/// Sums that lie in one line of a table, beside the number of rows.
pub(super) const SUMS_PER_TABLE: usize = 7;

/// Groups up to which two copies of each table are filled in turn: rows of one group in a row would
/// otherwise wait for one another's store.
const TWO_COPIES_MAX: usize = 64;

/// One cache line per group: the number of rows, then sums.
type Line = [i64; SUMS_PER_TABLE + 1];

/// The partial sums of a row group, for any number of lanes.
#[derive(Default)]
pub(super) struct SumTables {
    tables: Vec<Vec<Line>>,
    groups: usize,
    copies: usize,
}

impl SumTables {
    /// All zero, for `groups` groups and `sums` lanes.
    pub(super) fn reset(&mut self, groups: usize, sums: usize) {
        self.groups = groups;
        self.copies = if groups <= TWO_COPIES_MAX { 2 } else { 1 };
        self.tables.resize_with(sums.div_ceil(SUMS_PER_TABLE).max(1), Vec::new);
        for table in &mut self.tables {
            table.clear();
            table.resize(groups * self.copies, Line::default());
        }
    }

    /// Adds a value of each lane to the group of each row.
    pub(super) fn add(&mut self, groups: &[u32], lanes: &[&[i64]]) {
        let copies = self.copies;
        for (index, table) in self.tables.iter_mut().enumerate() {
            let first = (index * SUMS_PER_TABLE).min(lanes.len());
            let lanes = &lanes[first..lanes.len().min(first + SUMS_PER_TABLE)];
            match lanes.len() {
                0 => scatter::<0>(groups, lanes, table, copies),
                1 => scatter::<1>(groups, lanes, table, copies),
                2 => scatter::<2>(groups, lanes, table, copies),
                3 => scatter::<3>(groups, lanes, table, copies),
                4 => scatter::<4>(groups, lanes, table, copies),
                5 => scatter::<5>(groups, lanes, table, copies),
                6 => scatter::<6>(groups, lanes, table, copies),
                _ => scatter::<SUMS_PER_TABLE>(groups, lanes, table, copies),
            }
        }
    }

    /// Adds all rows to group 0.
    pub(super) fn add_ungrouped(&mut self, rows: usize, lanes: &[&[i64]]) {
        self.tables[0][0][0] += rows as i64;
        for (index, lane) in lanes.iter().enumerate() {
            let sum: i64 = lane.iter().sum();
            self.tables[index / SUMS_PER_TABLE][0][1 + index % SUMS_PER_TABLE] += sum;
        }
    }

    /// The number of rows of a group.
    pub(super) fn rows(&self, group: usize) -> i64 {
        self.cell(0, group, 0)
    }

    /// The sum of a lane over a group.
    pub(super) fn sum(&self, lane: usize, group: usize) -> i64 {
        self.cell(lane / SUMS_PER_TABLE, group, 1 + lane % SUMS_PER_TABLE)
    }

    fn cell(&self, table: usize, group: usize, cell: usize) -> i64 {
        let table = &self.tables[table];
        (0..self.copies).map(|copy| table[copy * self.groups + group][cell]).sum()
    }
}

#[inline]
fn scatter<const LANES: usize>(groups: &[u32], lanes: &[&[i64]], table: &mut [Line], copies: usize) {
    let rows = groups.len();
    let lanes: [&[i64]; LANES] = std::array::from_fn(|lane| &lanes[lane][..rows]);
    if copies == 1 {
        for (row, group) in groups.iter().enumerate() {
            add_row(&mut table[*group as usize], &lanes, row);
        }
        return;
    }
    let (even, odd) = table.split_at_mut(table.len() / 2);
    let pairs = rows / 2 * 2;
    for row in (0..pairs).step_by(2) {
        add_row(&mut even[groups[row] as usize], &lanes, row);
        add_row(&mut odd[groups[row + 1] as usize], &lanes, row + 1);
    }
    if pairs < rows {
        add_row(&mut even[groups[pairs] as usize], &lanes, pairs);
    }
}

#[inline(always)]
fn add_row<const LANES: usize>(line: &mut Line, lanes: &[&[i64]; LANES], row: usize) {
    line[0] += 1;
    for lane in 0..LANES {
        line[lane + 1] += lanes[lane][row];
    }
}

/// The extremes of one lane per group.
#[derive(Default)]
pub(super) struct ExtremeTable {
    values: Vec<i64>,
}

impl ExtremeTable {
    /// No values yet, for `groups` groups.
    pub(super) fn reset(&mut self, groups: usize, wanted: Ordering) {
        self.values.clear();
        self.values.resize(groups, if wanted == Ordering::Less { i64::MAX } else { i64::MIN });
    }

    /// Takes the values of the rows in `mask` into account, each for its group (without groups, for 0).
    pub(super) fn add(
        &mut self,
        groups: Option<&[u32]>,
        values: &[i64],
        mask: Option<&[u64]>,
        wanted: Ordering,
    ) {
        let keep =
            |kept: i64, value: i64| if wanted == Ordering::Less { kept.min(value) } else { kept.max(value) };
        match (groups, mask) {
            (None, None) => self.values[0] = values.iter().fold(self.values[0], |kept, v| keep(kept, *v)),
            (None, Some(mask)) => {
                bits::for_each(mask, |row| self.values[0] = keep(self.values[0], values[row]))
            }
            (Some(groups), None) => {
                for (group, value) in groups.iter().zip(values) {
                    let kept = &mut self.values[*group as usize];
                    *kept = keep(*kept, *value);
                }
            }
            (Some(groups), Some(mask)) => bits::for_each(mask, |row| {
                let kept = &mut self.values[groups[row] as usize];
                *kept = keep(*kept, values[row]);
            }),
        }
    }

    /// The extreme of a group; meaningless if no row was added to it.
    pub(super) fn value(&self, group: usize) -> i64 {
        self.values[group]
    }
}
