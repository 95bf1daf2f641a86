//! Hashes of join keys: 64 bits, of one value or of several combined. A [`farpool_model::KeyFilter`] is built from them
//! and probed with them. They are part of the protocol (`docs/wire.md`).
//!
//! - An integer, or a value that is stored as one: the finalizer of Murmur3 x64 128 (Appleby, 2011) over its
//!   64 bits, sign-extended; for one that does not fit a signed 64-bit integer, its lower and its upper word
//!   are combined as two values. Far cheaper than the whole of Murmur3, and vectorised by the compiler.
//! - A string or binary: the first word of Murmur3 x64 128 with seed 0.
//! - Several: from the left, the finalizer of `hash * 0x9e3779b97f4a7c15 + next`.
//!
//! Invariant: equal values of one type have equal hashes, whatever array holds them.

use crate::hash::{avalanche, murmur3};
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use farpool_model::{Error, Result, with_narrow_integer};

/// Hashes an integer that fits a signed 64-bit integer.
#[inline(always)]
pub fn of_word(value: i64) -> u64 {
    avalanche(value as u64)
}

/// Hashes any integer.
#[inline]
pub fn of_integer(value: i128) -> u64 {
    match i64::try_from(value) {
        Ok(value) => of_word(value),
        Err(_) => and(of_word(value as i64), of_word((value >> 64) as i64)),
    }
}

/// Hashes a string or binary.
#[inline]
pub fn of_bytes(bytes: &[u8]) -> u64 {
    murmur3(bytes, 0).low
}

/// Combines the hash `so_far` of the first values of a join key with the hash `next` of the value after them.
#[inline(always)]
pub fn and(so_far: u64, next: u64) -> u64 {
    avalanche(so_far.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(next))
}

/// Returns the hash of each row of `columns`, which must have canonical types. The hash of a row with a NULL is
/// unspecified.
///
/// # Errors
/// `Invalid` for a type that cannot be a join key.
pub fn of_rows(columns: &[ArrayRef]) -> Result<Vec<u64>> {
    let mut hashes = Vec::new();
    for column in columns {
        let next = of_column(column)?;
        if hashes.is_empty() {
            hashes = next;
        } else {
            hashes.iter_mut().zip(next).for_each(|(hash, next)| *hash = and(*hash, next));
        }
    }
    Ok(hashes)
}

fn of_column(array: &ArrayRef) -> Result<Vec<u64>> {
    macro_rules! integers {
        ($t:ty) => {
            array.as_primitive::<$t>().values().iter().map(|v| of_integer((*v).into())).collect()
        };
    }
    Ok(match array.data_type() {
        DataType::UInt64 => integers!(UInt64Type),
        DataType::Decimal128(..) => integers!(Decimal128Type),
        DataType::Utf8View => {
            let strings = array.as_string_view();
            (0..strings.len()).map(|row| of_bytes(strings.value(row).as_bytes())).collect()
        }
        DataType::BinaryView => {
            let binaries = array.as_binary_view();
            (0..binaries.len()).map(|row| of_bytes(binaries.value(row))).collect()
        }
        other => with_narrow_integer!(
            other,
            T => array.as_primitive::<T>().values().iter().map(|v| of_word((*v).into())).collect(),
            return Err(Error::invalid(format!("a filter of keys of type {other}")))
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{
        BinaryViewArray, Decimal128Array, Float64Array, Int32Array, StringViewArray, UInt64Array,
    };
    use std::sync::Arc;

    fn of(array: impl Array + 'static) -> Vec<u64> {
        of_rows(&[Arc::new(array)]).unwrap()
    }

    #[test]
    fn a_value_has_one_hash_whatever_holds_it() {
        let expected: Vec<u64> = [-5, 0, 7].map(of_word).to_vec();
        assert_eq!(of(Int32Array::from(vec![-5, 0, 7])), expected);
        assert_eq!(of(Decimal128Array::from(vec![-5, 0, 7])), expected);
        let wide = [i128::from(u64::MAX), i128::MIN, i128::MAX];
        assert_eq!(of(Decimal128Array::from(wide.to_vec())), wide.map(of_integer));
        assert_eq!(of(UInt64Array::from(vec![u64::MAX, 7])), [of_integer(u64::MAX.into()), of_word(7)]);
        assert_eq!(of(StringViewArray::from(vec!["", "ä"])), [b"".as_slice(), "ä".as_bytes()].map(of_bytes));
        assert_eq!(of(BinaryViewArray::from(vec![b"ab".as_slice()])), [of_bytes(b"ab")]);
        assert!(of_rows(&[Arc::new(Float64Array::from(vec![1.0]))]).is_err());
    }

    #[test]
    fn the_order_of_columns_matters() {
        let columns: [ArrayRef; 2] =
            [Arc::new(Int32Array::from(vec![1, 2])), Arc::new(StringViewArray::from(vec!["a", "b"]))];
        let hashes = of_rows(&columns).unwrap();
        assert_eq!(hashes, [and(of_word(1), of_bytes(b"a")), and(of_word(2), of_bytes(b"b"))]);
        assert_ne!(hashes[0], and(of_bytes(b"a"), of_word(1)));
    }

    /// Compares with known hashes, which other implementations of the protocol must produce, too.
    #[test]
    fn hashes_as_published() {
        assert_eq!(of_word(0), 0);
        assert_eq!(of_word(1), 0xb456_bcfc_34c2_cb2c);
        assert_eq!(of_bytes(b"hello"), 0xcbd8_a7b3_41bd_9b02);
    }
}
