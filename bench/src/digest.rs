//! A digest of a result that does not depend on the order of its rows; `bench/rivals/digest.py` computes the same.
//!
//! The columns of a row are folded to 64 bits, which are mixed (the finalizer of MurmurHash3), and the hashes of the
//! rows are added. Integers of any type count as 64-bit two's complement, strings as their bytes in
//! little-endian words, the last one padded with zeros, followed by their length.
//!
//! `bench/rivals/liquidcache` compiles this file as well, with an older Arrow.

use anyhow::{Result, bail};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use serde::{Deserialize, Serialize};

const FOLD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Number and digest of the rows of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// Number of rows.
    pub rows: u64,
    /// The digest in hexadecimal.
    pub digest: String,
}

impl Digest {
    /// Returns the digest of all rows of `batches`.
    pub fn of(batches: &[RecordBatch]) -> Result<Digest> {
        let (mut rows, mut sum) = (0, 0u64);
        for batch in batches {
            let mut hashes = vec![0u64; batch.num_rows()];
            for column in batch.columns() {
                fold(&mut hashes, column)?;
            }
            rows += batch.num_rows() as u64;
            sum = hashes.iter().fold(sum, |sum, hash| sum.wrapping_add(mixed(*hash)));
        }
        Ok(Digest { rows, digest: format!("{sum:016x}") })
    }
}

fn fold(hashes: &mut [u64], column: &ArrayRef) -> Result<()> {
    if column.null_count() > 0 {
        bail!("a result with NULL has no digest");
    }
    match column.data_type() {
        DataType::Dictionary(_, values) => fold(hashes, &cast(column, values)?),
        kind if kind.is_integer() || matches!(kind, DataType::Decimal128(_, 0)) => {
            let numbers = cast(column, &DataType::Int64)?;
            for (hash, number) in hashes.iter_mut().zip(numbers.as_primitive::<Int64Type>().values()) {
                *hash = add(*hash, number.cast_unsigned());
            }
            Ok(())
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let strings = cast(column, &DataType::Utf8View)?;
            for (hash, text) in hashes.iter_mut().zip(strings.as_string_view().iter()) {
                *hash = fold_bytes(*hash, text.unwrap_or_default().as_bytes());
            }
            Ok(())
        }
        other => bail!("a result of type {other} has no digest"),
    }
}

fn fold_bytes(hash: u64, bytes: &[u8]) -> u64 {
    let folded = bytes.chunks(8).fold(hash, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        add(hash, u64::from_le_bytes(word))
    });
    add(folded, bytes.len() as u64)
}

fn add(hash: u64, word: u64) -> u64 {
    hash.wrapping_mul(FOLD).wrapping_add(word)
}

fn mixed(mut hash: u64) -> u64 {
    for factor in [0xFF51_AFD7_ED55_8CCD, 0xC4CE_B9FE_1A85_EC53] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::Digest;
    use arrow::array::{ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringArray};
    use std::sync::Arc;

    fn batch(columns: Vec<ArrayRef>) -> RecordBatch {
        let names = ["x", "y", "z"].into_iter();
        RecordBatch::try_from_iter(names.zip(columns)).expect("the columns fit")
    }

    fn numbers(values: &[i64]) -> ArrayRef {
        Arc::new(Int64Array::from(values.to_vec()))
    }

    fn digest(batches: &[RecordBatch]) -> Digest {
        Digest::of(batches).expect("it has a digest")
    }

    #[test]
    fn the_order_of_rows_and_the_cut_into_batches_do_not_count() {
        let whole = batch(vec![numbers(&[1, 2, -3]), numbers(&[4, 5, 6])]);
        let parts =
            [batch(vec![numbers(&[-3]), numbers(&[6])]), batch(vec![numbers(&[2, 1]), numbers(&[5, 4])])];
        assert_eq!(digest(&[whole]), digest(&parts));
    }

    #[test]
    fn values_that_change_rows_or_columns_count() {
        let original = digest(&[batch(vec![numbers(&[1, 2]), numbers(&[3, 4])])]);
        assert_ne!(original, digest(&[batch(vec![numbers(&[1, 2]), numbers(&[4, 3])])]));
        assert_ne!(original, digest(&[batch(vec![numbers(&[3, 4]), numbers(&[1, 2])])]));
        let padded: [ArrayRef; 2] =
            [["a"], ["a\0"]].map(|text| Arc::new(StringArray::from(text.to_vec())) as _);
        let [left, right] = padded.map(|column| digest(&[batch(vec![column])]));
        assert_ne!(left, right);
    }

    #[test]
    fn wide_sums_count_as_integers() {
        let decimals = Decimal128Array::from(vec![7, -8]).with_precision_and_scale(38, 0).expect("it fits");
        assert_eq!(digest(&[batch(vec![Arc::new(decimals)])]), digest(&[batch(vec![numbers(&[7, -8])])]));
    }

    /// Compares with the expected value of `bench/rivals/test_digest.py`, for the same rows.
    #[test]
    fn the_rivals_get_the_same() {
        let strings: ArrayRef = Arc::new(StringArray::from(vec!["", "eight ch", "twelve chars"]));
        let digest = digest(&[batch(vec![numbers(&[1, -2, 1 << 40]), strings])]);
        assert_eq!((digest.rows, digest.digest.as_str()), (3, RECORDED));
    }

    const RECORDED: &str = "6bae192b5c034f71";
}
