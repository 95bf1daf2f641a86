//! Estimates from a few rows of the scanned table whether testing join keys pays.

use crate::evaluate::{Compiled, Frame, truth};
use farpool_columns::{RowGroup, Table};
use farpool_model::{Columns, Expr, Result, cast};

/// Number of row groups that are looked at, and of rows in each. Reason: they cost some ten microseconds.
const GROUPS: usize = 16;
const ROWS: usize = 64;

/// Minimum number of rows that tell something.
const ROWS_MIN: usize = 256;

/// Returns about which part of the rows of `table` pass `condition`, which never fails; `None` if that is not known: the
/// table is small, encrypted, or not in memory. The result may only decide what is faster.
///
/// # Errors
/// Fails only on a bug in this crate.
pub fn share_of_sample(condition: &Expr, table: &Table) -> Result<Option<f64>> {
    if table.cipher().is_some() || table.live_rows().is_some() {
        return Ok(None);
    }
    let compiled = Compiled::new(condition, Columns::new(&table.schema, &table.statistics))?;
    let (mut rows, mut passing) = (0, 0);
    let groups = table.row_groups.len();
    for place in 0..groups.min(GROUPS) {
        let group = &table.row_groups[place * groups / groups.min(GROUPS)];
        if let Some(frame) = some_rows(group, compiled.columns()) {
            rows += frame.rows();
            passing += truth(&compiled.array(&frame)?).true_count();
        }
    }
    let share = cast::u64_from(passing) as f64 / cast::u64_from(rows) as f64;
    Ok((rows >= ROWS_MIN).then_some(share))
}

/// Returns rows from the middle of a row group; `None` if it is not in memory, or damaged: whoever reads it reports that.
fn some_rows(group: &RowGroup, columns: &[usize]) -> Option<Frame> {
    let rows = group.rows.min(ROWS);
    let start = (group.rows - rows) / 2;
    let mut values = Vec::with_capacity(columns.len());
    for column in columns {
        let chunk = group.chunks[*column].values()?;
        values.push((*column, chunk.decode(start..start + rows).ok()?));
    }
    Some(Frame::new(rows, values))
}
