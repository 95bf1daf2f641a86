//! Encodes one column of a row group in the smallest form that can hold its values.
//!
//! Integers that fit a signed 64-bit integer are always bit-packed, even if they need all 64 bits, so that kernels have
//! to support only one form. Larger integers, floats and booleans stay plain. For strings see `strings`.

use crate::arch::{Kernel, Level, Simd};
use crate::body::Body;
use crate::chunk::Chunk;
use crate::packed::{Packed, width_of, with_lane};
use crate::strings;
use crate::types::Int;
use crate::zone::{ZoneMap, bounds_of_floats};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_schema::DataType;
use farpool_model::limits::ROW_GROUP_ROWS;
use farpool_model::{Error, Result, Value, with_integer};

/// An encoded body with the minimum and maximum of its values, if they are known.
pub(crate) type Encoded = (Body, Option<(Value, Value)>);

/// Encodes `array`, which must have a canonical type, as a chunk on the heap.
pub(crate) fn encode(array: &ArrayRef) -> Result<Chunk> {
    encode_with(array, strings::encode)
}

/// Encodes an array as [`encode`] does, except that strings are stored as plain bytes, without minimum and maximum.
pub(crate) fn encode_as_is(array: &ArrayRef) -> Result<Chunk> {
    encode_with(array, strings::as_they_are)
}

fn encode_with(
    array: &ArrayRef,
    strings: impl FnOnce(&ArrayRef, Option<&NullBuffer>) -> Result<(Encoded, usize)>,
) -> Result<Chunk> {
    check_rows(array.len())?;
    let data_type = array.data_type();
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    let null_count = nulls.map_or(0, NullBuffer::null_count);
    if null_count == array.len() {
        return Chunk::of_nulls(data_type, array.len());
    }
    let mut bytes_plain = fixed_bytes_plain(array);
    let (body, bounds) = match data_type {
        DataType::Boolean => booleans(array, nulls),
        DataType::Float32 | DataType::Float64 => floats(array, nulls),
        DataType::Utf8View | DataType::BinaryView => {
            let (encoded, bytes) = strings(array, nulls)?;
            bytes_plain += bytes;
            encoded
        }
        other => integers_of(array, nulls)
            .ok_or_else(|| Error::invalid(format!("a column of type {other} cannot be encoded")))?,
    };
    let zone = ZoneMap::of(bounds, data_type, null_count);
    Ok(Chunk::new(data_type.clone(), array.len(), validity_of(array, nulls), zone, body, bytes_plain))
}

/// Checks that a row group may have this many rows.
///
/// # Errors
/// `OverLimit` if it may not.
pub(crate) fn check_rows(rows: usize) -> Result<()> {
    if rows > ROW_GROUP_ROWS {
        return Err(Error::over_limit(format!("a row group may have {ROW_GROUP_ROWS} rows, not {rows}")));
    }
    Ok(())
}

/// Returns `nulls` as a bitmap that starts at the first bit of a byte.
pub(crate) fn validity_of(array: &ArrayRef, nulls: Option<&NullBuffer>) -> Option<BooleanBuffer> {
    nulls.map(|nulls| BooleanBuffer::new(nulls.inner().sliced(), 0, array.len()))
}

/// Returns the bytes of the values as a plain Arrow array, without the bytes of strings.
pub(crate) fn fixed_bytes_plain(array: &ArrayRef) -> usize {
    fixed_bytes(array.data_type(), array.len(), array.null_count() > 0)
}

/// Returns the bytes of `rows` values of a type as a plain Arrow array, without the bytes of strings.
pub(crate) fn fixed_bytes(data_type: &DataType, rows: usize, has_nulls: bool) -> usize {
    let values = match data_type {
        DataType::Boolean => rows.div_ceil(8),
        other => rows * other.primitive_width().unwrap_or(size_of::<i32>()),
    };
    values + if has_nulls { rows.div_ceil(8) } else { 0 }
}

fn booleans(array: &ArrayRef, nulls: Option<&NullBuffer>) -> Encoded {
    let values = array.as_boolean().values();
    let (trues, falses) = match nulls {
        None => (values.count_set_bits(), array.len() - values.count_set_bits()),
        Some(nulls) => {
            let trues = (values & nulls.inner()).count_set_bits();
            (trues, array.len() - nulls.null_count() - trues)
        }
    };
    let bounds = (Value::Bool(falses == 0), Value::Bool(trues > 0));
    let constant = nulls.is_none() && (trues == 0 || falses == 0);
    let body = if constant { constant_of(array) } else { Body::Plain { values: values.sliced() } };
    (body, Some(bounds))
}

fn floats(array: &ArrayRef, nulls: Option<&NullBuffer>) -> Encoded {
    let (values, constant, bounds) = match array.as_primitive_opt::<Float32Type>() {
        Some(array) => {
            let values = array.values();
            let constant = values.iter().all(|value| value.to_bits() == values[0].to_bits());
            let valid = valid_rows(nulls, array.len()).map(|row| f64::from(values[row]));
            (values.inner().clone(), constant, bounds_of_floats(valid))
        }
        None => {
            let values = array.as_primitive::<Float64Type>().values();
            let constant = values.iter().all(|value| value.to_bits() == values[0].to_bits());
            let valid = valid_rows(nulls, array.len()).map(|row| values[row]);
            (values.inner().clone(), constant, bounds_of_floats(valid))
        }
    };
    let constant = constant && nulls.is_none();
    let body = if constant { constant_of(array) } else { Body::Plain { values } };
    (body, bounds.map(|(min, max)| (Value::Float(min), Value::Float(max))))
}

/// Returns the rows that are not NULL.
fn valid_rows(nulls: Option<&NullBuffer>, rows: usize) -> impl Iterator<Item = usize> {
    (0..rows).filter(move |row| nulls.is_none_or(|nulls| nulls.is_valid(*row)))
}

/// Creates the body of an array whose values are all equal and not NULL.
fn constant_of(array: &ArrayRef) -> Body {
    Body::Constant { value: first_row(array), number: None }
}

/// Copies the first row. A slice would keep the memory of the whole array in use.
fn first_row(array: &ArrayRef) -> ArrayRef {
    let first = arrow_array::UInt32Array::from(vec![0]);
    arrow_select::take::take(array, &first, None).expect("there is a first row")
}

/// Creates the body of a fixed-width constant. If it is an integer that fits a signed 64-bit integer, the body also has
/// its packed form.
pub(crate) fn numbered_constant(value: ArrayRef, rows: usize) -> Body {
    let number = with_integer!(value.data_type(), T => {
        i64::try_from(value.as_primitive::<T>().value(0).wide()).ok()
    }, None);
    Body::Constant { value, number: number.map(|number| Packed::constant(number, rows)) }
}

/// Encodes an array of an integer-like type: bit-packed if all values fit a signed 64-bit integer, otherwise plain.
/// Returns `None` for other types.
pub(crate) fn integers_of(array: &ArrayRef, nulls: Option<&NullBuffer>) -> Option<Encoded> {
    with_integer!(array.data_type(), T => {
        let values = array.as_primitive::<T>().values();
        let (min, max) = bounds_of_integers(values, nulls)?;
        let body = match (i64::try_from(min.wide()), i64::try_from(max.wide())) {
            (Ok(low), Ok(high)) if low == high && nulls.is_none() => {
                numbered_constant(first_row(array), array.len())
            }
            (Ok(low), Ok(high)) => Body::BitPacked(pack(values, nulls, (low, high))),
            _ if min == max && nulls.is_none() => constant_of(array),
            _ => Body::Plain { values: values.inner().clone() },
        };
        Some((body, Some((Value::Int(min.wide()), Value::Int(max.wide())))))
    }, None)
}

/// Kernel that finds the minimum and the maximum; `None` without values.
struct Bounds<'a, N>(&'a [N]);

impl<N: Int> Kernel for Bounds<'_, N> {
    type Output = Option<(N, N)>;

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> Option<(N, N)> {
        let first = *self.0.first()?;
        Some(self.0.iter().fold((first, first), |(min, max), value| (min.min(*value), max.max(*value))))
    }
}

/// Returns the minimum and maximum of the values that are not NULL; `None` if there are none.
fn bounds_of_integers<N: Int>(values: &[N], nulls: Option<&NullBuffer>) -> Option<(N, N)> {
    let bounds = |values: &[N]| Level::best().run(Bounds(values));
    let Some(nulls) = nulls else { return bounds(values) };
    let pieces = nulls.valid_slices().filter_map(|(start, end)| bounds(&values[start..end]));
    pieces.reduce(|(min, max), (low, high)| (min.min(low), max.max(high)))
}

/// Packs values as their distances from the minimum, and NULLs as distance 0.
pub(crate) fn pack<N: Int>(values: &[N], nulls: Option<&NullBuffer>, bounds: (i64, i64)) -> Packed {
    let reference = bounds.0 as u64;
    with_lane!(width_of(bounds.1.wrapping_sub(bounds.0) as u64), L => {
        Packed::pack_with::<L>(bounds, values.len(), |rows, out| {
            use crate::lanes::Lane;
            let start = rows.start;
            for (out, value) in out.iter_mut().zip(&values[rows]) {
                *out = L::truncate(value.low().wrapping_sub(reference));
            }
            if let Some(nulls) = nulls {
                for (i, out) in out.iter_mut().enumerate() {
                    *out = if nulls.is_valid(start + i) { *out } else { L::default() };
                }
            }
        })
    })
}

/// Copies `bytes` to memory with the alignment that Arrow recommends.
pub(crate) fn aligned_copy(bytes: &[u8]) -> Buffer {
    if bytes.is_empty() { Buffer::default() } else { Buffer::from_slice_ref(bytes) }
}
