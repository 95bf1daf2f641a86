//! Runs that return chunks without processing them, for clients that cache chunks.

use super::{Run, RunOutput};
use crate::bound::BoundProgram;
use farpool_columns::Table;
use farpool_model::{Error, Result};
use std::sync::Arc;

/// Checks that clients may cache the chunks of a table: the chunks are not encrypted in memory, and the table is not
/// live.
///
/// # Errors
/// `Invalid` if they may not.
pub fn check_chunks(table: &Table) -> Result<()> {
    match table.cipher().is_some() || table.live_rows().is_some() {
        true => Err(Error::invalid("this table has no chunks that a client could keep")),
        false => Ok(()),
    }
}

impl Run {
    /// Creates a run that returns the chunks of row groups as [`super::Step::Fetched`]: of the columns that `program`
    /// returns, and of the row groups with the indices `row_groups`, each once. The program must return all rows, and
    /// columns in the order of the table.
    ///
    /// # Errors
    /// Errors of [`Run::start`]; `Invalid` if a row group does not exist, the table is encrypted in memory, or it is
    /// live.
    pub fn start_fetching(program: &BoundProgram, row_groups: Vec<usize>) -> Result<Arc<Self>> {
        let table = program.table();
        check_chunks(table)?;
        if row_groups.iter().any(|place| *place >= table.row_groups.len()) {
            return Err(Error::invalid(format!("the table has {} row groups", table.row_groups.len())));
        }
        let columns = program.plan()?.plain_columns();
        let columns = columns.ok_or_else(|| Error::invalid("chunks are those of columns, one at least"))?;
        Run::begin_with(program, RunOutput::Fetched(columns), Some(row_groups))
    }
}
