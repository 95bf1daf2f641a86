//! Generates random columns of every canonical type, with the distributions that lead to each encoding.

use arrow_array::types::*;
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BinaryViewArray, BooleanArray, PrimitiveArray, StringViewArray,
};
use arrow_schema::{DataType, TimeUnit};
use std::sync::Arc;

/// Random number generator (SplitMix64): small, and the same on every platform.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

pub const TYPES: [DataType; 18] = [
    DataType::Boolean,
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::UInt8,
    DataType::UInt16,
    DataType::UInt32,
    DataType::UInt64,
    DataType::Float32,
    DataType::Float64,
    DataType::Decimal128(15, 2),
    DataType::Date32,
    DataType::Timestamp(TimeUnit::Second, None),
    DataType::Timestamp(TimeUnit::Millisecond, None),
    DataType::Timestamp(TimeUnit::Nanosecond, None),
    DataType::Utf8View,
    DataType::BinaryView,
];

/// The distribution of a column's values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// All rows have the same value.
    Constant,
    /// There are few different values.
    Few,
    /// Numbers in a narrow range; strings from a small vocabulary.
    Narrow,
    /// Values are any of the type, including its extremes.
    Wild,
}

pub const SHAPES: [Shape; 4] = [Shape::Constant, Shape::Few, Shape::Narrow, Shape::Wild];

/// Returns a column of `rows` rows, of which about `nulls_percent` percent are NULL.
pub fn array(
    data_type: &DataType,
    shape: Shape,
    rows: usize,
    nulls_percent: usize,
    random: &mut Random,
) -> ArrayRef {
    let mut valid = Vec::with_capacity(rows);
    valid.extend((0..rows).map(|_| random.below(100) >= nulls_percent));
    match data_type {
        DataType::Boolean => {
            let constant = random.below(2) == 0;
            let value = |r: &mut Random| if shape == Shape::Constant { constant } else { r.below(2) == 0 };
            Arc::new(valid.iter().map(|v| v.then(|| value(random))).collect::<BooleanArray>())
        }
        DataType::Int8 => integers::<Int8Type>(data_type, shape, &valid, random),
        DataType::Int16 => integers::<Int16Type>(data_type, shape, &valid, random),
        DataType::Int32 => integers::<Int32Type>(data_type, shape, &valid, random),
        DataType::Int64 => integers::<Int64Type>(data_type, shape, &valid, random),
        DataType::UInt8 => integers::<UInt8Type>(data_type, shape, &valid, random),
        DataType::UInt16 => integers::<UInt16Type>(data_type, shape, &valid, random),
        DataType::UInt32 => integers::<UInt32Type>(data_type, shape, &valid, random),
        DataType::UInt64 => integers::<UInt64Type>(data_type, shape, &valid, random),
        DataType::Decimal128(..) => integers::<Decimal128Type>(data_type, shape, &valid, random),
        DataType::Date32 => integers::<Date32Type>(data_type, shape, &valid, random),
        DataType::Timestamp(TimeUnit::Second, _) => {
            integers::<TimestampSecondType>(data_type, shape, &valid, random)
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            integers::<TimestampMillisecondType>(data_type, shape, &valid, random)
        }
        DataType::Timestamp(..) => integers::<TimestampNanosecondType>(data_type, shape, &valid, random),
        DataType::Float32 => {
            let values = floats(shape, &valid, random).into_iter().map(|v| v.map(|v| v as f32));
            Arc::new(values.collect::<PrimitiveArray<Float32Type>>())
        }
        DataType::Float64 => {
            Arc::new(floats(shape, &valid, random).into_iter().collect::<PrimitiveArray<Float64Type>>())
        }
        DataType::Utf8View => {
            let values = texts(shape, &valid, random);
            Arc::new(values.into_iter().collect::<StringViewArray>())
        }
        _ => {
            let values = texts(shape, &valid, random);
            Arc::new(values.iter().map(|v| v.as_ref().map(|v| v.as_bytes())).collect::<BinaryViewArray>())
        }
    }
}

trait Wild: Copy {
    const ENDS: [Self; 4];
    fn of(bits: u128) -> Self;
}

macro_rules! impl_wild {
    ($($t:ty),*) => {$(
        impl Wild for $t {
            const ENDS: [Self; 4] = [<$t>::MIN, <$t>::MAX, 0, 1];
            fn of(bits: u128) -> Self {
                bits as $t
            }
        }
    )*};
}

impl_wild!(i8, i16, i32, i64, i128, u8, u16, u32, u64);

fn integers<T: ArrowPrimitiveType<Native: Wild>>(
    data_type: &DataType,
    shape: Shape,
    valid: &[bool],
    random: &mut Random,
) -> ArrayRef {
    let base = random.next() as i64 >> random.below(63);
    let width = random.below(30);
    // Half of the integer columns of any value are limited to 64 bits, so that wide decimals are bit-packed as well.
    let narrow_wild = random.below(2) == 0;
    let value = |random: &mut Random| -> T::Native {
        match shape {
            Shape::Constant => T::Native::of(base as i128 as u128),
            Shape::Few => T::Native::of((base as i128 + random.below(7) as i128 * 3) as u128),
            Shape::Narrow => T::Native::of((base as i128 + random.below(1 << width) as i128) as u128),
            Shape::Wild if narrow_wild => T::Native::of(random.next() as i64 as i128 as u128),
            Shape::Wild if random.below(4) == 0 => T::Native::ENDS[random.below(4)],
            Shape::Wild => T::Native::of(u128::from(random.next()) << 64 | u128::from(random.next())),
        }
    };
    let values: PrimitiveArray<T> = valid.iter().map(|v| v.then(|| value(random))).collect();
    Arc::new(values.with_data_type(data_type.clone()))
}

fn floats(shape: Shape, valid: &[bool], random: &mut Random) -> Vec<Option<f64>> {
    const SPECIAL: [f64; 6] = [f64::NAN, -0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE];
    let constant = SPECIAL[random.below(6)];
    let value = |random: &mut Random| match shape {
        Shape::Constant => constant,
        Shape::Few => SPECIAL[1 + random.below(5)],
        Shape::Narrow => random.below(1000) as f64 / 8.0,
        Shape::Wild if random.below(3) == 0 => SPECIAL[random.below(6)],
        Shape::Wild => f64::from(f32::from_bits(random.next() as u32)),
    };
    valid.iter().map(|v| v.then(|| value(random))).collect()
}

fn texts(shape: Shape, valid: &[bool], random: &mut Random) -> Vec<Option<String>> {
    const WORDS: [&str; 12] = [
        "carefully",
        "quickly",
        "final",
        "deposits",
        "requests",
        "ironic",
        "über",
        "furiously",
        "sleep",
        "pending",
        "accounts",
        "束",
    ];
    let constant = "constant ".repeat(random.below(4));
    let mut huge_left = 3;
    let mut value = |random: &mut Random| match shape {
        Shape::Constant => constant.clone(),
        Shape::Few => {
            ["", "DELIVER IN PERSON", "NONE", "naïve", "TAKE BACK RETURN"][random.below(5)].to_string()
        }
        Shape::Narrow => {
            let words = (0..1 + random.below(6)).map(|_| WORDS[random.below(12)]);
            words.collect::<Vec<_>>().join(" ")
        }
        Shape::Wild if huge_left > 0 && random.below(40) == 0 => {
            huge_left -= 1;
            char::from(b'a' + random.below(26) as u8).to_string().repeat(100_000)
        }
        Shape::Wild => {
            let length = random.below(30);
            (0..length).map(|_| char::from_u32(random.below(0x2000) as u32).unwrap_or('x')).collect()
        }
    };
    valid.iter().map(|v| v.then(|| value(random))).collect()
}
