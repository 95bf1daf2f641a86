//! Rows: the encoding of the values of a space with a schema.
//!
//! The first column is in the key: its text follows the prefix of the space. The other columns, the fields, are in the
//! value:
//!
//! ```text
//! a bit per column, set if it is not NULL, padded to bytes
//! for each column: its bytes if its type has a fixed width, otherwise the end offset of its bytes (4 bytes)
//! the bytes of the columns of variable width, one after another
//! ```
//! Numbers are little-endian. A NULL column has zeros, or no bytes if its width is variable. So a column of fixed width
//! has the same offset in every row and is read without reading others.

mod schema;
#[cfg(test)]
mod tests;
mod text;

pub use schema::{Column, ColumnType, RowSchema};

use std::ops::Range;

impl RowSchema {
    /// Returns the bytes of the field with index `at` in a row; `None` if it is NULL, or if the row is too short.
    #[inline]
    pub fn field<'a>(&self, row: &'a [u8], at: usize) -> Option<&'a [u8]> {
        if row.get(at / 8)? >> (at % 8) & 1 == 0 {
            return None;
        }
        row.get(self.range(row, at)?)
    }

    /// Returns the range of the field with index `at` in a row, the same in every row; `None` if its type has a
    /// variable width.
    pub fn place_of(&self, at: usize) -> Option<Range<usize>> {
        let start = self.offset(at);
        self.fields()[at].kind.width().map(|width| start..start + width)
    }

    fn range(&self, row: &[u8], at: usize) -> Option<Range<usize>> {
        let start = self.offset(at);
        match self.fields()[at].kind.width() {
            Some(width) => Some(start..start + width),
            None => {
                let end_at = |at: usize| {
                    let start = self.offset(at);
                    let end = row.get(start..start + 4)?.try_into().ok()?;
                    Some(u32::from_le_bytes(end) as usize)
                };
                let begin = self.previous_of_no_width(at).map_or(Some(0), end_at)?;
                let first = self.fixed_bytes();
                Some(first.checked_add(begin)?..first.checked_add(end_at(at)?)?)
            }
        }
    }

    /// Returns a copy of `row` (`None` for a row of NULLs) with some fields replaced. A change is the index of a field
    /// and its bytes, `None` for NULL; of several changes of a field, the last counts.
    pub fn with_fields(&self, row: Option<&[u8]>, changes: &[(usize, Option<Vec<u8>>)]) -> Vec<u8> {
        let value = |at: usize| match changes.iter().rev().find(|(changed, _)| *changed == at) {
            Some((_, value)) => value.as_deref(),
            None => row.and_then(|row| self.field(row, at)),
        };
        let mut new = vec![0; self.fixed_bytes()];
        for (at, field) in self.fields().iter().enumerate() {
            let bytes = value(at);
            let start = self.offset(at);
            match field.kind.width() {
                Some(width) => {
                    if let Some(bytes) = bytes {
                        new[start..start + width].copy_from_slice(bytes);
                    }
                }
                None => {
                    new.extend_from_slice(bytes.unwrap_or_default());
                    let end = farpool_model::cast::u32_checked(new.len() - self.fixed_bytes());
                    new[start..start + 4].copy_from_slice(&end.to_le_bytes());
                }
            }
            if bytes.is_some() {
                new[at / 8] |= 1 << (at % 8);
            }
        }
        new
    }

    /// Returns the number of fields of a row that are not NULL.
    pub fn fields_set(&self, row: &[u8]) -> usize {
        (0..self.fields().len()).filter(|at| self.field(row, *at).is_some()).count()
    }
}
