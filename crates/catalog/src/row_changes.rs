//! Updates and deletions of rows: a new table version in which other row groups replace those that had the rows.

use super::changes::{Change, ChangeKind, Splice};
use super::state::Expected;
use super::{Catalog, Commit};
use farpool_columns::{Encoder, RowGroup, Table};
use farpool_model::cast::u64_from;
use farpool_model::{Error, LoadId, Result, TableInfo, TableName, TenantName, Version};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Replacements of row groups, by their index in the table; `None` for a row group without remaining rows.
type RowGroupsAt = BTreeMap<usize, Option<Arc<RowGroup>>>;

impl Catalog {
    /// Creates a version of a table in which `groups` replace the row groups with the same indexes in `base`, its
    /// version `version`; `None` removes a row group. `load` is the id of the change. Rows that were appended since
    /// `version` stay as they are, because the change is ordered before them (snapshot isolation, Berenson et al., *A
    /// Critique of ANSI SQL Isolation Levels*, SIGMOD 1995).
    ///
    /// # Errors
    /// `NotFound`; `Stale` if a change other than appends was made since; `OverLimit` if memory is short.
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
        // Repeats if a merge has swapped the table in the meantime.
        loop {
            let current = self.newest(tenant, name)?;
            if version < current.since {
                self.state.read().check(tenant, name, Expected::Version(version))?;
            }
            let splices = self.splices(tenant, base, groups, &current.table)?;
            let kind = ChangeKind::Rows { name: name.clone(), splices };
            let change = Change { loads: load.into_iter().collect(), ..Change::new(tenant, kind) };
            let planned = self.plan(change, Some(&current), None)?;
            if let Some(made) = self.make(planned, |_| Ok(true))? {
                return made.announced();
            }
        }
    }

    /// Returns the splices that replace row groups of `newest` by `groups`, whose indexes are those of `base`. `newest`
    /// has the rows of `base` and perhaps appended ones.
    fn splices(
        self: &Arc<Self>,
        tenant: &TenantName,
        base: &Table,
        groups: &RowGroupsAt,
        newest: &Table,
    ) -> Result<Vec<Splice<Arc<RowGroup>>>> {
        let encoder = Encoder::new(self.pool.clone(), tenant.clone(), newest.schema.clone());
        let encoder = encoder.encrypting(newest.cipher());
        let mut splices: Vec<Splice<_>> = Vec::new();
        let (mut end, mut row) = (0, 0);
        for group in &newest.row_groups {
            // Range of row groups of `base` that this row group of `newest` is, or was merged from.
            let (first, mut rows) = (end, 0);
            while rows < group.rows && end < base.row_groups.len() {
                rows += base.row_groups[end].rows;
                end += 1;
            }
            let first_row = row;
            row += u64_from(group.rows);
            if groups.range(first..end).next().is_none() {
                continue;
            }
            if rows > group.rows {
                return Err(Error::internal("a row group ends within one of the version before"));
            }
            let mut instead = Vec::new();
            for place in first..end {
                match groups.get(&place) {
                    Some(None) => {}
                    Some(Some(group)) => {
                        let RowGroup { rows, chunks } = &**group;
                        let group = RowGroup { rows: *rows, chunks: chunks.clone() };
                        instead.push(Arc::new(self.with_handles(tenant, group)));
                    }
                    None => instead.push(base.row_groups[place].clone()),
                }
            }
            if rows < group.rows {
                instead.push(Arc::new(self.without_first(tenant, &encoder, group, rows)?));
            }
            match splices.last_mut().filter(|last| last.first_row + last.rows == first_row) {
                Some(last) => {
                    last.rows += u64_from(group.rows);
                    last.groups.append(&mut instead);
                }
                None => splices.push(Splice { first_row, rows: u64_from(group.rows), groups: instead }),
            }
        }
        Ok(splices)
    }

    /// Returns `group` without its first rows, which are those of the base; the others were appended and merged with
    /// them.
    fn without_first(
        &self,
        tenant: &TenantName,
        encoder: &Encoder,
        group: &RowGroup,
        rows: usize,
    ) -> Result<RowGroup> {
        // Memory for all encoded columns, plus one decoded column, perhaps twice.
        let mut memory = self.outside(tenant);
        if let Some(memory) = &mut memory {
            let decoded = group.chunks.iter().map(|chunk| chunk.bytes_plain()).max().unwrap_or(0);
            memory.try_grow(group.bytes_encoded() + 2 * decoded)?;
        }
        // Blocks on the disk, which is acceptable because this case is rare.
        let filled = group.read_values()?;
        encoder.without_first(filled.as_ref().unwrap_or(group), rows)
    }
}
