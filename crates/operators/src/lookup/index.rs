//! Index of the rows of the build side by their join keys.
//!
//! The rows with equal keys form a chain: the index finds the last row that was inserted, and `next` has for each row
//! the one before. If the keys of all rows together fit few bits, the last row is found in an array by the packed key
//! (a dense index), without hashing; otherwise by the hash tables of grouping.

use super::NONE;
use crate::group::{HashKey, IntTable, KeyBounds, KeyValues, Packing, RowTable, Rows, lanes_of_array};
use arrow_array::cast::AsArray;
use arrow_array::types::Decimal128Type;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use farpool_columns::working;
use farpool_model::cast::u32_checked;
use farpool_model::{Error, Result, schema};

/// A dense index has at most this many entries for each row, rounded up to a power of two. Reason: an entry takes 4
/// bytes, a row of a hash table 24 and more, and a dense index that is read at random places must not miss more caches.
const ENTRIES_PER_ROW: usize = 4;

/// Maximum number of entries of a dense index, whatever the number of rows, that is always allowed. Reason: they fit
/// the L1 cache.
const ENTRIES_FREE: usize = 4096;

/// Finds the rows with given join keys.
pub(super) struct Index {
    keys: Keys,
    /// The last row of each chain; by packed key in a dense index, otherwise by the id of the key.
    heads: Vec<u32>,
    /// For each row the row before it in its chain, or [`NONE`]. Empty as long as no two rows have equal keys.
    next: Vec<u32>,
    rows: usize,
    scratch: Scratch,
}

/// The form in which keys are kept, and found.
enum Keys {
    /// Packed keys are positions in an array.
    Dense(Packing),
    /// Keys that are packed into 64 bits each.
    Packed(Packing, IntTable),
    /// Keys that are rows of words.
    Words(Box<RowTable>),
}

/// Buffers for one batch of keys.
#[derive(Default)]
pub(super) struct Scratch {
    codes: Vec<i64>,
    /// Whether each row has a key that no row of the build side can have.
    missing: Vec<bool>,
    words: Rows,
    ids: Vec<u32>,
}

impl Index {
    /// Creates an empty index for the rows of `batches`, each an array for every join key, without NULLs.
    pub(super) fn new(types: &[DataType], batches: &[Vec<ArrayRef>], hash_key: HashKey) -> Index {
        let rows: usize = batches.iter().map(|keys| keys.first().map_or(0, |key| key.len())).sum();
        let keys = match packing(types, batches) {
            Some(packing) if entries(&packing).is_some_and(|most| is_dense(most, rows)) => {
                Keys::Dense(packing)
            }
            Some(packing) => Keys::Packed(packing, IntTable::new(hash_key)),
            None => Keys::Words(Box::new(RowTable::new(types, hash_key))),
        };
        let heads = match &keys {
            Keys::Dense(packing) => working::filled(NONE, entries(packing).unwrap_or(0)),
            Keys::Packed(..) | Keys::Words(_) => Vec::new(),
        };
        Index { keys, heads, next: Vec::new(), rows: 0, scratch: Scratch::default() }
    }

    /// Inserts the next rows of the build side; their numbers follow those of the rows before.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn insert(&mut self, keys: &[ArrayRef]) -> Result<()> {
        let rows = keys.first().map_or(0, |key| key.len());
        let Scratch { codes, missing, ids, .. } = &mut self.scratch;
        match &mut self.keys {
            Keys::Dense(packing) => {
                pack(packing, keys, codes, missing)?;
                ids.clear();
                ids.extend(codes.iter().map(|code| *code as u32));
            }
            Keys::Packed(packing, table) => {
                pack(packing, keys, codes, missing)?;
                ids.clear();
                table.intern(codes, ids);
            }
            Keys::Words(table) => {
                let keys: Vec<KeyValues<'_>> = keys.iter().cloned().map(KeyValues::Array).collect();
                ids.clear();
                table.intern(&keys, rows, ids)?;
            }
        }
        debug_assert!(missing.iter().all(|is_missing| !is_missing), "the keys that the index was made for");
        self.link();
        Ok(())
    }

    /// Makes each row of the batch, whose key ids are in the scratch buffers, the head of its chain.
    fn link(&mut self) {
        for (row, id) in (self.rows..).zip(&self.scratch.ids) {
            let id = *id as usize;
            if id >= self.heads.len() {
                working::reserve(&mut self.heads, 1);
                self.heads.resize(id + 1, NONE);
            }
            let before = std::mem::replace(&mut self.heads[id], u32_checked(row));
            if before != NONE && self.next.is_empty() {
                working::reserve(&mut self.next, self.rows + self.scratch.ids.len());
                self.next.resize(row, NONE);
            }
            if !self.next.is_empty() {
                working::reserve(&mut self.next, 1);
                self.next.push(before);
            }
        }
        self.rows += self.scratch.ids.len();
        assert!(self.next.is_empty() || self.next.len() == self.rows, "each row has a link, or none has");
    }

    /// Replaces `found` by the last row with each of these keys, or [`NONE`]. A NULL key has no rows.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn find(&self, keys: &[ArrayRef], scratch: &mut Scratch, found: &mut Vec<u32>) -> Result<()> {
        let rows = keys.first().map_or(0, |key| key.len());
        found.clear();
        let Scratch { codes, missing, words, ids } = scratch;
        match &self.keys {
            Keys::Dense(packing) => {
                pack(packing, keys, codes, missing)?;
                let of = |(code, is_missing): (&i64, &bool)| match is_missing {
                    true => NONE,
                    false => self.heads[*code as usize],
                };
                found.extend(codes.iter().zip(&*missing).map(of));
            }
            Keys::Packed(packing, table) => {
                pack(packing, keys, codes, missing)?;
                ids.clear();
                table.find(codes, ids);
                let of = |(id, is_missing): (&u32, &bool)| if *is_missing { NONE } else { self.head(*id) };
                found.extend(ids.iter().zip(&*missing).map(of));
            }
            Keys::Words(table) => {
                let keys: Vec<KeyValues<'_>> = keys.iter().cloned().map(KeyValues::Array).collect();
                table.encode(&keys, rows, words)?;
                ids.clear();
                table.find(words, ids);
                found.extend(ids.iter().map(|id| self.head(*id)));
            }
        }
        for nulls in keys.iter().filter_map(|key| key.nulls()).filter(|nulls| nulls.null_count() > 0) {
            let of_row = found.iter_mut().enumerate();
            of_row.filter(|(row, _)| nulls.is_null(*row)).for_each(|(_, found)| *found = NONE);
        }
        Ok(())
    }

    fn head(&self, id: u32) -> u32 {
        if id == NONE { NONE } else { self.heads[id as usize] }
    }

    /// Returns the row before `row` with the same key, or [`NONE`].
    pub(super) fn before(&self, row: u32) -> u32 {
        self.next.get(row as usize).copied().unwrap_or(NONE)
    }

    /// Returns whether no two rows have equal keys.
    pub(super) fn is_unique(&self) -> bool {
        self.next.is_empty()
    }

    /// Returns whether packed keys are positions in an array.
    #[cfg(test)]
    pub(super) fn is_dense(&self) -> bool {
        matches!(self.keys, Keys::Dense(_))
    }

    /// Returns the number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the bytes of memory that the index takes.
    pub(super) fn bytes(&self) -> usize {
        let of_keys = match &self.keys {
            Keys::Dense(_) => 0,
            Keys::Packed(_, table) => table.bytes(),
            Keys::Words(table) => table.bytes(),
        };
        of_keys + (self.heads.capacity() + self.next.capacity()) * size_of::<u32>()
    }
}

/// Returns the number of entries of a dense index; `None` if it cannot be counted.
fn entries(packing: &Packing) -> Option<usize> {
    1usize.checked_shl(packing.bits())
}

fn is_dense(entries: usize, rows: usize) -> bool {
    entries <= ENTRIES_FREE.max(rows.saturating_mul(ENTRIES_PER_ROW).next_power_of_two())
}

/// Returns how the join keys are packed into 64 bits; `None` if they do not fit, or one of them is a string.
fn packing(types: &[DataType], batches: &[Vec<ArrayRef>]) -> Option<Packing> {
    if types.iter().any(schema::is_bytes) {
        return None;
    }
    let bounds = |(index, data_type): (usize, &DataType)| {
        let mut bounds: Option<(i64, i64)> = None;
        for keys in batches {
            bounds = match (bounds, bounds_of(&keys[index])?) {
                (bounds, None) => bounds,
                (None, Some(these)) => Some(these),
                (Some((low, high)), Some(these)) => Some((low.min(these.0), high.max(these.1))),
            };
        }
        let bounds = bounds.unwrap_or((0, 0));
        Some(KeyBounds { data_type: data_type.clone(), bounds, nullable: false, texts: None })
    };
    let bounds: Option<Vec<KeyBounds>> = types.iter().enumerate().map(bounds).collect();
    Packing::of(bounds?.into_iter())
}

/// Returns the least and the greatest of some keys as integers, or `Some(None)` if there are none. Returns `None` if
/// one does not fit 64 bits.
fn bounds_of(keys: &ArrayRef) -> Option<Option<(i64, i64)>> {
    if wide(keys).is_some_and(|values| !values.iter().all(|value| fits(*value))) {
        return None;
    }
    let lanes = lanes_of_array(keys).ok()?;
    Some(lanes.iter().min().copied().zip(lanes.iter().max().copied()))
}

/// Returns the values of keys that may not fit 64 bits: of decimals.
fn wide(keys: &ArrayRef) -> Option<&[i128]> {
    keys.as_primitive_opt::<Decimal128Type>().map(|decimals| &decimals.values()[..])
}

fn fits(value: i128) -> bool {
    i64::try_from(value).is_ok()
}

/// Packs the keys of each row; `missing` says which rows have a key outside the bounds of the packing. The codes of
/// these rows and of rows with a NULL are unspecified, but within the bits of the packing.
fn pack(packing: &Packing, keys: &[ArrayRef], codes: &mut Vec<i64>, missing: &mut Vec<bool>) -> Result<()> {
    let rows = keys.first().ok_or_else(|| Error::internal("a lookup without keys"))?.len();
    codes.clear();
    codes.resize(rows, 0);
    missing.clear();
    missing.resize(rows, false);
    for (index, key) in keys.iter().enumerate() {
        let values = lanes_of_array(key)?;
        packing.add_values(index, &values, codes);
        packing.note_outside(index, &values, missing);
        if let Some(values) = wide(key) {
            missing.iter_mut().zip(values).for_each(|(missing, value)| *missing |= !fits(*value));
        }
    }
    Ok(())
}
