//! Group keys encoded as *rows*: sequences of 64-bit words, for group keys that do not fit one integer together.
//!
//! A row begins with one word for each group key of up to 64 bits, two for a decimal, and one with the length in
//! bytes for a string ([`NULL_TEXT`] for NULL). Words with a NULL bit for each group key that is not a string follow;
//! the words of a group key that is NULL are 0. Then come the bytes of the strings, each padded with zeros to whole
//! words. Rows are equal exactly if their group keys are equal, rows are hashed without knowing their types, and a
//! partition of rows is read sequentially.

use super::hash::HashKey;
use super::values::{KeyValues, array_of_lanes};
use arrow_array::cast::AsArray;
use arrow_array::types::ByteViewType;
use arrow_array::{ArrayRef, GenericByteViewArray, LargeBinaryArray, LargeStringArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::DataType;
use farpool_columns::to_canonical;
use farpool_model::{Error, Result, schema};
use std::sync::Arc;

const WORD: usize = size_of::<i64>();

/// Length of a string that stands for NULL.
const NULL_TEXT: i64 = -1;

/// Positions of the group keys in a row.
pub(super) struct Layout {
    keys: Vec<Key>,
    /// Number of words of a row before its strings.
    lanes: usize,
    hash_key: HashKey,
}

struct Key {
    data_type: DataType,
    lane: usize,
    kind: Kind,
}

enum Kind {
    Text,
    /// A group key of one word: the index of that word, and the bit of its NULL flag.
    Narrow(usize, u32),
    /// A group key of two words: the index of the first, and the bit of its NULL flag.
    Wide(usize, u32),
}

/// Encoded group keys of the rows of a batch.
#[derive(Default)]
pub(crate) struct Rows {
    words: Vec<i64>,
    /// Start of each row in `words`, followed by the end of the last row.
    starts: Vec<usize>,
    hashes: Vec<u64>,
}

impl Rows {
    /// Returns the words of a row.
    pub(crate) fn row(&self, row: usize) -> &[i64] {
        &self.words[self.starts[row]..self.starts[row + 1]]
    }

    /// Returns the hash of each row.
    pub(crate) fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// Returns the number of words of all rows.
    pub(crate) fn words(&self) -> usize {
        self.words.len()
    }
}

impl Layout {
    /// Creates the layout for group keys of these canonical types.
    pub(super) fn new(types: &[DataType], hash_key: HashKey) -> Self {
        let lanes_of = |t: &DataType| if matches!(t, DataType::Decimal128(..)) { 2 } else { 1 };
        let null_lane: usize = types.iter().map(lanes_of).sum();
        let (mut lane, mut bits) = (0, 0_u32);
        let mut key = |data_type: &DataType| {
            let (null_lane, bit) = (null_lane + (bits / u64::BITS) as usize, bits % u64::BITS);
            let kind = match data_type {
                t if schema::is_bytes(t) => Kind::Text,
                DataType::Decimal128(..) => Kind::Wide(null_lane, bit),
                _ => Kind::Narrow(null_lane, bit),
            };
            bits += u32::from(!matches!(kind, Kind::Text));
            lane += lanes_of(data_type);
            Key { data_type: data_type.clone(), lane: lane - lanes_of(data_type), kind }
        };
        let keys = types.iter().map(&mut key).collect();
        Layout { keys, lanes: null_lane + bits.div_ceil(u64::BITS) as usize, hash_key }
    }

    /// Returns the maximum number of bytes of a row, without the bytes of its strings.
    pub(super) fn bytes(&self) -> usize {
        let texts = self.keys.iter().filter(|key| matches!(key.kind, Kind::Text)).count();
        // Each string takes up to one additional word for its padding.
        (self.lanes + texts) * WORD
    }

    /// Replaces `out` by the encoded group keys of `rows` rows.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn encode(&self, keys: &[KeyValues<'_>], rows: usize, out: &mut Rows) -> Result<()> {
        out.starts.clear();
        out.starts.resize(rows + 1, self.lanes);
        let texts = || self.keys.iter().zip(keys).filter(|(key, _)| matches!(key.kind, Kind::Text));
        for (_, values) in texts() {
            add_lengths(text_array(values)?, &mut out.starts);
        }
        let mut end = 0;
        for start in &mut out.starts {
            end += std::mem::replace(start, end);
        }
        out.words.clear();
        out.words.resize(out.starts[rows], 0);
        for (key, values) in self.keys.iter().zip(keys) {
            key.fill_lanes(values, out)?;
        }
        // Position at which the next string of each row is written.
        let mut cursors: Vec<usize> = Vec::new();
        for (index, (key, values)) in texts().enumerate() {
            if index == 0 {
                cursors.extend(out.starts[..rows].iter().map(|start| start + self.lanes));
            }
            fill_texts(text_array(values)?, key.lane, out, &mut cursors);
        }
        out.hashes.clear();
        let row = |ends: &[usize]| self.hash_key.of_row(&out.words[ends[0]..ends[1]]);
        out.hashes.extend(out.starts.windows(2).map(row));
        Ok(())
    }

    /// Decodes the group keys of some rows, to one array per group key.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn arrays<'r>(
        &self,
        rows: &(impl Iterator<Item = &'r [i64]> + Clone),
    ) -> Result<Vec<ArrayRef>> {
        let mut cursors = Vec::new();
        let of = |key: &Key| {
            let lane = |lane: usize| rows.clone().map(move |row| row[lane]);
            let nulls = |lane: usize, bit: u32| {
                let nulls: NullBuffer = rows.clone().map(|row| row[lane] >> bit & 1 == 0).collect();
                Some(nulls).filter(|nulls| nulls.null_count() > 0)
            };
            match key.kind {
                Kind::Text => {
                    if cursors.is_empty() {
                        cursors.extend(rows.clone().map(|_| self.lanes));
                    }
                    text_array_of(key, rows.clone(), &mut cursors)
                }
                Kind::Narrow(null_lane, bit) => {
                    array_of_lanes(&key.data_type, lane(key.lane).map(i128::from), nulls(null_lane, bit))
                }
                Kind::Wide(null_lane, bit) => {
                    let high = lane(key.lane + 1).map(|high| i128::from(high) << 64);
                    let low = lane(key.lane).map(|low| i128::from(low.cast_unsigned()));
                    let values = high.zip(low).map(|(high, low)| high | low);
                    array_of_lanes(&key.data_type, values, nulls(null_lane, bit))
                }
            }
        };
        self.keys.iter().map(of).collect()
    }
}

impl Key {
    /// Writes the words of a group key, unless it is a string.
    fn fill_lanes(&self, values: &KeyValues<'_>, out: &mut Rows) -> Result<()> {
        let Rows { words, starts, .. } = out;
        let starts = &starts[..starts.len() - 1];
        let (null_lane, bit) = match self.kind {
            Kind::Text => return Ok(()),
            Kind::Narrow(null_lane, bit) => {
                for (start, value) in starts.iter().zip(values.narrow()?.iter()) {
                    words[start + self.lane] = *value;
                }
                (null_lane, bit)
            }
            Kind::Wide(null_lane, bit) => {
                for (start, value) in starts.iter().zip(values.wide()) {
                    let place = start + self.lane;
                    (words[place], words[place + 1]) = (value as i64, (value >> 64) as i64);
                }
                (null_lane, bit)
            }
        };
        let Some(nulls) = values.nulls() else { return Ok(()) };
        let lanes = if matches!(self.kind, Kind::Wide(..)) { 2 } else { 1 };
        for (_, start) in starts.iter().enumerate().filter(|(row, _)| nulls.is_null(*row)) {
            words[start + self.lane..][..lanes].fill(0);
            words[start + null_lane] |= 1 << bit;
        }
        Ok(())
    }
}

fn text_array<'a>(values: &'a KeyValues<'_>) -> Result<&'a ArrayRef> {
    match values {
        KeyValues::Array(array) if schema::is_bytes(array.data_type()) => Ok(array),
        KeyValues::Array(array) => {
            Err(Error::internal(format!("{} where strings are wanted", array.data_type())))
        }
        KeyValues::Lane { .. } => Err(Error::internal("integers where strings are wanted")),
    }
}

/// Adds the length in words of each string to the length of its row.
fn add_lengths(array: &ArrayRef, lengths: &mut [usize]) {
    fn add<T: ByteViewType>(array: &GenericByteViewArray<T>, lengths: &mut [usize]) {
        let words = |view: &u128| (*view as u32 as usize).div_ceil(WORD);
        match nulls_of(array) {
            None => lengths.iter_mut().zip(array.views()).for_each(|(length, view)| *length += words(view)),
            Some(nulls) => {
                let views = array.views().iter().zip(nulls.iter());
                let words = views.map(|(view, is_valid)| if is_valid { words(view) } else { 0 });
                lengths.iter_mut().zip(words).for_each(|(length, words)| *length += words);
            }
        }
    }
    match array.data_type() {
        DataType::Utf8View => add(array.as_string_view(), lengths),
        _ => add(array.as_binary_view(), lengths),
    }
}

/// Writes each string at the cursor of its row, and its length to word `lane`.
fn fill_texts(array: &ArrayRef, lane: usize, out: &mut Rows, cursors: &mut [usize]) {
    fn fill<T: ByteViewType>(
        array: &GenericByteViewArray<T>,
        lane: usize,
        out: &mut Rows,
        cursors: &mut [usize],
    ) {
        let nulls = nulls_of(array);
        for (row, (cursor, start)) in cursors.iter_mut().zip(&out.starts).enumerate() {
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                out.words[start + lane] = NULL_TEXT;
                continue;
            }
            let text: &[u8] = array.value(row).as_ref();
            out.words[start + lane] = text.len() as i64;
            let words = text.len().div_ceil(WORD);
            write(text, &mut out.words[*cursor..*cursor + words]);
            *cursor += words;
        }
    }
    match array.data_type() {
        DataType::Utf8View => fill(array.as_string_view(), lane, out, cursors),
        _ => fill(array.as_binary_view(), lane, out, cursors),
    }
}

fn nulls_of<T: ByteViewType>(array: &GenericByteViewArray<T>) -> Option<&NullBuffer> {
    arrow_array::Array::nulls(array).filter(|nulls| nulls.null_count() > 0)
}

/// Writes a string to `words`. The last word is padded with zeros.
#[inline]
fn write(text: &[u8], words: &mut [i64]) {
    let (whole, rest) = text.as_chunks::<WORD>();
    for (word, bytes) in words.iter_mut().zip(whole) {
        *word = i64::from_le_bytes(*bytes);
    }
    if !rest.is_empty() {
        words[whole.len()] = last_word(text, rest);
    }
}

/// Returns the bytes after the last whole word as a word padded with zeros. Copying so few bytes would be a function
/// call.
#[inline]
fn last_word(text: &[u8], rest: &[u8]) -> i64 {
    if let Some(bytes) = text.last_chunk::<WORD>() {
        return (u64::from_le_bytes(*bytes) >> (8 * (WORD - rest.len()))).cast_signed();
    }
    rest.iter().rev().fold(0, |word, byte| word << 8 | i64::from(*byte))
}

/// Decodes the strings of a group key, and moves the cursors behind them.
fn text_array_of<'r>(
    key: &Key,
    rows: impl Iterator<Item = &'r [i64]> + Clone,
    cursors: &mut [usize],
) -> Result<ArrayRef> {
    let lengths = || rows.clone().map(|row| row[key.lane]);
    let nulls: NullBuffer = lengths().map(|length| length != NULL_TEXT).collect();
    let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
    let length = |length: i64| usize::try_from(length).unwrap_or(0);
    let offsets = OffsetBuffer::<i64>::from_lengths(lengths().map(length));
    let mut bytes = Vec::with_capacity(offsets.last().map_or(0, |end| *end as usize) + WORD);
    for ((row, cursor), length) in rows.clone().zip(cursors).zip(lengths().map(length)) {
        let end = bytes.len() + length;
        let words = length.div_ceil(WORD);
        row[*cursor..*cursor + words].iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes.truncate(end);
        *cursor += words;
    }
    let array: ArrayRef = if key.data_type == DataType::BinaryView {
        Arc::new(LargeBinaryArray::new(offsets, bytes.into(), nulls))
    } else {
        let texts = LargeStringArray::try_new(offsets, bytes.into(), nulls);
        Arc::new(texts.map_err(|error| Error::internal(format!("strings of groups: {error}")))?)
    };
    to_canonical(&array, &key.data_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Array, BinaryViewArray, BooleanArray, Decimal128Array, Int64Array, StringViewArray};
    use std::collections::HashSet;

    #[test]
    fn rows_give_their_keys_back_and_differ_where_these_do() {
        // All prefixes of a string with a zero byte in it, among them the empty one; and NULL.
        let text = "a longer text, \0 and more of it in other words";
        let beginnings = (0..=text.len()).map(|end| Some(&text[..end])).chain([None, Some("")]);
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter(beginnings));
        let rows = texts.len();
        let zeros = (0..rows).map(|row| Some(vec![0; row % 11]).filter(|_| row % 5 > 0));
        let bytes: ArrayRef = Arc::new(BinaryViewArray::from_iter(zeros));
        let wide: ArrayRef = Arc::new(
            Decimal128Array::from_iter((0..rows).map(|row| (row % 3 > 0).then(|| -(row as i128) << 70)))
                .with_precision_and_scale(38, 2)
                .unwrap(),
        );
        let flags: ArrayRef =
            Arc::new(BooleanArray::from_iter((0..rows).map(|r| (r % 4 > 0).then_some(r % 2 == 0))));
        let ints: ArrayRef =
            Arc::new(Int64Array::from_iter((0..rows).map(|row| (row % 7 > 0).then_some(row as i64))));
        for arrays in
            [vec![texts.clone()], vec![bytes.clone(), texts.clone()], vec![wide, bytes, flags, texts, ints]]
        {
            let layout = Layout::new(
                &arrays.iter().map(|array| array.data_type().clone()).collect::<Vec<_>>(),
                HashKey::default(),
            );
            let keys: Vec<KeyValues<'_>> = arrays.iter().cloned().map(KeyValues::Array).collect();
            let mut encoded = Rows::default();
            for _ in 0..2 {
                layout.encode(&keys, rows, &mut encoded).unwrap();
                let words: Vec<&[i64]> = (0..rows).map(|row| encoded.row(row)).collect();
                assert_eq!(words.concat().len(), encoded.words());
                assert_eq!(layout.arrays(&words.iter().copied()).unwrap(), arrays);
                // The empty string is there twice.
                let distinct: HashSet<&[i64]> = words.iter().copied().collect();
                assert_eq!(distinct.len(), rows - usize::from(arrays.len() == 1));
                let hashes: HashSet<u64> = encoded.hashes().iter().copied().collect();
                assert_eq!(hashes.len(), distinct.len());
            }
        }
    }
}
