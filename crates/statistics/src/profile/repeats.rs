//! Counts the occurrences of each value of an array, as long as values repeat. Reason: hashing a value for three
//! sketches costs ten times as much as finding it among a few thousand values.
//!
//! Values are compared by their bits, and strings by their Arrow views. Short strings are part of their view. Long ones
//! count as equal if they share their bytes in memory, as those of a dictionary page do.
//!
//! The hash function has no secret key, because equal rows must give equal states. So a client could choose values that
//! collide. Counting therefore stops if probe sequences become long or few values repeat; each value is then hashed for
//! the sketches.
//!
//! Invariant: the counts add up to the number of values that are not NULL. The same value may be listed several times.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, UInt32Array};
use arrow_buffer::{ArrowNativeType, ScalarBuffer};
use arrow_schema::DataType;
use farpool_model::limits;

/// Number of rows after which it is first checked whether enough values repeat.
const TRIAL_ROWS: usize = 4096;

/// Maximum number of probe steps per row, on average, before counting stops. A table that is half full needs one or
/// two.
const STEPS_PER_ROW_MAX: usize = 16;

/// Values of an array and their numbers of occurrences.
pub(super) struct Counted {
    pub values: ArrayRef,
    pub counts: Vec<u64>,
}

/// Hash table in which values are counted. Its memory is reused for each array.
#[derive(Clone, Debug, Default)]
pub(super) struct Repeats {
    /// For each slot, one plus the index of its entry; 0 if the slot is free.
    slots: Vec<u32>,
}

impl Repeats {
    /// Maximum number of bytes of memory that are kept, for row groups of full size.
    pub const BYTES_MOST: usize =
        (limits::ROW_GROUP_ROWS + 2 * TRIAL_ROWS).next_power_of_two() * size_of::<u32>();

    /// Returns the bytes of memory that are kept for reuse.
    pub fn bytes_held(&self) -> usize {
        self.slots.capacity() * size_of::<u32>()
    }

    /// Counts the occurrences of each value; `None` if fewer than half of the rows repeat a value, or values collide.
    pub fn count(&mut self, values: &ArrayRef) -> Option<Counted> {
        if values.len() < 2 || u32::try_from(values.len()).is_err() {
            return None;
        }
        match values.data_type() {
            DataType::Utf8View => self.count_keys(values, values.as_string_view().views()),
            DataType::BinaryView => self.count_keys(values, values.as_binary_view().views()),
            other => match other.primitive_width()? {
                1 => self.count_keys(values, &bits::<u8>(values)),
                2 => self.count_keys(values, &bits::<u16>(values)),
                4 => self.count_keys(values, &bits::<u32>(values)),
                8 => self.count_keys(values, &bits::<u64>(values)),
                16 => self.count_keys(values, &bits::<i128>(values)),
                _ => None,
            },
        }
    }

    fn count_keys<K: Key>(&mut self, values: &ArrayRef, keys: &[K]) -> Option<Counted> {
        let mut entries = Entries::new(&mut self.slots, keys.len().min(TRIAL_ROWS));
        let nulls = values.nulls().filter(|nulls| nulls.null_count() > 0);
        for start in (0..keys.len()).step_by(TRIAL_ROWS) {
            if start == TRIAL_ROWS {
                entries.make_room(keys.len());
            }
            let end = keys.len().min(start + TRIAL_ROWS);
            for (row, key) in (start..end).zip(&keys[start..end]) {
                if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                    entries.add(*key, row);
                }
            }
            if entries.keys.len() > end / 2 || entries.steps > STEPS_PER_ROW_MAX * end {
                return None;
            }
        }
        let rows = UInt32Array::from(entries.rows);
        let values = arrow_select::take::take(values, &rows, None).ok()?;
        Some(Counted { values, counts: entries.counts })
    }
}

/// Returns the values of a fixed-width array as integers of the same width.
fn bits<K: ArrowNativeType>(values: &ArrayRef) -> ScalarBuffer<K> {
    let data = values.to_data();
    ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len())
}

/// Distinct values so far, in the order of first occurrence.
struct Entries<'a, K> {
    slots: &'a mut Vec<u32>,
    keys: Vec<K>,
    rows: Vec<u32>,
    counts: Vec<u64>,
    /// Number of probe steps so far.
    steps: usize,
}

impl<'a, K: Key> Entries<'a, K> {
    fn new(slots: &'a mut Vec<u32>, rows: usize) -> Self {
        let mut entries = Entries { slots, keys: Vec::new(), rows: Vec::new(), counts: Vec::new(), steps: 0 };
        entries.make_room(rows);
        entries
    }

    /// Clears the slots and makes room for the values of `rows` rows. Counting stops if more than half of the rows
    /// are distinct, so that there are at most half as many distinct values as rows, plus those of one trial.
    fn make_room(&mut self, rows: usize) {
        self.slots.clear();
        self.slots.resize((rows + 2 * TRIAL_ROWS).next_power_of_two(), 0);
        for entry in 0..self.keys.len() {
            if let Err(free) = self.find(self.keys[entry]) {
                self.slots[free] = entry as u32 + 1;
            }
        }
    }

    /// Returns the index of a value's entry, or as the error the free slot for it.
    #[inline]
    fn find(&mut self, key: K) -> Result<usize, usize> {
        let mask = self.slots.len() - 1;
        let mut slot = key.mixed() as usize & mask;
        loop {
            match self.slots[slot] {
                0 => return Err(slot),
                found if self.keys[found as usize - 1] == key => return Ok(found as usize - 1),
                _ => {
                    slot = (slot + 1) & mask;
                    self.steps += 1;
                }
            }
        }
    }

    fn add(&mut self, key: K, row: usize) {
        let slot = match self.find(key) {
            Ok(entry) => {
                self.counts[entry] += 1;
                return;
            }
            Err(free) => free,
        };
        self.keys.push(key);
        self.rows.push(row as u32);
        self.counts.push(1);
        self.slots[slot] = self.keys.len() as u32;
    }
}

/// Bits of a value, by which values are compared.
trait Key: Copy + PartialEq {
    /// Returns a hash whose lowest bits select the slot.
    fn mixed(self) -> u64;
}

/// Mixes the upper bits of a product, which depend on most bits of the factor, into the lower ones.
fn mix(word: u64) -> u64 {
    let product = (word ^ (word >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}

macro_rules! keys {
    ($($t:ty),*) => {$(
        impl Key for $t {
            fn mixed(self) -> u64 {
                mix(u64::from(self))
            }
        }
    )*};
}

keys!(u8, u16, u32, u64);

impl Key for u128 {
    fn mixed(self) -> u64 {
        mix((self as u64).wrapping_mul(0xff51_afd7_ed55_8ccd) ^ (self >> 64) as u64)
    }
}

impl Key for i128 {
    fn mixed(self) -> u64 {
        (self as u128).mixed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::UInt64Array;
    use std::sync::Arc;

    /// Returns whether the repetitions of an array are counted, if each of `values` occurs eight times in it.
    fn are_counted(values: &[u64]) -> bool {
        let rows = UInt64Array::from_iter_values(values.iter().copied().cycle().take(8 * values.len()));
        let rows: ArrayRef = Arc::new(rows);
        let Some(counted) = Repeats::default().count(&rows) else { return false };
        counted.counts == [8; 1000]
    }

    #[test]
    fn values_made_to_collide_are_not_counted() {
        let slots = (3_u64 * TRIAL_ROWS as u64).next_power_of_two();
        let colliding: Vec<u64> =
            (0..).filter(|value| mix(*value).is_multiple_of(slots)).take(1000).collect();
        assert!(are_counted(&(0..1000).collect::<Vec<_>>()));
        assert!(!are_counted(&colliding));
    }
}
