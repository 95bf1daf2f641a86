//! Tables, their statistics, and the encoding of one row group.

use crate::arena::Arena;
use crate::chunk::{Chunk, RowGroup};
use crate::distinct::Distinct;
use crate::plain::PlainGroup;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, SchemaRef};
use bytes::Bytes;
use farpool_memory::{Pool, Reservation};
use farpool_model::cast::u64_from;
use farpool_model::{ColumnStatistics, Error, Literal, Result, TenantName, Value};
use std::cmp::Ordering;
use std::sync::Arc;

/// A table in the pool. Immutable: an append makes another one, which shares the row groups of the first.
#[derive(Debug)]
pub struct Table {
    /// The canonical schema.
    pub schema: SchemaRef,
    /// The rows, in the order in which they were added.
    pub row_groups: Vec<Arc<RowGroup>>,
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
    /// For each column the most bytes that one row group has of it as a plain Arrow array.
    pub bytes_plain_most: Vec<usize>,
    /// For what it takes outside the pool.
    held: Option<Reservation>,
    /// What is needed to go on counting distinct values in an append.
    pub(crate) distinct: Vec<Distinct>,
}

impl Table {
    pub(crate) fn new(schema: SchemaRef, row_groups: Vec<Arc<RowGroup>>, distinct: Vec<Distinct>) -> Table {
        let statistics = (0..schema.fields().len())
            .map(|column| statistics(&row_groups, column, &distinct[column]))
            .collect();
        let sum = |bytes: fn(&RowGroup) -> usize| row_groups.iter().map(|g| u64_from(bytes(g))).sum();
        Table {
            rows: sum(|group| group.rows),
            bytes_plain: sum(RowGroup::bytes_plain),
            bytes_encoded: sum(RowGroup::bytes_encoded),
            bytes_outside_pool: sum(RowGroup::bytes_outside_pool)
                + distinct.iter().map(|distinct| u64_from(distinct.bytes())).sum::<u64>(),
            bytes_plain_most: (0..schema.fields().len())
                .map(|column| row_groups.iter().map(|g| g.chunks[column].bytes_plain()).max().unwrap_or(0))
                .collect(),
            held: None,
            schema,
            row_groups,
            statistics,
            distinct,
        }
    }

    /// The same table, which holds `reservation` for as long as it lives: that of [`Table::bytes_outside_pool`].
    #[must_use]
    pub fn holding(mut self, reservation: Reservation) -> Table {
        self.held = Some(reservation);
        self
    }
}

fn statistics(row_groups: &[Arc<RowGroup>], column: usize, distinct: &Distinct) -> ColumnStatistics {
    let chunks = || row_groups.iter().map(|group| &*group.chunks[column]);
    let min = merge(chunks(), |chunk| chunk.zone().min.as_ref(), Ordering::Less);
    let max = merge(chunks(), |chunk| chunk.zone().max.as_ref(), Ordering::Greater);
    let boolean = match (min.as_ref().map(Literal::value), max.as_ref().map(Literal::value)) {
        (Some(Value::Bool(min)), Some(Value::Bool(max))) => Some(if min == max { 1 } else { 2 }),
        _ => None,
    };
    ColumnStatistics {
        null_count: chunks().map(|chunk| u64_from(chunk.null_count())).sum(),
        min,
        max,
        distinct_count: boolean.or_else(|| distinct.count()),
        distinct_estimate: None,
        spread: None,
        bytes_encoded: chunks().map(|chunk| u64_from(chunk.bytes_encoded())).sum(),
    }
}

/// The outermost of the chunks' bounds; `None` when a chunk with values does not know its own.
fn merge<'a>(
    chunks: impl Iterator<Item = &'a Chunk>,
    bound: impl Fn(&'a Chunk) -> Option<&'a Literal>,
    outer: Ordering,
) -> Option<Literal> {
    let mut outermost: Option<&Literal> = None;
    for chunk in chunks.filter(|chunk| chunk.null_count() < chunk.rows()) {
        let bound = bound(chunk)?;
        if outermost.is_none_or(|so_far| bound.compare(so_far) == Some(outer)) {
            outermost = Some(bound);
        }
    }
    outermost.cloned()
}

/// Encodes row groups of one table, whose pages they share. Clones work for the same table, and several
/// threads may use them at once.
#[derive(Clone, Debug)]
pub struct Encoder {
    schema: SchemaRef,
    arena: Arc<Arena>,
}

impl Encoder {
    pub(crate) fn new(pool: Arc<Pool>, tenant: TenantName, schema: SchemaRef) -> Encoder {
        Encoder { schema, arena: Arc::new(Arena::new(pool, tenant)) }
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
        let fields = self.schema.fields();
        let (Some(field), Some(values)) = (fields.get(column), group.column(column)) else {
            let message = format!("no column {column} in row groups of {} columns", fields.len());
            return Err(Error::invalid(message));
        };
        check_column(field.data_type(), &values, group.rows()).map_err(|error| error.at(field.name()))?;
        crate::encode::encode(&values).map_err(|error| error.at(field.name()))
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

/// Encodes one row group into pages of its own. [`crate::TableBuilder::encoder`] packs the row groups of a
/// table closer.
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
