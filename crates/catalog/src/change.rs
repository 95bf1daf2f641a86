//! Changes and deletions of rows: a new version in which other row groups replace those that held the rows.

use super::merge;
use super::state::Expected;
use super::{Catalog, Commit};
use farpool_columns::{Encoder, RowGroup, Table, TableBuilder};
use farpool_model::{Error, LoadId, Result, TableInfo, TableName, TenantName, Version};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Replacements by position of the row group in the table; `None` where no row is left.
type RowGroupsAt = BTreeMap<usize, Option<Arc<RowGroup>>>;

impl Catalog {
    /// Makes a version of a table, for the change with the id `load`, in which `groups` take the place of the row
    /// groups at the same positions in `base`, its version `version`; `None` removes a row group. Rows that were
    /// appended since stay as they are: the change is ordered before them (snapshot isolation, Berenson et al., *A
    /// Critique of ANSI SQL Isolation Levels*, SIGMOD 1995).
    ///
    /// # Errors
    /// `NotFound`; `Stale` when a change other than appends was made since; `OverLimit` when memory is short.
    pub fn replace_row_groups(
        self: &Arc<Self>,
        tenant: &TenantName,
        name: &TableName,
        (version, base): (Version, &Table),
        groups: &RowGroupsAt,
        load: Option<LoadId>,
    ) -> Result<Commit<TableInfo>> {
        let append_queue = self.newest(tenant, name)?.append_queue;
        let _held = append_queue.hold();
        // Repeats when a merge has swapped the table first.
        loop {
            let current = self.newest(tenant, name)?;
            if version < current.since {
                self.state.read().check(tenant, name, Expected::Version(version))?;
            }
            let table = self.replaced(tenant, base, groups, &current.table)?;
            let table = self.holding(tenant, table)?;
            // Row groups that have become small are merged again with small neighbours.
            let settled = merge::settled(&table, 0);
            let made = self.put_instead(tenant, (name, name), &current, (table, settled), None, load)?;
            if let Some(made) = made {
                return Ok(made);
            }
        }
    }

    /// Returns `newest`, which has the rows of `base` and perhaps appended ones, with `groups` at their
    /// positions in `base`.
    fn replaced(
        self: &Arc<Self>,
        tenant: &TenantName,
        base: &Table,
        groups: &RowGroupsAt,
        newest: &Table,
    ) -> Result<Table> {
        let builder = TableBuilder::new(self.pool.clone(), tenant.clone(), &newest.schema, None)?;
        let mut builder = builder.encrypting(newest.cipher());
        let mut end = 0;
        for group in &newest.row_groups {
            // The range of base row groups that this one is, or was merged from.
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
                match groups.get(&place) {
                    Some(None) => {}
                    Some(Some(group)) => {
                        let RowGroup { rows, chunks } = &**group;
                        let group = RowGroup { rows: *rows, chunks: chunks.clone() };
                        builder.add_row_group(Arc::new(self.with_handles(tenant, group)))?;
                    }
                    None => builder.add_row_group(base.row_groups[place].clone())?,
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

    /// Returns `group` without its first rows, which come from the base: the rest was appended and merged
    /// with them.
    fn without_first(
        &self,
        tenant: &TenantName,
        encoder: &Encoder,
        group: &RowGroup,
        rows: usize,
    ) -> Result<RowGroup> {
        // All columns encoded, plus one column decoded, perhaps twice.
        let mut memory = self.outside(tenant);
        if let Some(memory) = &mut memory {
            let decoded = group.chunks.iter().map(|chunk| chunk.bytes_plain()).max().unwrap_or(0);
            memory.try_grow(group.bytes_encoded() + 2 * decoded)?;
        }
        // Rare enough to wait for a disk here.
        let filled = group.read_values()?;
        encoder.without_first(filled.as_ref().unwrap_or(group), rows)
    }
}
