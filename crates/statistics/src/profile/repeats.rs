//! Counts how often each value of an array occurs, as long as values repeat: hashing a value for three
//! sketches costs ten times as much as finding it among a few thousand.
//!
//! Invariant: the counts add up to the values that are not NULL; two of the values given may be equal only
//! if they are strings that lie in different places.

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Decimal128Type};
use arrow_array::{Array, ArrayRef, UInt32Array, downcast_primitive_array};
use arrow_schema::DataType;
use std::hash::{BuildHasher, Hash};

/// Rows after which it is decided whether values repeat enough: in half of the first ones, at least.
const TRIAL_ROWS: usize = 4096;

/// Values of an array, and how often each occurs.
pub(super) struct Counted {
    pub values: ArrayRef,
    pub counts: Vec<u64>,
}

/// The table in which values are counted, reused from array to array.
#[derive(Clone, Debug, Default)]
pub(super) struct Repeats {
    /// For each slot one more than the number of the entry that is there.
    slots: Vec<u32>,
    /// The row in which each entry's value was first seen, and how often it was.
    first_rows: Vec<u32>,
    counts: Vec<u64>,
    hasher: ahash::RandomState,
}

impl Repeats {
    /// How often each value occurs; `None` where fewer than every second row repeats another.
    pub fn count(&mut self, values: &ArrayRef) -> Option<Counted> {
        let rows = values.len();
        if rows < 2 || rows > u32::MAX as usize {
            return None;
        }
        match values.data_type() {
            DataType::Utf8View => self.count_keys(values, values.as_string_view().views()),
            DataType::BinaryView => self.count_keys(values, values.as_binary_view().views()),
            DataType::Decimal128(..) => self.count_keys(values, values.as_primitive::<Decimal128Type>().values()),
            DataType::Float32 | DataType::Float64 | DataType::Boolean => None,
            _ => downcast_primitive_array!(
                values => self.count_numbers(values),
                _ => None,
            ),
        }
    }
}
