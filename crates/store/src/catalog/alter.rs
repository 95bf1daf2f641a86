//! Tables that get other columns or another name: a version with the same rows, whose chunks stay where they are.

use super::merge::Merges;
use super::{Catalog, Current, Expected, Tapped};
use farpool_columns::{Chunk, Encoder, RowGroup, Table};
use farpool_model::{Result, TableChange, TableInfo, TableName, TenantName, alter};
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
            // Another change may have been faster.
            if let Some(info) = self.put_altered(tenant, (name, &new_name), &current, table)? {
                return Ok(info);
            }
        }
    }

    /// Makes `table` take the place of `current` under the second of the names, if it still stands under the first.
    fn put_altered(
        self: &Arc<Self>,
        tenant: &TenantName,
        (name, new_name): (&TableName, &TableName),
        current: &Current,
        table: Table,
    ) -> Result<Option<TableInfo>> {
        let (settled, rows_settled) = (current.settled, current.rows_settled);
        let tapped = (!self.taps_closed.load(Ordering::Relaxed)).then(|| {
            let tap = self.tap(tenant, &table.schema);
            table.row_groups.iter().take(settled).for_each(|group| tap.add(group.clone()));
            let encoder = Encoder::new(self.pool.clone(), tenant.clone(), table.schema.clone());
            Tapped { tap, before: None, encoder }
        });
        let merges = Merges::new(self, self.next_chore(), tenant, new_name);
        let table = Arc::new(table);
        let mut tenants = self.tenants.write();
        let is_current = |newest: &Current| Arc::ptr_eq(&newest.table, &current.table);
        if !tenants.find(tenant, name).is_some_and(is_current) {
            return Ok(None);
        }
        let is_taken = tenants.find(tenant, new_name).is_some()
            || tenants.view(tenant, new_name).is_some()
            || tenants.claimed(tenant, new_name).is_some();
        if new_name != name && is_taken {
            return tenants.check(tenant, new_name, Expected::Nothing).map(|()| None);
        }
        let version = tenants.next_version();
        let tap = tapped.map(Tapped::complete);
        let (line, whole) = (Arc::default(), None);
        let next = Current { version, table, settled, rows_settled, tap, whole, line, merges };
        let info = next.info(new_name);
        let tables = tenants.tables.entry(tenant.clone()).or_default();
        let before = tables.remove(name);
        tables.insert(new_name.clone(), next.clone());
        drop(tenants);
        drop(before);
        next.merges.announce(&next);
        Ok(Some(info))
    }
}
