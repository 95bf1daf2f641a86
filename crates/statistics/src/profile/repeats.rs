//! Counts how often each value of an array occurs, as long as values repeat: hashing a value for three
//! sketches costs ten times as much as finding it among a few thousand.
//!
//! Values are compared by their bits, strings by their views: short ones lie in them, long ones are the same
//! if they lie in the same place, as those of a dictionary page do.
//!
//! Invariant: the counts add up to the values that are not NULL, and a value may be given more than once.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, UInt32Array};
use arrow_buffer::{ArrowNativeType, ScalarBuffer};
use arrow_schema::DataType;

/// Rows after which it is first decided whether values repeat enough.
const TRIAL_ROWS: usize = 4096;

/// Values of an array, and how often each occurs.
pub(super) struct Counted {
    pub values: ArrayRef,
    pub counts: Vec<u64>,
}

/// The table in which values are counted, reused from array to array.
#[derive(Clone, Debug, Default)]
pub(super) struct Repeats {
    /// For each slot one more than the number of the entry that is there; 0 where there is none.
    slots: Vec<u32>,
}

impl Repeats {
    /// How often each value occurs; `None` where not even every second row repeats another.
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
            if entries.keys.len() > end / 2 {
                return None;
            }
        }
        let rows = UInt32Array::from(entries.rows);
        let values = arrow_select::take::take(values, &rows, None).ok()?;
        Some(Counted { values, counts: entries.counts })
    }
}

/// The values of an array of fixed width, as numbers of that width.
fn bits<K: ArrowNativeType>(values: &ArrayRef) -> ScalarBuffer<K> {
    let data = values.to_data();
    ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len())
}

/// The values that were seen, in the order in which they came first.
struct Entries<'a, K> {
    slots: &'a mut Vec<u32>,
    keys: Vec<K>,
    rows: Vec<u32>,
    counts: Vec<u64>,
}

impl<'a, K: Key> Entries<'a, K> {
    fn new(slots: &'a mut Vec<u32>, rows: usize) -> Self {
        let mut entries = Entries { slots, keys: Vec::new(), rows: Vec::new(), counts: Vec::new() };
        entries.make_room(rows);
        entries
    }

    /// Slots for the values of `rows` rows, of which at most half and a trial's more are different.
    fn make_room(&mut self, rows: usize) {
        self.slots.clear();
        self.slots.resize((rows + 2 * TRIAL_ROWS).next_power_of_two(), 0);
        for (number, key) in (1..).zip(&self.keys) {
            if let Err(free) = self.find(*key) {
                self.slots[free] = number;
            }
        }
    }

    /// The entry of a value, or the free slot for it.
    #[inline]
    fn find(&self, key: K) -> Result<usize, usize> {
        let mask = self.slots.len() - 1;
        let mut slot = key.mixed() as usize & mask;
        loop {
            match self.slots[slot] {
                0 => return Err(slot),
                found if self.keys[found as usize - 1] == key => return Ok(found as usize - 1),
                _ => slot = (slot + 1) & mask,
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

/// Bits that are compared.
trait Key: Copy + PartialEq {
    /// A number whose lowest bits differ for keys that differ.
    fn mixed(self) -> u64;
}

/// A multiplication leaves the best bits on top.
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
