//! Groups of one key of fixed width, in an open-addressing table.
//!
//! Keys of a batch are looked up in two passes. The first follows no chain: it reads one slot per key, so
//! that the processor overlaps the cache misses of many keys. The second compares the keys, and follows the
//! chains of those that are not where they would be alone. Measured at 1 M groups, open addressing with
//! overlapped misses took a third of the time of a `hashbrown` map.
//!
//! Slots hold group numbers only, not keys as well: four times as many groups then fit a cache.

use crate::evaluate::array_of_ints;
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, BooleanArray, Float32Array, Float64Array};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, TimeUnit};
use farpool_columns::working;
use farpool_model::cast::u32_checked;
use farpool_model::{Error, Result};
use std::sync::Arc;

/// No group: a slot that is free, or a NULL key that has not been seen.
const NONE: u32 = u32::MAX;

const SLOTS_MIN: usize = 256;

/// The two widths of keys.
pub(crate) trait Width: Copy + Eq + Default + Into<i128> {
    /// A well mixed hash: the top bits name partitions, the low bits slots.
    fn hash(self) -> u64;

    /// The keys of an array; anything under a NULL.
    fn of_array(array: &ArrayRef) -> Result<Vec<Self>>;
}

/// A table of groups.
pub(crate) struct IntTable<K> {
    data_type: DataType,
    /// A power of two, at most half of them taken.
    slots: Vec<u32>,
    /// The key of each group; anything for that of NULL.
    keys: Vec<K>,
    null_group: u32,
}

impl<K: Width> IntTable<K> {
    /// The most bytes per group, once there are some: the vector of keys and the slots, just grown.
    pub(crate) const BYTES_PER_GROUP: usize = 2 * size_of::<K>() + 4 * size_of::<u32>();

    /// An empty table of keys of `data_type`.
    pub(crate) fn new(data_type: DataType) -> Self {
        IntTable {
            data_type,
            slots: working::filled(NONE, SLOTS_MIN),
            keys: Vec::new(),
            null_group: NONE,
        }
    }

    /// Makes room for `groups` groups in a table that is empty.
    pub(super) fn expect(&mut self, groups: usize) {
        let slots = (groups * 2).next_power_of_two().max(SLOTS_MIN);
        if self.keys.is_empty() && slots > self.slots.len() {
            self.slots = working::filled(NONE, slots);
            working::reserve(&mut self.keys, groups);
        }
    }

    /// The number of groups.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u32>() + self.keys.capacity() * size_of::<K>()
    }

    /// Adds the group of each key to `ids`.
    pub(crate) fn intern(&mut self, keys: &[K], nulls: Option<&NullBuffer>, ids: &mut Vec<u32>) {
        let first = ids.len();
        let mask = self.slots.len() - 1;
        ids.extend(keys.iter().map(|key| self.slots[key.hash() as usize & mask]));
        for (row, key) in keys.iter().enumerate() {
            let id = &mut ids[first + row];
            if nulls.is_some_and(|n| n.is_null(row)) {
                *id = self.null();
            } else if self.keys.get(*id as usize) != Some(key) {
                *id = self.insert(*key);
            }
        }
    }

    /// Adds the numbers here of the groups `wanted` of `other` to `ids`.
    pub(crate) fn intern_groups(&mut self, other: &Self, wanted: &[u32], ids: &mut Vec<u32>) {
        for group in wanted {
            let id = if *group == other.null_group {
                self.null()
            } else {
                self.insert(other.keys[*group as usize])
            };
            ids.push(id);
        }
    }

    /// The hash of a group.
    pub(crate) fn hash(&self, group: u32) -> u64 {
        if group == self.null_group { 0 } else { self.keys[group as usize].hash() }
    }

    /// The key of a group that is not NULL.
    pub(super) fn key(&self, group: u32) -> K {
        self.keys[group as usize]
    }

    /// The keys of the groups `wanted`.
    pub(crate) fn keys(&self, wanted: &[u32]) -> Result<ArrayRef> {
        let keys = wanted.iter().map(|group| self.keys[*group as usize]);
        let has_null = wanted.contains(&self.null_group);
        let nulls = has_null.then(|| wanted.iter().map(|g| *g != self.null_group).collect::<NullBuffer>());
        array_of_lanes(&self.data_type, keys.map(Into::into), nulls)
    }

    fn null(&mut self) -> u32 {
        if self.null_group == NONE {
            self.null_group = u32_checked(self.keys.len());
            self.keys.push(K::default());
        }
        self.null_group
    }

    fn insert(&mut self, key: K) -> u32 {
        let mask = self.slots.len() - 1;
        let mut slot = key.hash() as usize & mask;
        loop {
            match self.slots[slot] {
                NONE => break,
                group if self.keys[group as usize] == key => return group,
                _ => slot = (slot + 1) & mask,
            }
        }
        let group = u32_checked(self.keys.len());
        working::reserve(&mut self.keys, 1);
        self.keys.push(key);
        self.slots[slot] = group;
        if self.keys.len() * 2 > self.slots.len() {
            self.grow();
        }
        group
    }

    fn grow(&mut self) {
        let mask = self.slots.len() * 2 - 1;
        let mut slots = working::filled(NONE, mask + 1);
        for (group, key) in self.keys.iter().enumerate() {
            let group = u32_checked(group);
            // NULL is found without the table.
            if group == self.null_group {
                continue;
            }
            let mut slot = key.hash() as usize & mask;
            while slots[slot] != NONE {
                slot = (slot + 1) & mask;
            }
            slots[slot] = group;
        }
        self.slots = slots;
    }
}

/// Keys as lanes hold them (floats by their bits, booleans as 0 and 1) as an array of their type.
pub(super) fn array_of_lanes(
    data_type: &DataType,
    keys: impl Iterator<Item = i128>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    Ok(match data_type {
        DataType::Boolean => {
            let values: Vec<bool> = keys.map(|key| key == 1).collect();
            Arc::new(BooleanArray::new(values.into(), nulls))
        }
        DataType::Float32 => {
            let values: Vec<f32> = keys.map(|key| f32::from_bits(key as u32)).collect();
            Arc::new(Float32Array::new(values.into(), nulls))
        }
        DataType::Float64 => {
            let values: Vec<f64> = keys.map(|key| f64::from_bits(key as u64)).collect();
            Arc::new(Float64Array::new(values.into(), nulls))
        }
        other => array_of_ints(other, keys, nulls)?,
    })
}

/// Folded multiplication, as in wyhash: the halves of a 128-bit product.
#[inline]
pub(crate) fn fold(value: u64) -> u64 {
    let product = u128::from(value ^ 0x9e37_79b9_7f4a_7c15) * 0xe703_7ed1_a0b4_28db;
    (product >> 64) as u64 ^ product as u64
}

impl Width for i64 {
    #[inline]
    fn hash(self) -> u64 {
        fold(self.cast_unsigned())
    }

    fn of_array(array: &ArrayRef) -> Result<Vec<i64>> {
        macro_rules! widen {
            ($t:ty) => {
                array.as_primitive::<$t>().values().iter().map(|v| *v as i64).collect()
            };
        }
        Ok(match array.data_type() {
            DataType::Boolean => array.as_boolean().values().iter().map(i64::from).collect(),
            DataType::Int8 => widen!(Int8Type),
            DataType::Int16 => widen!(Int16Type),
            DataType::Int32 => widen!(Int32Type),
            DataType::Int64 => widen!(Int64Type),
            DataType::UInt8 => widen!(UInt8Type),
            DataType::UInt16 => widen!(UInt16Type),
            DataType::UInt32 => widen!(UInt32Type),
            DataType::UInt64 => widen!(UInt64Type),
            DataType::Date32 => widen!(Date32Type),
            DataType::Timestamp(TimeUnit::Second, _) => widen!(TimestampSecondType),
            DataType::Timestamp(TimeUnit::Millisecond, _) => widen!(TimestampMillisecondType),
            DataType::Timestamp(TimeUnit::Microsecond, _) => widen!(TimestampMicrosecondType),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => widen!(TimestampNanosecondType),
            // Adding 0.0 makes -0.0 the same key.
            DataType::Float32 => {
                let values = array.as_primitive::<Float32Type>().values();
                values.iter().map(|v| i64::from((v + 0.0).to_bits())).collect()
            }
            DataType::Float64 => {
                let values = array.as_primitive::<Float64Type>().values();
                values.iter().map(|v| (v + 0.0).to_bits().cast_signed()).collect()
            }
            other => return Err(Error::internal(format!("{other} is no key of 64 bits"))),
        })
    }
}

impl Width for i128 {
    #[inline]
    fn hash(self) -> u64 {
        let (low, high) = (self as u64, (self >> 64) as u64);
        // Decimals mostly fit 64 bits: the high half is then all sign.
        fold(low ^ fold(high))
    }

    fn of_array(array: &ArrayRef) -> Result<Vec<i128>> {
        Ok(array.as_primitive::<Decimal128Type>().values().to_vec())
    }
}
