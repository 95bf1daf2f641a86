//! Changes of a catalog as plain data: what a record of the log says, and what the catalog applies (`apply.rs`).
//!
//! A change says what is different, not how it came about: which row groups take the place of which rows, which columns
//! a table has from now on, which row groups have become one. It is the same whether a client asks for it, a start
//! finds its record, or a record comes from another node. What a node does by itself and for itself is no change:
//! checkpoints, compaction, profiles, caches, and the counts of how often chunks were read.
//!
//! Example: rows 20 to 29 of `t` are deleted, and the table had row groups of rows 0-19 and 20-39. The change is one
//! splice at row 20 that replaces 20 rows by a row group of the other 10.

use farpool_columns::{RowGroup, Table};
use farpool_disk::TableKey;
use farpool_model::{LoadId, LoadedVersion, SchemaName, TableName, TenantName, Version, View};
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// Form in which a change has row groups and new tables.
pub(crate) trait Form: Debug {
    type Group: Clone + Debug;
    type Table: Clone + Debug;
}

/// The form of changes of a catalog whose tables are in memory.
#[derive(Clone, Debug)]
pub(crate) struct InMemory;

impl Form for InMemory {
    type Group = Arc<RowGroup>;
    type Table = NewTable;
}

/// A table that is created, or replaces another one.
#[derive(Clone, Debug)]
pub(crate) struct NewTable {
    pub table: Arc<Table>,
    /// Key of the table in segments; `None` without an encrypted data directory.
    pub key: Option<Arc<TableKey>>,
    /// Whether the values stay in memory.
    pub is_pinned: bool,
}

/// A change of a tenant's tables, views or schemas.
#[derive(Clone, Debug)]
pub(crate) struct Change<F: Form = InMemory> {
    pub tenant: TenantName,
    /// Ids of the loads that made the change.
    pub loads: Vec<LoadId>,
    /// Size of the table after the change.
    pub size: TableSize,
    pub kind: ChangeKind<F>,
}

/// Size of a table, as the outcome of a load reports it, and its numbers of distinct values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableSize {
    pub rows: u64,
    pub bytes_plain: u64,
    pub bytes_encoded: u64,
    /// Number of distinct values of each column, where known (an estimate for encrypted tables); may be empty.
    pub distinct: Vec<Option<u64>>,
}

#[derive(Clone, Debug)]
pub(crate) enum ChangeKind<F: Form = InMemory> {
    /// A table is created or replaced.
    Put {
        name: TableName,
        table: F::Table,
    },
    /// Rows of a table are replaced, removed or appended.
    Rows {
        name: TableName,
        /// Disjoint, ordered by row.
        splices: Vec<Splice<F::Group>>,
    },
    /// Columns of a table change, or its name.
    Columns {
        name: TableName,
        new_name: TableName,
        schema: arrow_schema::SchemaRef,
        /// For each new column the index of the old one, or `None` for a column of NULLs.
        from: Vec<Option<usize>>,
    },
    /// Adjacent row groups have become one; rows and version stay.
    Merged {
        name: TableName,
        first_row: u64,
        rows: u64,
        /// The row group; `None` if whoever applies the change has to make it.
        merged: Option<F::Group>,
    },
    Drop(TableName),
    PutView(View),
    DropView(TableName),
    PutSchema(SchemaName),
    /// A schema is dropped, with all tables and views in it.
    DropSchema(SchemaName),
}

/// Row groups that replace a range of rows. The range begins and ends where row groups do.
#[derive(Clone, Debug)]
pub(crate) struct Splice<G> {
    pub first_row: u64,
    pub rows: u64,
    pub groups: Vec<G>,
}

impl<F: Form> Change<F> {
    pub fn new(tenant: &TenantName, kind: ChangeKind<F>) -> Change<F> {
        Change { tenant: tenant.clone(), loads: Vec::new(), size: TableSize::default(), kind }
    }

    /// Returns whether the change makes a version of a table.
    pub fn makes_version(&self) -> bool {
        matches!(self.kind, ChangeKind::Put { .. } | ChangeKind::Rows { .. } | ChangeKind::Columns { .. })
    }

    /// Returns whether space is freed once the change is durable, so that it is accepted on a full disk.
    pub fn frees_space(&self) -> bool {
        matches!(self.kind, ChangeKind::Drop(_) | ChangeKind::DropView(_) | ChangeKind::DropSchema(_))
    }

    /// Returns the entries by which the loads that made `version` are remembered.
    pub fn loaded(&self, version: Version) -> Vec<(LoadId, LoadedVersion)> {
        let TableSize { rows, bytes_plain, bytes_encoded, .. } = self.size;
        let made = LoadedVersion { version, rows, bytes_plain, bytes_encoded };
        self.loads.iter().map(|load| (*load, made)).collect()
    }
}

impl TableSize {
    pub fn of(table: &Table) -> TableSize {
        let Table { rows, bytes_plain, bytes_encoded, .. } = *table;
        let distinct =
            table.statistics.iter().map(|column| column.distinct_count.or(column.distinct_estimate));
        TableSize { rows, bytes_plain, bytes_encoded, distinct: distinct.collect() }
    }
}

/// Returns the range of positions of the row groups that each splice replaces, in a table whose `len` row groups have
/// `rows_of` rows each, `rows` together. `None` if a splice does not begin and end where row groups do.
///
/// Example: of row groups of 10, 20 and 5 rows, a splice of 20 rows at row 10 replaces the range 1..2, and one of none
/// at row 35 the range 3..3: it appends. A splice at row 15 has no range.
pub(crate) fn replaced_ranges<G>(
    (len, rows): (usize, u64),
    mut rows_of: impl Iterator<Item = u64>,
    splices: &[Splice<G>],
) -> Option<Vec<Range<usize>>> {
    let (mut place, mut row) = (0, 0);
    let mut skip_to = |to: u64| {
        while row < to {
            row += rows_of.next()?;
            place += 1;
        }
        (row == to).then_some(place)
    };
    let range = |splice: &Splice<G>| {
        // Appends, which are most changes, look at no row group.
        if splice.first_row == rows && splice.rows == 0 {
            return Some(len..len);
        }
        let first = skip_to(splice.first_row)?;
        Some(first..skip_to(splice.first_row.checked_add(splice.rows)?)?)
    };
    splices.iter().map(range).collect()
}

/// Returns whether the splices only append rows to a table of `rows` rows.
pub(crate) fn is_append<G>(rows: u64, splices: &[Splice<G>]) -> bool {
    !splices.is_empty() && splices.iter().all(|splice| splice.first_row == rows && splice.rows == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splice(first_row: u64, rows: u64) -> Splice<()> {
        Splice { first_row, rows, groups: Vec::new() }
    }

    #[test]
    fn splices_begin_and_end_where_row_groups_do() {
        let ranges = |splices: &[Splice<()>]| replaced_ranges((3, 35), [10, 20, 5].into_iter(), splices);
        assert_eq!(ranges(&[splice(10, 20), splice(35, 0)]), Some(vec![1..2, 3..3]));
        assert_eq!(ranges(&[splice(0, 0), splice(0, 10), splice(30, 5)]), Some(vec![0..0, 0..1, 2..3]));
        for wrong in [splice(15, 15), splice(10, 5), splice(36, 0), splice(30, 6), splice(10, u64::MAX)] {
            assert_eq!(ranges(std::slice::from_ref(&wrong)), None, "{wrong:?}");
        }
        assert_eq!(ranges(&[splice(10, 20), splice(0, 10)]), None, "not in order");
    }
}
