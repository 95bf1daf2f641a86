//! Decodes single rows of a chunk to Arrow arrays. The rows must exist; [`Chunk::gather`] checks that.

use crate::body::Body;
use crate::chunk::Chunk;
use crate::decode::{FsstBody, not_plain, plain, repeat, text_array};
use crate::ends::Ends;
use crate::lanes::Lane;
use crate::packed::{Packed, with_lane};
use crate::types::Int;
use crate::views::{Views, view_of};
use arrow_array::{ArrayRef, ArrowPrimitiveType, PrimitiveArray, UInt32Array};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer};
use arrow_schema::DataType;
use farpool_model::{Error, Result, with_integer};
use std::sync::Arc;

/// Returns the values of `rows`, which must exist.
pub(crate) fn gather(chunk: &Chunk, rows: &[u32]) -> Result<ArrayRef> {
    let data_type = chunk.data_type();
    let nulls = || gather_nulls(chunk, rows);
    Ok(match &chunk.body {
        Body::Constant { value, .. } => repeat(value, rows.len())?,
        Body::Plain { values } => {
            let all = plain(values, 0..chunk.rows(), data_type, chunk.nulls(0..chunk.rows()))?;
            let rows = UInt32Array::from(rows.to_vec());
            arrow_select::take::take(&all, &rows, None)
                .map_err(|error| Error::internal(format!("gathering plain values: {error}")))?
        }
        Body::BitPacked(packed) => integers(packed, rows, data_type, nulls())?,
        Body::Dictionary { values, codes } => dictionary(values, codes, rows, data_type, nulls()),
        Body::PlainBytes { ends, data } => plain_bytes(ends, data, rows, data_type, nulls()),
        Body::Fsst { table, ends, lengths, data } => {
            FsstBody { table, ends, lengths, data }.gather(rows, data_type, nulls())
        }
    })
}

fn gather_nulls(chunk: &Chunk, rows: &[u32]) -> Option<NullBuffer> {
    let bits = chunk.validity_bits()?;
    let gathered = BooleanBuffer::collect_bool(rows.len(), |i| bits.value(rows[i] as usize));
    Some(NullBuffer::new(gathered)).filter(|nulls| nulls.null_count() > 0)
}

fn integers(
    packed: &Packed,
    rows: &[u32],
    data_type: &DataType,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    with_integer!(data_type, T => {
        let values = with_lane!(packed.width, L => unpack::<<T as ArrowPrimitiveType>::Native, L>(packed, rows));
        Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), nulls).with_data_type(data_type.clone())))
    }, Err(not_plain(data_type)))
}

fn unpack<N: Int, L: Lane>(packed: &Packed, rows: &[u32]) -> Vec<N> {
    let mut values = Vec::with_capacity(rows.len());
    let reference = packed.reference as u64;
    packed.for_each_of::<L>(rows, |delta| {
        values.push(N::of_low(reference.wrapping_add(delta.widen())));
    });
    values
}

fn dictionary(
    values: &ArrayRef,
    codes: &Packed,
    rows: &[u32],
    data_type: &DataType,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let Views { views: distinct, data } = Views::of_array(values);
    let mut views: Vec<u128> = Vec::with_capacity(rows.len());
    with_lane!(codes.width, L => codes.for_each_of::<L>(rows, |code| {
        views.push(distinct[ArrowNativeType::as_usize(code)]);
    }));
    // SAFETY: the views are copies of views of an array over the same data.
    unsafe { Views { views: views.into(), data }.into_array(data_type, nulls) }
}

fn plain_bytes(
    ends: &Ends,
    data: &Buffer,
    rows: &[u32],
    data_type: &DataType,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let mut views: Vec<u128> = Vec::with_capacity(rows.len());
    for row in rows {
        let range = ends.range(*row as usize);
        views.push(view_of(data, range.start, range.len()));
    }
    // SAFETY: the views were made over this data. The bytes between two ends were a value of this type, or were
    // checked to be one.
    unsafe { Views { views: views.into(), data: data.clone() }.into_array(data_type, nulls) }
}

impl FsstBody<'_> {
    fn gather(&self, rows: &[u32], data_type: &DataType, nulls: Option<NullBuffer>) -> ArrayRef {
        let mut lengths: Vec<u32> = Vec::with_capacity(rows.len());
        with_lane!(self.lengths.width, L => self.lengths.for_each_of::<L>(rows, |length| {
            lengths.push(length.widen() as u32);
        }));
        let mut text = Vec::with_capacity(lengths.iter().map(|length| *length as usize).sum::<usize>() + 8);
        for (row, length) in rows.iter().zip(&lengths) {
            let codes = &self.data[self.ends.range(*row as usize)];
            let decoded = self.table.decode(codes, *length as usize, &mut text);
            assert!(decoded, "the codes of a chunk were made, or checked, with their lengths");
        }
        // SAFETY: the text consists of values of this type, or of bytes that were checked to be such values.
        unsafe { text_array(text, &lengths, data_type, nulls) }
    }
}
