//! Decodes consecutive rows to Arrow arrays.

use crate::body::Body;
use crate::chunk::Chunk;
use crate::ends::Ends;
use crate::fsst_text::SymbolTable;
use crate::lanes::Lane;
use crate::packed::{Packed, with_lane};
use crate::result_buffer::ResultBuffer;
use crate::types::Int;
use crate::views::{Views, view_of};
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray, UInt32Array};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;
use farpool_model::limits::BLOCK_ROWS;
use farpool_model::{Error, Result, with_integer};
use std::ops::Range;
use std::sync::Arc;

/// Decodes the values of `rows`, all of which must exist.
pub(crate) fn decode(chunk: &Chunk, rows: Range<usize>) -> Result<ArrayRef> {
    let data_type = chunk.data_type();
    let nulls = chunk.nulls(rows.clone());
    Ok(match &chunk.body {
        Body::Constant { value, .. } => repeat(value, rows.len())?,
        Body::Plain { values } => plain(values, rows, data_type, nulls)?,
        Body::BitPacked(packed) => integers(packed, rows, data_type, nulls)?,
        Body::Dictionary { values, codes } => dictionary(values, codes, rows, data_type, nulls),
        Body::PlainBytes { ends, data } => plain_bytes(ends, data, rows, data_type, nulls),
        Body::Fsst { table, ends, lengths, data } => {
            let coded = FsstBody { table, ends, lengths, data };
            coded.decode(rows, data_type, nulls)
        }
    })
}

/// Decodes rows as [`decode`] does, but into the memory of `room`, as far as it has any.
pub(crate) fn decode_in(chunk: &Chunk, rows: Range<usize>, room: &mut ResultBuffer) -> Result<ArrayRef> {
    let data_type = chunk.data_type();
    let nulls = chunk.nulls(rows.clone());
    let decoded = match &chunk.body {
        Body::BitPacked(packed) => integers_in(packed, rows.clone(), data_type, nulls, room),
        Body::Dictionary { values, codes } => {
            dictionary_in(values, codes, rows.clone(), data_type, nulls, room)
        }
        _ => None,
    };
    decoded.map_or_else(|| decode(chunk, rows), Ok)
}

/// Returns an array of `rows` copies of the only row of `value`.
pub(crate) fn repeat(value: &ArrayRef, rows: usize) -> Result<ArrayRef> {
    let zeros = UInt32Array::from(vec![0; rows]);
    arrow_select::take::take(value, &zeros, None)
        .map_err(|error| Error::internal(format!("repeating a constant: {error}")))
}

/// Returns fixed-width values as an array that shares the memory of `values`.
pub(crate) fn plain(
    values: &Buffer,
    rows: Range<usize>,
    data_type: &DataType,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    if *data_type == DataType::Boolean {
        let bits = BooleanBuffer::new(values.clone(), rows.start, rows.len());
        return Ok(Arc::new(BooleanArray::new(bits, nulls)));
    }
    fn of<T: ArrowPrimitiveType>(
        values: &Buffer,
        rows: Range<usize>,
        data_type: &DataType,
        nulls: Option<NullBuffer>,
    ) -> ArrayRef {
        let values = ScalarBuffer::<T::Native>::new(values.clone(), rows.start, rows.len());
        Arc::new(PrimitiveArray::<T>::new(values, nulls).with_data_type(data_type.clone()))
    }
    match data_type {
        DataType::Float32 => Ok(of::<Float32Type>(values, rows, data_type, nulls)),
        DataType::Float64 => Ok(of::<Float64Type>(values, rows, data_type, nulls)),
        _ => {
            with_integer!(data_type, T => Ok(of::<T>(values, rows, data_type, nulls)), Err(not_plain(data_type)))
        }
    }
}

pub(crate) fn not_plain(data_type: &DataType) -> Error {
    Error::internal(format!("values of type {data_type} are not held in this form"))
}

fn integers(
    packed: &Packed,
    rows: Range<usize>,
    data_type: &DataType,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    with_integer!(data_type, T => {
        let values = with_lane!(packed.width, L => unpack::<<T as ArrowPrimitiveType>::Native, L>(packed, rows));
        Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), nulls).with_data_type(data_type.clone())))
    }, Err(not_plain(data_type)))
}

fn unpack<N: Int, L: Lane>(packed: &Packed, rows: Range<usize>) -> Vec<N> {
    let mut values = Vec::new();
    let reference = packed.reference as u64;
    packed.unpack_with::<L, N>(rows, &mut values, |delta| N::of_low(reference.wrapping_add(delta.widen())));
    values
}

fn integers_in(
    packed: &Packed,
    rows: Range<usize>,
    data_type: &DataType,
    nulls: Option<NullBuffer>,
    room: &mut ResultBuffer,
) -> Option<ArrayRef> {
    with_integer!(data_type, T => {
        let reference = packed.reference as u64;
        let values = room.buffer(rows.len(), |out| with_lane!(packed.width, L => {
            type Native = <T as ArrowPrimitiveType>::Native;
            let value = |delta: L| Native::of_low(reference.wrapping_add(delta.widen()));
            packed.unpack_to::<L, Native>(rows, value, |values| out.append(values));
        }))?;
        Some(Arc::new(PrimitiveArray::<T>::new(values, nulls).with_data_type(data_type.clone())))
    }, None)
}

fn dictionary_in(
    values: &ArrayRef,
    codes: &Packed,
    rows: Range<usize>,
    data_type: &DataType,
    nulls: Option<NullBuffer>,
    room: &mut ResultBuffer,
) -> Option<ArrayRef> {
    let Views { views: distinct, data } = Views::of_array(values);
    let views = room.buffer(rows.len(), |out| {
        let mut views = [0; BLOCK_ROWS];
        with_lane!(codes.width, L => codes.for_each_piece::<L>(rows, |piece| {
            for (view, code) in views.iter_mut().zip(piece) {
                *view = distinct[ArrowNativeType::as_usize(*code)];
            }
            out.append(&views[..piece.len()]);
        }));
    })?;
    // SAFETY: the views are copies of views of an array over the same data.
    Some(unsafe { Views { views, data }.into_array(data_type, nulls) })
}

fn dictionary(
    values: &ArrayRef,
    codes: &Packed,
    rows: Range<usize>,
    data_type: &DataType,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let Views { views: distinct, data } = Views::of_array(values);
    let mut views: Vec<u128> = Vec::with_capacity(rows.len());
    with_lane!(codes.width, L => codes.for_each_piece::<L>(rows, |piece| {
        views.extend(piece.iter().map(|code| distinct[ArrowNativeType::as_usize(*code)]));
    }));
    // SAFETY: the views are copies of views of an array over the same data.
    unsafe { Views { views: views.into(), data }.into_array(data_type, nulls) }
}

fn plain_bytes(
    ends: &Ends,
    data: &Buffer,
    rows: Range<usize>,
    data_type: &DataType,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let bounds = ends.bounds(rows);
    let views = bounds.windows(2).map(|w| view_of(data, w[0] as usize, (w[1] - w[0]) as usize));
    let views: ScalarBuffer<u128> = views.collect::<Vec<_>>().into();
    // SAFETY: the views were made over this data. The bytes between two ends were a value of this type, or were
    // checked to be one.
    unsafe { Views { views, data: data.clone() }.into_array(data_type, nulls) }
}

/// Parts of a body with FSST-compressed strings.
#[derive(Clone, Copy)]
pub(crate) struct FsstBody<'a> {
    pub table: &'a SymbolTable,
    pub ends: &'a Ends,
    pub lengths: &'a Packed,
    pub data: &'a Buffer,
}

impl FsstBody<'_> {
    fn decode(&self, rows: Range<usize>, data_type: &DataType, nulls: Option<NullBuffer>) -> ArrayRef {
        let mut lengths: Vec<u32> = Vec::with_capacity(rows.len());
        with_lane!(self.lengths.width, L => self.lengths.for_each_piece::<L>(rows.clone(), |piece| {
            lengths.extend(piece.iter().map(|length| length.widen() as u32));
        }));
        let (start, end) = match rows.is_empty() {
            true => (0, 0),
            false => (self.ends.range(rows.start).start, self.ends.range(rows.end - 1).end),
        };
        // Strings are compressed independently, so the codes of consecutive ones can be decoded in one pass.
        let mut text = Vec::new();
        let bytes = lengths.iter().map(|length| *length as usize).sum();
        let decoded = self.table.decode(&self.data[start..end], bytes, &mut text);
        assert!(decoded, "the codes of a chunk were made, or checked, with their lengths");
        // SAFETY: the text consists of values of this type, or of bytes that were checked to be such values.
        unsafe { text_array(text, &lengths, data_type, nulls) }
    }
}

/// Returns an array of values that are consecutive in `text` and have these lengths.
///
/// # Safety
/// The lengths must add up to that of `text`; for `Utf8View`, each value must be valid UTF-8.
pub(crate) unsafe fn text_array(
    text: Vec<u8>,
    lengths: &[u32],
    data_type: &DataType,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let mut start = 0;
    let mut views = Vec::with_capacity(lengths.len());
    for length in lengths {
        views.push(view_of(&text, start, *length as usize));
        start += *length as usize;
    }
    // SAFETY: the views were made over this text; the caller guarantees that the values are valid.
    unsafe { Views { views: views.into(), data: Buffer::from_vec(text) }.into_array(data_type, nulls) }
}
