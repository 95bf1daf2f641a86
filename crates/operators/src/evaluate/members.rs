//! The constants of an IN list, prepared for look-up.
//!
//! Integer-like and float values are kept sorted by the order in which they compare (floats by total order,
//! so -0.0 and 0.0 differ, as they do under `=`); strings and binaries in a hash set.

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_buffer::BooleanBuffer;
use arrow_schema::DataType;
use farpool_model::{Error, Literal, Result, Value};
use hashbrown::HashSet;

/// The values of an IN list.
#[derive(Debug)]
pub(crate) struct Members {
    ints: Vec<i128>,
    /// Bits of the widened floats.
    floats: HashSet<u64, ahash::RandomState>,
    bytes: HashSet<Vec<u8>, ahash::RandomState>,
    bools: [bool; 2],
    has_null: bool,
}

impl Members {
    /// The constants of `list`, which have one type.
    pub(crate) fn new(list: &[Literal]) -> Members {
        let mut members = Members {
            ints: Vec::new(),
            floats: HashSet::default(),
            bytes: HashSet::default(),
            bools: [false; 2],
            has_null: false,
        };
        for literal in list {
            match literal.value() {
                Value::Null => members.has_null = true,
                Value::Bool(v) => members.bools[usize::from(*v)] = true,
                Value::Int(v) => members.ints.push(*v),
                Value::Float(v) => {
                    members.floats.insert(v.to_bits());
                }
                Value::Text(v) => {
                    members.bytes.insert(v.as_bytes().to_vec());
                }
                Value::Bytes(v) => {
                    members.bytes.insert(v.clone());
                }
            }
        }
        members.ints.sort_unstable();
        members.ints.dedup();
        members
    }

    /// Whether each value is a member, in SQL's logic.
    pub(crate) fn test(&self, array: &ArrayRef) -> Result<BooleanArray> {
        let hits = self.hits(array)?;
        let nulls = array.logical_nulls();
        if !self.has_null {
            return Ok(BooleanArray::new(hits, nulls));
        }
        // A miss is NULL when the list has one; what remains is true or NULL.
        let valid = match nulls {
            Some(nulls) => &hits & nulls.inner(),
            None => hits.clone(),
        };
        Ok(BooleanArray::new(hits, Some(valid.into())))
    }

    fn hits(&self, array: &ArrayRef) -> Result<BooleanBuffer> {
        let rows = array.len();
        macro_rules! ints {
            ($values:expr) => {{
                let values = $values.values();
                BooleanBuffer::collect_bool(rows, |i| self.has_int(values[i].into()))
            }};
        }
        Ok(match array.data_type() {
            DataType::Boolean => {
                let array = array.as_boolean();
                BooleanBuffer::collect_bool(rows, |i| self.bools[usize::from(array.value(i))])
            }
            DataType::Float32 => {
                let values = array.as_primitive::<Float32Type>().values();
                BooleanBuffer::collect_bool(rows, |i| self.floats.contains(&f64::from(values[i]).to_bits()))
            }
            DataType::Float64 => {
                let values = array.as_primitive::<Float64Type>().values();
                BooleanBuffer::collect_bool(rows, |i| self.floats.contains(&values[i].to_bits()))
            }
            DataType::Utf8View => {
                let array = array.as_string_view();
                BooleanBuffer::collect_bool(rows, |i| self.bytes.contains(array.value(i).as_bytes()))
            }
            DataType::BinaryView => {
                let array = array.as_binary_view();
                BooleanBuffer::collect_bool(rows, |i| self.bytes.contains(array.value(i)))
            }
            DataType::Int8 => ints!(array.as_primitive::<Int8Type>()),
            DataType::Int16 => ints!(array.as_primitive::<Int16Type>()),
            DataType::Int32 => ints!(array.as_primitive::<Int32Type>()),
            DataType::Int64 => ints!(array.as_primitive::<Int64Type>()),
            DataType::UInt8 => ints!(array.as_primitive::<UInt8Type>()),
            DataType::UInt16 => ints!(array.as_primitive::<UInt16Type>()),
            DataType::UInt32 => ints!(array.as_primitive::<UInt32Type>()),
            DataType::UInt64 => ints!(array.as_primitive::<UInt64Type>()),
            DataType::Date32 => ints!(array.as_primitive::<Date32Type>()),
            DataType::Timestamp(..) => {
                let array = arrow_cast::cast(array, &DataType::Int64).map_err(crate::failure::of_kernel)?;
                ints!(array.as_primitive::<Int64Type>())
            }
            DataType::Decimal128(..) => ints!(array.as_primitive::<Decimal128Type>()),
            other => return Err(Error::internal(format!("IN over {other}"))),
        })
    }

    fn has_int(&self, value: i128) -> bool {
        // Short lists are faster to scan than to search.
        if self.ints.len() <= 8 {
            self.ints.contains(&value)
        } else {
            self.ints.binary_search(&value).is_ok()
        }
    }

    /// The integers of the list, sorted.
    pub(crate) fn ints(&self) -> &[i128] {
        &self.ints
    }

    /// Whether NULL is in the list.
    pub(crate) fn has_null(&self) -> bool {
        self.has_null
    }
}
