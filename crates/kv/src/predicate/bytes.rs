//! Conditions on bytes at offsets of a value.
//!
//! A number is mapped to an integer without sign in the same order, and every comparison with a constant to the range of
//! integers that pass it.

use super::constant::Units;
use farpool_model::CompareOp;
use std::ops::Range;

/// The types of numbers in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberType {
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
    Number(NumberRange),
    Slice { range: Range<usize>, op: CompareOp, constant: Box<[u8]> },
}

/// The numbers that pass, as integers without sign in their order: `low` and as many as `more` behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NumberRange {
    offset: usize,
    mask: u64,
    sign: u64,
    low: u64,
    more: u64,
    bytes: u8,
    is_float: bool,
    /// Whether what is outside passes instead.
    is_inverted: bool,
}

impl NumberRange {
    /// Numbers from the first of `range` to the last; nothing passes if that is less.
    fn new(number_type: NumberType, offset: usize, range: (u64, u64), is_inverted: bool) -> Self {
        let ((low, high), mask) = (range, number_type.mask());
        let (low, more, is_inverted) =
            if low > high { (0, u64::MAX, !is_inverted) } else { (low, high - low, is_inverted) };
        NumberRange {
            offset,
            mask,
            sign: number_type.sign(),
            low,
            more,
            bytes: number_type.bytes() as u8,
            is_float: number_type.is_float(),
            is_inverted,
        }
    }

    #[inline]
    fn matches(&self, value: &[u8]) -> bool {
        let Some(rest) = value.get(self.offset..) else { return false };
        // Eight bytes are read whatever the type is, where there are as many: this is one instruction for all types.
        let bits = match rest.first_chunk() {
            Some(word) => u64::from_le_bytes(*word),
            None if rest.len() < usize::from(self.bytes) => return false,
            None => rest.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte)),
        };
        let bits = bits & self.mask;
        let key = if self.is_float { key_of_float(bits, self.mask, self.sign) } else { bits ^ self.sign };
        (key.wrapping_sub(self.low) <= self.more) != self.is_inverted
    }
}

/// A range in which nothing is.
const EMPTY: (u64, u64) = (1, 0);

impl ByteCondition {
    /// Compares an integer at an offset with a number.
    pub(super) fn integer(number_type: NumberType, offset: usize, op: CompareOp, number: Units) -> Self {
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
        let is_inverted = op == CompareOp::NotEq;
        ByteCondition(Condition::Number(NumberRange::new(number_type, offset, range, is_inverted)))
    }

    /// Compares a float at an offset with a finite number of its type.
    pub(super) fn float(number_type: NumberType, offset: usize, op: CompareOp, number: f64) -> Self {
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
        let is_inverted = op == CompareOp::NotEq;
        ByteCondition(Condition::Number(NumberRange::new(number_type, offset, range, is_inverted)))
    }

    /// Compares bytes with others in the order of `memcmp`.
    pub(super) fn slice(range: Range<usize>, op: CompareOp, constant: &[u8]) -> Self {
        ByteCondition(Condition::Slice { range, op, constant: constant.into() })
    }

    /// Whether it is true for a value; for one that is too short it is not.
    #[inline]
    pub fn matches(&self, value: &[u8]) -> bool {
        match &self.0 {
            Condition::Number(range) => range.matches(value),
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
