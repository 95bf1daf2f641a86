//! Selects rows of a chunk without changing its encoding: distances, dictionary codes and FSST codes are copied, so
//! that no value has to be encoded again.

use crate::body::Body;
use crate::chunk::Chunk;
use crate::encode::fixed_bytes;
use crate::ends::Ends;
use crate::packed::{Packed, with_lane};
use crate::parcel::pack_array;
use crate::views::{self, slices};
use crate::zone::ZoneMap;
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer};
use arrow_select::filter::filter;
use farpool_model::{Error, Result, schema};
use std::ops::Range;

/// Number of bytes that are copied at once.
const PIECE_BYTES: usize = 64;

/// Maximum length of a string, in bytes, that is copied in pieces of [`PIECE_BYTES`].
const SHORT_BYTES_MAX: usize = 4 * PIECE_BYTES;

/// Returns the `count` rows of the chunk whose bits are set, as a chunk.
pub(crate) fn pick(chunk: &Chunk, selected: &[u64], count: usize) -> Result<Chunk> {
    let data_type = chunk.data_type();
    let validity = chunk.validity_bits().map(|bits| filter_bits(bits, selected)).transpose()?;
    let null_count = match &validity {
        _ if chunk.is_null_constant() => count,
        Some(bits) => count - bits.count_set_bits(),
        None => 0,
    };
    let mut text_bytes = 0;
    let body = match &chunk.body {
        Body::Constant { value, number } => {
            text_bytes = count * value_bytes(value);
            let number = number.as_ref().map(|number| Packed::constant(number.reference, count));
            Body::Constant { value: value.clone(), number }
        }
        Body::Plain { .. } => {
            let picked =
                filter(&chunk.decode(0..chunk.rows())?, &mask(selected, chunk.rows())).map_err(failed)?;
            Body::Plain { values: picked.to_data().buffers()[0].clone() }
        }
        Body::BitPacked(packed) => Body::BitPacked(packed.pick(selected, count)),
        // If the dictionary has more entries than rows are selected, a new dictionary is built from the rows.
        Body::Dictionary { values, .. } if values.len() > count => {
            let mut rows = Vec::with_capacity(count);
            for_each_row(selected, |row| rows.push(row as u32));
            return pack_array(&chunk.gather(&rows)?);
        }
        Body::Dictionary { values, codes } => {
            let codes = codes.pick(selected, count);
            text_bytes = coded_bytes(values, &codes);
            Body::Dictionary { values: values.clone(), codes }
        }
        Body::PlainBytes { ends, data } => {
            let (ends, data) = pick_bytes(ends, data, chunk.rows(), selected, count);
            text_bytes = data.len();
            Body::PlainBytes { ends, data }
        }
        Body::Fsst { table, ends, lengths, data } => {
            let (ends, data) = pick_bytes(ends, data, chunk.rows(), selected, count);
            let lengths = lengths.pick(selected, count);
            text_bytes = sum(&lengths);
            Body::Fsst { table: table.clone(), ends, lengths, data }
        }
    };
    let zone = ZoneMap { null_count, ..ZoneMap::default() };
    let validity = validity.filter(|_| null_count > 0);
    let bytes_plain = fixed_bytes(data_type, count, null_count > 0) + text_bytes;
    Ok(Chunk::new(data_type.clone(), count, validity, zone, body, bytes_plain))
}

/// Returns the bytes of the selected values, one after another, and their ends.
fn pick_bytes(ends: &Ends, data: &Buffer, rows: usize, selected: &[u64], count: usize) -> (Ends, Buffer) {
    let bounds = ends.bounds(0..rows);
    // The full capacity is allocated: what is not used costs nothing, because the bytes are sent and freed soon.
    let (mut picked, mut picked_ends) = (Vec::with_capacity(data.len()), Vec::with_capacity(count));
    for_each_row(selected, |row| {
        append(&mut picked, data, bounds[row] as usize..bounds[row + 1] as usize);
        picked_ends.push(picked.len() as u32);
    });
    (Ends::new(&picked_ends), Buffer::from_vec(picked))
}

/// Appends `data[range]`. For a short string, bytes after it are copied as well and then cut off, because copies of a
/// fixed length take a third of the time.
#[inline]
fn append(out: &mut Vec<u8>, data: &[u8], range: Range<usize>) {
    if range.len() > SHORT_BYTES_MAX || range.start + SHORT_BYTES_MAX > data.len() {
        return out.extend_from_slice(&data[range]);
    }
    let end = out.len() + range.len();
    for piece in data[range.start..range.start + SHORT_BYTES_MAX].as_chunks::<PIECE_BYTES>().0 {
        if out.len() < end {
            out.extend_from_slice(piece);
        }
    }
    out.truncate(end);
}

fn filter_bits(bits: &BooleanBuffer, selected: &[u64]) -> Result<BooleanBuffer> {
    let bits = BooleanArray::new(bits.clone(), None);
    let picked = filter(&bits, &mask(selected, bits.len())).map_err(failed)?;
    Ok(BooleanBuffer::new(picked.to_data().buffers()[0].clone(), 0, picked.len()))
}

fn mask(selected: &[u64], rows: usize) -> BooleanArray {
    BooleanArray::new(BooleanBuffer::new(Buffer::from_slice_ref(selected), 0, rows), None)
}

fn failed(error: arrow_schema::ArrowError) -> Error {
    Error::internal(format!("picking rows: {error}"))
}

/// Calls `visit` with each row whose bit is set.
#[inline]
fn for_each_row(selected: &[u64], mut visit: impl FnMut(usize)) {
    for (index, word) in selected.iter().enumerate() {
        let mut word = *word;
        while word != 0 {
            visit(index * 64 + word.trailing_zeros() as usize);
            word &= word - 1;
        }
    }
}

/// Returns the size of a constant string in bytes; 0 for other constants.
fn value_bytes(value: &ArrayRef) -> usize {
    let is_text = schema::is_bytes(value.data_type());
    if is_text && value.is_valid(0) { views::value(value, 0).len() } else { 0 }
}

/// Returns the size of the strings that codes refer to, in bytes.
fn coded_bytes(values: &ArrayRef, codes: &Packed) -> usize {
    let lengths: Vec<usize> = slices(values).iter().map(|value| value.len()).collect();
    let mut bytes = 0;
    with_lane!(codes.width, L => codes.for_each_piece::<L>(0..codes.rows, |piece| {
        bytes += piece.iter().map(|code| lengths[ArrowNativeType::as_usize(*code)]).sum::<usize>();
    }));
    bytes
}

fn sum(numbers: &Packed) -> usize {
    let mut sum = 0;
    with_lane!(numbers.width, L => numbers.for_each_piece::<L>(0..numbers.rows, |piece| {
        sum += piece.iter().map(|number| ArrowNativeType::as_usize(*number)).sum::<usize>();
    }));
    sum
}
