//! Selection of the small row groups at the end of a table that are merged next.
//!
//! Sizes decrease towards the end of a table, like the levels of a log-structured merge tree (O'Neil et al., *The
//! Log-Structured Merge-Tree*, Acta Informatica 1996). Once there are more small row groups than are tolerated, a merge
//! takes all row groups from the first one on that has at most a few times as many rows as all behind it. A row is
//! therefore rewritten a number of times logarithmic in the rows of a large row group, and only a few sizes coexist.
//! The order of rows never changes, because only neighbours are merged.

use farpool_columns::{RowGroup, is_large};
use farpool_model::limits::{LARGE_GROUP_BYTES, MERGE_RATIO, ROW_GROUP_ROWS, SMALL_GROUPS_MAX};
use std::ops::Range;

/// The size of a row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupSize {
    pub rows: usize,
    pub bytes_plain: usize,
}

impl GroupSize {
    pub fn of(group: &RowGroup) -> GroupSize {
        GroupSize { rows: group.rows, bytes_plain: group.bytes_plain() }
    }

    pub fn is_large(&self) -> bool {
        is_large(self.rows, self.bytes_plain)
    }
}

/// Returns the number of leading row groups that will not be merged, whatever is appended: large ones, and small ones
/// without a small neighbour.
pub(super) fn settled(sizes: &[GroupSize]) -> usize {
    let (mut settled, mut small) = (0, 0);
    for (place, size) in sizes.iter().enumerate() {
        small = if size.is_large() { 0 } else { small + 1 };
        match small {
            0 => settled = place + 1,
            1 => {}
            _ => break,
        }
    }
    settled
}

/// Returns the range of row groups to merge next; `None` if none should be merged. None of `sizes` may be settled.
pub(super) fn next(sizes: &[GroupSize]) -> Option<Range<usize>> {
    // Row groups with a large one after them get no more small neighbours.
    let behind = sizes.iter().position(GroupSize::is_large).filter(|large| *large >= 2);
    if let Some(large) = behind {
        return Some(0..fitting(&sizes[..large]));
    }
    let first = sizes.iter().rposition(GroupSize::is_large).map_or(0, |large| large + 1);
    let small = &sizes[first..];
    let mut rows_behind: usize = small.iter().map(|size| size.rows).sum();
    if small.len() <= SMALL_GROUPS_MAX && rows_behind < ROW_GROUP_ROWS {
        return None;
    }
    let is_dwarfed = |size: &GroupSize| {
        rows_behind -= size.rows;
        size.rows <= MERGE_RATIO * rows_behind
    };
    let start = small.iter().position(is_dwarfed)?;
    let count = fitting(&small[start..]);
    (count > 1).then(|| first + start..first + start + count)
}

/// Returns the number of leading row groups that fit into one row group.
fn fitting(sizes: &[GroupSize]) -> usize {
    let (mut rows, mut bytes) = (0, 0);
    let fits = |size: &&GroupSize| {
        rows += size.rows;
        bytes += size.bytes_plain;
        rows <= ROW_GROUP_ROWS && bytes <= 2 * LARGE_GROUP_BYTES
    };
    sizes.iter().take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use farpool_model::limits::LARGE_GROUP_ROWS;
    use proptest::prelude::*;

    fn sizes(rows: &[usize]) -> Vec<GroupSize> {
        rows.iter().map(|rows| GroupSize { rows: *rows, bytes_plain: rows * 100 }).collect()
    }

    #[test]
    fn neighbours_are_merged_that_are_small_and_close_in_size() {
        const LARGE: usize = LARGE_GROUP_ROWS;
        type Case<'a> = (&'a [usize], usize, Option<Range<usize>>);
        let cases: [Case<'_>; 8] = [
            (&[], 0, None),
            (&[1; SMALL_GROUPS_MAX], 0, None),
            (&[1; SMALL_GROUPS_MAX + 1], 0, Some(0..SMALL_GROUPS_MAX + 1)),
            (&[1_000, 1, 1, 1, 1, 1, 1, 1, 1], 0, Some(1..9)),
            (&[LARGE, 5, LARGE, 7, 1], 3, None),
            (&[3, 4, LARGE], 0, Some(0..2)),
            (&[30_000, 30_000, 3_000, 3_000], 0, Some(0..3)),
            (&[LARGE - 1, LARGE - 1, 3, 1], 0, Some(0..2)),
        ];
        for (rows, stay, merged) in cases {
            let sizes = sizes(rows);
            assert_eq!(settled(&sizes), stay, "{rows:?}");
            assert_eq!(next(&sizes[stay..]), merged, "{rows:?}");
        }
        let wide = [GroupSize { rows: 10, bytes_plain: LARGE_GROUP_BYTES }];
        assert_eq!(settled(&wide), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn few_are_left_and_rows_are_written_a_few_times(
            seed in 1..50_usize, appends in 1..4_000_usize, large_every in 50..2_000_usize,
        ) {
            let (mut groups, mut kept, mut rows, mut written) = (Vec::new(), 0, 0, 0);
            for append in 1..=appends {
                let size = if append % large_every == 0 { LARGE_GROUP_ROWS } else { 1 + append * seed % 77 };
                groups.push(GroupSize { rows: size, bytes_plain: size * 8 });
                rows += size;
                while let Some(merged) = next(&groups[kept..]) {
                    prop_assert!(merged.len() > 1);
                    let merged = kept + merged.start..kept + merged.end;
                    let sum: usize = groups[merged.clone()].iter().map(|size| size.rows).sum();
                    prop_assert!(sum <= ROW_GROUP_ROWS);
                    written += sum;
                    groups.splice(merged, [GroupSize { rows: sum, bytes_plain: sum * 8 }]);
                    kept += settled(&groups[kept..]);
                }
                kept += settled(&groups[kept..]);
                prop_assert!(groups.len() - kept <= SMALL_GROUPS_MAX, "{:?}", &groups[kept..]);
            }
            prop_assert_eq!(groups.iter().map(|size| size.rows).sum::<usize>(), rows);
            prop_assert!(written <= 40 * rows, "{} times", written / rows);
            // Of two neighbouring row groups, one is large.
            prop_assert!(groups[..kept].windows(2).all(|pair| pair.iter().any(GroupSize::is_large)));
        }
    }
}
