//! Tables, their statistics, and the encoding of row groups.

use crate::arena::Arena;
use crate::chunk::{Chunk, ProcessUniqueId, RowGroup};
use crate::distinct::Distinct;
use crate::live::LiveRows;
use crate::plain::{PlainGroup, concatenate};
use crate::row_groups::RowGroups;
use crate::sums::Sums;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, FieldRef, Fields, Schema, SchemaRef};
use bytes::Bytes;
use farpool_cipher::MemoryCipher;
use farpool_memory::{Pool, Reservation};
use farpool_model::cast::u64_from;
use farpool_model::{ColumnStatistics, Error, Residency, Result, TenantName, Tier};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// One version of a table in the pool. Immutable: an append creates another version, which shares the row groups of
/// this one, so that its cost is proportional to the rows that are added.
#[derive(Debug)]
pub struct Table {
    /// The canonical schema.
    pub schema: SchemaRef,
    /// The rows, in the order in which they were added.
    pub row_groups: RowGroups,
    /// Statistics of each column, in schema order.
    pub statistics: Vec<ColumnStatistics>,
    /// Number of rows.
    pub rows: u64,
    /// Size of the data as plain Arrow arrays, in bytes.
    pub bytes_plain: u64,
    /// Size of the encoded chunks, in bytes.
    pub bytes_encoded: u64,
    /// Bytes that the table takes outside the pool: headers, minimum and maximum of its chunks, and the distinct values
    /// that are counted. Versions of a table share most of them.
    pub bytes_outside_pool: u64,
    /// For each column, the size of its largest chunk as a plain Arrow array, in bytes. Chunks of row groups that were
    /// merged later count as well.
    pub bytes_plain_most: Vec<usize>,
    /// Cipher of the chunks in memory; `None` if they are not encrypted.
    cipher: Option<Arc<MemoryCipher>>,
    /// Source that generates the row groups; `None` if they are stored.
    live: Option<Arc<dyn LiveRows>>,
    number: ProcessUniqueId,
    /// Reservation of the memory that the table takes outside the pool.
    held: Option<Reservation>,
    /// Sums over the row groups, from which an append continues.
    pub(crate) sums: Sums,
    /// Distinct values of each column, which an append continues to count.
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
            cipher: None,
            live: None,
            number: ProcessUniqueId::default(),
            held: None,
            schema,
            row_groups,
            sums,
            distinct,
        }
    }

    /// Returns the id of this version of the table, which no other table or version in this process has.
    pub fn number(&self) -> u64 {
        self.number.get()
    }

    /// Returns the encoded bytes of the chunks whose values are in memory. Visits every chunk.
    pub fn bytes_resident(&self) -> u64 {
        let chunks = self.row_groups.iter().flat_map(|group| &group.chunks);
        chunks.filter(|chunk| !chunk.is_absent()).map(|chunk| u64_from(chunk.bytes_encoded())).sum()
    }

    /// Pins the values of the row groups from index `first` on: they stay in memory once they are there.
    pub fn pin_from(&self, first: usize) {
        let chunks = self.row_groups.from(first).flat_map(|group| &group.chunks);
        chunks.for_each(|chunk| chunk.set_residency(Residency::Pinned));
    }

    /// Returns the table with the row groups `old`, which begin at index `first`, replaced by `merged`, which must have
    /// their rows in the same order. Returns `None` if the table does not have these row groups there.
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
        let table = Table::new(self.schema.clone(), row_groups, sums, self.distinct.clone());
        Some(table.encrypted(self.cipher.clone()))
    }

    /// Returns the same rows with other columns: for each column of `schema`, the old column whose index `columns`
    /// gives, or NULLs. Chunks of old columns are shared; those of new columns are allocated for `tenant`.
    ///
    /// # Errors
    /// `Invalid` when an old column does not exist; `OverLimit` when memory is short.
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
        // Row groups with the same number of rows, as most have, share their chunks of NULLs.
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
        let table = Table::new(schema, row_groups, sums, columns.iter().map(old).collect());
        Ok(table.encrypted(self.cipher.clone()))
    }

    /// Sets the cipher, with which the chunks must be encrypted.
    pub(crate) fn encrypted(self, cipher: Option<Arc<MemoryCipher>>) -> Table {
        Table { cipher, ..self }
    }

    /// Returns the cipher of the chunks in memory; `None` if they are not encrypted.
    pub fn cipher(&self) -> Option<&Arc<MemoryCipher>> {
        self.cipher.as_ref()
    }

    pub(crate) fn with_live_rows(self, rows: Arc<dyn LiveRows>) -> Table {
        Table { live: Some(rows), ..self }
    }

    /// Returns the source that generates the row groups on demand; `None` for a table that stores its row groups.
    pub fn live_rows(&self) -> Option<&Arc<dyn LiveRows>> {
        self.live.as_ref()
    }

    /// Returns the encryption tier of the chunks in memory; `None` if they are not encrypted.
    pub fn tier(&self) -> Option<Tier> {
        self.cipher.as_ref().map(|cipher| cipher.tier())
    }

    /// Gives the table the reservation for [`Table::bytes_outside_pool`], which it keeps as long as it exists.
    #[must_use]
    pub fn holding(mut self, reservation: Reservation) -> Table {
        self.held = Some(reservation);
        self
    }
}

/// Encodes row groups of one table. Clones encode for the same table; several threads may use them at once.
#[derive(Clone, Debug)]
pub struct Encoder {
    schema: SchemaRef,
    arena: Arc<Arena>,
}

impl Encoder {
    /// Creates an encoder for a table of `tenant` with this schema, which must be canonical.
    pub fn new(pool: Arc<Pool>, tenant: TenantName, schema: SchemaRef) -> Encoder {
        Encoder { schema, arena: Arc::new(Arena::new(pool, tenant)) }
    }

    /// Sets the cipher of the table, with which the encoder then encrypts the chunks it places in the pool.
    #[must_use]
    pub fn encrypting(self, cipher: Option<&Arc<MemoryCipher>>) -> Encoder {
        match cipher {
            Some(_) => Encoder { arena: Arc::new(self.arena.encrypting(cipher.cloned())), ..self },
            None => self,
        }
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Encodes a row group and places it in the pool.
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
    /// As [`Encoder::encode`], except for lack of pool memory.
    pub fn encode_column(&self, group: &PlainGroup, column: usize) -> Result<Chunk> {
        let Some(values) = group.column(column) else {
            let columns = group.columns_count();
            return Err(Error::invalid(format!("no column {column} in a row group of {columns}")));
        };
        self.encode_values(column, &values, group.rows())
    }

    /// Encodes `values` for the column at index `column`. There must be `rows` of them.
    pub(crate) fn encode_values(&self, column: usize, values: &ArrayRef, rows: usize) -> Result<Chunk> {
        let fields = self.schema.fields();
        let Some(field) = fields.get(column) else {
            let message = format!("no column {column} in row groups of {} columns", fields.len());
            return Err(Error::invalid(message));
        };
        check_column(field.data_type(), values, rows).map_err(|error| error.at(field.name()))?;
        crate::encode::encode(values).map_err(|error| error.at(field.name()))
    }

    /// Returns the chunks of a row group whose values are all NULL.
    fn nulls(&self, rows: usize) -> Result<Vec<Arc<Chunk>>> {
        let nulls = |field: &FieldRef| Chunk::of_nulls(field.data_type(), rows);
        let chunks = self.schema.fields().iter().map(nulls).collect::<Result<Vec<_>>>()?;
        if chunks.is_empty() { Ok(Vec::new()) } else { self.arena.place(chunks) }
    }

    /// Returns a chunk of `rows` NULLs for the column at index `column`.
    ///
    /// # Errors
    /// `Invalid` when there is no such column.
    pub fn nulls_of(&self, column: usize, rows: usize) -> Result<Chunk> {
        let Some(field) = self.schema.fields().get(column) else {
            return Err(Error::invalid(format!("no column {column}")));
        };
        Chunk::of_nulls(field.data_type(), rows)
    }

    /// Returns the chunks as they will be stored in the pool: encrypted, if the table is encrypted.
    ///
    /// # Errors
    /// `Corrupt` if values are lost.
    pub fn encrypted(&self, chunks: Vec<Chunk>) -> Result<Vec<Chunk>> {
        self.arena.encrypted(chunks)
    }

    /// Moves the encoded columns of a row group to the pool. `chunks` must have all columns, in the order of the
    /// schema.
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

    /// Concatenates one column of several row groups of the table and encodes it into memory outside the pool.
    ///
    /// # Errors
    /// As [`Encoder::encode_column`].
    pub fn merge_column(&self, groups: &[Arc<RowGroup>], column: usize) -> Result<Chunk> {
        let decode = |group: &Arc<RowGroup>| match group.chunks.get(column) {
            Some(chunk) => match chunk.opened() {
                Some(opened) => opened.decode(0..group.rows),
                None => chunk.decode(0..group.rows),
            },
            None => {
                Err(Error::invalid(format!("no column {column} in a row group of {}", group.chunks.len())))
            }
        };
        let pieces = groups.iter().map(decode).collect::<Result<Vec<_>>>()?;
        let values = concatenate(&pieces);
        crate::encode::encode(&values)
    }

    /// Stores bytes that belong to the table in the pool, where they are counted and freed with its chunks.
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

/// Encodes one row group and places it in the pool.
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
