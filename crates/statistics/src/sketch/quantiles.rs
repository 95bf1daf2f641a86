//! Quantiles of numeric types. They are computed on integers that compare as the values do: of 64 bits, or of 128 for
//! decimals.

use super::basics;
use super::items::Items;
use super::kll::{LEVELS_MAX, Levels, Parts, Ranked};
use crate::bounds::CONFIDENCE;
use crate::bytes::{Reader, damaged, put, put_signed};
use crate::hash;
use arrow_schema::DataType;
use farpool_model::{Error, Literal, Result, Value, schema};

/// A quantile: a value such that a given fraction of the values is at or below it.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantile {
    /// One of the column's values.
    pub value: Literal,
    /// Lower bound of the true quantile.
    pub low: Literal,
    /// Upper bound of the true quantile.
    pub high: Literal,
    /// Probability that the true quantile is within the bounds; 1 if `value` is exact.
    pub confidence: f64,
}

/// KLL sample of a column's values, which are converted to integers that compare as the values do.
#[derive(Clone, Debug)]
pub(super) enum Quantiles {
    Words(Levels<i64>),
    Wide(Levels<i128>),
}

/// Returns whether values of this type have quantiles.
pub(crate) fn has_quantiles(data_type: &DataType) -> bool {
    data_type.is_floating() || schema::is_integer_like(data_type)
}

fn is_wide(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal128(..))
}

impl Quantiles {
    pub fn new(k: u16, data_type: &DataType) -> Result<Quantiles> {
        if !has_quantiles(data_type) {
            return Err(Error::invalid(format!("there are no quantiles of values of type {data_type}"))
                .advise("ask for those of numbers, dates or instants"));
        }
        Ok(match is_wide(data_type) {
            true => Quantiles::Wide(Levels::new(k)),
            false => Quantiles::Words(Levels::new(k)),
        })
    }

    pub fn bytes_most(k: u16, data_type: &DataType) -> usize {
        if is_wide(data_type) { Levels::<i128>::bytes_most(k) } else { Levels::<i64>::bytes_most(k) }
    }

    pub fn bytes_held(&self) -> usize {
        match self {
            Quantiles::Words(levels) => levels.bytes_held(),
            Quantiles::Wide(levels) => levels.bytes_held(),
        }
    }

    pub fn update(&mut self, items: &Items<'_>, counts: Option<&[u64]>) {
        match (self, items) {
            (Quantiles::Words(levels), Items::Signed(words, _)) => add(levels, words, counts, |w| w as i64),
            (Quantiles::Words(levels), Items::Unsigned(words)) => add(levels, words, counts, flipped),
            (Quantiles::Words(levels), Items::Floats(bits)) => add(levels, bits, counts, float_key),
            (Quantiles::Wide(levels), Items::Signed(words, _)) => {
                add(levels, words, counts, |word| i128::from(word as i64));
            }
            (Quantiles::Wide(levels), Items::Wide(values)) => add(levels, values, counts, |value| value),
            (Quantiles::Words(_), Items::Wide(_) | Items::Bytes(_))
            | (Quantiles::Wide(_), Items::Unsigned(_) | Items::Floats(_) | Items::Bytes(_)) => {
                unreachable!("values of another type than the sketch's")
            }
        }
    }

    pub fn merge(&mut self, other: &Quantiles) {
        match (self, other) {
            (Quantiles::Words(ours), Quantiles::Words(theirs)) => ours.merge(theirs),
            (Quantiles::Wide(ours), Quantiles::Wide(theirs)) => ours.merge(theirs),
            (Quantiles::Words(_), Quantiles::Wide(_)) | (Quantiles::Wide(_), Quantiles::Words(_)) => {
                unreachable!("sketches of one type have one kind of keys")
            }
        }
    }

    /// Returns the quantile for each fraction in `shares`; an empty list without values.
    pub fn at(&self, shares: &[f64], data_type: &DataType) -> Vec<Quantile> {
        match self {
            Quantiles::Words(levels) => quantiles(levels, shares, &|key| literal(key, data_type)),
            Quantiles::Wide(levels) => {
                quantiles(levels, shares, &|key| basics::literal(Value::Int(key), data_type))
            }
        }
    }

    /// Returns by how many values the rank of a quantile may be wrong.
    pub fn rank_error(&self) -> f64 {
        match self {
            Quantiles::Words(levels) => levels.rank_error(),
            Quantiles::Wide(levels) => levels.rank_error(),
        }
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Quantiles::Words(levels) => put_levels(out, &levels.parts()),
            Quantiles::Wide(levels) => put_levels(out, &levels.parts()),
        }
    }

    /// Decodes a sample of `count` values that [`Quantiles::put`] encoded.
    pub fn read(reader: &mut Reader<'_>, k: u16, data_type: &DataType, count: u64) -> Result<Quantiles> {
        Ok(match is_wide(data_type) {
            true => Quantiles::Wide(read_levels(reader, k, count)?),
            false => Quantiles::Words(read_levels(reader, k, count)?),
        })
    }
}

fn add<V: Copy, T: Copy + Ord>(
    levels: &mut Levels<T>,
    values: &[V],
    counts: Option<&[u64]>,
    key: impl Fn(V) -> T,
) {
    let keys = values.iter().map(|value| key(*value));
    match counts {
        Some(counts) => levels.add_counted(keys.zip(counts.iter().copied())),
        None => levels.add(keys),
    }
}

/// Converts unsigned integers to signed ones that compare as they do, and back.
fn flipped(word: u64) -> i64 {
    (word ^ 1 << 63) as i64
}

/// Converts the bits of floats to integers that compare as the floats do. -0.0 counts as 0.0, and NaN is the greatest.
fn float_key(bits: u64) -> i64 {
    turned(hash::float_bits(f64::from_bits(bits)) as i64)
}

/// Inverts the bits below the sign if the sign bit is set. Applying it twice gives the original.
fn turned(bits: i64) -> i64 {
    bits ^ (bits >> 63) & i64::MAX
}

fn literal(key: i64, data_type: &DataType) -> Literal {
    let value = match data_type {
        DataType::UInt64 => Value::Int((key as u64 ^ 1 << 63).into()),
        float if float.is_floating() => Value::Float(f64::from_bits(turned(key) as u64)),
        _ => Value::Int(key.into()),
    };
    basics::literal(value, data_type)
}

fn quantiles<T: Copy + Ord>(
    levels: &Levels<T>,
    shares: &[f64],
    literal: &dyn Fn(T) -> Literal,
) -> Vec<Quantile> {
    let confidence = if levels.rank_error() == 0.0 { 1.0 } else { CONFIDENCE };
    let of = |Ranked { value, low, high }: Ranked<T>| Quantile {
        value: literal(value),
        low: literal(low),
        high: literal(high),
        confidence,
    };
    levels.ranked(shares).into_iter().map(of).collect()
}

/// Encodes the levels of a sample. Each level has its number of values, its least value, and for each further value
/// the difference from the previous one.
fn put_levels<T: Copy + Ord + Into<i128>>(out: &mut Vec<u8>, parts: &Parts<'_, T>) {
    out.push(parts.levels.len() as u8);
    for level in parts.levels {
        let mut sorted: Vec<i128> = level.iter().map(|value| (*value).into()).collect();
        sorted.sort_unstable();
        put(out, sorted.len() as u128);
        sorted.first().iter().for_each(|first| put_signed(out, **first));
        sorted.windows(2).for_each(|pair| put(out, pair[1].wrapping_sub(pair[0]) as u128));
    }
    out.extend(parts.squares.to_le_bytes());
    out.extend(parts.random.to_le_bytes());
}

fn read_levels<T: Copy + Ord + TryFrom<i128>>(
    reader: &mut Reader<'_>,
    k: u16,
    count: u64,
) -> Result<Levels<T>> {
    let heights = usize::from(reader.byte()?);
    if heights > LEVELS_MAX {
        return Err(damaged(format!("its sample has {heights} levels")));
    }
    let levels = (0..heights).map(|_| read_level(reader)).collect::<Result<Vec<Vec<T>>>>()?;
    let (squares, random) = (f64::from_le_bytes(reader.array()?), u64::from_le_bytes(reader.array()?));
    Levels::from_parts(k, count, levels, squares, random)
        .ok_or_else(|| damaged(format!("its sample is none of {count} values")))
}

fn read_level<T: TryFrom<i128>>(reader: &mut Reader<'_>) -> Result<Vec<T>> {
    let out_of_order = || damaged("a value of its sample is none of the type's");
    let values = reader.count()?;
    let mut level = Vec::with_capacity(values);
    let mut last = None;
    for _ in 0..values {
        let value = match last {
            None => reader.signed()?,
            Some(last) => {
                // The difference of two signed 128-bit numbers may need 128 bits without a sign bit.
                let value = i128::wrapping_add(last, reader.number()?.cast_signed());
                if value < last {
                    return Err(out_of_order());
                }
                value
            }
        };
        last = Some(value);
        level.push(T::try_from(value).map_err(|_| out_of_order())?);
    }
    Ok(level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sketch;
    use arrow_array::{ArrayRef, Date32Array, Decimal128Array, Float64Array, Int64Array, UInt64Array};
    use farpool_model::SketchParameters;
    use std::sync::Arc;

    fn sketch(values: &ArrayRef) -> Sketch {
        let parameters = SketchParameters { quantiles: Some(16), ..SketchParameters::NONE };
        let mut sketch = Sketch::new(parameters, values.data_type()).unwrap();
        sketch.update(values).unwrap();
        sketch
    }

    #[test]
    fn values_come_back_as_what_they_were() {
        let max = 10_i128.pow(38) - 1;
        let decimals = Decimal128Array::from(vec![-max, max, 5]).with_precision_and_scale(38, 2).unwrap();
        let columns: Vec<(ArrayRef, [&str; 3])> = vec![
            (
                Arc::new(Int64Array::from(vec![i64::MAX, i64::MIN, 0])),
                ["-9223372036854775808", "0", "9223372036854775807"],
            ),
            (
                Arc::new(UInt64Array::from(vec![u64::MAX, 0, 1 << 63])),
                ["0", "9223372036854775808", "18446744073709551615"],
            ),
            (Arc::new(Float64Array::from(vec![-f64::NAN, f64::NEG_INFINITY, -1.5])), ["-inf", "-1.5", "NaN"]),
            (Arc::new(Date32Array::from(vec![1, -1, 0])), ["1969-12-31", "1970-01-01", "1970-01-02"]),
            (
                Arc::new(decimals),
                [
                    "-999999999999999999999999999999999999.99",
                    "0.05",
                    "999999999999999999999999999999999999.99",
                ],
            ),
        ];
        for (column, expected) in columns {
            let sketch = sketch(&column);
            let read = Sketch::from_bytes(&sketch.to_bytes()).unwrap();
            for sketch in [&sketch, &read] {
                let found = sketch.quantiles(&[0.0, 0.5, 1.0]).unwrap();
                let exact = |q: &Quantile| q.low == q.value && q.high == q.value && q.confidence == 1.0;
                assert!(found.iter().all(exact), "{column:?}");
                let shown: Vec<String> = found.iter().map(|q| q.value.to_string()).collect();
                let expected = expected.map(|text| text.trim_matches('\'').to_string());
                let unquoted: Vec<&str> = shown.iter().map(|text| text.trim_matches('\'')).collect();
                assert_eq!(unquoted, expected, "{:?}", column.data_type());
            }
        }
    }

    #[test]
    fn a_state_goes_on_after_it_was_written() {
        let part = |seed: i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values((0..5000).map(|i| (i * seed) % 7919)))
        };
        let mut whole = sketch(&part(31));
        let mut read = Sketch::from_bytes(&whole.to_bytes()).unwrap();
        for sketch in [&mut whole, &mut read] {
            sketch.update(&part(37)).unwrap();
        }
        assert_eq!(whole.to_bytes(), read.to_bytes());
        whole.merge(&read).unwrap();
        assert_eq!(Sketch::from_bytes(&whole.to_bytes()).unwrap(), whole);
        let median = &whole.quantiles(&[0.5]).unwrap()[0];
        assert!(median.low.as_int() < median.high.as_int() && median.confidence < 1.0, "{median:?}");
    }

    #[test]
    fn there_are_none_of_texts() {
        let parameters = SketchParameters { quantiles: Some(16), ..SketchParameters::NONE };
        assert!(Sketch::new(parameters, &DataType::Utf8View).is_err());
        assert!(Sketch::new(parameters, &DataType::Boolean).is_err());
    }
}
