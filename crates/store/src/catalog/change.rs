//! Tables of which some rows are others, or gone: a version with other row groups in the place of those that had them.

use super::merge;
use super::{Catalog, Expected};
use farpool_columns::{Encoder, RowGroup, Table, TableBuilder};
use farpool_model::{Error, Result, TableInfo, TableName, TenantName, Version};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Row groups by their places in a table; `None` where no row is left.
type RowGroupsAt = BTreeMap<usize, Option<Arc<RowGroup>>>;

impl Catalog {
    /// Makes a version of a table with these row groups in the places that they have in `base`, which is its version
    /// `version`; where there is none instead, the row group goes. Rows that have come behind those of `base` since stay
    /// as they are: the change comes before them (snapshot isolation, Berenson et al., *A Critique of ANSI SQL Isolation
    /// Levels*, SIGMOD 1995).
    ///
    /// # Errors
    /// `NotFound`; `Stale` when other rows than those behind `base` have changed since; `OverLimit` when memory is short.
    pub fn replace_row_groups(
        self: &Arc<Self>,
        tenant: &TenantName,
        name: &TableName,
        (version, base): (Version, &Table),
        groups: &RowGroupsAt,
    ) -> Result<TableInfo> {
        let line = self.current(tenant, name)?.line;
        let _held = line.hold();
        // As often as a merge is faster.
        loop {
            let current = self.current(tenant, name)?;
            if version < current.since {
                self.tenants.read().check(tenant, name, Expected::Version(version))?;
            }
            let table = self.replaced(tenant, base, groups, &current.table)?;
            let table = self.holding(tenant, table)?;
            // Row groups that have become small are merged again with small ones beside them.
            let settled = merge::settled(&table, 0);
            if let Some(info) = self.put_instead(tenant, (name, name), &current, (table, settled))? {
                return Ok(info);
            }
        }
    }

    /// `newest`, which has the rows of `base` and perhaps others behind them, with `groups` in their places in `base`.
    fn replaced(
        self: &Arc<Self>,
        tenant: &TenantName,
        base: &Table,
        groups: &RowGroupsAt,
        newest: &Table,
    ) -> Result<Table> {
        let mut builder = TableBuilder::new(self.pool.clone(), tenant.clone(), &newest.schema, None)?;
        let mut end = 0;
        for group in &newest.row_groups {
            // Those of the base that it is, or was merged of.
            let (first, mut rows) = (end, 0);
            while rows < group.rows && end < base.row_groups.len() {
                rows += base.row_groups[end].rows;
                end += 1;
            }
            if groups.range(first..end).next().is_none() {
                builder.add_row_group(group.clone())?;
                continue;
            }
            for place in first..end {
                let old = || Some(base.row_groups[place].clone());
                if let Some(group) = groups.get(&place).cloned().unwrap_or_else(old) {
                    builder.add_row_group(group)?;
                }
            }
            if rows > group.rows {
                return Err(Error::internal("a row group ends within one of the version before"));
            }
            if rows < group.rows {
                let behind = self.without_first(tenant, &builder.encoder(), group, rows)?;
                builder.add_row_group(Arc::new(behind))?;
            }
        }
        builder.finish()
    }

    /// The rows of `group` behind its first ones, which were merged with these.
    fn without_first(
        &self,
        tenant: &TenantName,
        encoder: &Encoder,
        group: &RowGroup,
        rows: usize,
    ) -> Result<RowGroup> {
        // All columns encoded, and one of them decoded, perhaps twice.
        let mut memory = self.outside(tenant);
        if let Some(memory) = &mut memory {
            let decoded = group.chunks.iter().map(|chunk| chunk.bytes_plain()).max().unwrap_or(0);
            memory.try_grow(group.bytes_encoded() + 2 * decoded)?;
        }
        encoder.without_first(group, rows)
    }
}
