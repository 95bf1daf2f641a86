//! Builds a table from record batches: converts them to the canonical types, divides them into row groups,
//! and computes statistics.
//!
//! A caller with several threads adds rows by [`TableBuilder::buffer`], takes the full row groups, encodes them with
//! clones of [`TableBuilder::encoder`], and adds them in order by [`TableBuilder::add_row_group`].
//! [`TableBuilder::push`] does all of this on the calling thread.

use crate::chunk::RowGroup;
use crate::distinct::Distinct;
use crate::plain::{self, PlainGroup};
use crate::row_groups::RowGroups;
use crate::sums::Sums;
use crate::table::{Encoder, Table};
use crate::views;
use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Date64Type};
use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch};
use arrow_cast::CastOptions;
use arrow_schema::{DataType, Schema, SchemaRef};
use farpool_cipher::MemoryCipher;
use farpool_memory::{Pool, size_text};
use farpool_model::cast::u64_from;
use farpool_model::limits::ROW_GROUP_ROWS;
use farpool_model::{Error, Result, TenantName, schema};
use std::collections::VecDeque;
use std::sync::Arc;

/// Minimum number of encoded row groups from which the size of the whole table is projected.
const PROJECTION_GROUPS_MIN: usize = 2;

/// A table under construction.
#[derive(Debug)]
pub struct TableBuilder {
    schema: SchemaRef,
    encoder: Encoder,
    rows_hint: Option<u64>,
    row_groups: RowGroups,
    sums: Sums,
    distinct: Vec<Distinct>,
    /// Number of row groups, of rows and of encoded bytes added so far.
    added: (usize, u64, u64),
    waiting: PlainGroup,
    full: VecDeque<PlainGroup>,
}

impl TableBuilder {
    /// Creates a builder of a new table. `rows_hint` is the expected number of rows, if it is known.
    ///
    /// # Errors
    /// As [`schema::canonical_schema`].
    pub fn new(pool: Arc<Pool>, tenant: TenantName, schema: &Schema, rows_hint: Option<u64>) -> Result<Self> {
        let schema = schema::canonical_schema(schema)?;
        let columns = schema.fields().len();
        Ok(TableBuilder {
            encoder: Encoder::new(pool, tenant, Arc::clone(&schema)),
            schema,
            rows_hint,
            row_groups: RowGroups::default(),
            sums: Sums::new(columns),
            distinct: vec![Distinct::default(); columns],
            added: (0, 0, 0),
            waiting: PlainGroup::default(),
            full: VecDeque::new(),
        })
    }

    /// Creates a builder that appends to `base`: the new table shares the row groups of `base`. `rows_hint` is the
    /// expected number of rows that are added.
    ///
    /// # Errors
    /// Does not fail at present; limits may be added.
    pub fn append_to(
        pool: Arc<Pool>,
        base: &Table,
        tenant: TenantName,
        rows_hint: Option<u64>,
    ) -> Result<Self> {
        let schema = Arc::clone(&base.schema);
        Ok(TableBuilder {
            encoder: Encoder::new(pool, tenant, Arc::clone(&schema)).encrypting(base.cipher()),
            schema,
            rows_hint,
            row_groups: base.row_groups.clone(),
            sums: base.sums.clone(),
            distinct: base.distinct.clone(),
            added: (0, 0, 0),
            waiting: PlainGroup::default(),
            full: VecDeque::new(),
        })
    }

    /// Sets the cipher with which the chunks of the table are encrypted in memory, if there is one. Must be called
    /// before rows are added.
    #[must_use]
    pub fn encrypting(self, cipher: Option<&Arc<MemoryCipher>>) -> Self {
        TableBuilder { encoder: self.encoder.encrypting(cipher), ..self }
    }

    /// Returns the canonical schema.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the encoder for row groups of this table.
    pub fn encoder(&self) -> Encoder {
        self.encoder.clone()
    }

    /// Adds rows and encodes the row groups that they complete.
    ///
    /// # Errors
    /// As [`TableBuilder::buffer`], [`Encoder::encode`] and [`TableBuilder::add_row_group`].
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        self.buffer(batch)?;
        while let Some(group) = self.take_full_row_group() {
            self.add_row_group(Arc::new(self.encoder.encode(&group)?))?;
        }
        Ok(())
    }

    /// Adds rows without encoding them. Row groups that are full can be taken by [`TableBuilder::take_full_row_group`].
    ///
    /// # Errors
    /// `Invalid` when the columns are not those of the schema, or a value does not fit its canonical type.
    pub fn buffer(&mut self, batch: &RecordBatch) -> Result<()> {
        let columns = self.canonical_columns(batch)?;
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let mut row = 0;
        while row < batch.num_rows() {
            let room = (ROW_GROUP_ROWS - self.waiting.rows()).min(batch.num_rows() - row);
            let piece: Vec<ArrayRef> = columns.iter().map(|column| column.slice(row, room)).collect();
            let (rows, bytes) = self.waiting.fitting(&piece, room);
            if rows > 0 {
                self.waiting.add(piece.iter().map(|column| column.slice(0, rows)), rows, bytes);
            }
            if row + rows == batch.num_rows() {
                // Row groups are encoded in order, so that the last row group with rows of the batch frees the
                // batch's memory. The memory is therefore counted for that row group.
                self.waiting.hold(plain::bytes_held(&columns));
            }
            if self.waiting.rows() == ROW_GROUP_ROWS || rows < room {
                self.cut();
            }
            row += rows;
        }
        self.waiting.tidy();
        Ok(())
    }

    /// Returns the bytes of memory that rows hold which were added and not taken yet: less than three times their plain
    /// size, plus [`farpool_model::limits::PLAIN_EXCESS_BYTES_MAX`].
    pub fn bytes_held(&self) -> usize {
        self.full.iter().map(PlainGroup::bytes_held).sum::<usize>() + self.waiting.bytes_held()
    }

    fn canonical_columns(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let fields = self.schema.fields();
        if batch.num_columns() != fields.len() {
            let message =
                format!("a batch of {} columns for a table of {}", batch.num_columns(), fields.len());
            return Err(Error::invalid(message));
        }
        let columns = fields.iter().zip(batch.columns()).map(|(field, column)| {
            let column = to_canonical(column, field.data_type()).map_err(|error| error.at(field.name()))?;
            if !field.is_nullable() && column.null_count() > 0 {
                return Err(Error::invalid(format!("column {:?} may not be NULL", field.name())));
            }
            Ok(column)
        });
        columns.collect()
    }

    /// Ends the current row group and queues it as a full one.
    fn cut(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.rows() > 0 {
            self.full.push_back(waiting);
        }
    }

    /// Takes the next full row group, in row order; `None` if there is none.
    pub fn take_full_row_group(&mut self) -> Option<PlainGroup> {
        self.full.pop_front()
    }

    /// Takes the next row group after all rows have been added: first the full ones, then the incomplete one, then
    /// `None`.
    pub fn take_last_row_group(&mut self) -> Option<PlainGroup> {
        if self.full.is_empty() {
            self.cut();
        }
        self.full.pop_front()
    }

    /// Appends an encoded row group to the table.
    ///
    /// # Errors
    /// `OverLimit` when the projected size of the whole table exceeds the free memory, and nothing can be evicted to
    /// make room.
    pub fn add_row_group(&mut self, group: Arc<RowGroup>) -> Result<()> {
        for (distinct, chunk) in self.distinct.iter_mut().zip(&group.chunks) {
            distinct.observe(chunk);
        }
        Distinct::bound(&mut self.distinct);
        self.sums.add(&group);
        let (groups, rows, bytes) = self.added;
        self.added = (groups + 1, rows + u64_from(group.rows), bytes + u64_from(group.bytes_encoded()));
        self.row_groups.push(group);
        self.check_projection()
    }

    /// Sets the number of distinct values of each column where the builder could not count it, because values of `base`
    /// were not in memory. `None` leaves a column unchanged.
    pub fn set_distinct(&mut self, counts: &[Option<u64>]) {
        for (distinct, count) in self.distinct.iter_mut().zip(counts) {
            distinct.set_count(*count, self.encoder.arena().cipher().is_some());
        }
    }

    /// Returns the size of the row groups that were added, in bytes.
    pub fn bytes_added(&self) -> u64 {
        self.added.2
    }

    /// Returns the projected size of all expected rows, in bytes, extrapolated from the row groups added so far.
    pub fn bytes_projected(&self) -> Option<u64> {
        let (groups, rows, bytes) = self.added;
        let rows_hint = self.rows_hint.filter(|_| groups >= PROJECTION_GROUPS_MIN)?;
        let projected = u128::from(bytes) * u128::from(rows_hint) / u128::from(rows.max(1));
        Some(u64::try_from(projected).unwrap_or(u64::MAX))
    }

    fn check_projection(&self) -> Result<()> {
        let Some(projected) = self.bytes_projected() else { return Ok(()) };
        let arena = self.encoder.arena();
        if arena.pool().reclaims() {
            return Ok(());
        }
        // Several threads encode. Row groups that were encoded before an earlier one are in the pool already,
        // although they were not added yet, so that they count here.
        let bytes = arena.bytes_placed().max(self.bytes_added());
        // Unused parts of the tenant's pages count as free, too, because other chunks can be placed there.
        let (pool, tenant) = (arena.pool(), arena.tenant());
        let free = pool.bytes_free(tenant) + pool.bytes_free_for_pieces(tenant);
        if projected.saturating_sub(bytes) <= free {
            return Ok(());
        }
        let limit = arena.pool().usage().bytes_limit;
        Err(Error::over_limit(format!(
            "the table would take about {} of memory, and {} of the pool's {} are left for it",
            size_text(projected),
            size_text(free + bytes),
            size_text(limit)
        ))
        .advise("give the pool more memory, drop a table, or load fewer columns or rows"))
    }

    /// Encodes the rows that are still buffered and returns the table.
    ///
    /// # Errors
    /// As [`TableBuilder::push`].
    pub fn finish(mut self) -> Result<Table> {
        while let Some(group) = self.take_last_row_group() {
            self.add_row_group(Arc::new(self.encoder.encode(&group)?))?;
        }
        let cipher = self.encoder.arena().cipher().cloned();
        Ok(Table::new(self.schema, self.row_groups, self.sums, self.distinct).encrypted(cipher))
    }
}

/// Converts the values to `data_type`, which must be the canonical form of their own type.
///
/// # Errors
/// `Invalid` when `data_type` is not that canonical form, or a value does not fit it.
pub fn to_canonical(column: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    if column.data_type() == data_type {
        return Ok(Arc::clone(column));
    }
    if schema::canonical_type(column.data_type()).as_ref() != Some(data_type) {
        return Err(Error::invalid(format!("type {} where {data_type} is held", column.data_type())));
    }
    let cast = |column: &ArrayRef, to: &DataType| {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        arrow_cast::cast_with_options(column, to, &options).map_err(|e| Error::invalid(e.to_string()))
    };
    let views = match column.data_type() {
        DataType::Utf8 => views::of_offsets(column.as_string::<i32>()),
        DataType::LargeUtf8 => views::of_offsets(column.as_string::<i64>()),
        DataType::Binary => views::of_offsets(column.as_binary::<i32>()),
        DataType::LargeBinary => views::of_offsets(column.as_binary::<i64>()),
        _ => None,
    };
    if let Some(views) = views {
        return Ok(views);
    }
    match column.data_type() {
        DataType::Dictionary(_, values) => to_canonical(&cast(column, values)?, data_type),
        DataType::RunEndEncoded(_, values) => to_canonical(&cast(column, values.data_type())?, data_type),
        DataType::Date64 => days(column.as_primitive()),
        DataType::FixedSizeBinary(_) => cast(&cast(column, &DataType::Binary)?, data_type),
        _ => cast(column, data_type),
    }
}

/// Converts times in milliseconds to days. A time before 1970 belongs to the day that has begun, where a cast would
/// round it to the next.
fn days(column: &PrimitiveArray<Date64Type>) -> Result<ArrayRef> {
    let day = |milliseconds: i64| {
        i32::try_from(milliseconds.div_euclid(86_400_000))
            .map_err(|_| Error::invalid(format!("{milliseconds} milliseconds since 1970 are no date")))
    };
    Ok(Arc::new(column.try_unary::<_, Date32Type, _>(day)?))
}
