//! The probe side of a lookup: joins batches of scanned rows with the rows of a table.

use super::NONE;
use super::build::LookupTable;
use super::index::Index;
use crate::evaluate::{Compiled, Frame, truth};
use crate::failure;
use arrow_array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{FieldRef, Schema, SchemaRef};
use arrow_select::filter::{filter, filter_record_batch};
use arrow_select::take::take;
use farpool_model::cast::u32_checked;
use farpool_model::lookup::pair_schema;
use farpool_model::{Error, LookupKind, Result, limits};
use std::sync::Arc;

/// A compiled lookup: how scanned rows are joined with the rows of one table. Immutable; any number of threads use it.
pub struct Lookup {
    table: Arc<LookupTable>,
    kind: LookupKind,
    keys: Vec<usize>,
    /// Number of columns of a scanned row.
    width: usize,
    schema: SchemaRef,
    residual: Option<Compiled>,
    /// For each column of joined rows that nobody reads: NULLs, as many as a batch may have.
    blanks: Vec<Option<ArrayRef>>,
    /// For each column of the table, the column of the scanned row that it is equal to in every joined row, if there is
    /// one. Reason: the values of scanned rows are closer to one another.
    equals: Vec<Option<usize>>,
}

/// Returns whether one match of a row decides about it, so that no others are looked for.
fn needs_one_match(kind: LookupKind) -> bool {
    !kind.adds_columns()
}

/// A batch of scanned rows that is being joined.
pub struct Probing {
    batch: RecordBatch,
    /// The last match candidate of each scanned row in the table, or [`NONE`].
    found: Vec<u32>,
    /// The next pair to be looked at: scanned row and row of the table ([`NONE`]: the last one of `row`).
    row: usize,
    at: u32,
    /// Whether each scanned row has a match, as far as was looked; empty in an inner join.
    matched: Vec<bool>,
    is_done: bool,
}

impl Lookup {
    /// Compiles `lookup` for rows with the schema `row` and the rows of `table`, which must have been built for the join
    /// keys of `lookup`. Columns of joined rows for which `is_read` returns false may have any values.
    ///
    /// # Errors
    /// Errors of [`model::Lookup::row_schema`](farpool_model::Lookup::row_schema); `Invalid` if the residual condition
    /// has an opaque part.
    pub fn new(
        lookup: &farpool_model::Lookup,
        row: &Schema,
        table: Arc<LookupTable>,
        is_read: impl Fn(usize) -> bool,
    ) -> Result<Lookup> {
        let schema = Arc::new(lookup.row_schema(row, table.schema())?);
        let pairs = pair_schema(row, table.schema());
        let residual =
            lookup.residual.as_ref().map(|condition| Compiled::new(condition, &pairs)).transpose()?;
        let keys = lookup.keys.iter().map(|key| key.row).collect();
        let blank = |(column, field): (usize, &FieldRef)| {
            (!is_read(column)).then(|| new_null_array(field.data_type(), limits::BATCH_ROWS))
        };
        let blanks = schema.fields().iter().enumerate().map(blank).collect();
        let equal = |(column, field): (usize, &FieldRef)| {
            // Equal floats may be 0.0 and -0.0.
            let is_same = lookup.kind == LookupKind::Inner && !field.data_type().is_floating();
            let key = lookup.keys.iter().find(|key| key.result == column).filter(|_| is_same)?;
            Some(key.row)
        };
        let equals = table.schema().fields().iter().enumerate().map(equal).collect();
        let (kind, width) = (lookup.kind, row.fields().len());
        Ok(Lookup { table, kind, keys, width, schema, residual, blanks, equals })
    }

    /// Returns the schema of joined rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Begins to join the rows of `batch`, at most [`limits::BATCH_ROWS`], which has the schema that [`Lookup::new`] got. If
    /// the table is exact, its condition must be true for them, or false if the kind drops rows with a match.
    ///
    /// # Errors
    /// Fails only on a bug in this crate, or for a larger batch.
    pub fn probe(&self, batch: RecordBatch) -> Result<Probing> {
        if batch.num_rows() > limits::BATCH_ROWS {
            return Err(Error::internal(format!("a batch of {} rows is joined at once", batch.num_rows())));
        }
        let keys: Vec<ArrayRef> = self.keys.iter().map(|key| batch.column(*key).clone()).collect();
        let mut found = Vec::with_capacity(batch.num_rows());
        match self.table.is_exact() {
            true => found.resize(batch.num_rows(), self.tested()),
            false => self.table.find(&keys, &mut found)?,
        }
        // An inner join never asks which rows have a match.
        let noted = if self.kind == LookupKind::Inner { 0 } else { batch.num_rows() };
        let matched = vec![false; noted];
        Ok(Probing { batch, found, row: 0, at: NONE, matched, is_done: false })
    }

    /// Returns the match of a row for which the condition of an exact table was tested: any, or none if rows with a match
    /// are dropped.
    fn tested(&self) -> u32 {
        if self.kind.drops_matched() { NONE } else { 0 }
    }

    /// Returns the next joined rows, at most [`limits::BATCH_ROWS`]; possibly none, although there are more. Returns
    /// `None` when all are returned. Takes time in proportion to that number.
    ///
    /// # Errors
    /// `Invalid` if the residual condition fails on a pair of rows, or a scalar subquery has several rows.
    pub fn next(&self, probing: &mut Probing) -> Result<Option<RecordBatch>> {
        if probing.is_done {
            return Ok(None);
        }
        if needs_one_match(self.kind) && self.residual.is_none() {
            let matched = probing.found.iter().zip(&mut probing.matched);
            matched.for_each(|(found, matched)| *matched = *found != NONE);
            return self.end(probing).map(Some);
        }
        if let Some(others) = self.only_matches(probing) {
            return self.joined(&probing.batch, None, others.into()).map(Some);
        }
        let (mut rows, mut others) = (Vec::new(), Vec::new());
        self.pairs(probing, &mut rows, &mut others);
        if rows.is_empty() {
            return self.end(probing).map(Some);
        }
        let (rows, others) = self.retain(&probing.batch, rows, others)?;
        let noted = if self.kind == LookupKind::Inner { &[][..] } else { &rows[..] };
        for row in noted {
            let before = std::mem::replace(&mut probing.matched[*row as usize], true);
            if before && self.kind == LookupKind::Single {
                return Err(Error::invalid(
                    "a scalar subquery gives more than one row for a row of the outer query",
                ));
            }
        }
        match self.kind.adds_columns() {
            true => self.joined(&probing.batch, Some(rows), others.into()).map(Some),
            false => Ok(Some(RecordBatch::new_empty(self.schema.clone()))),
        }
    }

    /// Returns for each row of the batch its only match, if all rows have one and no residual condition is tested, as with a
    /// foreign key. Nothing is left then.
    fn only_matches(&self, probing: &mut Probing) -> Option<Vec<u32>> {
        let is_plain = self.kind.adds_columns()
            && self.residual.is_none()
            && self.table.index().is_some_and(Index::is_unique);
        if !is_plain || probing.row > 0 || probing.found.contains(&NONE) {
            return None;
        }
        probing.is_done = true;
        Some(std::mem::take(&mut probing.found))
    }

    /// Collects the next pairs of rows whose keys are equal, without those that cannot make a difference.
    fn pairs(&self, probing: &mut Probing, rows: &mut Vec<u32>, others: &mut Vec<u32>) {
        let Probing { found, row, at, matched, .. } = probing;
        if *row == found.len() {
            return;
        }
        let before = |row| self.table.index().map_or(NONE, |index| index.before(row));
        if self.table.index().is_none_or(Index::is_unique) && found.len() <= limits::BATCH_ROWS {
            // Each row has one match at most, so that all pairs are one piece.
            rows.resize(found.len(), 0);
            others.resize(found.len(), 0);
            let mut count = 0;
            // Each row is written, and overwritten by the next one if it has no match: a branch that depends on the data
            // would be mispredicted.
            for (place, other) in (0..).zip(&*found).skip(*row) {
                (rows[count], others[count]) = (place, *other);
                count += usize::from(*other != NONE);
            }
            rows.truncate(count);
            others.truncate(count);
            *row = found.len();
            return;
        }
        while *row < found.len() && rows.len() < limits::BATCH_ROWS {
            if *at == NONE {
                *at = found[*row];
            }
            if *at == NONE || (needs_one_match(self.kind) && matched[*row]) {
                (*row, *at) = (*row + 1, NONE);
                continue;
            }
            rows.push(u32_checked(*row));
            others.push(*at);
            *at = before(*at);
            if *at == NONE {
                *row += 1;
            }
        }
    }

    /// Keeps the pairs for which the residual condition is true.
    fn retain(&self, batch: &RecordBatch, rows: Vec<u32>, others: Vec<u32>) -> Result<(Vec<u32>, Vec<u32>)> {
        let Some(residual) = &self.residual else { return Ok((rows, others)) };
        let (count, rows, others) = (rows.len(), UInt32Array::from(rows), UInt32Array::from(others));
        let column = |column: &usize| {
            let values = match column.checked_sub(self.width) {
                None => take(batch.column(*column), &rows, None),
                Some(of_table) => take(&self.table.columns()[of_table], &others, None),
            };
            Ok((*column, values.map_err(failure::of_kernel)?))
        };
        let columns = residual.columns().iter().map(column).collect::<Result<_>>()?;
        let passing = truth(&residual.array(&Frame::new(count, columns))?);
        let kept = |indices: &UInt32Array| -> Result<Vec<u32>> {
            let kept = filter(indices, &passing).map_err(failure::of_kernel)?;
            Ok(arrow_array::cast::as_primitive_array::<arrow_array::types::UInt32Type>(&kept)
                .values()
                .to_vec())
        };
        Ok((kept(&rows)?, kept(&others)?))
    }

    /// Joins the pairs of rows; where `others` is NULL, the columns of the table are. Without `rows`, they are those of the
    /// batch.
    fn joined(
        &self,
        batch: &RecordBatch,
        rows: Option<Vec<u32>>,
        others: UInt32Array,
    ) -> Result<RecordBatch> {
        let rows = rows.map(UInt32Array::from);
        let scanned = |column: usize| match &rows {
            None => Ok(batch.column(column).clone()),
            Some(rows) => take(batch.column(column), rows, None),
        };
        let column = |(place, blank): (usize, &Option<ArrayRef>)| match (blank, place.checked_sub(self.width))
        {
            (Some(blank), _) => Ok(blank.slice(0, others.len())),
            (None, None) => scanned(place),
            (None, Some(of_table)) => match self.equals[of_table] {
                Some(column) => scanned(column),
                None => take(&self.table.columns()[of_table], &others, None),
            },
        };
        let columns = self.blanks.iter().enumerate().map(column).collect::<std::result::Result<Vec<_>, _>>();
        self.batch(columns.map_err(failure::of_kernel)?, others.len())
    }

    /// Returns what is left when all pairs were looked at.
    fn end(&self, probing: &mut Probing) -> Result<RecordBatch> {
        probing.is_done = true;
        let Probing { batch, matched, .. } = probing;
        let mask = |wanted: bool| -> BooleanArray {
            matched.iter().map(|matched| Some(*matched == wanted)).collect()
        };
        let filtered = |mask: &BooleanArray| filter_record_batch(batch, mask).map_err(failure::of_kernel);
        match self.kind {
            LookupKind::Inner => Ok(RecordBatch::new_empty(self.schema.clone())),
            LookupKind::Semi => filtered(&mask(true)),
            LookupKind::Anti => filtered(&mask(false)),
            LookupKind::NotIn if self.table.is_empty() => Ok(batch.clone()),
            LookupKind::NotIn if self.table.has_null_keys() => Ok(batch.slice(0, 0)),
            LookupKind::NotIn => {
                let key = batch.column(self.keys[0]);
                let is_known = |(row, matched): (usize, &bool)| Some(!matched && key.is_valid(row));
                filtered(&matched.iter().enumerate().map(is_known).collect())
            }
            LookupKind::Exists => self.marked(batch, mask(true)),
            LookupKind::In => {
                let key = batch.column(self.keys[0]);
                let has_nulls = self.table.has_null_keys();
                let is_known = |(row, matched): (usize, &bool)| {
                    self.table.is_empty() || *matched || (key.is_valid(row) && !has_nulls)
                };
                let valid: NullBuffer = matched.iter().enumerate().map(is_known).collect();
                self.marked(batch, BooleanArray::new(mask(true).values().clone(), Some(valid)))
            }
            LookupKind::Left | LookupKind::Single => {
                let unmatched = (0..).zip(&*matched).filter(|(_, matched)| !**matched);
                let rows: Vec<u32> = unmatched.map(|(row, _)| row).collect();
                let others = UInt32Array::new_null(rows.len());
                self.joined(batch, Some(rows), others)
            }
        }
    }

    fn marked(&self, batch: &RecordBatch, mark: BooleanArray) -> Result<RecordBatch> {
        let columns = batch.columns().iter().cloned().chain([Arc::new(mark) as ArrayRef]);
        self.batch(columns.collect(), batch.num_rows())
    }

    fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(failure::of_kernel)
    }
}
