//! Selection of the columns of a file to read, and assembly of the result from them.

use super::convert::{self, Origin};
use super::{InputFile, calendar};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray, new_null_array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use farpool_model::{Error, Result, brief};
use std::sync::Arc;

pub(super) struct Selection {
    /// Indices of columns in the file, ascending and unique; at least one, because readers differ in how they
    /// treat an empty list.
    pub read: Vec<usize>,
    /// Source of each column of the result.
    places: Vec<Place>,
    schema: SchemaRef,
}

enum Place {
    /// A column that is read, by its index in `read`.
    Read(usize),
    /// NULL in each row, because the file lacks the column.
    Missing,
    /// The same value in each row.
    Constant(Option<String>),
}

impl Selection {
    /// Selects the columns at the indexes `columns` of `schema`, the schema of the table that the file is part of.
    pub(super) fn new(schema: &Schema, columns: &[usize], file: &InputFile) -> Self {
        let width = file.stored.len();
        let stored = |column: &usize| file.stored.get(*column).copied().flatten();
        let mut read: Vec<usize> = columns.iter().filter_map(stored).collect();
        read.sort_unstable();
        read.dedup();
        if read.is_empty() {
            read.push(0);
        }
        let place = |column: &usize| match (stored(column), column.checked_sub(width)) {
            (Some(index), _) => read.binary_search(&index).map_or(Place::Missing, Place::Read),
            (None, Some(partition)) => Place::Constant(file.partitions.get(partition).cloned().flatten()),
            (None, None) => Place::Missing,
        };
        let places = columns.iter().map(place).collect();
        let fields: Vec<_> = columns.iter().map(|column| schema.fields()[*column].clone()).collect();
        Selection { read, places, schema: Arc::new(Schema::new(fields)) }
    }

    /// Returns whether no column is selected, so that only the number of rows matters.
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(super) fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = self.places.iter().zip(self.schema.fields()).map(|(place, field)| match place {
            Place::Read(i) => {
                let column = promoted(batch.column(*i), field)?;
                calendar::check(field.name(), &column).map(|()| column)
            }
            Place::Missing => Ok(new_null_array(field.data_type(), batch.num_rows())),
            Place::Constant(value) => constant(value.as_deref(), field.data_type(), batch.num_rows()),
        });
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns.collect::<Result<_>>()?, &options)
            .map_err(|error| Error::corrupt(error.to_string()))
    }
}

/// Returns the column, cast to the type that the table has for it.
fn promoted(column: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    let column = valued(column, field.data_type());
    if column.data_type() == field.data_type() {
        return Ok(column);
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(&column, field.data_type(), &options)
        .map_err(|error| Error::invalid(format!("column {:?}: {error}", brief(field.name()))))
}

/// Returns the column; a column of type Null becomes NULLs of `data_type`.
pub(super) fn valued(column: &ArrayRef, data_type: &DataType) -> ArrayRef {
    match column.data_type() {
        DataType::Null => new_null_array(data_type, column.len()),
        _ => column.clone(),
    }
}

fn constant(value: Option<&str>, data_type: &DataType, rows: usize) -> Result<ArrayRef> {
    let texts: StringArray = std::iter::repeat_n(value, rows).collect();
    convert::convert(&texts, data_type, Origin::Guessed)
        .map_err(|_| Error::internal("the value of a folder is not of the type that was guessed from it"))
}
