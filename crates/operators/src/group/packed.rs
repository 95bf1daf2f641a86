//! Hash table of groups for group keys that together fit 64 bits: each group key is a bit field of one 64-bit
//! code.
//!
//! The field of a group key contains the distance of its value from the least value in the table, in as many bits as
//! the greatest distance needs. NULL, if it occurs, is the distance after the greatest one. The value of a string is
//! its code in the whole table ([`TextCodes`]), and that of a float its bits. Two rows have equal group keys exactly
//! if their packed codes are equal, so several group keys cost no more than one.

use super::hash::HashKey;
use super::ints::IntTable;
use super::text_codes::TextCodes;
use super::values::{KeyValues, array_of_lanes, lanes_of_array};
use arrow_array::ArrayRef;
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use farpool_model::Result;
use std::borrow::Cow;
use std::sync::Arc;

/// Bit fields of all group keys in a code.
#[derive(Debug)]
pub(crate) struct Packing {
    fields: Vec<Field>,
}

/// Bit field of one group key.
#[derive(Debug)]
struct Field {
    data_type: DataType,
    texts: Option<TextCodes>,
    /// Value with distance 0.
    min: i64,
    shift: u32,
    /// Mask of the field, before shifting.
    mask: u64,
    /// Distance from `min` that stands for NULL; `None` if the group key is never NULL.
    null: Option<u64>,
}

/// Properties of a group key in the whole table.
#[derive(Debug)]
pub(crate) struct KeyBounds {
    pub(crate) data_type: DataType,
    /// Least and greatest value as an integer; for strings, least and greatest code in [`TextCodes`].
    pub(crate) bounds: (i64, i64),
    /// Whether the group key can be NULL.
    pub(crate) nullable: bool,
    /// Codes of the strings in the whole table; `None` for other types.
    pub(crate) texts: Option<TextCodes>,
}

impl Packing {
    /// Assigns a bit field to each group key; `None` if they take more than 64 bits together.
    pub(crate) fn of(keys: impl Iterator<Item = KeyBounds>) -> Option<Packing> {
        let mut fields = Vec::new();
        let mut shift = 0;
        for key in keys {
            let KeyBounds { data_type, bounds: (min, max), nullable, texts } = key;
            let null = if nullable { Some(max.abs_diff(min).checked_add(1)?) } else { None };
            let bits = u64::BITS - null.unwrap_or(max.abs_diff(min)).leading_zeros();
            if shift + bits > u64::BITS {
                return None;
            }
            // A group key with a single value takes no bits, so its field may be at any position.
            let (at, mask) = if bits == 0 { (0, 0) } else { (shift, u64::MAX >> (u64::BITS - bits)) };
            fields.push(Field { data_type, texts, min, shift: at, mask, null });
            shift += bits;
        }
        Some(Packing { fields })
    }

    /// Returns the codes in the whole table of a string group key's values; `None` for other types.
    pub(crate) fn texts(&self, key: usize) -> Option<&TextCodes> {
        self.fields[key].texts.as_ref()
    }

    /// Converts the values of a group key to integers for [`Packing::add_values`]. The integer of a NULL is
    /// unspecified.
    ///
    /// # Errors
    /// `Internal` for a string that the table does not have.
    pub(crate) fn lanes_of(&self, key: usize, array: &ArrayRef) -> Result<Vec<i64>> {
        self.texts(key)
            .map_or_else(|| lanes_of_array(array).map(Cow::into_owned), |texts| texts.numbers(array))
    }

    /// Writes the values of one group key into its field of each code. The field must be 0 before.
    pub(crate) fn add_values(&self, key: usize, values: &[i64], codes: &mut [i64]) {
        let Field { min, shift, mask, .. } = self.fields[key];
        let pairs = codes.iter_mut().zip(values);
        // The mask keeps the arbitrary value of a NULL row within the field.
        pairs.for_each(|(code, value)| {
            *code |= ((value.wrapping_sub(min).cast_unsigned() & mask) << shift).cast_signed();
        });
    }

    /// Sets `outside` for rows whose value of one group key has no code of its own, because it is outside the bounds of
    /// the group key.
    pub(crate) fn note_outside(&self, key: usize, values: &[i64], outside: &mut [bool]) {
        let Field { min, mask, .. } = self.fields[key];
        let pairs = outside.iter_mut().zip(values);
        pairs.for_each(|(outside, value)| *outside |= value.wrapping_sub(min).cast_unsigned() & !mask != 0);
    }

    /// Returns the least value of one group key as an integer.
    pub(crate) fn least(&self, key: usize) -> i64 {
        self.fields[key].min
    }

    /// Returns the number of bits of a code.
    pub(crate) fn bits(&self) -> u32 {
        self.fields.iter().map(|field| field.mask.count_ones()).sum()
    }

    /// Sets the field of one group key to NULL in the codes of `rows`. Its previous content does not matter.
    pub(crate) fn set_nulls(&self, key: usize, rows: impl Iterator<Item = usize>, codes: &mut [i64]) {
        let Field { shift, mask, null, .. } = self.fields[key];
        let null = (null.unwrap_or(0) << shift).cast_signed();
        let others = !(mask << shift).cast_signed();
        rows.for_each(|row| codes[row] = codes[row] & others | null);
    }

    /// Unpacks `codes` into one array per group key.
    fn arrays(&self, codes: &[i64]) -> Result<Vec<ArrayRef>> {
        self.fields.iter().map(|field| field.array(codes)).collect()
    }
}

impl Field {
    fn array(&self, codes: &[i64]) -> Result<ArrayRef> {
        let distances = codes.iter().map(|code| code.cast_unsigned() >> self.shift & self.mask);
        let nulls = self.null.map(|null| distances.clone().map(|d| d != null).collect::<NullBuffer>());
        let nulls = nulls.filter(|n| n.null_count() > 0);
        if let Some(texts) = &self.texts {
            // The distance that stands for NULL is not the code of a string.
            let number = |distance| if Some(distance) == self.null { 0 } else { distance as u32 };
            return texts.array(distances.map(number).collect(), nulls);
        }
        let values = distances.map(|d| i128::from(self.min.wrapping_add(d.cast_signed())));
        array_of_lanes(&self.data_type, values, nulls)
    }
}

/// Maps packed group keys to group ids.
pub(crate) struct PackedTable {
    packing: Arc<Packing>,
    pub(super) table: IntTable,
}

impl PackedTable {
    /// Creates an empty table.
    pub(super) fn new(packing: Arc<Packing>, hash_key: HashKey) -> Self {
        PackedTable { packing, table: IntTable::new(hash_key) }
    }

    /// Appends the group id of each row to `ids`. Adds groups that are new.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn intern(&mut self, keys: &[KeyValues<'_>], rows: usize, ids: &mut Vec<u32>) -> Result<()> {
        let mut codes = vec![0; rows];
        for (index, key) in keys.iter().enumerate() {
            match key {
                // The low 64 bits of a decimal suffice, because the bounds of its values in the table have 64 bits.
                KeyValues::Array(array) => {
                    self.packing.add_values(index, &self.packing.lanes_of(index, array)?, &mut codes);
                }
                KeyValues::Lane { values, .. } => self.packing.add_values(index, values, &mut codes),
            }
            if let Some(nulls) = key.nulls() {
                let rows = (0..rows).filter(|row| nulls.is_null(*row));
                self.packing.set_nulls(index, rows, &mut codes);
            }
        }
        self.table.intern(&codes, ids);
        Ok(())
    }

    /// Returns the group keys of the groups `wanted`, one array per group key.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn keys(&self, wanted: &[u32]) -> Result<Vec<ArrayRef>> {
        let codes: Vec<i64> = wanted.iter().map(|group| self.table.key(*group)).collect();
        self.packing.arrays(&codes)
    }
}
