//! Conditions on bytes at offsets of a value.
//!
//! A number is mapped to an integer without sign in the same order, and every comparison with a constant to the range of
//! integers that pass it.

use super::constant::Units;
use farpool_model::CompareOp;
use std::ops::Range;

/// The types of numbers in a value.
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
    /// The type with this name, in lower case.
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

    /// The least and the greatest integer; `None` for floats.
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

    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            NumberType::U8 | NumberType::I8 => 1,
            NumberType::U16 | NumberType::I16 => 2,
            NumberType::U32 | NumberType::I32 | NumberType::F32 => 4,
            NumberType::U64 | NumberType::I64 | NumberType::F64 => 8,
        }
    }

    /// The bits of a number.
    fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes())
    }

    /// The bit of the sign; 0 for integers without one.
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

/// Maps the bits of a float to an integer without sign, in the total order of IEEE 754, except that -0.0 equals 0.0, as in
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

/// The numbers of a type that pass a comparison, as integers without sign in their order: `low` and as many as `more` behind
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberRange {
    mask: u64,
    sign: u64,
    low: u64,
    more: u64,
    is_float: bool,
    /// Whether what is outside passes instead.
    is_inverted: bool,
}

/// A range in which nothing is.
const EMPTY: (u64, u64) = (1, 0);

impl NumberRange {
    /// Numbers from the first of `range` to the last; nothing passes if that is less.
    fn new(number_type: NumberType, range: (u64, u64), is_inverted: bool) -> Self {
        let ((low, high), mask) = (range, number_type.mask());
        let (low, more, is_inverted) =
            if low > high { (0, u64::MAX, !is_inverted) } else { (low, high - low, is_inverted) };
        let (sign, is_float) = (number_type.sign(), number_type.is_float());
        NumberRange { mask, sign, low, more, is_float, is_inverted }
    }

    /// The integers that compare with a number.
    pub(super) fn integer(number_type: NumberType, op: CompareOp, number: Units) -> Self {
        let (min, max) = number_type.range().unwrap_or((0, 0));
        let Units { floor, is_exact } = number;
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
        // The least number of a type is 0 among those without sign.
        let range = if low > high { EMPTY } else { ((low - min) as u64, (high - min) as u64) };
        NumberRange::new(number_type, range, op == CompareOp::NotEq)
    }

    /// The integers that compare with an integer.
    pub(crate) fn whole(number_type: NumberType, op: CompareOp, number: i128) -> Self {
        NumberRange::integer(number_type, op, Units::exact(number))
    }

    /// The floats that compare with a finite number of their type.
    pub(crate) fn float(number_type: NumberType, op: CompareOp, number: f64) -> Self {
        let bits = match number_type {
            NumberType::F32 => u64::from((number as f32).to_bits()),
            _ => number.to_bits(),
        };
        let mask = number_type.mask();
        // Neither 0 nor the greatest of all, which belong to what is not finite.
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

    /// The bytes that are true, or false, or both, where 0 alone is false.
    pub(crate) fn truth(is_true: bool, is_false: bool) -> Self {
        let range = match (is_true, is_false) {
            (true, true) => (0, 255),
            (true, false) => (1, 255),
            (false, true) => (0, 0),
            (false, false) => EMPTY,
        };
        NumberRange::new(NumberType::U8, range, false)
    }

    /// The range of all numbers that do not pass.
    pub(crate) fn inverted(self) -> Self {
        NumberRange { is_inverted: !self.is_inverted, ..self }
    }

    /// The range of integers of 32 bits, as the bits of the sign, the first of the numbers that pass, and how many more do:
    /// numbers from there on, and from 0 on behind the greatest. `None` for other types, and where nothing passes.
    pub(crate) fn as_lane(&self) -> Option<(u32, u32, u32)> {
        if self.is_float || self.mask != u64::from(u32::MAX) {
            return None;
        }
        // Where nothing is in range, or all, this is so for all integers of 64 bits.
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

    /// Whether a number passes, whose bits are the lowest of `bits`.
    #[inline]
    pub(crate) fn passes(&self, bits: u64) -> bool {
        if self.is_float { self.passes_as::<true>(bits) } else { self.passes_as::<false>(bits) }
    }

    /// [`Self::passes`] where it is known whether numbers are floats.
    #[inline]
    pub(crate) fn passes_as<const IS_FLOAT: bool>(&self, bits: u64) -> bool {
        let bits = bits & self.mask;
        let key = if IS_FLOAT { key_of_float(bits, self.mask, self.sign) } else { bits ^ self.sign };
        (key.wrapping_sub(self.low) <= self.more) != self.is_inverted
    }
}

/// The bits of a number of so many bytes at an offset, and others above them; `None` where the value is too short.
#[inline]
fn bits_at(value: &[u8], offset: usize, bytes: usize) -> Option<u64> {
    let rest = value.get(offset..)?;
    // Eight bytes are read whatever the type is, where there are as many: this is one instruction for all types.
    match rest.first_chunk() {
        Some(word) => Some(u64::from_le_bytes(*word)),
        None if rest.len() < bytes => None,
        None => Some(rest.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte))),
    }
}

impl ByteCondition {
    /// Compares an integer at an offset with a number.
    pub(super) fn integer(number_type: NumberType, offset: usize, op: CompareOp, number: Units) -> Self {
        let range = NumberRange::integer(number_type, op, number);
        ByteCondition(Condition::Number { offset, bytes: number_type.bytes(), range })
    }

    /// Compares a float at an offset with a finite number of its type.
    pub(super) fn float(number_type: NumberType, offset: usize, op: CompareOp, number: f64) -> Self {
        let range = NumberRange::float(number_type, op, number);
        ByteCondition(Condition::Number { offset, bytes: number_type.bytes(), range })
    }

    /// Compares bytes with others in the order of `memcmp`.
    pub(super) fn slice(range: Range<usize>, op: CompareOp, constant: &[u8]) -> Self {
        ByteCondition(Condition::Slice { range, op, constant: constant.into() })
    }

    /// Whether it is true for a value; for one that is too short it is not.
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
