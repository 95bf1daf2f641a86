//! Converts Arrow arrays to blocks of values, in the few forms that the hash function takes. NULLs are left out.

use super::block::BLOCK;
use crate::arch::{Kernel, Level};
use crate::decimals;
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrowPrimitiveType, OffsetSizeTrait, PrimitiveArray};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use farpool_model::{Error, Result, with_narrow_integer};

/// A block of values of a column.
pub(crate) enum Items<'a> {
    /// Signed integers, and all types that are stored as such, sign-extended; with their minimum, maximum and sum, if
    /// known.
    Signed(&'a [u64], Option<Summary>),
    /// Unsigned 64-bit integers.
    Unsigned(&'a [u64]),
    /// Bits of 64-bit floats.
    Floats(&'a [u64]),
    /// Decimals of any width. Arrays without NULLs whose values fit 64 bits are [`Items::Signed`] instead.
    Wide(&'a [i128]),
    /// Strings and binaries.
    Bytes(&'a [&'a [u8]]),
}

impl<'a> Items<'a> {
    /// Returns the integers as words; `None` for other forms.
    pub fn words(&self) -> Option<&'a [u64]> {
        match self {
            Items::Signed(words, _) | Items::Unsigned(words) => Some(words),
            Items::Floats(_) | Items::Wide(_) | Items::Bytes(_) => None,
        }
    }

    /// Returns `words` in the form of these items, which must be integers.
    pub fn with_words<'b>(&self, words: &'b [u64]) -> Items<'b> {
        match self {
            Items::Unsigned(_) => Items::Unsigned(words),
            _ => Items::Signed(words, None),
        }
    }
}

/// Minimum, maximum and sum of some signed integers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    pub low: i64,
    pub high: i64,
    pub sum: i128,
}

/// Callback for a block of values, with the number of occurrences of each; `None` if each occurs once.
pub(crate) type Take<'t> = &'t mut dyn FnMut(Items<'_>, Option<&[u64]>);

/// Calls `take` with the values of `array` in blocks. If `counts` is given, it has one count per row; values with the
/// count 0 are left out, as NULLs are.
///
/// # Errors
/// `Invalid` when the array's type or encoding is not supported.
pub(crate) fn blocks(array: &dyn Array, counts: Option<&[u64]>, take: Take<'_>) -> Result<()> {
    let mut source = Source { nulls: array.nulls(), counts, take };
    macro_rules! words {
        ($t:ty, $items:ident, $word:expr) => {
            source.words(array.as_primitive::<$t>(), $word, |words, _| Items::$items(words))
        };
    }
    match array.data_type() {
        DataType::Boolean => {
            let values = array.as_boolean().values();
            source.each(values.len(), |i| u64::from(values.value(i)), |words| Items::Signed(words, None));
        }
        DataType::UInt64 => words!(UInt64Type, Unsigned, |v| v),
        DataType::Float32 => words!(Float32Type, Floats, |v| f64::from(v).to_bits()),
        DataType::Float64 => words!(Float64Type, Floats, |v| v.to_bits()),
        DataType::Decimal128(..) => {
            source.decimals(array.as_primitive::<Decimal128Type>().values());
        }
        DataType::Utf8 => source.strings::<i32>(array),
        DataType::LargeUtf8 => source.strings::<i64>(array),
        DataType::Utf8View => {
            let values = array.as_string_view();
            source.each(values.len(), |i| values.value(i).as_bytes(), |values| Items::Bytes(values));
        }
        DataType::Binary => source.binaries::<i32>(array),
        DataType::LargeBinary => source.binaries::<i64>(array),
        DataType::BinaryView => {
            let values = array.as_binary_view();
            source.each(values.len(), |i| values.value(i), |values| Items::Bytes(values));
        }
        DataType::FixedSizeBinary(_) => {
            let values = array.as_fixed_size_binary();
            source.each(values.len(), |i| values.value(i), |values| Items::Bytes(values));
        }
        other => with_narrow_integer!(
            other,
            T => source.words(array.as_primitive::<T>(), |v| i64::from(v) as u64, |words, summary| Items::Signed(words, summary)),
            return Err(Error::invalid(format!("sketches do not read arrays of type {other}"))
                .advise("cast them to the type under which the pool holds them"))
        ),
    }
    Ok(())
}

struct Source<'a, 't> {
    nulls: Option<&'a NullBuffer>,
    counts: Option<&'a [u64]>,
    take: Take<'t>,
}

impl Source<'_, '_> {
    fn words<T: ArrowPrimitiveType>(
        &mut self,
        array: &PrimitiveArray<T>,
        word: impl Fn(T::Native) -> u64 + Copy,
        items: impl Fn(&[u64], Option<Summary>) -> Items<'_>,
    ) {
        let values = array.values();
        if self.nulls.is_some_and(|nulls| nulls.null_count() > 0) || self.counts.is_some() {
            return self.each(values.len(), |i| word(values[i]), |words| items(words, None));
        }
        let mut words = vec![0; values.len().min(BLOCK)];
        for chunk in values.chunks(BLOCK) {
            let words = &mut words[..chunk.len()];
            let summary = Level::best().run(Widen { values: chunk, words, word });
            (self.take)(items(words, summary), None);
        }
    }

    fn decimals(&mut self, values: &[i128]) {
        if self.nulls.is_some_and(|nulls| nulls.null_count() > 0) || self.counts.is_some() {
            return self.each(values.len(), |i| values[i], |values| Items::Wide(values));
        }
        let (mut narrow, mut words) = ([0; BLOCK], [0; BLOCK]);
        for values in values.chunks(BLOCK) {
            let (narrow, words) = (&mut narrow[..values.len()], &mut words[..values.len()]);
            if decimals::narrow(values, narrow) {
                let summary = Level::best().run(Widen { values: narrow, words, word: |v| v as u64 });
                (self.take)(Items::Signed(words, summary), None);
            } else {
                (self.take)(Items::Wide(values), None);
            }
        }
    }

    fn strings<O: OffsetSizeTrait>(&mut self, array: &dyn Array) {
        let values = array.as_string::<O>();
        self.each(values.len(), |i| values.value(i).as_bytes(), |values| Items::Bytes(values));
    }

    fn binaries<O: OffsetSizeTrait>(&mut self, array: &dyn Array) {
        let values = array.as_binary::<O>();
        self.each(values.len(), |i| values.value(i), |values| Items::Bytes(values));
    }

    /// Calls `take` with the values of those rows that are not left out (NULLs and rows with the count 0); `value`
    /// returns the value of a row.
    fn each<V>(&mut self, rows: usize, value: impl Fn(usize) -> V, items: impl Fn(&[V]) -> Items<'_>) {
        let (mut block, mut times) = (Vec::with_capacity(BLOCK), Vec::with_capacity(BLOCK));
        if self.counts.is_none() && self.nulls.is_none_or(|nulls| nulls.null_count() == 0) {
            for start in (0..rows).step_by(BLOCK) {
                block.clear();
                block.extend((start..rows.min(start + BLOCK)).map(&value));
                (self.take)(items(&block), None);
            }
            return;
        }
        for i in 0..rows {
            let count = self.counts.map_or(1, |counts| counts[i]);
            if count > 0 && self.nulls.is_none_or(|nulls| nulls.is_valid(i)) {
                block.push(value(i));
                times.push(count);
            }
            if block.len() == BLOCK || i + 1 == rows {
                (self.take)(items(&block), self.counts.map(|_| times.as_slice()));
                block.clear();
                times.clear();
            }
        }
    }
}

/// Kernel that writes values as words, and returns their summary as signed integers; `None` without values.
pub(crate) struct Widen<'a, T, F> {
    pub values: &'a [T],
    pub words: &'a mut [u64],
    pub word: F,
}

impl<T: Copy, F: Fn(T) -> u64> Kernel for Widen<'_, T, F> {
    type Output = Option<Summary>;

    #[inline(always)]
    fn run(self) -> Option<Summary> {
        let first = (self.word)(*self.values.first()?) as i64;
        let (mut low, mut high, mut ends, mut starts) = (first, first, 0_u64, 0_i64);
        for (value, to) in self.values.iter().zip(self.words) {
            let word = (self.word)(*value);
            *to = word;
            (low, high) = (low.min(word as i64), high.max(word as i64));
            // Sums the low and the high halves separately, because neither sum can exceed 64 bits in a block.
            ends += word & 0xffff_ffff;
            starts += word as i64 >> 32;
        }
        Some(Summary { low, high, sum: (i128::from(starts) << 32) + i128::from(ends) })
    }
}
