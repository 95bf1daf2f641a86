//! Integer codes, valid in the whole table, for the strings of a column that has few distinct strings.

use crate::failure;
use ahash::RandomState;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, UInt32Array};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use arrow_select::concat::concat;
use arrow_select::take::take;
use farpool_model::cast::u32_checked;
use farpool_model::{Error, Result};
use hashbrown::HashMap;

/// Maps strings to their codes and back.
#[derive(Debug)]
pub(crate) struct TextCodes {
    /// String of each code.
    values: ArrayRef,
    numbers: HashMap<Vec<u8>, u32, RandomState>,
}

impl TextCodes {
    /// Assigns codes to the distinct strings of `arrays`, which must have one type and no NULLs; `None` if there are no
    /// arrays.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn of(arrays: &[ArrayRef]) -> Result<Option<TextCodes>> {
        if arrays.is_empty() {
            return Ok(None);
        }
        let all =
            concat(&arrays.iter().map(|array| &**array).collect::<Vec<_>>()).map_err(failure::of_kernel)?;
        let mut numbers = HashMap::default();
        let mut firsts = Vec::new();
        for row in 0..all.len() {
            numbers.entry_ref(bytes_at(&all, row)).or_insert_with(|| {
                firsts.push(u32_checked(row));
                u32_checked(firsts.len() - 1)
            });
        }
        let values = take(&all, &UInt32Array::from(firsts), None).map_err(failure::of_kernel)?;
        Ok(Some(TextCodes { values, numbers }))
    }

    /// Returns the number of distinct strings.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns the code of each string of an array; 0 for NULL.
    ///
    /// # Errors
    /// `Internal` for a string that has no code.
    pub(crate) fn numbers(&self, array: &ArrayRef) -> Result<Vec<i64>> {
        let number = |row: usize| match self.numbers.get(bytes_at(array, row)) {
            _ if array.is_null(row) => Ok(0),
            Some(number) => Ok(i64::from(*number)),
            None => Err(Error::internal("a string that the table did not have")),
        };
        (0..array.len()).map(number).collect()
    }

    /// Returns the strings with the codes `numbers`; NULL in the rows that are NULL in `nulls`.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn array(&self, numbers: Vec<u32>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        take(&self.values, &UInt32Array::new(numbers.into(), nulls), None).map_err(failure::of_kernel)
    }
}

/// Returns the bytes of all strings of an array, which must have no NULLs.
pub(crate) fn text_bytes(array: &ArrayRef) -> usize {
    let views = match array.data_type() {
        DataType::Utf8View => array.as_string_view().views(),
        _ => array.as_binary_view().views(),
    };
    views.iter().map(|view| *view as u32 as usize).sum()
}

fn bytes_at(array: &ArrayRef, row: usize) -> &[u8] {
    match array.data_type() {
        DataType::Utf8View => array.as_string_view().value(row).as_bytes(),
        _ => array.as_binary_view().value(row),
    }
}
