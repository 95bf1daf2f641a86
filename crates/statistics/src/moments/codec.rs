//! Encoding and decoding of moments (sums and sums of products of pairs of columns).
//!
//! Invariant: equal states of integers have equal bytes. Decoding any bytes gives a state in which each number is
//! plausible by itself, or `Corrupt`. The format is in `docs/wire.md`.

use super::Moments;
use super::integers::Integers;
use super::layout::{Layout, triangle};
use super::mean::Mean;
use super::pair::Odd;
use super::shared::{FloatColumn, Shared};
use super::split::Split;
use super::wide::{WORDS, Wide};
use arrow_schema::DataType;
use farpool_model::literal::integer_range;
use farpool_model::{Error, NullHandling, Result, limits, numbered_type, type_number};
use std::ops::RangeInclusive;

/// The version of the encoding.
pub const MOMENTS_VERSION: u8 = 1;

/// Type number of a decimal; its precision and scale follow. Other types have lower numbers and no parameters.
const DECIMAL: u8 = 11;

/// Type numbers that moments may have: those of integers and floats.
const NUMERIC: RangeInclusive<u8> = 1..=10;

pub(crate) fn write(moments: &Moments) -> Vec<u8> {
    let layout = &moments.layout;
    let mut to = vec![MOMENTS_VERSION, u8::from(layout.nulls == NullHandling::Pairwise)];
    to.extend((layout.columns() as u32).to_le_bytes());
    layout.types.iter().for_each(|data_type| write_type(&mut to, data_type));
    match moments.as_split() {
        None => write_shared(&mut to, &moments.whole),
        Some(split) => write_split(&mut to, &split),
    }
    sealed_moments(&to)
}

/// Appends the checksum to the body of a state; for tests of decoders.
#[doc(hidden)]
pub fn sealed_moments(body: &[u8]) -> Vec<u8> {
    [body, &checksum(body).to_le_bytes()].concat()
}

pub(crate) fn read(bytes: &[u8]) -> Result<Moments> {
    let (body, sum) = bytes.split_last_chunk::<8>().ok_or_else(|| damaged("it is too short"))?;
    if checksum(body) != u64::from_le_bytes(*sum) {
        return Err(damaged("its checksum is wrong"));
    }
    let mut from = Reader(body);
    if from.byte()? != MOMENTS_VERSION {
        return Err(Error::corrupt(format!("the state of moments has version {}", body[0]))
            .advise(format!("this program knows version {MOMENTS_VERSION}: use equal ones")));
    }
    let nulls = match from.byte()? {
        0 => NullHandling::Listwise,
        1 => NullHandling::Pairwise,
        _ => return Err(damaged("it does not say how NULLs count")),
    };
    let columns = u32::from_le_bytes(from.array()?) as usize;
    if columns > limits::MOMENT_COLUMNS_MAX {
        return Err(damaged("it has more columns than the limit"));
    }
    let types = (0..columns).map(|_| from.data_type()).collect::<Result<Vec<_>>>()?;
    let layout = Layout::new(&types, nulls)?;
    let mut moments = Moments::of(layout);
    match from.byte()? {
        0 => moments.whole = from.shared(&moments.layout)?,
        1 if nulls == NullHandling::Pairwise => moments.split = Some(Box::new(from.split(&moments.layout)?)),
        _ => return Err(damaged("it has no known form")),
    }
    let split = moments.split.as_deref();
    moments.rows = split.map_or(moments.whole.rows, Split::rows);
    if from.0.is_empty() { Ok(moments) } else { Err(damaged("something stands behind its end")) }
}

fn damaged(why: &str) -> Error {
    Error::corrupt(format!("the state of moments is damaged: {why}"))
}

/// Computes FNV-1a over words of 8 bytes, the last one padded with zeros, and the length.
fn checksum(bytes: &[u8]) -> u64 {
    let mut state = 0xcbf2_9ce4_8422_2325u64;
    let mut mix = |word: u64| state = (state ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(u64::from_le_bytes(word));
    }
    mix(bytes.len() as u64);
    state
}

fn write_type(to: &mut Vec<u8>, data_type: &DataType) {
    match data_type {
        DataType::Decimal128(precision, scale) => to.extend([DECIMAL, *precision, scale.cast_unsigned()]),
        other => to.extend(type_number(other).filter(|number| NUMERIC.contains(number))),
    }
}

fn write_shared(to: &mut Vec<u8>, shared: &Shared) {
    to.push(0);
    to.extend(shared.rows.to_le_bytes());
    write_integers(to, &shared.sums);
    write_integers(to, &shared.products);
    for column in &shared.floats {
        to.push(column.odd.0);
        to.extend(column.mean.high.to_le_bytes());
        to.extend(column.mean.low.to_le_bytes());
    }
    shared.comoments.iter().for_each(|value| to.extend(value.to_le_bytes()));
}

fn write_split(to: &mut Vec<u8>, split: &Split) {
    to.push(1);
    split.counts.iter().for_each(|count| to.extend(count.to_le_bytes()));
    write_integers(to, &split.sums);
    for pair in &split.floats {
        to.extend(pair.count.to_le_bytes());
        to.extend(pair.odd.map(|odd| odd.0));
        let means = pair.mean.iter().flat_map(|mean| [mean.high, mean.low]);
        let numbers: Vec<f64> = means.chain(pair.squares).chain([pair.products]).collect();
        numbers.iter().for_each(|value| to.extend(value.to_le_bytes()));
    }
}

/// Encodes each integer as a byte count and its significant bytes.
fn write_integers(to: &mut Vec<u8>, integers: &Integers) {
    for index in 0..integers.len() {
        let bytes: Vec<u8> = integers.get(index).0.iter().flat_map(|word| word.to_le_bytes()).collect();
        let count = significant(&bytes);
        to.push(count as u8);
        to.extend(&bytes[..count]);
    }
}

/// Returns the number of bytes that are needed to restore a number with its sign; 0 for the number 0.
fn significant(bytes: &[u8]) -> usize {
    let sign = if bytes.last().is_some_and(|byte| byte.cast_signed() < 0) { 0xff } else { 0 };
    let count = bytes.iter().rposition(|byte| *byte != sign).map_or(0, |last| last + 1);
    let told = count.checked_sub(1).map_or(0, |last| bytes[last]).cast_signed() < 0;
    count + usize::from(told != (sign == 0xff))
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, count: usize) -> Result<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(|| damaged("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// Checks, before memory is allocated, that at least `bytes` more bytes are there.
    fn expect(&self, bytes: usize) -> Result<()> {
        if bytes <= self.0.len() { Ok(()) } else { Err(damaged("it ends too early")) }
    }

    fn data_type(&mut self) -> Result<DataType> {
        let number = self.byte()?;
        if number == DECIMAL {
            let [precision, scale] = self.array()?;
            let scale = scale.cast_signed();
            let known = (1..=38).contains(&precision) && scale.unsigned_abs() <= 38;
            return if known {
                Ok(DataType::Decimal128(precision, scale))
            } else {
                Err(damaged("a decimal"))
            };
        }
        let known = Some(number).filter(|number| NUMERIC.contains(number)).and_then(numbered_type);
        known.ok_or_else(|| damaged("a column has no known type"))
    }

    fn count(&mut self) -> Result<u64> {
        let count = u64::from_le_bytes(self.array()?);
        if count <= limits::MOMENT_ROWS_MAX { Ok(count) } else { Err(damaged("it counts too many rows")) }
    }

    fn odd(&mut self) -> Result<Odd> {
        let odd = Odd(self.byte()?);
        if odd.0 <= Odd::ALL { Ok(odd) } else { Err(damaged("a column's kind of values is not known")) }
    }

    fn float(&mut self) -> Result<f64> {
        Ok(f64::from_le_bytes(self.array()?))
    }

    fn mean(&mut self) -> Result<Mean> {
        Ok(Mean { high: self.float()?, low: self.float()? })
    }

    /// Reads an integer whose magnitude is at most `bound`.
    fn integer(&mut self, bound: Wide) -> Result<Wide> {
        let count = usize::from(self.byte()?);
        if count > 8 * WORDS {
            return Err(damaged("a number is too long"));
        }
        let taken = self.take(count)?;
        let sign = if taken.last().is_some_and(|byte| byte.cast_signed() < 0) { 0xff } else { 0 };
        let mut bytes = [sign; 8 * WORDS];
        bytes[..count].copy_from_slice(taken);
        if significant(&bytes) != count {
            return Err(damaged("a number is longer than it needs to be"));
        }
        let (words, _) = bytes.as_chunks::<8>();
        let value = Wide(std::array::from_fn(|k| u64::from_le_bytes(words[k])));
        if value.within(bound) { Ok(value) } else { Err(damaged("a sum is too large for its rows")) }
    }

    fn shared(&mut self, layout: &Layout) -> Result<Shared> {
        let (exact, all) = (layout.exact, layout.columns());
        let columns = if exact < all { all } else { 0 };
        let floats = 17 * columns + 8 * (triangle(all) - triangle(exact));
        self.expect(8 + exact + triangle(exact) + floats)?;
        let mut shared = Shared::new(layout);
        shared.rows = self.count()?;
        for p in 0..exact {
            shared.sums.set(p, self.integer(bound(layout, shared.rows, &[p]))?);
        }
        for p in 0..exact {
            for q in 0..=p {
                let product = self.integer(bound(layout, shared.rows, &[p, q]))?;
                shared.products.set(triangle(p) + q, product);
            }
        }
        for column in &mut shared.floats {
            *column = FloatColumn { odd: self.odd()?, mean: self.mean()? };
        }
        for value in &mut shared.comoments {
            *value = self.float()?;
        }
        Ok(shared)
    }

    fn split(&mut self, layout: &Layout) -> Result<Split> {
        let exact = triangle(layout.exact);
        let floats = triangle(layout.columns()) - exact;
        self.expect(13 * exact + 66 * floats)?;
        let mut split = Split::new(layout);
        for count in &mut split.counts {
            *count = self.count()?;
        }
        for p in 0..layout.exact {
            for q in 0..=p {
                let pair = triangle(p) + q;
                let sums: [&[usize]; 5] = [&[p], &[q], &[p, p], &[q, q], &[p, q]];
                for (k, of) in sums.iter().enumerate() {
                    let sum = self.integer(bound(layout, split.counts[pair], of))?;
                    split.sums.set(5 * pair + k, sum);
                }
            }
        }
        for pair in &mut split.floats {
            pair.count = self.count()?;
            pair.odd = [self.odd()?, self.odd()?];
            pair.mean = [self.mean()?, self.mean()?];
            pair.squares = [self.float()?, self.float()?];
            pair.products = self.float()?;
        }
        Ok(split)
    }
}

/// Returns an upper bound of the magnitude of the sum, over `rows` rows, of the product of the columns at `places`.
fn bound(layout: &Layout, rows: u64, places: &[usize]) -> Wide {
    places.iter().fold(Wide::from(rows), |bound, place| bound * Wide::from(greatest(layout, *place)))
}

/// Returns the greatest magnitude that a value of the column at `place` can have.
fn greatest(layout: &Layout, place: usize) -> u128 {
    match integer_range(&layout.types[layout.at[place]]) {
        Some((low, high)) => low.unsigned_abs().max(high.unsigned_abs()),
        None => 1 << 127,
    }
}
