//! Input and output of the evaluator of expressions on decoded values: some rows of some columns ([`Frame`]), and
//! the values of an expression ([`Evaluated`]).

use crate::failure;
use arrow_array::{Array, ArrayRef, BooleanArray, Datum};
use arrow_select::filter::FilterBuilder;
use arrow_select::take::take;
use farpool_model::{Error, Result};

/// Decoded values of some columns of a table, for some of its rows.
pub(crate) struct Frame {
    rows: usize,
    /// Columns with their positions in the table, sorted by position.
    columns: Vec<(usize, ArrayRef)>,
}

impl Frame {
    /// Creates a frame of `rows` rows. `columns` are sorted by their position in the table.
    pub(crate) fn new(rows: usize, columns: Vec<(usize, ArrayRef)>) -> Self {
        debug_assert!(columns.iter().all(|(_, array)| array.len() == rows));
        debug_assert!(columns.is_sorted_by_key(|(index, _)| *index));
        Frame { rows, columns }
    }

    /// Returns the number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the column at position `index` of the table.
    pub(crate) fn column(&self, index: usize) -> Result<&ArrayRef> {
        match self.columns.binary_search_by_key(&index, |(i, _)| *i) {
            Ok(at) => Ok(&self.columns[at].1),
            Err(_) => Err(Error::internal(format!("column {index} was not decoded"))),
        }
    }

    /// Returns the rows for which `mask` is true. Only the columns in `needed`, which must be sorted, are kept.
    pub(crate) fn filter(&self, mask: &BooleanArray, needed: &[usize]) -> Result<Frame> {
        let predicate = FilterBuilder::new(mask).optimize().build();
        let kept = self.columns.iter().filter(|(index, _)| needed.binary_search(index).is_ok());
        let columns = kept
            .map(|(index, array)| Ok((*index, predicate.filter(array).map_err(failure::of_kernel)?)))
            .collect::<Result<_>>()?;
        Ok(Frame { rows: predicate.count(), columns })
    }
}

/// Values of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Evaluated {
    /// One value per row.
    Array(ArrayRef),
    /// One value for all rows, as an array of one row.
    Scalar(ArrayRef),
}

impl Evaluated {
    /// Returns the values as an array of `rows` rows.
    pub(crate) fn into_array(self, rows: usize) -> Result<ArrayRef> {
        match self {
            Evaluated::Array(array) => Ok(array),
            Evaluated::Scalar(array) if rows == 1 => Ok(array),
            Evaluated::Scalar(array) => {
                let indices = arrow_array::UInt32Array::from(vec![0; rows]);
                take(&array, &indices, None).map_err(failure::of_kernel)
            }
        }
    }

    /// Returns the array; for a scalar it has one row.
    pub(crate) fn inner(&self) -> &ArrayRef {
        match self {
            Evaluated::Array(array) | Evaluated::Scalar(array) => array,
        }
    }

    /// Wraps `array`, the result of an operation on `inputs`: as a scalar if all inputs are scalars, otherwise as an
    /// array with one value per row.
    pub(crate) fn like(inputs: &[&Evaluated], array: ArrayRef) -> Evaluated {
        if inputs.iter().all(|i| matches!(i, Evaluated::Scalar(_))) {
            Evaluated::Scalar(array)
        } else {
            Evaluated::Array(array)
        }
    }
}

impl Datum for Evaluated {
    fn get(&self) -> (&dyn Array, bool) {
        match self {
            Evaluated::Array(array) => (array.as_ref(), false),
            Evaluated::Scalar(array) => (array.as_ref(), true),
        }
    }
}
