//! Encodes strings and binaries: a dictionary where values repeat, compressed text where that clearly pays,
//! plain bytes otherwise.
//!
//! A dictionary wins whenever it is no larger, because operators then look at each distinct value once.
//! FSST must save a good part, because every scan has to undo it. Both are tried on a sample first, so that
//! a column for which they are hopeless costs little.

use crate::body::Body;
use crate::encode::Encoded;
use crate::ends::Ends;
use crate::fsst_text::SymbolTable;
use crate::packed::{Packed, width_of};
use crate::views::{Views, slices, view_of};
use crate::zone::{bounds_of_bytes, bytes_value};
use ahash::RandomState;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;
use farpool_model::limits::STRING_BYTES_MAX;
use farpool_model::{Error, Result, Value};
use fsst::Compressor;
use hashbrown::HashTable;

/// Bytes of the strings of one chunk: view arrays count offsets in 31 bits.
pub(crate) const CHUNK_BYTES_MAX: usize = i32::MAX as usize;

/// Rows that are looked at to see whether a dictionary is worth building.
const SAMPLE_ROWS: usize = 1024;

/// Strings of fewer bytes are not worth a symbol table of up to 2.3 KB.
const FSST_BYTES_MIN: usize = 32 << 10;

/// FSST is taken when it needs at most this part of the plain bytes.
const FSST_RATIO_MAX: f64 = 0.7;

/// Bytes of the sample on which FSST is judged: as many as its training looks at.
const FSST_SAMPLE_BYTES: usize = 16 << 10;

/// The array's values encoded, and how many bytes the strings have.
///
/// # Errors
/// `OverLimit` when a string, or all of them together, are too long.
pub(crate) fn encode(array: &ArrayRef, nulls: Option<&NullBuffer>) -> Result<(Encoded, usize)> {
    let values = slices(array);
    let bytes = check_lengths(&values)?;
    if let Some((dictionary, codes)) = Dictionary::build(&values, nulls, bytes) {
        return Ok((dictionary.encoded(array.data_type(), codes, nulls), bytes));
    }
    let valid = values.iter().enumerate().filter(|(row, _)| nulls.is_none_or(|n| n.is_valid(*row)));
    let bounds = bounds_of_bytes(valid.map(|(_, value)| *value))
        .map(|(min, max)| (bytes_value(min, array.data_type()), bytes_value(max, array.data_type())));
    let body = match compressor_for(&values, bytes) {
        Some(compressor) => compress(&compressor, &values),
        None => plain(&values, bytes),
    };
    Ok(((body, bounds), bytes))
}

fn check_lengths(values: &[&[u8]]) -> Result<usize> {
    let longest = values.iter().map(|value| value.len()).max().unwrap_or(0);
    if longest > STRING_BYTES_MAX {
        return Err(Error::over_limit(format!(
            "a string may have {STRING_BYTES_MAX} bytes, one has {longest}"
        )));
    }
    let bytes = values.iter().map(|value| value.len()).sum();
    if bytes > CHUNK_BYTES_MAX {
        return Err(Error::over_limit(format!(
            "the strings of one column of a row group may have {CHUNK_BYTES_MAX} bytes, not {bytes}"
        )));
    }
    Ok(bytes)
}

/// Distinct values in the order in which they appeared, and then sorted.
struct Dictionary<'a> {
    values: Vec<&'a [u8]>,
}

impl<'a> Dictionary<'a> {
    /// The dictionary and a code for each row, or `None` when it would be larger than plain bytes.
    fn build(
        rows: &[&'a [u8]],
        nulls: Option<&NullBuffer>,
        bytes: usize,
    ) -> Option<(Dictionary<'a>, Vec<u32>)> {
        // What plain bytes take: the bytes and about 10 bits for the end of each.
        let budget = bytes + rows.len() * 10 / 8;
        let sample: Vec<&[u8]> = rows.iter().step_by(rows.len().div_ceil(SAMPLE_ROWS)).copied().collect();
        let mut tried = Collector::default();
        sample.iter().for_each(|value| tried.insert(value));
        if rows.len() > SAMPLE_ROWS && tried.values.len() > sample.len() / 2 {
            return None;
        }
        let mut collector = Collector::default();
        let mut codes = Vec::with_capacity(rows.len());
        for (row, value) in rows.iter().enumerate() {
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                codes.push(0);
                continue;
            }
            codes.push(collector.code(value));
            if collector.bytes > budget {
                return None;
            }
        }
        let code_bits = width_of(collector.values.len() as u64 - 1) as usize;
        if collector.bytes + rows.len() * code_bits / 8 > budget && collector.values.len() > 1 {
            return None;
        }
        let dictionary = sort(collector.values, &mut codes);
        Some((dictionary, codes))
    }

    fn encoded(&self, data_type: &DataType, codes: Vec<u32>, nulls: Option<&NullBuffer>) -> Encoded {
        let bound = |value: Option<&&[u8]>| bytes_value(value.copied().unwrap_or_default(), data_type);
        let bounds: (Value, Value) = (bound(self.values.first()), bound(self.values.last()));
        let values = self.array(data_type);
        let last = self.values.len() as u32 - 1;
        let body = if last == 0 && nulls.is_none() {
            Body::Constant { value: values, number: Some(Packed::constant(0, codes.len())) }
        } else {
            Body::Dictionary { values, codes: Packed::pack_u32(&codes, last) }
        };
        (body, Some(bounds))
    }

    fn array(&self, data_type: &DataType) -> ArrayRef {
        let mut data = Vec::new();
        let long = |value: &&[u8]| value.len() > 12;
        for value in self.values.iter().filter(|value| long(value)) {
            data.extend_from_slice(value);
        }
        let mut start = 0;
        let views = self.values.iter().map(|value| {
            if !long(value) {
                return view_of(value, 0, value.len());
            }
            start += value.len();
            view_of(&data, start - value.len(), value.len())
        });
        let views: ScalarBuffer<u128> = views.collect::<Vec<_>>().into();
        // SAFETY: the views are over `data`, and the values come from an array of this type.
        unsafe { Views { views, data: Buffer::from_vec(data) }.into_array(data_type, None) }
    }
}

/// Numbers distinct values as they come.
#[derive(Default)]
struct Collector<'a> {
    table: HashTable<u32>,
    hasher: RandomState,
    values: Vec<&'a [u8]>,
    last: u32,
    /// Bytes of the dictionary so far: a view for each value, and long values beside them.
    bytes: usize,
}

impl<'a> Collector<'a> {
    fn insert(&mut self, value: &'a [u8]) {
        self.code(value);
    }

    fn code(&mut self, value: &'a [u8]) -> u32 {
        if self.values.get(self.last as usize).is_some_and(|last| *last == value) {
            return self.last;
        }
        let (values, hasher) = (&mut self.values, &self.hasher);
        let hash = hasher.hash_one(value);
        if let Some(code) = self.table.find(hash, |code| values[*code as usize] == value) {
            self.last = *code;
            return *code;
        }
        let code = values.len() as u32;
        values.push(value);
        self.table.insert_unique(hash, code, |code| hasher.hash_one(values[*code as usize]));
        self.bytes += 16 + if value.len() > 12 { value.len() } else { 0 };
        self.last = code;
        code
    }
}

/// Puts the values in bytewise order and renumbers the codes.
fn sort<'a>(values: Vec<&'a [u8]>, codes: &mut [u32]) -> Dictionary<'a> {
    let mut order: Vec<u32> = (0..values.len() as u32).collect();
    order.sort_unstable_by_key(|code| values[*code as usize]);
    let mut rank = vec![0; order.len()];
    for (place, code) in order.iter().enumerate() {
        rank[*code as usize] = place as u32;
    }
    codes.iter_mut().for_each(|code| *code = rank[*code as usize]);
    Dictionary { values: order.iter().map(|code| values[*code as usize]).collect() }
}

fn plain(values: &[&[u8]], bytes: usize) -> Body {
    let mut data = Vec::with_capacity(bytes);
    let mut ends = Vec::with_capacity(values.len());
    for value in values {
        data.extend_from_slice(value);
        ends.push(data.len() as u32);
    }
    Body::PlainBytes { ends: Ends::new(&ends), data: Buffer::from_vec(data) }
}

/// A compressor trained on the values, if it makes a sample of them clearly smaller.
fn compressor_for(values: &[&[u8]], bytes: usize) -> Option<Compressor> {
    if bytes < FSST_BYTES_MIN {
        return None;
    }
    let step = values.len().div_ceil(SAMPLE_ROWS);
    let mut left = FSST_SAMPLE_BYTES;
    let mut sample = Vec::new();
    for value in values.iter().step_by(step) {
        let part = &value[..value.len().min(left).min(1024)];
        left -= part.len();
        sample.push(part);
    }
    let plain: usize = sample.iter().map(|value| value.len()).sum();
    let compressor = Compressor::train(&sample);
    let (mut codes, mut ends) = (Vec::new(), Vec::new());
    compressor.compress_bulk_into::<{ Compressor::DEFAULT_BULK_LANES }>(&sample, &mut codes, &mut ends);
    (codes.len() as f64 <= plain as f64 * FSST_RATIO_MAX).then_some(compressor)
}

fn compress(compressor: &Compressor, values: &[&[u8]]) -> Body {
    let (mut codes, mut ends) = (Vec::new(), Vec::new());
    compressor.compress_bulk_into::<{ Compressor::DEFAULT_BULK_LANES }>(values, &mut codes, &mut ends);
    if codes.len() > CHUNK_BYTES_MAX {
        return plain(values, values.iter().map(|value| value.len()).sum());
    }
    let ends: Vec<u32> = ends.into_iter().map(|end| end as u32).collect();
    let lengths: Vec<u32> = values.iter().map(|value| value.len() as u32).collect();
    let longest = lengths.iter().copied().max().unwrap_or(0);
    codes.shrink_to_fit();
    Body::Fsst {
        table: Box::new(SymbolTable::of(compressor)),
        ends: Ends::new(&ends),
        lengths: Packed::pack_u32(&lengths, longest),
        data: Buffer::from_vec(codes),
    }
}
