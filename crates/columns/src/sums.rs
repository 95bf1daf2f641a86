//! Sums over the row groups of a table (rows, bytes, NULLs, minimum and maximum per column), updated by one row group
//! at a time, so that the cost of a new version is proportional to the row groups that are added.
//!
//! Minimum and maximum never become narrower, because a row group is removed only when another one with the same rows
//! is added.

use crate::chunk::{Chunk, RowGroup};
use crate::distinct::Distinct;
use farpool_model::cast::u64_from;
use farpool_model::{ColumnStatistics, Literal, Value};
use std::cmp::Ordering;

/// Sums over the row groups of a table; see the comment of this file.
#[derive(Clone, Debug)]
pub(crate) struct Sums {
    pub rows: u64,
    pub bytes_plain: u64,
    pub bytes_outside_pool: u64,
    pub columns: Vec<ColumnSums>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ColumnSums {
    null_count: u64,
    min: Bound,
    max: Bound,
    pub bytes_encoded: u64,
    pub bytes_plain_most: usize,
}

/// Minimum or maximum of a column, from those of its chunks.
#[derive(Clone, Debug, Default)]
enum Bound {
    /// There are no values yet.
    #[default]
    None,
    Known(Literal),
    /// A chunk with values has no known minimum or maximum.
    Unknown,
}

impl Sums {
    /// Returns the sums of a table of `columns` columns without rows.
    pub fn new(columns: usize) -> Sums {
        let columns = vec![ColumnSums::default(); columns];
        Sums { rows: 0, bytes_plain: 0, bytes_outside_pool: 0, columns }
    }

    /// Returns the sums for a table with other columns, before its row groups are added again. For each column,
    /// `columns` has the old column whose minimum and maximum are kept.
    pub fn with_columns(&self, columns: &[Option<usize>]) -> Sums {
        let bounds = |old: &Option<usize>| match old {
            Some(old) => ColumnSums {
                min: self.columns[*old].min.clone(),
                max: self.columns[*old].max.clone(),
                bytes_plain_most: self.columns[*old].bytes_plain_most,
                ..ColumnSums::default()
            },
            None => ColumnSums::default(),
        };
        Sums { columns: columns.iter().map(bounds).collect(), ..Sums::new(0) }
    }

    /// Adds a row group.
    pub fn add(&mut self, group: &RowGroup) {
        self.add_again(group);
        for (column, chunk) in self.columns.iter_mut().zip(&group.chunks) {
            column.widen(chunk);
        }
    }

    /// Adds a row group whose rows were in row groups that were removed. Minimum and maximum are not updated, because
    /// they cover these rows already.
    pub fn add_again(&mut self, group: &RowGroup) {
        self.rows += u64_from(group.rows);
        self.bytes_plain += u64_from(group.bytes_plain());
        self.bytes_outside_pool += u64_from(group.bytes_outside_pool());
        for (column, chunk) in self.columns.iter_mut().zip(&group.chunks) {
            column.null_count += u64_from(chunk.null_count());
            column.bytes_encoded += u64_from(chunk.bytes_encoded());
            column.bytes_plain_most = column.bytes_plain_most.max(chunk.bytes_plain());
        }
    }

    /// Removes a row group that was added.
    pub fn remove(&mut self, group: &RowGroup) {
        self.rows -= u64_from(group.rows);
        self.bytes_plain -= u64_from(group.bytes_plain());
        self.bytes_outside_pool -= u64_from(group.bytes_outside_pool());
        for (column, chunk) in self.columns.iter_mut().zip(&group.chunks) {
            column.null_count -= u64_from(chunk.null_count());
            column.bytes_encoded -= u64_from(chunk.bytes_encoded());
        }
    }
}

impl ColumnSums {
    fn widen(&mut self, chunk: &Chunk) {
        if chunk.null_count() < chunk.rows() {
            // The sums are stored in the clear, so that the encrypted minimum and maximum of a chunk are not
            // included.
            let zone = chunk.clear_zone();
            self.min.widen(zone.min.as_ref(), Ordering::Less);
            self.max.widen(zone.max.as_ref(), Ordering::Greater);
        }
    }

    pub fn statistics(&self, distinct: &Distinct) -> ColumnStatistics {
        let (min, max) = (self.min.get(), self.max.get());
        let boolean = match (min.map(Literal::value), max.map(Literal::value)) {
            (Some(Value::Bool(min)), Some(Value::Bool(max))) => Some(if min == max { 1 } else { 2 }),
            _ => None,
        };
        ColumnStatistics {
            null_count: self.null_count,
            min: min.cloned(),
            max: max.cloned(),
            distinct_count: boolean.or_else(|| distinct.count()),
            distinct_estimate: distinct.estimate(),
            spread: None,
            bytes_encoded: self.bytes_encoded,
        }
    }
}

impl Bound {
    fn get(&self) -> Option<&Literal> {
        match self {
            Bound::Known(bound) => Some(bound),
            Bound::None | Bound::Unknown => None,
        }
    }

    /// Includes the minimum or maximum of one more chunk with values. It replaces the current bound if comparing it
    /// with that gives `outer`.
    fn widen(&mut self, of_chunk: Option<&Literal>, outer: Ordering) {
        let is_further = |bound: &Literal| of_chunk.is_some_and(|new| new.compare(bound) == Some(outer));
        match (&*self, of_chunk) {
            (Bound::Unknown, _) => {}
            (_, None) => *self = Bound::Unknown,
            (Bound::Known(bound), Some(_)) if !is_further(bound) => {}
            (_, Some(new)) => *self = Bound::Known(new.clone()),
        }
    }
}
