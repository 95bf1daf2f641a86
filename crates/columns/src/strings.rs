//! Encodes strings and binaries: as a dictionary if values repeat, compressed by FSST if that saves much, otherwise as
//! plain bytes.
//!
//! A dictionary is used whenever it is no larger than plain bytes, because operators then process each distinct value
//! only once. FSST must save a good part, because every scan has to decompress the values. Both are tried on a sample
//! first, so that a column for which they are useless costs little.
//!
//! A *code* is the index of a string in the dictionary of its chunk.

use crate::body::Body;
use crate::encode::Encoded;
use crate::ends::Ends;
use crate::fsst_text::SymbolTable;
use crate::packed::{Packed, width_of, with_lane};
use crate::views::{self, INLINE_BYTES_MAX, Views, view_of};
use crate::zone::{bounds_of_views, bytes_value};
use ahash::RandomState;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;
use farpool_model::limits::STRING_BYTES_MAX;
use farpool_model::{Error, Result, Value};
use fsst::Compressor;
use hashbrown::HashTable;

/// Maximum total size of the strings of one chunk, in bytes. Reason: offsets in Arrow's view arrays have 31 bits.
pub(crate) const CHUNK_BYTES_MAX: usize = i32::MAX as usize;

/// Number of rows that are sampled to estimate whether a dictionary is worth building.
const SAMPLE_ROWS: usize = 1024;

/// Maximum number of distinct values in the sample for building a dictionary, as a fraction of the sampled rows.
/// Example: if there are ten thousand values, each six or seven times in a row group, a sample has about 973 distinct
/// ones.
const SAMPLE_DISTINCT_MAX: (usize, usize) = (19, 20);

/// Minimum bytes of strings for FSST. Reason: its symbol table takes up to 2.3 KB.
const FSST_BYTES_MIN: usize = 32 << 10;

/// Maximum ratio of compressed to plain bytes for using FSST.
const FSST_RATIO_MAX: f64 = 0.7;

/// Size of the sample, in bytes, with which FSST is trained and judged. Reason: training uses all of a sample of less
/// than 16 KiB, but only parts of a larger one, with which codes were 2 to 8 % longer.
const FSST_SAMPLE_BYTES: usize = (16 << 10) - 1;

/// Maximum number of bytes of one string in the sample: as many as training uses in one piece.
const FSST_SAMPLE_STRING_BYTES: usize = 512;

/// Returns the least and the greatest value of the array; `None` if there are none.
pub(crate) fn bounds(array: &ArrayRef, nulls: Option<&NullBuffer>) -> Option<(Value, Value)> {
    let (views, _) = views::parts(array);
    let valid = views.iter().copied().enumerate().filter(|(row, _)| nulls.is_none_or(|n| n.is_valid(*row)));
    let bound = |row| bytes_value(views::value(array, row), array.data_type());
    let bounds = bounds_of_views(valid, |row| views::value(array, row));
    bounds.map(|(min, max)| (bound(min), bound(max)))
}

/// Encodes the values of the array. Also returns the total bytes of the strings.
///
/// # Errors
/// `OverLimit` when a string, or all of them together, are too long.
pub(crate) fn encode(array: &ArrayRef, nulls: Option<&NullBuffer>) -> Result<(Encoded, usize)> {
    let (views, _) = views::parts(array);
    let bytes = check_lengths(views, nulls)?;
    if let Some((distinct, codes)) = dictionary(array, nulls, bytes) {
        return Ok((encoded_dictionary(&distinct, array.data_type(), &codes, nulls), bytes));
    }
    let bounds = bounds(array, nulls);
    let values = views::slices(array);
    let body = match compressor_for(&values, bytes) {
        Some(compressor) => compress(&compressor, &values),
        None => plain(&values, bytes),
    };
    Ok(((body, bounds), bytes))
}

/// Packs the values of the array for sending, as a dictionary if that is smaller, otherwise as plain bytes: compressing
/// with FSST is slower than any network. Also returns the total bytes of the strings.
///
/// # Errors
/// As [`encode`].
pub(crate) fn pack(array: &ArrayRef, nulls: Option<&NullBuffer>) -> Result<(Body, usize)> {
    let (views, _) = views::parts(array);
    let bytes = check_lengths(views, nulls)?;
    let body = match dictionary(array, nulls, bytes) {
        Some((distinct, codes)) => encoded_dictionary(&distinct, array.data_type(), &codes, nulls).0,
        None => plain(&views::slices(array), bytes),
    };
    Ok((body, bytes))
}

/// Encodes the values of the array as plain bytes. Also returns the total bytes of the strings.
///
/// # Errors
/// As [`encode`].
pub(crate) fn as_they_are(array: &ArrayRef, nulls: Option<&NullBuffer>) -> Result<(Encoded, usize)> {
    let (views, _) = views::parts(array);
    let bytes = check_lengths(views, nulls)?;
    Ok(((plain(&views::slices(array), bytes), None), bytes))
}

/// Creates the body of values that are consecutive in `data` and end at `ends`.
///
/// # Errors
/// `Invalid` if the ends do not ascend to the length of `data`, or a string is not UTF-8; `OverLimit` if all values
/// together are too long.
pub(crate) fn of_bytes(data_type: &DataType, data: Buffer, ends: &[u32]) -> Result<Body> {
    if data.len() > CHUNK_BYTES_MAX {
        let (most, bytes) = (CHUNK_BYTES_MAX, data.len());
        let message = format!("the strings of one column of a row group may have {most} bytes, not {bytes}");
        return Err(Error::over_limit(message));
    }
    if !ends.is_sorted() || ends.last().copied().unwrap_or(0) as usize != data.len() {
        return Err(Error::invalid("ends of strings that do not ascend to the end of their bytes"));
    }
    if *data_type == DataType::Utf8View {
        let text = std::str::from_utf8(&data).map_err(|_| Error::invalid("a string that is not UTF-8"))?;
        if !ends.iter().all(|end| text.is_char_boundary(*end as usize)) {
            return Err(Error::invalid("a string that is not UTF-8"));
        }
    }
    Ok(Body::PlainBytes { ends: Ends::new(ends), data })
}

fn check_lengths(views: &[u128], nulls: Option<&NullBuffer>) -> Result<usize> {
    let length = |(row, view): (usize, &u128)| match nulls {
        Some(nulls) if nulls.is_null(row) => 0,
        _ => *view as u32 as usize,
    };
    let lengths = views.iter().enumerate().map(length);
    let (longest, bytes) = lengths.fold((0, 0), |(longest, sum), length| (length.max(longest), sum + length));
    if longest > STRING_BYTES_MAX {
        let message = format!("a string may have {STRING_BYTES_MAX} bytes, one has {longest}");
        return Err(Error::over_limit(message));
    }
    if bytes > CHUNK_BYTES_MAX {
        return Err(Error::over_limit(format!(
            "the strings of one column of a row group may have {CHUNK_BYTES_MAX} bytes, not {bytes}"
        )));
    }
    Ok(bytes)
}

/// Checks that the strings of a dictionary from a peer, each counted as often as rows refer to it, are no longer
/// together than those of a chunk may be. Reason: encoding or copying the rows processes that many bytes.
///
/// # Errors
/// `OverLimit` when they are longer.
pub(crate) fn check_row_bytes(
    values: &ArrayRef,
    codes: &Packed,
    validity: Option<&BooleanBuffer>,
) -> Result<()> {
    let lengths: Vec<usize> = views::parts(values).0.iter().map(|view| *view as u32 as usize).collect();
    let longest = lengths.iter().copied().max().unwrap_or(0);
    if longest.saturating_mul(codes.rows) <= CHUNK_BYTES_MAX {
        return Ok(());
    }
    let (mut bytes, mut row) = (0_usize, 0);
    with_lane!(codes.width, L => codes.for_each_piece::<L>(0..codes.rows, |piece| {
        for code in piece {
            let is_valid = validity.is_none_or(|bits| bits.value(row));
            bytes += if is_valid { lengths[ArrowNativeType::as_usize(*code)] } else { 0 };
            row += 1;
        }
    }));
    if bytes <= CHUNK_BYTES_MAX {
        return Ok(());
    }
    Err(Error::over_limit(format!(
        "the strings of one column of a row group may have {CHUNK_BYTES_MAX} bytes, not {bytes}"
    )))
}

/// Returns the distinct values in bytewise order and a code for each row; `None` if plain bytes would be smaller.
fn dictionary<'a>(
    array: &'a ArrayRef,
    nulls: Option<&NullBuffer>,
    bytes: usize,
) -> Option<(Vec<&'a [u8]>, Vec<u32>)> {
    let rows = array.len();
    // Size of the values as plain bytes: the strings, and about 10 bits for the end of each.
    let budget = bytes + rows * 10 / 8;
    let mut collector = Collector::new(array);
    let is_valid = |row: &usize| nulls.is_none_or(|nulls| nulls.is_valid(*row));
    if rows > SAMPLE_ROWS {
        let sample = (0..rows).step_by(rows.div_ceil(SAMPLE_ROWS));
        let sampled = sample.filter(is_valid).map(|row| collector.code(row)).count();
        let (most, of) = SAMPLE_DISTINCT_MAX;
        if collector.first_rows.len() * of > sampled * most && sampled > 0 {
            return None;
        }
    }
    let mut codes = vec![0; rows];
    for row in (0..rows).filter(is_valid) {
        codes[row] = collector.code(row);
        if collector.bytes > budget {
            return None;
        }
    }
    let code_bits = width_of(collector.first_rows.len() as u64 - 1) as usize;
    if collector.bytes + rows * code_bits / 8 > budget && collector.first_rows.len() > 1 {
        return None;
    }
    let values = collector.first_rows.iter().map(|row| views::value(array, *row as usize)).collect();
    Some((sort(values, &mut codes), codes))
}

/// Creates the body of a dictionary, or of a constant if there is one distinct value and no row is NULL.
fn encoded_dictionary(
    values: &[&[u8]],
    data_type: &DataType,
    codes: &[u32],
    nulls: Option<&NullBuffer>,
) -> Encoded {
    let bound = |value: Option<&&[u8]>| bytes_value(value.copied().unwrap_or_default(), data_type);
    let bounds: (Value, Value) = (bound(values.first()), bound(values.last()));
    let distinct = dictionary_array(values, data_type);
    let last = values.len() as u32 - 1;
    let body = if last == 0 && nulls.is_none() {
        Body::Constant { value: distinct, number: Some(Packed::constant(0, codes.len())) }
    } else {
        Body::Dictionary { values: distinct, codes: Packed::pack_u32(codes, last) }
    };
    (body, Some(bounds))
}

fn dictionary_array(values: &[&[u8]], data_type: &DataType) -> ArrayRef {
    let mut data = Vec::new();
    for value in values.iter().filter(|value| value.len() > INLINE_BYTES_MAX) {
        data.extend_from_slice(value);
    }
    let mut start = 0;
    let views = values.iter().map(|value| {
        if value.len() <= INLINE_BYTES_MAX {
            return view_of(value, 0, value.len());
        }
        start += value.len();
        view_of(&data, start - value.len(), value.len())
    });
    let views: ScalarBuffer<u128> = views.collect::<Vec<_>>().into();
    // SAFETY: the views were made over `data`, and the values come from an array of this type.
    unsafe { Views { views, data: Buffer::from_vec(data) }.into_array(data_type, None) }
}

/// Number of recent views that are cached. Reason: they must fit the L1 cache.
const RECENT: usize = 512;

/// Assigns codes to distinct values, in the order of first appearance. It compares views instead of bytes, since the
/// view of a short value contains all its bytes.
struct Collector<'a> {
    views: &'a [u128],
    buffers: &'a [Buffer],
    table: HashTable<u32>,
    hasher: RandomState,
    /// Secret key of the hash function for views, because an attacker might choose values that collide.
    hash_key: (u64, u64),
    /// View and hash of each distinct value.
    values: Vec<(u128, u64)>,
    /// Row in which each distinct value first appeared.
    first_rows: Vec<u32>,
    /// Direct-mapped cache of recent views and their codes. Most columns with a dictionary repeat a few views, and no
    /// branch depends on which of them comes next.
    recent: Box<[(u128, u32); RECENT]>,
    /// Size of the dictionary so far, in bytes: a view for each value, and the bytes of long values.
    bytes: usize,
}

impl<'a> Collector<'a> {
    fn new(array: &'a ArrayRef) -> Self {
        let (views, buffers) = views::parts(array);
        let hasher = RandomState::new();
        Collector {
            views,
            buffers,
            table: HashTable::new(),
            hash_key: (hasher.hash_one(0), hasher.hash_one(1)),
            hasher,
            values: Vec::new(),
            first_rows: Vec::new(),
            // Initial entries equal no view, because no string is as long as they state.
            recent: Box::new([(u128::MAX, 0); RECENT]),
            bytes: 0,
        }
    }

    #[inline]
    fn code(&mut self, row: usize) -> u32 {
        let view = self.views[row];
        let mixed = mix(view, self.hash_key);
        match self.recent[mixed as usize % RECENT] {
            (known, code) if known == view => code,
            _ => self.find(row, view, mixed),
        }
    }

    #[inline(never)]
    fn find(&mut self, row: usize, view: u128, mixed: u64) -> u32 {
        let hash = if is_long(view) { self.hasher.hash_one(self.bytes_of(view)) } else { mixed };
        let found = self.table.find(hash, |code| {
            let (known, known_hash) = self.values[*code as usize];
            known == view
                || (known_hash == hash && is_long(view) && self.bytes_of(known) == self.bytes_of(view))
        });
        let code = match found {
            Some(code) => *code,
            None => self.insert(row, view, hash),
        };
        self.recent[mixed as usize % RECENT] = (view, code);
        code
    }

    fn insert(&mut self, row: usize, view: u128, hash: u64) -> u32 {
        let code = self.values.len() as u32;
        self.values.push((view, hash));
        self.first_rows.push(row as u32);
        let values = &self.values;
        self.table.insert_unique(hash, code, |code| values[*code as usize].1);
        self.bytes += 16 + if is_long(view) { view as u32 as usize } else { 0 };
        code
    }

    /// Returns the bytes of a value that is not stored in its view.
    fn bytes_of(&self, view: u128) -> &'a [u8] {
        let start = (view >> 96) as usize;
        &self.buffers[(view >> 64) as u32 as usize][start..start + view as u32 as usize]
    }
}

fn is_long(view: u128) -> bool {
    view as u32 as usize > INLINE_BYTES_MAX
}

/// Hashes a view by folded multiplication, as ahash and wyhash do. Equal short values have equal views.
fn mix(view: u128, hash_key: (u64, u64)) -> u64 {
    let (low, high) = (view as u64, (view >> 64) as u64);
    let product = u128::from(low ^ hash_key.0) * u128::from(high ^ hash_key.1);
    product as u64 ^ (product >> 64) as u64
}

/// Sorts the values in bytewise order and changes the codes accordingly.
fn sort<'a>(values: Vec<&'a [u8]>, codes: &mut [u32]) -> Vec<&'a [u8]> {
    let mut order: Vec<u32> = (0..values.len() as u32).collect();
    order.sort_unstable_by_key(|code| values[*code as usize]);
    let mut rank = vec![0; order.len()];
    for (place, code) in order.iter().enumerate() {
        rank[*code as usize] = place as u32;
    }
    codes.iter_mut().for_each(|code| *code = rank[*code as usize]);
    order.iter().map(|code| values[*code as usize]).collect()
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

/// Returns an FSST compressor trained on the values; `None` if it does not make a sample of them clearly smaller.
fn compressor_for(values: &[&[u8]], bytes: usize) -> Option<Compressor> {
    if bytes < FSST_BYTES_MIN {
        return None;
    }
    let sample = sample(values);
    let plain: usize = sample.iter().map(|value| value.len()).sum();
    let compressor = Compressor::train(&sample);
    let (mut codes, mut ends) = (Vec::new(), Vec::new());
    compressor.compress_bulk_into::<{ Compressor::DEFAULT_BULK_LANES }>(&sample, &mut codes, &mut ends);
    ((codes.len() as f64) < plain as f64 * FSST_RATIO_MAX).then_some(compressor)
}

/// Samples non-empty strings from all over `values`. Steps by the golden ratio cover the whole range evenly
/// and do not coincide with periodic patterns.
fn sample<'a>(values: &[&'a [u8]]) -> Vec<&'a [u8]> {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut left = FSST_SAMPLE_BYTES;
    let mut sample = Vec::new();
    for step in 0..values.len() as u64 {
        let place = (u128::from(step.wrapping_mul(GOLDEN)) * values.len() as u128) >> u64::BITS;
        let value = values[place as usize];
        let part = &value[..value.len().min(left).min(FSST_SAMPLE_STRING_BYTES)];
        left -= part.len();
        if !part.is_empty() {
            sample.push(part);
        }
        if left == 0 {
            break;
        }
    }
    sample
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
    Body::Fsst {
        table: Box::new(SymbolTable::of(compressor)),
        ends: Ends::new(&ends),
        lengths: Packed::pack_u32(&lengths, longest),
        data: Buffer::from_vec(codes),
    }
}
