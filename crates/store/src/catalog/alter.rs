//! Tables that get other columns or another name: a version with the same rows, whose chunks stay where they are.

use super::Catalog;
use farpool_columns::{Chunk, RowGroup};
use farpool_model::{Result, TableChange, TableInfo, TableName, TenantName, alter};
use std::sync::Arc;

/// Bytes of the lists of chunks of so many row groups.
fn list_bytes(row_groups: usize, columns: usize) -> usize {
    row_groups * (size_of::<RowGroup>() + columns * size_of::<Arc<Chunk>>())
}

impl Catalog {
    /// Makes all these changes of a table, whose rows stay as they are, or none. Appends that are under way come behind
    /// them, and fail if they do not fit the table any more.
    ///
    /// # Errors
    /// `NotFound`; `Exists` when there is a table or view of the new name, or is about to be; those of [`alter()`];
    /// `OverLimit` when memory is short.
    pub fn alter_table(
        self: &Arc<Self>,
        tenant: &TenantName,
        name: &TableName,
        changes: &[TableChange],
    ) -> Result<TableInfo> {
        let line = self.current(tenant, name)?.line;
        let _held = line.hold();
        loop {
            let current = self.current(tenant, name)?;
            let altered = alter(&current.table.schema, changes)?;
            let new_name = altered.name.unwrap_or_else(|| name.clone());
            // Where each of its chunks is, until that is known to be there for as long as the table.
            let mut lists = self.outside(tenant);
            if let Some(lists) = &mut lists {
                lists.try_grow(list_bytes(current.table.row_groups.len(), altered.columns.len()))?;
            }
            let table = current.table.with_columns(altered.schema, &altered.columns, &self.pool, tenant)?;
            let table = self.holding(tenant, table)?;
            drop(lists);
            // A merge or another change may have been faster.
            let made = (table, current.settled);
            if let Some(info) = self.put_instead(tenant, (name, &new_name), &current, made)? {
                return Ok(info);
            }
        }
    }
}
