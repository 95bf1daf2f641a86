//! Comparison of join keys in two columns. Join keys are equal as group keys are ([`crate::group`]).

use super::NONE;
use crate::group::INLINE_BYTES;
use arrow_array::cast::AsArray;
use arrow_array::types::{BinaryViewType, ByteViewType, Float32Type, Float64Type, StringViewType};
use arrow_array::{Array, ArrayRef, BooleanArray, GenericByteViewArray};
use arrow_buffer::Buffer;
use arrow_schema::DataType;
use farpool_model::{Error, Result, schema, with_integer};

/// Two columns of one type: join keys of the probe side, and of the build side.
pub(super) enum Equal<'a> {
    /// Integers of a byte each, and so on: they are equal if their bits are.
    Bytes1(&'a [u8], &'a [u8]),
    Bytes2(&'a [u16], &'a [u16]),
    Bytes4(&'a [u32], &'a [u32]),
    Bytes8(&'a [u64], &'a [u64]),
    Bytes16(&'a [u128], &'a [u128]),
    Float32(&'a [f32], &'a [f32]),
    Float64(&'a [f64], &'a [f64]),
    Flags(&'a BooleanArray, &'a BooleanArray),
    Text(&'a GenericByteViewArray<StringViewType>, &'a GenericByteViewArray<StringViewType>),
    Binary(&'a GenericByteViewArray<BinaryViewType>, &'a GenericByteViewArray<BinaryViewType>),
}

impl<'a> Equal<'a> {
    /// Creates the comparison of two columns.
    ///
    /// # Errors
    /// Fails only on a bug in this crate: for columns of two types, or of one that has no join keys.
    pub(super) fn of(left: &'a ArrayRef, right: &'a ArrayRef) -> Result<Equal<'a>> {
        if left.data_type() != right.data_type() {
            let types = (left.data_type(), right.data_type());
            return Err(Error::internal(format!("join keys of two types: {types:?}")));
        }
        Ok(match left.data_type() {
            DataType::Boolean => Equal::Flags(left.as_boolean(), right.as_boolean()),
            DataType::Float32 => {
                let values = |array: &'a ArrayRef| &array.as_primitive::<Float32Type>().values()[..];
                Equal::Float32(values(left), values(right))
            }
            DataType::Float64 => {
                let values = |array: &'a ArrayRef| &array.as_primitive::<Float64Type>().values()[..];
                Equal::Float64(values(left), values(right))
            }
            DataType::Utf8View => Equal::Text(left.as_string_view(), right.as_string_view()),
            DataType::BinaryView => Equal::Binary(left.as_binary_view(), right.as_binary_view()),
            other => {
                let no_keys = || Error::internal(format!("{other} has no join keys"));
                let buffer = |array: &'a ArrayRef| -> Result<&'a Buffer> {
                    Ok(with_integer!(
                        other,
                        T => array.as_primitive::<T>().values().inner(),
                        return Err(no_keys()),
                    ))
                };
                let (left, right) = (buffer(left)?, buffer(right)?);
                match other.primitive_width().filter(|_| schema::is_integer_like(other)) {
                    Some(1) => Equal::Bytes1(left.typed_data(), right.typed_data()),
                    Some(2) => Equal::Bytes2(left.typed_data(), right.typed_data()),
                    Some(4) => Equal::Bytes4(left.typed_data(), right.typed_data()),
                    Some(8) => Equal::Bytes8(left.typed_data(), right.typed_data()),
                    Some(16) => Equal::Bytes16(left.typed_data(), right.typed_data()),
                    _ => return Err(no_keys()),
                }
            }
        })
    }

    /// Returns whether a row of the first column has the value of a row of the second one, where neither is NULL.
    #[inline(always)]
    pub(super) fn test(&self, row: usize, other: usize) -> bool {
        match self {
            Equal::Bytes1(left, right) => left[row] == right[other],
            Equal::Bytes2(left, right) => left[row] == right[other],
            Equal::Bytes4(left, right) => left[row] == right[other],
            Equal::Bytes8(left, right) => left[row] == right[other],
            Equal::Bytes16(left, right) => left[row] == right[other],
            // Adding 0.0 turns -0.0 into 0.0.
            Equal::Float32(left, right) => (left[row] + 0.0).to_bits() == (right[other] + 0.0).to_bits(),
            Equal::Float64(left, right) => (left[row] + 0.0).to_bits() == (right[other] + 0.0).to_bits(),
            Equal::Flags(left, right) => left.value(row) == right.value(other),
            Equal::Text(left, right) => are_equal(left, row, right, other),
            Equal::Binary(left, right) => are_equal(left, row, right, other),
        }
    }

    /// Notes in `differs` for which of the rows from `first` on the other row of `others` has another value; where there is
    /// none ([`NONE`]), notes nothing.
    pub(super) fn note_different(&self, first: usize, others: &[u32], differs: &mut [bool]) {
        for ((row, other), differs) in (first..).zip(others).zip(differs) {
            if *other != NONE {
                *differs |= !self.test(row, *other as usize);
            }
        }
    }
}

#[inline(always)]
fn are_equal<T: ByteViewType>(
    left: &GenericByteViewArray<T>,
    row: usize,
    right: &GenericByteViewArray<T>,
    other: usize,
) -> bool {
    let (left_view, right_view) = (left.views()[row], right.views()[other]);
    if left_view as u32 <= INLINE_BYTES {
        return left_view == right_view;
    }
    // The length and the first bytes, and then all of them.
    let are_alike = left_view as u64 == right_view as u64;
    are_alike && AsRef::<[u8]>::as_ref(left.value(row)) == AsRef::<[u8]>::as_ref(right.value(other))
}
