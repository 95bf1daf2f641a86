//! Hashes values, in blocks or single constants, as `hash.rs` at the root of the crate defines.

use super::basics;
use super::block::Hashes;
use super::items::Items;
use crate::hash::{self, Hash, SEED};
use arrow_schema::DataType;
use farpool_model::{Literal, Value, limits};

/// Replaces `hashes` by those of a block of values.
pub(super) fn fill(hashes: &mut Hashes, items: &Items<'_>) {
    match items {
        Items::Signed(words, _) | Items::Unsigned(words) => hashes.fill_words(words),
        Items::Floats(bits) => {
            let canonical = bits.iter().map(|bits| hash::float_bits(f64::from_bits(*bits)));
            hashes.fill_words(&canonical.collect::<Vec<u64>>());
        }
        Items::Wide(values) => fill_wide(hashes, values),
        Items::Bytes(values) => hashes.fill(values.iter().map(|bytes| hash::murmur3(bytes, SEED))),
    }
}

/// Hashes decimals: as 64-bit words if all of them fit, as most do.
fn fill_wide(hashes: &mut Hashes, values: &[i128]) {
    if values.iter().all(|value| i128::from(*value as i64) == *value) {
        hashes.fill_words(&values.iter().map(|value| *value as u64).collect::<Vec<u64>>());
    } else {
        hashes.fill(values.iter().map(|value| hash_of_wide(*value)));
    }
}

fn hash_of_wide(value: i128) -> Hash {
    match i64::try_from(value) {
        Ok(value) => hash::murmur3_word(value as u64, SEED),
        Err(_) => hash::murmur3(&value.to_le_bytes(), SEED),
    }
}

/// Returns the hash of a constant, which is that of the same value in a column.
pub(super) fn hash_of(literal: &Literal) -> Hash {
    match literal.value() {
        Value::Null => hash::murmur3(&[], SEED),
        Value::Bool(v) => hash::murmur3_word((*v).into(), SEED),
        Value::Int(v) if *literal.data_type() == DataType::UInt64 => hash::murmur3_word(*v as u64, SEED),
        Value::Int(v) => hash_of_wide(*v),
        Value::Float(v) => hash::murmur3_word(hash::float_bits(*v), SEED),
        Value::Text(v) => hash::murmur3(v.as_bytes(), SEED),
        Value::Bytes(v) => hash::murmur3(v, SEED),
    }
}

/// Returns the value at index `i` of a block; `None` if it is too long to be kept.
pub(super) fn value(items: &Items<'_>, i: usize, data_type: &DataType) -> Option<Literal> {
    let value = match items {
        Items::Signed(words, _) if *data_type == DataType::Boolean => Value::Bool(words[i] != 0),
        Items::Signed(words, _) => Value::Int((words[i] as i64).into()),
        Items::Unsigned(words) => Value::Int(words[i].into()),
        Items::Wide(values) => Value::Int(values[i]),
        Items::Floats(bits) => Value::Float(f64::from_bits(hash::float_bits(f64::from_bits(bits[i])))),
        Items::Bytes(values) if values[i].len() > limits::SKETCH_VALUE_BYTES_MAX => return None,
        Items::Bytes(values) => return Some(basics::bytes_literal(values[i], data_type)),
    };
    Some(basics::literal(value, data_type))
}
