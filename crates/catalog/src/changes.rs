//! Changes of a catalog as plain data: the content of a log record, and the input of `apply.rs`, which applies
//! them.
//!
//! A change says what is different, not why: which row groups replace which rows, which columns a table has from now
//! on, which row groups were merged. It has the same form whether a client requests it, recovery reads its record, or
//! a record comes from another node. Actions of one node only are not changes: checkpoints, compaction, profiles,
//! caches, and counts of how often chunks were read.
//!
//! Example: rows 20 to 29 of `t` are deleted, and the table had row groups of rows 0-19 and 20-39. The change is one
//! splice at row 20 that replaces 20 rows by a row group of the other 10.

use farpool_columns::{RowGroup, Table};
use farpool_disk::TableKey;
use farpool_model::{LoadId, LoadedVersion, SchemaName, TableName, TenantName, Version, View};
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// The representation of row groups and new tables in a change: in memory, or as ids during recovery.
pub(crate) trait Form: Debug {
    type Group: Clone + Debug;
    type Table: Clone + Debug;
}

/// The representation with row groups and tables in memory.
#[derive(Clone, Debug)]
pub(crate) struct InMemory;

impl Form for InMemory {
    type Group = Arc<RowGroup>;
    type Table = NewTable;
}

/// A table that is created, or that replaces another one.
#[derive(Clone, Debug)]
pub(crate) struct NewTable {
    pub table: Arc<Table>,
    /// Encryption key of the table's data in segments; `None` without an encrypted data directory.
    pub key: Option<Arc<TableKey>>,
    /// Whether the table is pinned: its values are never evicted from memory.
    pub is_pinned: bool,
}

/// A change of a tenant's tables, views or schemas.
#[derive(Clone, Debug)]
pub(crate) struct Change<F: Form = InMemory> {
    pub tenant: TenantName,
    /// Ids of the loads whose rows the change adds.
    pub loads: Vec<LoadId>,
    /// Size of the table after the change.
    pub size: TableSize,
    pub kind: ChangeKind<F>,
}

/// Size of a table, as the outcome of a load reports it, and the numbers of distinct values of its columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableSize {
    pub rows: u64,
    pub bytes_plain: u64,
    pub bytes_encoded: u64,
    /// Number of distinct values of each column, if known (an estimate for encrypted tables); may be empty.
    pub distinct: Vec<Option<u64>>,
}

#[derive(Clone, Debug)]
pub(crate) enum ChangeKind<F: Form = InMemory> {
    /// Creates or replaces a table.
    Put {
        name: TableName,
        table: F::Table,
    },
    /// Replaces, removes or appends rows of a table.
    Rows {
        name: TableName,
        /// The replaced ranges; disjoint, and ordered by row.
        splices: Vec<Splice<F::Group>>,
    },
    /// Changes the columns or the name of a table.
    Columns {
        name: TableName,
        new_name: TableName,
        schema: arrow_schema::SchemaRef,
        /// For each new column the index of the same column before; `None` for a column of NULLs.
        from: Vec<Option<usize>>,
    },
    /// Merges adjacent row groups into one; rows and version stay the same.
    Merged {
        name: TableName,
        first_row: u64,
        rows: u64,
        /// The merged row group; `None` if the node that applies the change has to merge.
        merged: Option<F::Group>,
    },
    Drop(TableName),
    PutView(View),
    DropView(TableName),
    PutSchema(SchemaName),
    /// Drops a schema, with all tables and views in it.
    DropSchema(SchemaName),
}

/// Row groups that replace a range of rows. The range begins and ends at row group boundaries.
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

    /// Returns whether the change creates a table version.
    pub fn makes_version(&self) -> bool {
        matches!(self.kind, ChangeKind::Put { .. } | ChangeKind::Rows { .. } | ChangeKind::Columns { .. })
    }

    /// Returns whether the change frees disk space when it is durable, so that it is accepted on a full disk.
    pub fn frees_space(&self) -> bool {
        matches!(self.kind, ChangeKind::Drop(_) | ChangeKind::DropView(_) | ChangeKind::DropSchema(_))
    }

    /// Returns the outcomes to remember for the loads that created `version`.
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

/// Returns for each splice the range of indexes of the row groups that it replaces, in a table whose `len` row groups
/// have `rows_of` rows each and `rows` in total. Returns `None` if a splice does not begin and end at row group
/// boundaries.
///
/// Example: of row groups of 10, 20 and 5 rows, a splice of 20 rows at row 10 replaces the range 1..2; a splice of 0
/// rows at row 35 replaces the range 3..3, which means that it appends. A splice at row 15 has no range.
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
        // Appends, which are most changes, are handled without visiting row groups.
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
