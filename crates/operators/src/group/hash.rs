//! The hash function of group keys, for hash tables of groups and for partitioning rows.
//!
//! The hash function has a secret key, which is not known outside the process. Otherwise a client that chooses the
//! grouping values could choose values with equal hashes, and every look-up would visit all groups (hash flooding). The
//! secret key is an argument, like everything random, because the order in which groups are returned depends on it, and
//! a simulation must repeat an execution from its seed.

use super::values::lanes_of_array;
use arrow_array::cast::AsArray;
use arrow_array::types::{ByteViewType, Decimal128Type};
use arrow_array::{Array, ArrayRef, GenericByteViewArray};
use arrow_schema::DataType;
use farpool_model::Result;

/// Maximum length of a string that a view has in itself, as Arrow defines it.
pub(crate) const INLINE_BYTES: u32 = 12;

/// Secret key of the hash function. All hash tables of one execution must have the same key, because the groups of
/// different workers are merged by their hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashKey {
    mask: u64,
    factor: u64,
}

impl Default for HashKey {
    /// Creates a fixed key, which is not secret: for data that is trusted.
    fn default() -> Self {
        HashKey { mask: 0x9e37_79b9_7f4a_7c15, factor: 0xe703_7ed1_a0b4_28db }
    }
}

impl HashKey {
    /// Derives a key from `seed`. The key is secret if the seed is.
    pub fn new(seed: u64) -> Self {
        let mask = mixed(seed.wrapping_add(0x9e37_79b9_7f4a_7c15));
        HashKey { mask, factor: mixed(mask ^ seed.rotate_left(32)) | 1 }
    }

    /// Returns the hash of a 64-bit group key. Its top bits select the partition, its low bits the slot in a hash
    /// table.
    #[inline]
    pub(crate) fn of_int(self, key: i64) -> u64 {
        self.fold(key.cast_unsigned())
    }

    /// Returns the hash of the group keys of a row, encoded as a sequence of words. Equal sequences have equal hashes
    /// in all tables with this secret key.
    pub(super) fn of_row(self, row: &[i64]) -> u64 {
        row.iter().fold(0, |hash, word| self.fold(hash ^ word.cast_unsigned()))
    }

    /// Adds the values of a column to the hashes of its rows. That of a row which is NULL is unspecified.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn add_values(self, column: &ArrayRef, hashes: &mut [u64]) -> Result<()> {
        match column.data_type() {
            DataType::Utf8View => self.add_texts(column.as_string_view(), hashes),
            DataType::BinaryView => self.add_texts(column.as_binary_view(), hashes),
            DataType::Decimal128(..) => {
                let values = column.as_primitive::<Decimal128Type>().values();
                for (hash, value) in hashes.iter_mut().zip(values) {
                    *hash = self.fold(self.fold(*hash ^ *value as u64) ^ (*value >> 64) as u64);
                }
            }
            _ => {
                let lanes = lanes_of_array(column)?;
                hashes.iter_mut().zip(&*lanes).for_each(|(hash, lane)| {
                    *hash = self.fold(*hash ^ lane.cast_unsigned());
                });
            }
        }
        Ok(())
    }

    fn add_texts<T: ByteViewType>(self, texts: &GenericByteViewArray<T>, hashes: &mut [u64]) {
        for (row, (hash, view)) in hashes.iter_mut().zip(texts.views()).enumerate() {
            // The length, and the first four bytes.
            *hash = self.fold(*hash ^ *view as u64);
            if *view as u32 <= INLINE_BYTES {
                // The view has the other bytes, too, and zeros behind them.
                *hash = self.fold(*hash ^ (*view >> 64) as u64);
            } else if texts.is_valid(row) {
                let (words, rest) = AsRef::<[u8]>::as_ref(texts.value(row)).as_chunks();
                let fold = |hash, word: &[u8; 8]| self.fold(hash ^ u64::from_le_bytes(*word));
                *hash = words.iter().fold(*hash, fold);
                *hash = self.fold(*hash ^ rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
            }
        }
    }

    /// Returns the folded product, as in wyhash: the XOR of the two halves of a 128-bit product.
    #[inline]
    fn fold(self, value: u64) -> u64 {
        let product = u128::from(value ^ self.mask) * u128::from(self.factor);
        (product >> 64) as u64 ^ product as u64
    }
}

/// Applies the finalizer of SplitMix64 (Steele, Lea, Flood, 2014), which mixes all bits.
fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
