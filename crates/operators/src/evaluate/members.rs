//! Constants of an IN list, prepared for look-ups.
//!
//! Integers in a narrow range are a bitmap, so that a test costs the same for long lists (such as the join keys of the
//! other table); other integers are sorted. Floats are a hash set of their bits, in which -0.0 is 0.0 and a NaN equals
//! itself, as for `=`. Strings and binaries are a hash set of their bytes.

use super::kernels::plus_zero;
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_buffer::BooleanBuffer;
use arrow_schema::DataType;
use farpool_columns::IntegerSet;
use farpool_model::{Error, KeySet, Literal, Result, Value, with_integer};
use hashbrown::HashSet;

/// Maximum difference between the greatest and the least integer of a list for a bitmap. Reason: such a bitmap takes 1
/// MiB, which fits the L2 cache.
const BITMAP_VALUES_MAX: i128 = 8 << 20;

/// Maximum length of a list of integers that is scanned rather than looked up in a bitmap.
const SCANNED_MAX: usize = 8;

/// Integers of a list, or of a set of join keys, which is too large to be written as a list.
#[derive(Clone, Debug)]
enum Ints {
    /// Integers of the list, sorted, without duplicates.
    Listed(Vec<i128>),
    Keys(KeySet),
}

/// Members of an IN list.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    ints: Ints,
    /// Bitmap of the integers, if their range is narrow enough.
    set: Option<IntegerSet>,
    /// Bits of the floats, widened to `f64`.
    floats: HashSet<u64, ahash::RandomState>,
    bytes: HashSet<Vec<u8>, ahash::RandomState>,
    bools: [bool; 2],
    has_null: bool,
}

impl Members {
    /// Creates the members from the constants of `list`, which must have one type.
    pub(crate) fn new(list: &[Literal]) -> Members {
        let mut members = Members {
            ints: Ints::Listed(Vec::new()),
            set: None,
            floats: HashSet::default(),
            bytes: HashSet::default(),
            bools: [false; 2],
            has_null: false,
        };
        let mut ints = Vec::new();
        for literal in list {
            match literal.value() {
                Value::Null => members.has_null = true,
                Value::Bool(v) => members.bools[usize::from(*v)] = true,
                Value::Int(v) => ints.push(*v),
                Value::Float(v) => {
                    members.floats.insert(plus_zero(*v).to_bits());
                }
                Value::Text(v) => {
                    members.bytes.insert(v.as_bytes().to_vec());
                }
                Value::Bytes(v) => {
                    members.bytes.insert(v.clone());
                }
            }
        }
        ints.sort_unstable();
        ints.dedup();
        members.set = set_of(&ints);
        members.ints = Ints::Listed(ints);
        members
    }

    /// Creates the members from a set of join keys.
    pub(crate) fn of_set(set: &KeySet) -> Members {
        let (first, words) = set.bitmap();
        let bitmap = IntegerSet::of_bitmap(first, words);
        Members { set: Some(bitmap), ints: Ints::Keys(set.clone()), ..Members::new(&[]) }
    }

    /// Tests each value for membership, with three-valued logic as in SQL.
    pub(crate) fn test(&self, array: &ArrayRef) -> Result<BooleanArray> {
        let hits = self.hits(array)?;
        let nulls = array.logical_nulls();
        if !self.has_null {
            return Ok(BooleanArray::new(hits, nulls));
        }
        // With a NULL in the list, the result for a value that is not found is NULL, so each result is either true or
        // NULL.
        let valid = match nulls {
            Some(nulls) => &hits & nulls.inner(),
            None => hits.clone(),
        };
        Ok(BooleanArray::new(hits, Some(valid.into())))
    }

    fn hits(&self, array: &ArrayRef) -> Result<BooleanBuffer> {
        let rows = array.len();
        Ok(match array.data_type() {
            DataType::Boolean => {
                let array = array.as_boolean();
                BooleanBuffer::collect_bool(rows, |i| self.bools[usize::from(array.value(i))])
            }
            DataType::Float32 => {
                let values = array.as_primitive::<Float32Type>().values();
                BooleanBuffer::collect_bool(rows, |i| self.has_float(f64::from(values[i])))
            }
            DataType::Float64 => {
                let values = array.as_primitive::<Float64Type>().values();
                BooleanBuffer::collect_bool(rows, |i| self.has_float(values[i]))
            }
            DataType::Utf8View => {
                let array = array.as_string_view();
                BooleanBuffer::collect_bool(rows, |i| self.bytes.contains(array.value(i).as_bytes()))
            }
            DataType::BinaryView => {
                let array = array.as_binary_view();
                BooleanBuffer::collect_bool(rows, |i| self.bytes.contains(array.value(i)))
            }
            other => with_integer!(
                other,
                T => {
                    let values = array.as_primitive::<T>().values();
                    BooleanBuffer::collect_bool(rows, |i| self.has_int(values[i].into()))
                },
                return Err(Error::internal(format!("IN over {other}")))
            ),
        })
    }

    fn has_float(&self, value: f64) -> bool {
        self.floats.contains(&plus_zero(value).to_bits())
    }

    /// Returns whether the list has the integer `value`.
    #[inline]
    pub(crate) fn has_int(&self, value: i128) -> bool {
        match (&self.ints, &self.set) {
            (Ints::Listed(ints), _) if ints.len() <= SCANNED_MAX => ints.contains(&value),
            (_, Some(set)) => i64::try_from(value).is_ok_and(|value| set.contains(value)),
            (Ints::Listed(ints), None) => ints.binary_search(&value).is_ok(),
            (Ints::Keys(keys), None) => i64::try_from(value).is_ok_and(|value| keys.contains(value)),
        }
    }

    /// Returns the integers as a bitmap; `None` if their range is too wide, or they are few.
    pub(crate) fn set(&self) -> Option<&IntegerSet> {
        self.set.as_ref()
    }

    /// Returns the members between `min` and `max` as closed ranges of consecutive integers; `None` if there are more
    /// than `most` ranges.
    pub(crate) fn runs(&self, min: i64, max: i64, most: usize) -> Option<Vec<(i128, i128)>> {
        let (low, high) = (i128::from(min), i128::from(max));
        match &self.ints {
            Ints::Listed(ints) => {
                let inside = &ints[ints.partition_point(|v| *v < low)..ints.partition_point(|v| *v <= high)];
                runs_of(inside.iter().copied(), most)
            }
            Ints::Keys(keys) => {
                let runs = keys.runs(min, max, most)?.into_iter();
                Some(runs.map(|(first, last)| (first.into(), last.into())).collect())
            }
        }
    }

    /// Returns whether NULL is in the list.
    pub(crate) fn has_null(&self) -> bool {
        self.has_null
    }
}

/// Combines sorted integers into closed ranges of consecutive ones; `None` if there are more than `most` ranges.
fn runs_of(ints: impl Iterator<Item = i128>, most: usize) -> Option<Vec<(i128, i128)>> {
    let mut runs: Vec<(i128, i128)> = Vec::new();
    for value in ints {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(value) => *last = value,
            _ => runs.push((value, value)),
        }
        if runs.len() > most {
            return None;
        }
    }
    Some(runs)
}

/// Returns a bitmap of sorted integers; `None` if they are few or too far apart.
fn set_of(ints: &[i128]) -> Option<IntegerSet> {
    let span = ints.last()?.checked_sub(*ints.first()?)?;
    if ints.len() <= SCANNED_MAX || span >= BITMAP_VALUES_MAX {
        return None;
    }
    let ints: Vec<i64> = ints.iter().map(|value| i64::try_from(*value).ok()).collect::<Option<_>>()?;
    Some(IntegerSet::of_sorted(&ints))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_up_agrees_with_the_list_whatever_its_form() {
        let lists: [Vec<i128>; 5] = [
            vec![],
            vec![3, 5],
            (0..100).map(|v| v * 7 - 300).collect(),
            (0..20).map(|v| v * 1_000_000_007).collect(),
            vec![i128::MIN, -1, 0, 1, 2, 3, 4, 5, 6, 7, i128::MAX],
        ];
        for list in lists {
            let literals =
                list.iter().map(|v| Literal::new(Value::Int(*v), DataType::Decimal128(38, 0)).unwrap());
            let members = Members::new(&literals.collect::<Vec<_>>());
            let near = list.iter().flat_map(|v| [v.saturating_sub(1), *v, v.saturating_add(1)]);
            for value in near.chain(-1000..1000).chain([i128::MIN / 2, i128::MAX / 2]) {
                assert_eq!(members.has_int(value), list.contains(&value), "{value} in {list:?}");
            }
        }
    }

    #[test]
    fn a_set_of_keys_has_the_keys_of_its_bitmap() {
        for first in [i64::MIN, -1_000, 0, i64::MAX - 700] {
            let keys: Vec<i64> = (0..700).filter(|i| i % 3 == 0 || i % 64 > 61).map(|i| first + i).collect();
            let members = Members::of_set(&KeySet::new(&keys).unwrap());
            for near in -130..900 {
                let value = i128::from(first) + near;
                let is_member = i64::try_from(value).is_ok_and(|value| keys.contains(&value));
                assert_eq!(members.has_int(value), is_member, "{value} among {first} and more");
                let in_set = i64::try_from(value).is_ok_and(|value| members.set().unwrap().contains(value));
                assert_eq!(in_set, is_member, "{value} among {first} and more");
            }
        }
    }
}
