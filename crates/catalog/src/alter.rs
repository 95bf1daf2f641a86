//! Changes of a table's columns or name: a new version with the same rows, whose chunks stay where they are.

use super::changes::{Change, ChangeKind};
use super::state::CatalogState;
use super::{Catalog, Commit};
use farpool_columns::{Chunk, RowGroup};
use farpool_model::{Result, TableChange, TableInfo, TableName, TenantName, alter};
use std::sync::Arc;

/// Returns the bytes of the lists of chunks of `row_groups` row groups with `columns` columns each.
fn list_bytes(row_groups: usize, columns: usize) -> usize {
    row_groups * (size_of::<RowGroup>() + columns * size_of::<Arc<Chunk>>())
}

impl Catalog {
    /// Applies all `changes` to a table's columns and name, or none of them; its rows stay as they are. Appends in
    /// progress are committed after the changes, and fail if their rows no longer fit the table.
    ///
    /// # Errors
    /// `NotFound`; `Exists` if a table or view has the new name, or a load is about to create one; those of
    /// [`alter()`]; `OverLimit` if memory is short.
    pub fn alter_table(
        self: &Arc<Self>,
        tenant: &TenantName,
        name: &TableName,
        changes: &[TableChange],
    ) -> Result<Commit<TableInfo>> {
        let append_queue = self.newest(tenant, name)?.append_queue;
        let _held = append_queue.hold();
        loop {
            let current = self.newest(tenant, name)?;
            let altered = alter(&current.table.schema, changes)?;
            let new_name = altered.name.unwrap_or_else(|| name.clone());
            // This reservation covers the new lists of chunks until `holding` below has reserved memory for the whole
            // table.
            let mut lists = self.outside(tenant);
            if let Some(lists) = &mut lists {
                lists.try_grow(list_bytes(current.table.row_groups.len(), altered.columns.len()))?;
            }
            let kind = ChangeKind::Columns {
                name: name.clone(),
                new_name: new_name.clone(),
                schema: altered.schema,
                from: altered.columns,
            };
            let planned = self.plan(Change::new(tenant, kind), Some(&current), None)?;
            drop(lists);
            let may_be_renamed = |state: &CatalogState| match new_name == *name {
                true => Ok(true),
                false => state.check_new_name(tenant, &new_name).map(|()| true),
            };
            // Returns `None` if a merge or another change has swapped the table meanwhile; the loop then tries again
            // with the newest state.
            if let Some(made) = self.make(planned, may_be_renamed)? {
                return made.announced();
            }
        }
    }
}
