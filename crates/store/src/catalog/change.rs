//! Tables of which some rows are others, or gone: a version with other row groups in the place of those that had them.

use super::merge;
use super::{Catalog, Expected, Tapped};
use farpool_columns::{RowGroup, Table, TableBuilder};
use farpool_model::{Result, TableInfo, TableName, TenantName, Version};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Catalog {
    /// Makes a version of a table with these row groups in the places that they have in `base`, which is its version
    /// `version`; where there is none instead, the row group goes.
    ///
    /// # Errors
    /// `NotFound`; `Stale` when the table is at another version by now; `OverLimit` when memory is short.
    pub fn replace_row_groups(
        self: &Arc<Self>,
        tenant: &TenantName,
        name: &TableName,
        (version, base): (Version, &Table),
        mut groups: BTreeMap<usize, Option<Arc<RowGroup>>>,
    ) -> Result<TableInfo> {
        let mut builder = TableBuilder::new(self.pool.clone(), tenant.clone(), &base.schema, None)?;
        for (place, group) in base.row_groups.iter().enumerate() {
            if let Some(group) = groups.remove(&place).unwrap_or_else(|| Some(group.clone())) {
                builder.add_row_group(group)?;
            }
        }
        let encoder = builder.encoder();
        let table = self.holding(tenant, builder.finish()?)?;
        // Row groups that have become small are merged again with small ones beside them.
        let settled = merge::settled(&table, 0);
        let tapped = (!self.taps_closed.load(Ordering::Relaxed)).then(|| {
            let tap = self.tap(tenant, &table.schema);
            table.row_groups.iter().take(settled).for_each(|group| tap.add(group.clone()));
            Tapped { tap, before: None, encoder }
        });
        self.put(tenant, name, (table, settled), tapped, Expected::Version(version))
    }
}
