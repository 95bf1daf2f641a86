//! Converts the records of a CSV file to Arrow record batches.
//!
//! Invariant: a batch has at most [`limits::BATCH_ROWS`] rows, and ends with the record that makes its text longer than
//! [`BATCH_BYTES`]. The same lines are skipped as invalid whichever columns are read.

use super::super::convert::{self, Misfit, Origin};
use super::Dialect;
use super::error;
use super::records::{Record, RecordSource};
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, StringArray};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, SchemaRef};
use farpool_model::{Error, Result, limits, sql_name};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of text at which a batch ends. Reason: bounds the memory of a batch of long rows.
const BATCH_BYTES: usize = 16 << 20;

pub(super) struct CsvBatches<R> {
    path: PathBuf,
    records: R,
    dialect: Dialect,
    schema: SchemaRef,
    /// Number of leading columns of `columns` that batches have.
    wanted: usize,
    /// Indexes of the columns that are parsed. With `ignore_errors` these are all, so that the same lines are invalid
    /// whichever columns are read.
    columns: Vec<usize>,
    result: SchemaRef,
    is_in_header: bool,
    is_done: bool,
}

/// The text of the fields of one column in a batch.
struct Texts {
    /// Whether the type of the column is text, so that an empty quoted field is not NULL.
    is_text: bool,
    bytes: Vec<u8>,
    ends: Vec<i32>,
    valid: Vec<bool>,
}

impl<R: RecordSource> CsvBatches<R> {
    /// Reads the columns at the indexes `columns` of `records`. The first record is skipped if `is_in_header`.
    pub(super) fn new(
        path: &Path,
        records: R,
        is_in_header: bool,
        schema: SchemaRef,
        dialect: Dialect,
        columns: &[usize],
    ) -> Result<Self> {
        let result = schema.project(columns).map_err(|error| Error::invalid(error.to_string()))?;
        let wanted = columns.len();
        let others = (0..schema.fields().len()).filter(|i| dialect.ignore_errors && !columns.contains(i));
        let columns: Vec<usize> = columns.iter().copied().chain(others).collect();
        let result = Arc::new(result);
        Ok(CsvBatches {
            path: path.to_path_buf(),
            records,
            dialect,
            schema,
            wanted,
            columns,
            result,
            is_in_header,
            is_done: false,
        })
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.columns.is_empty() {
            let rows = self.counted()?;
            return if rows == 0 { Ok(None) } else { self.made(Vec::new(), rows).map(Some) };
        }
        loop {
            let (texts, lines) = self.texts()?;
            if lines.is_empty() {
                return Ok(None);
            }
            let batch = self.converted(texts, &lines)?;
            // All lines of a batch may be invalid and have been skipped.
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
    }

    /// Counts the next records without parsing a column.
    fn counted(&mut self) -> Result<usize> {
        let width = self.schema.fields().len();
        let mut rows = 0;
        while rows < limits::BATCH_ROWS {
            if !self.is_in_header {
                rows += self.records.pass(width, limits::BATCH_ROWS - rows);
            }
            if rows < limits::BATCH_ROWS {
                let record = self.records.next().map_err(|why| error::broken(&self.path, why))?;
                let Some(record) = record else { break };
                let is_header = std::mem::take(&mut self.is_in_header);
                rows += usize::from(!is_header && fits(&record, width, &self.dialect, &self.path)?);
            }
        }
        Ok(rows)
    }

    /// Returns the fields of the next records, by column, and the line of each record.
    fn texts(&mut self) -> Result<(Vec<Texts>, Vec<u64>)> {
        let is_text = |column: &usize| {
            let data_type = self.schema.field(*column).data_type();
            matches!(data_type, DataType::Utf8View | DataType::Utf8 | DataType::Null)
        };
        let mut texts: Vec<Texts> = self.columns.iter().map(|column| Texts::new(is_text(column))).collect();
        let (mut lines, mut bytes) = (Vec::new(), 0);
        let width = self.schema.fields().len();
        while lines.len() < limits::BATCH_ROWS && bytes < BATCH_BYTES {
            let record = self.records.next().map_err(|why| error::broken(&self.path, why))?;
            let Some(record) = record else { break };
            if std::mem::take(&mut self.is_in_header) || !fits(&record, width, &self.dialect, &self.path)? {
                continue;
            }
            bytes += push(&mut texts, &self.columns, &record, &self.dialect);
            lines.push(record.line);
        }
        Ok((texts, lines))
    }

    fn converted(&self, texts: Vec<Texts>, lines: &[u64]) -> Result<RecordBatch> {
        let mut good = vec![true; lines.len()];
        let mut arrays = Vec::with_capacity(self.wanted);
        for (i, (texts, &column)) in texts.into_iter().zip(&self.columns).enumerate() {
            let array = self.column(texts, column, lines, &mut good)?;
            if i < self.wanted {
                arrays.push(array);
            }
        }
        let batch = self.made(arrays, lines.len())?;
        if good.iter().all(|good| *good) {
            return Ok(batch);
        }
        arrow_select::filter::filter_record_batch(&batch, &BooleanArray::from(good)).map_err(not_made)
    }

    fn made(&self, arrays: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.result.clone(), arrays, &options).map_err(not_made)
    }

    fn column(&self, texts: Texts, column: usize, lines: &[u64], good: &mut [bool]) -> Result<ArrayRef> {
        let field = self.schema.field(column);
        let (texts, no_texts) = texts.into_array();
        match no_texts.first() {
            Some(_) if self.dialect.ignore_errors => no_texts.iter().for_each(|&row| good[row] = false),
            Some(&row) => return Err(error::no_text(&self.path, lines[row], column)),
            None => {}
        }
        let no_type = || {
            let what = format!("{}: column {:?}", self.path.display(), field.name());
            Error::invalid(format!("{what} cannot be read as {}", sql_name(field.data_type())))
        };
        let origin = if self.dialect.is_typed(field.name()) { Origin::Said } else { Origin::Guessed };
        let rewritten = self.dialect.forms.of_column(&texts, field.data_type());
        let values = rewritten.as_ref().unwrap_or(&texts);
        if self.dialect.ignore_errors {
            let values = convert::converted(values, field.data_type(), origin).map_err(|_| no_type())?;
            convert::misfits(&texts, &*values).for_each(|row| good[row] = false);
            return Ok(values);
        }
        convert::convert(values, field.data_type(), origin).map_err(|misfit| match misfit {
            Misfit::Row(row) => {
                let rows = self.dialect.rows_guessed_from(field.name());
                error::misfit(&self.path, lines[row], texts.value(row), field, rows)
            }
            Misfit::Type => no_type(),
        })
    }
}

/// Returns whether a record has as many fields as there are columns; an error if it does not and invalid lines are not
/// skipped.
fn fits(record: &Record<'_>, width: usize, dialect: &Dialect, path: &Path) -> Result<bool> {
    match dialect.fits(record.len(), width) {
        false if !dialect.ignore_errors => Err(error::ragged(path, record.line, record.len(), width)),
        is_fitting => Ok(is_fitting),
    }
}

fn not_made(error: ArrowError) -> Error {
    Error::internal(error.to_string())
}

/// Appends the fields of a record; returns the number of bytes.
fn push(texts: &mut [Texts], columns: &[usize], record: &Record<'_>, dialect: &Dialect) -> usize {
    let mut bytes = 0;
    for (texts, &column) in texts.iter_mut().zip(columns) {
        let is_there = column < record.len() && !dialect.is_null(record, column, texts.is_text);
        let field = is_there.then(|| record.field(column));
        bytes += field.map_or(0, <[u8]>::len);
        texts.push(field);
    }
    bytes
}

impl Texts {
    fn new(is_text: bool) -> Self {
        Texts { is_text, bytes: Vec::new(), ends: vec![0], valid: Vec::new() }
    }

    fn push(&mut self, field: Option<&[u8]>) {
        self.bytes.extend_from_slice(field.unwrap_or_default());
        // A batch plus one record is far below 2 GiB.
        self.ends.push(i32::try_from(self.bytes.len()).unwrap_or(i32::MAX));
        self.valid.push(field.is_some());
    }

    /// Returns the column, and the rows whose fields are not UTF-8; these fields are decoded with replacement
    /// characters.
    fn into_array(self) -> (StringArray, Vec<usize>) {
        let Texts { bytes, ends, valid, is_text: _ } = self;
        let nulls = NullBuffer::new(BooleanBuffer::from(valid));
        let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
        let nulls = (nulls.null_count() > 0).then_some(nulls);
        let bytes = Buffer::from_vec(bytes);
        if let Ok(texts) = StringArray::try_new(offsets.clone(), bytes.clone(), nulls.clone()) {
            return (texts, Vec::new());
        }
        let fields = offsets.windows(2).map(|ends| &bytes[ends[0] as usize..ends[1] as usize]);
        let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        let mut wrong = Vec::new();
        let texts = fields.enumerate().map(|(row, field)| {
            if std::str::from_utf8(field).is_err() {
                wrong.push(row);
            }
            (!is_null(row)).then(|| String::from_utf8_lossy(field).into_owned())
        });
        let texts: StringArray = texts.collect();
        (texts, wrong)
    }
}

impl<R: RecordSource> Iterator for CsvBatches<R> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let batch = self.batch().transpose();
        self.is_done = !matches!(batch, Some(Ok(_)));
        batch
    }
}
