//! Finds the rows in which none of the columns that an expression reads is NULL.

use crate::bits;
use crate::lanes::RowSet;
use farpool_columns::RowGroup;

/// Returns a bitmap of the rows in which none of `columns` is NULL; `None` if that holds for all rows.
pub(super) fn valid_bits(group: &RowGroup, columns: &[usize], rows: RowSet<'_>) -> Option<Vec<u64>> {
    let mut all: Option<Vec<u64>> = None;
    for column in columns {
        let chunk = &group.chunks[*column];
        let valid = match rows {
            _ if chunk.null_count() == 0 => None,
            RowSet::Range(start, end) => chunk.validity(start..end).map(|v| bits::of_buffer(&v)),
            RowSet::Rows(rows) => chunk
                .validity(0..chunk.rows())
                .map(|v| bits::collect(rows.len(), |i| v.value(rows[i] as usize))),
        };
        all = match (all, valid) {
            (Some(mut all), Some(valid)) => {
                bits::and(&mut all, &valid);
                Some(all)
            }
            (all, valid) => all.or(valid),
        };
    }
    all
}
