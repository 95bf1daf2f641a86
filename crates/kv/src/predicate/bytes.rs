//! Conditions on bytes at an offset in the value of an entry, such as `u32@4 > 7` (in `FP.SCAN`, for spaces without a
//! schema).
//!
//! Numbers of all types are mapped to unsigned integers in the same order. A comparison with a constant then becomes a
//! range of integers that pass.

use super::constant::ScaledNumber;
use farpool_model::CompareOp;
use std::ops::Range;

/// The type of a number in a value: an integer or a float of a certain width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberType {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
}

impl NumberType {
    /// Returns the type with this name, in lower case.
    pub fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "u8" => NumberType::U8,
            "u16" => NumberType::U16,
            "u32" => NumberType::U32,
            "u64" => NumberType::U64,
            "i8" => NumberType::I8,
            "i16" => NumberType::I16,
            "i32" => NumberType::I32,
            "i64" => NumberType::I64,
            "f32" => NumberType::F32,
            "f64" => NumberType::F64,
            _ => return None,
        })
    }

    /// Returns the minimum and the maximum of an integer type; `None` for floats.
    fn range(self) -> Option<(i128, i128)> {
        Some(match self {
            NumberType::U8 => (0, u8::MAX.into()),
            NumberType::U16 => (0, u16::MAX.into()),
            NumberType::U32 => (0, u32::MAX.into()),
            NumberType::U64 => (0, u64::MAX.into()),
            NumberType::I8 => (i8::MIN.into(), i8::MAX.into()),
            NumberType::I16 => (i16::MIN.into(), i16::MAX.into()),
            NumberType::I32 => (i32::MIN.into(), i32::MAX.into()),
            NumberType::I64 => (i64::MIN.into(), i64::MAX.into()),
            NumberType::F32 | NumberType::F64 => return None,
        })
    }

    pub fn is_float(self) -> bool {
        self.range().is_none()
    }

    /// Returns the bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            NumberType::U8 | NumberType::I8 => 1,
            NumberType::U16 | NumberType::I16 => 2,
            NumberType::U32 | NumberType::I32 | NumberType::F32 => 4,
            NumberType::U64 | NumberType::I64 | NumberType::F64 => 8,
        }
    }

    /// Returns the mask of a number's bits.
    fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes())
    }

    /// Returns the sign bit; 0 for unsigned integers.
    fn sign(self) -> u64 {
        match self {
            NumberType::U8 | NumberType::U16 | NumberType::U32 | NumberType::U64 => 0,
            NumberType::I8
            | NumberType::I16
            | NumberType::I32
            | NumberType::I64
            | NumberType::F32
            | NumberType::F64 => 1 << (8 * self.bytes() - 1),
        }
    }
}

/// Maps the bits of a float to an unsigned integer with the total order of IEEE 754, except that -0.0 equals 0.0, as in
/// expressions on columns.
#[inline]
fn key_of_float(bits: u64, mask: u64, sign: u64) -> u64 {
    match bits {
        zero if zero == sign => sign,
        negative if negative & sign != 0 => !negative & mask,
        positive => positive ^ sign,
    }
}

/// A condition on bytes of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteCondition(Condition);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Number { offset: usize, bytes: usize, range: NumberRange },
    Slice { range: Range<usize>, op: CompareOp, constant: Box<[u8]> },
}

/// The numbers of a type that pass a comparison, as order-preserving unsigned integers: `low` and the `more` integers
/// after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberRange {
    mask: u64,
    sign: u64,
    low: u64,
    more: u64,
    is_float: bool,
    /// Whether the numbers outside the range pass instead.
    is_inverted: bool,
}

/// First and last number of an empty range: the first is greater than the last.
const EMPTY: (u64, u64) = (1, 0);

impl NumberRange {
    /// Creates a range from its first to its last number; nothing passes if the last is less.
    fn new(number_type: NumberType, range: (u64, u64), is_inverted: bool) -> Self {
        let ((low, high), mask) = (range, number_type.mask());
        let (low, more, is_inverted) =
            if low > high { (0, u64::MAX, !is_inverted) } else { (low, high - low, is_inverted) };
        let (sign, is_float) = (number_type.sign(), number_type.is_float());
        NumberRange { mask, sign, low, more, is_float, is_inverted }
    }

    /// Returns the range of integers that pass a comparison with a number.
    pub(super) fn integer(number_type: NumberType, op: CompareOp, number: ScaledNumber) -> Self {
        let (min, max) = number_type.range().unwrap_or((0, 0));
        let ScaledNumber { floor, is_exact } = number;
        let above = floor.saturating_add(1);
        let (low, high) = match op {
            CompareOp::Eq | CompareOp::NotEq if is_exact => (floor, floor),
            CompareOp::Eq | CompareOp::NotEq => (1, 0),
            CompareOp::Lt => (min, if is_exact { floor.saturating_sub(1) } else { floor }),
            CompareOp::LtEq => (min, floor),
            CompareOp::Gt => (above, max),
            CompareOp::GtEq => (if is_exact { floor } else { above }, max),
        };
        let (low, high) = (low.max(min), high.min(max));
        // Maps numbers to unsigned integers by subtracting the minimum of the type.
        let range = if low > high { EMPTY } else { ((low - min) as u64, (high - min) as u64) };
        NumberRange::new(number_type, range, op == CompareOp::NotEq)
    }

    /// Returns the range of integers that pass a comparison with an integer.
    pub(crate) fn whole(number_type: NumberType, op: CompareOp, number: i128) -> Self {
        NumberRange::integer(number_type, op, ScaledNumber::exact(number))
    }

    /// Returns the range of floats that pass a comparison with a finite number of their type.
    pub(crate) fn float(number_type: NumberType, op: CompareOp, number: f64) -> Self {
        let bits = match number_type {
            NumberType::F32 => u64::from((number as f32).to_bits()),
            _ => number.to_bits(),
        };
        let mask = number_type.mask();
        // The key of a finite number is neither 0 nor the maximum, so the steps below do not overflow.
        let key = key_of_float(bits, mask, number_type.sign());
        let range = match op {
            CompareOp::Eq | CompareOp::NotEq => (key, key),
            CompareOp::Lt => (0, key - 1),
            CompareOp::LtEq => (0, key),
            CompareOp::Gt => (key + 1, mask),
            CompareOp::GtEq => (key, mask),
        };
        NumberRange::new(number_type, range, op == CompareOp::NotEq)
    }

    /// Returns the range of bytes that stand for true, false, or both; 0 is false, all others are true.
    pub(crate) fn truth(is_true: bool, is_false: bool) -> Self {
        let range = match (is_true, is_false) {
            (true, true) => (0, 255),
            (true, false) => (1, 255),
            (false, true) => (0, 0),
            (false, false) => EMPTY,
        };
        NumberRange::new(NumberType::U8, range, false)
    }

    /// Returns the complement: the range of all numbers that are not in this range.
    pub(crate) fn inverted(self) -> Self {
        NumberRange { is_inverted: !self.is_inverted, ..self }
    }

    /// Returns the range of 32-bit integers as sign bit, first number that passes, and how many more pass after it,
    /// wrapping around after the greatest. `None` for other types, and if nothing passes.
    pub(crate) fn as_lane(&self) -> Option<(u32, u32, u32)> {
        if self.is_float || self.mask != u64::from(u32::MAX) {
            return None;
        }
        // A range of nothing, or of everything, covers all 64-bit integers.
        let (sign, low, more) = (self.sign as u32, self.low as u32, self.more.min(self.mask) as u32);
        match self.is_inverted {
            false => Some((sign, low, more)),
            true if more == u32::MAX => None,
            true => Some((sign, low.wrapping_add(more).wrapping_add(1), u32::MAX - more - 1)),
        }
    }

    pub(crate) fn is_float(&self) -> bool {
        self.is_float
    }

    /// Returns whether the number in the lowest bits of `bits` passes.
    #[inline]
    pub(crate) fn passes(&self, bits: u64) -> bool {
        if self.is_float { self.passes_as::<true>(bits) } else { self.passes_as::<false>(bits) }
    }

    /// Does the same as [`Self::passes`], for a type known at compile time.
    #[inline]
    pub(crate) fn passes_as<const IS_FLOAT: bool>(&self, bits: u64) -> bool {
        let bits = bits & self.mask;
        let key = if IS_FLOAT { key_of_float(bits, self.mask, self.sign) } else { bits ^ self.sign };
        (key.wrapping_sub(self.low) <= self.more) != self.is_inverted
    }
}

/// Reads a number of `bytes` bytes at an offset; higher bits are arbitrary. `None` if the value is too short.
#[inline]
fn bits_at(value: &[u8], offset: usize, bytes: usize) -> Option<u64> {
    let rest = value.get(offset..)?;
    // Reads eight bytes for every type if there are that many, which is one instruction.
    match rest.first_chunk() {
        Some(word) => Some(u64::from_le_bytes(*word)),
        None if rest.len() < bytes => None,
        None => Some(rest.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte))),
    }
}

impl ByteCondition {
    /// Creates a comparison of an integer at an offset with a number.
    pub(super) fn integer(
        number_type: NumberType,
        offset: usize,
        op: CompareOp,
        number: ScaledNumber,
    ) -> Self {
        let range = NumberRange::integer(number_type, op, number);
        ByteCondition(Condition::Number { offset, bytes: number_type.bytes(), range })
    }

    /// Creates a comparison of a float at an offset with a finite number of its type.
    pub(super) fn float(number_type: NumberType, offset: usize, op: CompareOp, number: f64) -> Self {
        let range = NumberRange::float(number_type, op, number);
        ByteCondition(Condition::Number { offset, bytes: number_type.bytes(), range })
    }

    /// Creates a comparison of bytes with a constant, in the order of `memcmp`.
    pub(super) fn slice(range: Range<usize>, op: CompareOp, constant: &[u8]) -> Self {
        ByteCondition(Condition::Slice { range, op, constant: constant.into() })
    }

    /// Returns whether the condition is true for a value; false if it is unknown because the value is too short.
    #[inline]
    pub fn matches(&self, value: &[u8]) -> bool {
        match &self.0 {
            Condition::Number { offset, bytes, range } => {
                bits_at(value, *offset, *bytes).is_some_and(|bits| range.passes(bits))
            }
            Condition::Slice { range, op, constant } => {
                value.get(range.clone()).is_some_and(|slice| match op {
                    CompareOp::Eq => slice == &**constant,
                    CompareOp::NotEq => slice != &**constant,
                    CompareOp::Lt => slice < &**constant,
                    CompareOp::LtEq => slice <= &**constant,
                    CompareOp::Gt => slice > &**constant,
                    CompareOp::GtEq => slice >= &**constant,
                })
            }
        }
    }
}
