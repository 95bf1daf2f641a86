//! Columns of the build side, each copied to one array.
//!
//! Numbers are copied batch by batch to huge pages: joined rows are gathered from random places, and on ordinary pages
//! that spends most of the time on address translation.

use crate::failure;
use crate::pace::Pace;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray, RecordBatch};
use arrow_buffer::NullBufferBuilder;
use arrow_schema::DataType;
use arrow_select::concat::concat;
use farpool_columns::working;
use farpool_model::{Result, with_integer};
use std::sync::Arc;

/// A column that is being copied.
pub(super) struct ColumnCopy {
    column: usize,
    data_type: DataType,
    /// Number of the next batch.
    next: usize,
    /// The numbers that are copied so far; `None` for other types.
    numbers: Option<Box<dyn Numbers>>,
    copied: Option<ArrayRef>,
}

/// Numbers of a type that are being copied.
trait Numbers: Send {
    /// Appends the values of an array of the type.
    fn append(&mut self, array: &ArrayRef);

    /// Returns all values as an array, and leaves none.
    fn take(&mut self) -> ArrayRef;
}

struct NumbersOf<T: ArrowPrimitiveType> {
    data_type: DataType,
    values: Vec<T::Native>,
    nulls: NullBufferBuilder,
}

impl<T: ArrowPrimitiveType> Numbers for NumbersOf<T> {
    fn append(&mut self, array: &ArrayRef) {
        let array = array.as_primitive::<T>();
        working::reserve(&mut self.values, array.len());
        self.values.extend_from_slice(array.values());
        match array.nulls() {
            Some(nulls) => self.nulls.append_buffer(nulls),
            None => self.nulls.append_n_non_nulls(array.len()),
        }
    }

    fn take(&mut self) -> ArrayRef {
        let values = std::mem::take(&mut self.values);
        let array = PrimitiveArray::<T>::new(values.into(), self.nulls.finish());
        Arc::new(array.with_data_type(self.data_type.clone()))
    }
}

impl ColumnCopy {
    /// Begins to copy the column at index `column` of batches with `rows` rows together.
    pub(super) fn new(column: usize, data_type: &DataType, rows: usize) -> ColumnCopy {
        fn of<T: ArrowPrimitiveType>(data_type: &DataType, rows: usize) -> Option<Box<dyn Numbers>> {
            let mut values = Vec::new();
            working::reserve(&mut values, rows);
            let (data_type, nulls) = (data_type.clone(), NullBufferBuilder::new(rows));
            Some(Box::new(NumbersOf::<T> { data_type, values, nulls }))
        }
        let numbers = match data_type {
            DataType::Float32 => of::<Float32Type>(data_type, rows),
            DataType::Float64 => of::<Float64Type>(data_type, rows),
            other => with_integer!(other, T => of::<T>(data_type, rows), None),
        };
        ColumnCopy { column, data_type: data_type.clone(), next: 0, numbers, copied: None }
    }

    /// Copies values of `batches`, which must be the same in each step, until `pace` ends or all are copied. Strings and
    /// booleans are copied at once.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn advance(&mut self, batches: &[RecordBatch], pace: &mut dyn Pace) -> Result<()> {
        let Some(numbers) = &mut self.numbers else {
            let arrays: Vec<&dyn Array> = batches.iter().map(|batch| &**batch.column(self.column)).collect();
            self.copied = Some(match arrays.is_empty() {
                true => arrow_array::new_empty_array(&self.data_type),
                false => concat(&arrays).map_err(failure::of_kernel)?,
            });
            return Ok(());
        };
        while let Some(batch) = batches.get(self.next) {
            numbers.append(batch.column(self.column));
            self.next += 1;
            if pace.ends() {
                return Ok(());
            }
        }
        self.copied = Some(numbers.take());
        Ok(())
    }

    /// Returns whether all values are copied.
    pub(super) fn is_done(&self) -> bool {
        self.copied.is_some()
    }

    /// Returns the copied column; `None` if it is not copied yet.
    pub(super) fn finish(self) -> Option<ArrayRef> {
        self.copied
    }
}
