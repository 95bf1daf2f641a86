//! Tables, their statistics, and the encoding of one row group.

use crate::arena::Arena;
use crate::chunk::{Chunk, RowGroup};
use crate::distinct::Distinct;
use crate::plain::{PlainGroup, concatenate};
use crate::row_groups::RowGroups;
use crate::sums::Sums;
use arrow_array::{Array, ArrayRef, new_null_array};
use arrow_schema::{DataType, FieldRef, Fields, Schema, SchemaRef};
use bytes::Bytes;
use farpool_memory::{Pool, Reservation};
use farpool_model::cast::u64_from;
use farpool_model::{ColumnStatistics, Error, Result, TenantName};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// A table in the pool. Immutable: an append makes another one, which shares the row groups of the first and costs in
/// proportion to what it adds.
#[derive(Debug)]
pub struct Table {
    /// The canonical schema.
    pub schema: SchemaRef,
    /// The rows, in the order in which they were added.
    pub row_groups: RowGroups,
    /// Statistics, a column each.
    pub statistics: Vec<ColumnStatistics>,
    /// Rows.
    pub rows: u64,
    /// Bytes of the data as plain Arrow arrays.
    pub bytes_plain: u64,
    /// Bytes of the encoded chunks.
    pub bytes_encoded: u64,
    /// Bytes that the table takes outside the pool: headers and bounds of its chunks, and the distinct values that
    /// are kept. Versions of a table share most of them.
    pub bytes_outside_pool: u64,
    /// For each column the most bytes that one row group has, or had before it was merged, of it as a plain Arrow
    /// array.
    pub bytes_plain_most: Vec<usize>,
    /// For what it takes outside the pool.
    held: Option<Reservation>,
    /// The sums over the row groups, to go on with in an append.
    pub(crate) sums: Sums,
    /// What is needed to go on counting distinct values in an append.
    pub(crate) distinct: Vec<Distinct>,
}

impl Table {
    pub(crate) fn new(
        schema: SchemaRef,
        row_groups: RowGroups,
        sums: Sums,
        distinct: Vec<Distinct>,
    ) -> Table {
        let distinct_bytes: u64 = distinct.iter().map(|distinct| u64_from(distinct.bytes())).sum();
        Table {
            rows: sums.rows,
            bytes_plain: sums.bytes_plain,
            bytes_encoded: sums.columns.iter().map(|column| column.bytes_encoded).sum(),
            bytes_outside_pool: sums.bytes_outside_pool + distinct_bytes,
            bytes_plain_most: sums.columns.iter().map(|column| column.bytes_plain_most).collect(),
            statistics: sums
                .columns
                .iter()
                .zip(&distinct)
                .map(|(sums, distinct)| sums.statistics(distinct))
                .collect(),
            held: None,
            schema,
            row_groups,
            sums,
            distinct,
        }
    }

    /// The same rows with `merged` in the place of the `count` row groups from `first` on, whose rows it has in their
    /// order. `None` where the table does not have these.
    pub fn with_merged(&self, first: usize, old: &[Arc<RowGroup>], merged: Arc<RowGroup>) -> Option<Table> {
        let end = first + old.len();
        let is_here = |(place, group): (usize, &Arc<RowGroup>)| {
            self.row_groups.get(place).is_some_and(|here| Arc::ptr_eq(here, group))
        };
        if !(first..end).zip(old).all(is_here) {
            return None;
        }
        let mut sums = self.sums.clone();
        old.iter().for_each(|group| sums.remove(group));
        sums.add_again(&merged);
        let behind: Vec<Arc<RowGroup>> = self.row_groups.from(end).cloned().collect();
        let mut row_groups = self.row_groups.clone();
        row_groups.truncate(first);
        row_groups.push(merged);
        behind.into_iter().for_each(|group| row_groups.push(group));
        Some(Table::new(self.schema.clone(), row_groups, sums, self.distinct.clone()))
    }

    /// The same rows with other columns: for each of `schema` the old one at the place that `columns` gives, or NULLs.
    /// Old chunks stay where they are; what is new goes to the pages of `tenant`.
    ///
    /// # Errors
    /// `Invalid` when there is no such old column; `OverLimit` when memory is short.
    pub fn with_columns(
        &self,
        schema: SchemaRef,
        columns: &[Option<usize>],
        pool: &Arc<Pool>,
        tenant: &TenantName,
    ) -> Result<Table> {
        if columns.iter().flatten().any(|column| *column >= self.schema.fields().len()) {
            return Err(Error::invalid("a column is taken over that is not there"));
        }
        let is_new = |(_, old): &(&FieldRef, &Option<usize>)| old.is_none();
        let new: Fields =
            schema.fields().iter().zip(columns).filter(is_new).map(|(field, _)| field.clone()).collect();
        let nulls = Encoder::new(pool.clone(), tenant.clone(), Arc::new(Schema::new(new)));
        // Row groups of as many rows, which most are, share their NULLs.
        let mut made: BTreeMap<usize, Vec<Arc<Chunk>>> = BTreeMap::new();
        let mut row_groups = RowGroups::default();
        let mut sums = self.sums.with_columns(columns);
        for group in self.row_groups.iter() {
            let new = match made.entry(group.rows) {
                Entry::Occupied(new) => new.into_mut(),
                Entry::Vacant(place) => place.insert(nulls.nulls(group.rows)?),
            };
            let mut new = new.iter();
            let chunk = |old: &Option<usize>| match old {
                Some(old) => Some(group.chunks[*old].clone()),
                None => new.next().cloned(),
            };
            let chunks = columns.iter().filter_map(chunk).collect();
            let group = Arc::new(RowGroup { rows: group.rows, chunks });
            sums.add_again(&group);
            row_groups.push(group);
        }
        let old = |old: &Option<usize>| old.map_or_else(Distinct::default, |old| self.distinct[old].clone());
        Ok(Table::new(schema, row_groups, sums, columns.iter().map(old).collect()))
    }

    /// The same table, which holds `reservation` for as long as it lives: that of [`Table::bytes_outside_pool`].
    #[must_use]
    pub fn holding(mut self, reservation: Reservation) -> Table {
        self.held = Some(reservation);
        self
    }
}

/// Encodes row groups of one table. Clones work for the same table, and several
/// threads may use them at once.
#[derive(Clone, Debug)]
pub struct Encoder {
    schema: SchemaRef,
    arena: Arc<Arena>,
}

impl Encoder {
    /// For row groups of a table of `tenant` with this schema, which is canonical.
    pub fn new(pool: Arc<Pool>, tenant: TenantName, schema: SchemaRef) -> Encoder {
        Encoder { schema, arena: Arc::new(Arena::new(pool, tenant)) }
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Encodes a row group.
    ///
    /// # Errors
    /// `Invalid` when the columns are not those of the schema; `OverLimit` when there are more than
    /// [`farpool_model::limits::ROW_GROUP_ROWS`] rows, strings are too long, or memory is short.
    pub fn encode(&self, group: &PlainGroup) -> Result<RowGroup> {
        let chunks = (0..group.columns_count()).map(|column| self.encode_column(group, column));
        let chunks = chunks.collect::<Result<Vec<_>>>()?;
        self.place(group.rows(), chunks)
    }

    /// Encodes one column of a row group into memory outside the pool.
    ///
    /// # Errors
    /// As [`Encoder::encode`], but for the memory of the pool.
    pub fn encode_column(&self, group: &PlainGroup, column: usize) -> Result<Chunk> {
        let Some(values) = group.column(column) else {
            let columns = group.columns_count();
            return Err(Error::invalid(format!("no column {column} in a row group of {columns}")));
        };
        self.encode_values(column, &values, group.rows())
    }

    /// Encodes values of the column at this place, of which there are to be `rows`.
    pub(crate) fn encode_values(&self, column: usize, values: &ArrayRef, rows: usize) -> Result<Chunk> {
        let fields = self.schema.fields();
        let Some(field) = fields.get(column) else {
            let message = format!("no column {column} in row groups of {} columns", fields.len());
            return Err(Error::invalid(message));
        };
        check_column(field.data_type(), values, rows).map_err(|error| error.at(field.name()))?;
        crate::encode::encode(values).map_err(|error| error.at(field.name()))
    }

    /// A row group's chunks of nothing but NULLs.
    fn nulls(&self, rows: usize) -> Result<Vec<Arc<Chunk>>> {
        let encode = |field: &FieldRef| crate::encode::encode(&new_null_array(field.data_type(), rows));
        let chunks = self.schema.fields().iter().map(encode).collect::<Result<Vec<_>>>()?;
        if chunks.is_empty() { Ok(Vec::new()) } else { self.arena.place(chunks) }
    }

    /// Moves the encoded columns of a row group, all of them and in their order, to the pool.
    ///
    /// # Errors
    /// `Invalid` when the columns are not those of the schema; `OverLimit` when memory is short.
    pub fn place(&self, rows: usize, chunks: Vec<Chunk>) -> Result<RowGroup> {
        let columns = self.schema.fields().len();
        if chunks.len() != columns {
            return Err(Error::invalid(format!("a row group of {} columns needs {columns}", chunks.len())));
        }
        Ok(RowGroup { rows, chunks: self.arena.place(chunks)? })
    }

    /// Encodes one column of the rows of several row groups of the table, in their order, into memory outside the pool.
    ///
    /// # Errors
    /// As [`Encoder::encode_column`].
    pub fn merge_column(&self, groups: &[Arc<RowGroup>], column: usize) -> Result<Chunk> {
        let decode = |group: &Arc<RowGroup>| match group.chunks.get(column) {
            Some(chunk) => chunk.decode(0..group.rows),
            None => {
                Err(Error::invalid(format!("no column {column} in a row group of {}", group.chunks.len())))
            }
        };
        let pieces = groups.iter().map(decode).collect::<Result<Vec<_>>>()?;
        let values = concatenate(&pieces);
        crate::encode::encode(&values)
    }

    /// Puts bytes that belong to the table beside its chunks, to count and to be freed with them.
    ///
    /// # Errors
    /// `OverLimit` when memory is short.
    pub fn keep(&self, pieces: &[Vec<u8>]) -> Result<Vec<Bytes>> {
        self.arena.keep(pieces)
    }
}

fn check_column(data_type: &DataType, column: &ArrayRef, rows: usize) -> Result<()> {
    if column.data_type() != data_type {
        return Err(Error::invalid(format!("type {} where {data_type} is held", column.data_type())));
    }
    if column.len() != rows {
        return Err(Error::invalid(format!("{} rows where other columns have {rows}", column.len())));
    }
    Ok(())
}

/// Encodes one row group.
///
/// # Errors
/// As [`Encoder::encode`].
pub fn encode_row_group(
    pool: &Arc<Pool>,
    tenant: &TenantName,
    schema: &SchemaRef,
    columns: &[ArrayRef],
) -> Result<RowGroup> {
    Encoder::new(Arc::clone(pool), tenant.clone(), Arc::clone(schema)).encode(&PlainGroup::of(columns))
}
