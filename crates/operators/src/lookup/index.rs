//! Index of the rows of the build side by their join keys.
//!
//! The rows with equal keys form a chain: the index finds the last row that was inserted, and `next` has for each row
//! the one before. If the keys of all rows together are in a narrow range, the last row is found in an array by the packed
//! key (a dense index), without hashing. In a wider range, packed keys are numbered by their order ([`Ranked`]). All other
//! keys are in a hash table ([`Hashed`]), which is built apart from this index.

use super::NONE;
use super::hashed::{self, Hashed};
use super::ranked::Ranked;
use crate::group::{KeyBounds, Packing, lanes_of_array};
use crate::pace::Pace;
use arrow_array::cast::AsArray;
use arrow_array::types::Decimal128Type;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use farpool_columns::working;
use farpool_model::cast::u32_checked;
use farpool_model::{Error, Result, schema};
use std::sync::Arc;

/// A dense index has at most this many entries for each row. Reason: an entry takes 4 bytes, a row of a hash table 24 and
/// more, and a dense index that is read at random places must not miss more caches.
const ENTRIES_PER_ROW: usize = 4;

/// Maximum number of entries of a dense index, whatever the number of rows, that is always allowed. Reason: they fit
/// the L1 cache.
const ENTRIES_FREE: usize = 4096;

/// Number of bytes of an index that are made or read at once. Reason: they take about a millisecond with the page faults.
const BYTES_AT_ONCE: usize = 4 << 20;

/// Maximum bytes of the ordered keys for each row. Reason: a hash table takes as many.
const RANKED_BYTES_PER_ROW: usize = 16;

/// Finds the rows with given join keys.
pub(super) struct Index {
    keys: Keys,
    /// The last row of each chain; by packed key in a dense index, by its number among ordered keys. Empty if that is the
    /// number of its only row, and for a hash table.
    heads: Vec<u32>,
    /// For each row the row before it in its chain, or [`NONE`]. Empty as long as no two rows have equal keys.
    next: Vec<u32>,
    rows: usize,
    /// Number of packed keys from 0 on that rows may have; `usize::MAX` if keys are not packed, or there are more.
    span: usize,
    stage: Stage,
    scratch: Scratch,
}

/// The next step of building an index.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Room for packed keys is made.
    Room,
    /// The packed keys of the batches from this number on are added to the ordered ones.
    Keys(usize),
    /// The ordered keys are counted.
    Count,
    /// Room for the last rows of chains is made.
    Heads,
    /// The rows of the batches from this number on are inserted.
    Rows(usize),
    Done,
}

/// The form in which keys are kept, and found.
enum Keys {
    /// Packed keys are positions in an array.
    Dense(Packing),
    /// Packed keys have the numbers of their order.
    Ranked(Packing, Ranked),
    /// A hash table finds the last row of each chain.
    Hashed(Arc<Hashed>),
}

/// Buffers for one batch of keys.
#[derive(Default)]
pub(super) struct Scratch {
    codes: Vec<i64>,
    /// Whether each row has a key that no row of the build side can have.
    missing: Vec<bool>,
    ids: Vec<u32>,
    hashed: hashed::Scratch,
}

/// The least and the greatest of the join keys that were seen.
pub(super) struct KeyRanges {
    types: Vec<DataType>,
    /// For each join key, none if there are no rows. `None` if a key is not a number, or does not fit 64 bits.
    ranges: Option<Vec<Option<(i64, i64)>>>,
}

impl KeyRanges {
    /// Creates the ranges of no rows; `types` are the types of the join keys.
    pub(super) fn new(types: Vec<DataType>) -> KeyRanges {
        let ranges = (!types.iter().any(schema::is_bytes)).then(|| vec![None; types.len()]);
        KeyRanges { types, ranges }
    }

    /// Adds the join keys of some rows, without NULLs.
    pub(super) fn add(&mut self, keys: &[ArrayRef]) {
        let Some(ranges) = &mut self.ranges else { return };
        for (range, key) in ranges.iter_mut().zip(keys) {
            let Some(of_batch) = bounds_of(key) else {
                self.ranges = None;
                return;
            };
            *range = match (*range, of_batch) {
                (Some((low, high)), Some(these)) => Some((low.min(these.0), high.max(these.1))),
                (range, of_batch) => range.or(of_batch),
            };
        }
    }

    /// Returns the types of the join keys.
    pub(super) fn types(&self) -> &[DataType] {
        &self.types
    }

    /// Returns the least and the greatest value of a join key, as integers; `None` if there are no rows, or it is not
    /// known.
    pub(super) fn of(&self, key: usize) -> Option<(i64, i64)> {
        self.ranges.as_ref().and_then(|ranges| ranges[key])
    }

    /// Returns the number of packed keys from 0 on that are within the ranges; `None` if it does not fit a word.
    fn span(&self, packing: &Packing) -> Option<usize> {
        match self.ranges.as_deref()? {
            // The range of a single key need not be a power of two.
            [Some((low, high))] => usize::try_from(high.abs_diff(*low)).ok()?.checked_add(1),
            _ => 1usize.checked_shl(packing.bits()),
        }
    }

    /// Returns how the join keys are packed into 64 bits; `None` if they do not fit, or one of them is a string.
    fn packing(&self) -> Option<Packing> {
        let bounds = |(data_type, range): (&DataType, &Option<(i64, i64)>)| KeyBounds {
            data_type: data_type.clone(),
            bounds: range.unwrap_or((0, 0)),
            nullable: false,
            texts: None,
        };
        Packing::of(self.types.iter().zip(self.ranges.as_ref()?).map(bounds))
    }
}

impl Index {
    /// Creates the index of `rows` rows whose join keys are within `ranges`, as yet without rows; `None` if a hash table is
    /// better.
    pub(super) fn new(ranges: &KeyRanges, rows: usize) -> Option<Index> {
        let packing = ranges.packing()?;
        let span = ranges.span(&packing).unwrap_or(usize::MAX);
        let (keys, stage) = match is_dense(span, rows) {
            true => (Keys::Dense(packing), Stage::Heads),
            false if Ranked::bytes_of(span) <= rows.saturating_mul(RANKED_BYTES_PER_ROW) => {
                (Keys::Ranked(packing, Ranked::default()), Stage::Room)
            }
            false => return None,
        };
        let scratch = Scratch::default();
        Some(Index { keys, heads: Vec::new(), next: Vec::new(), rows: 0, span, stage, scratch })
    }

    /// Returns the index of a complete hash table.
    pub(super) fn of_table(table: Arc<Hashed>) -> Index {
        let (heads, next, scratch) = (Vec::new(), Vec::new(), Scratch::default());
        Index {
            keys: Keys::Hashed(table),
            heads,
            next,
            rows: 0,
            span: usize::MAX,
            stage: Stage::Done,
            scratch,
        }
    }

    /// Inserts the rows with the keys `batches`, which must be the same in each step, until `pace` ends or all are
    /// inserted.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn advance(&mut self, batches: &[Vec<ArrayRef>], pace: &mut dyn Pace) -> Result<()> {
        while self.stage != Stage::Done {
            self.stage = self.after_step(batches)?;
            if pace.ends() {
                break;
            }
        }
        Ok(())
    }

    /// Takes one step of the stage, and returns the stage after it.
    fn after_step(&mut self, batches: &[Vec<ArrayRef>]) -> Result<Stage> {
        let stage = self.stage;
        Ok(match (stage, &mut self.keys) {
            (Stage::Room, Keys::Ranked(_, ranked)) => match ranked.make_room(self.span, BYTES_AT_ONCE) {
                true => stage,
                false => Stage::Keys(0),
            },
            (Stage::Keys(next), Keys::Ranked(packing, ranked)) => match batches.get(next) {
                Some(keys) => {
                    let Scratch { codes, missing, .. } = &mut self.scratch;
                    pack(packing, keys, codes, missing)?;
                    ranked.add(codes);
                    Stage::Keys(next + 1)
                }
                None => Stage::Count,
            },
            (Stage::Count, Keys::Ranked(_, ranked)) => match ranked.count_some(BYTES_AT_ONCE) {
                true => stage,
                false => Stage::Heads,
            },
            (Stage::Heads, Keys::Dense(_)) => self.after_heads(self.span),
            (Stage::Heads, Keys::Ranked(_, ranked)) => {
                let count = ranked.count();
                self.after_heads(count)
            }
            (Stage::Rows(next), _) => match batches.get(next) {
                Some(keys) => {
                    self.insert(keys)?;
                    Stage::Rows(next + 1)
                }
                None => {
                    self.drop_plain_heads();
                    Stage::Done
                }
            },
            (Stage::Room | Stage::Keys(_) | Stage::Count | Stage::Heads | Stage::Done, _) => {
                return Err(Error::internal("an index in a stage of another form"));
            }
        })
    }

    /// Makes some of the room for the last rows of `wanted` chains.
    fn after_heads(&mut self, wanted: usize) -> Stage {
        let made = self.heads.len();
        working::reserve(&mut self.heads, wanted - made);
        self.heads.resize(wanted.min(made + BYTES_AT_ONCE / size_of::<u32>()), NONE);
        if self.heads.len() < wanted { Stage::Heads } else { Stage::Rows(0) }
    }

    /// Drops the heads of the chains if each is the number of its key: the rows were in the order of their keys.
    fn drop_plain_heads(&mut self) {
        if matches!(self.keys, Keys::Ranked(..))
            && self.next.is_empty()
            && self.heads.iter().zip(0..).all(|(head, number)| *head == number)
        {
            self.heads = Vec::new();
        }
    }

    /// Inserts the next rows of the build side; their numbers follow those of the rows before.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    fn insert(&mut self, keys: &[ArrayRef]) -> Result<()> {
        let Scratch { codes, missing, ids, .. } = &mut self.scratch;
        ids.clear();
        match &mut self.keys {
            Keys::Dense(packing) => {
                pack(packing, keys, codes, missing)?;
                ids.extend(codes.iter().map(|code| *code as u32));
            }
            Keys::Ranked(packing, ranked) => {
                pack(packing, keys, codes, missing)?;
                ids.extend(codes.iter().map(|code| ranked.number(code.cast_unsigned())));
            }
            Keys::Hashed(_) => return Err(Error::internal("rows are inserted into a complete hash table")),
        }
        debug_assert!(missing.iter().all(|is_missing| !is_missing), "the keys that the index was made for");
        self.link();
        Ok(())
    }

    /// Makes each row of the batch, whose key ids are in the scratch buffers, the head of its chain.
    fn link(&mut self) {
        for (row, id) in (self.rows..).zip(&self.scratch.ids) {
            let before = std::mem::replace(&mut self.heads[*id as usize], u32_checked(row));
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

    /// Replaces `found` by the last row with each of these keys, or [`NONE`]. A NULL key has no rows. `columns` are the join
    /// keys of the rows.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn find(
        &self,
        keys: &[ArrayRef],
        columns: &[&ArrayRef],
        scratch: &mut Scratch,
        found: &mut Vec<u32>,
    ) -> Result<()> {
        found.clear();
        let Scratch { codes, missing, ids, hashed } = scratch;
        ids.clear();
        match (&self.keys, keys) {
            (Keys::Dense(packing) | Keys::Ranked(packing, _), [key]) if wide(key).is_none() => {
                // A key outside the bounds is beyond the last one, or none that occurs.
                let first = packing.least(0);
                let codes = lanes_of_array(key)?;
                let codes = codes.iter().map(|value| value.wrapping_sub(first).cast_unsigned());
                match &self.keys {
                    Keys::Ranked(_, ranked) => ids.extend(codes.map(|code| ranked.number(code))),
                    _ => found.extend(codes.map(|code| self.entry(code))),
                }
            }
            (Keys::Dense(packing), _) => {
                pack(packing, keys, codes, missing)?;
                let entries = codes.iter().map(|code| self.entry(code.cast_unsigned()));
                found.extend(
                    entries.zip(&*missing).map(|(row, is_missing)| if *is_missing { NONE } else { row }),
                );
            }
            (Keys::Ranked(packing, ranked), _) => {
                pack(packing, keys, codes, missing)?;
                let numbers = codes.iter().map(|code| ranked.number(code.cast_unsigned()));
                ids.extend(
                    numbers.zip(&*missing).map(|(id, is_missing)| if *is_missing { NONE } else { id }),
                );
            }
            (Keys::Hashed(table), _) => table.find(keys, columns, hashed, found)?,
        }
        self.heads_of(ids, found);
        for nulls in keys.iter().filter_map(|key| key.nulls()).filter(|nulls| nulls.null_count() > 0) {
            let of_row = found.iter_mut().enumerate();
            of_row.filter(|(row, _)| nulls.is_null(*row)).for_each(|(_, found)| *found = NONE);
        }
        Ok(())
    }

    /// Returns an entry of a dense index; [`NONE`] beyond the last one.
    #[inline(always)]
    fn entry(&self, code: u64) -> u32 {
        let entry = usize::try_from(code).ok().and_then(|code| self.heads.get(code));
        entry.copied().unwrap_or(NONE)
    }

    /// Appends to `found` the head of each chain, given by the id of its key or [`NONE`].
    fn heads_of(&self, ids: &[u32], found: &mut Vec<u32>) {
        match self.heads.len().checked_sub(1) {
            None => found.extend(ids),
            // Some head is read in any case, because a branch that depends on the data would be mispredicted.
            Some(last) => found.extend(ids.iter().map(|id| {
                let head = self.heads[last.min(*id as usize)];
                if *id == NONE { NONE } else { head }
            })),
        }
    }

    /// Returns the row before `row` with the same key, or [`NONE`].
    pub(super) fn before(&self, row: u32) -> u32 {
        match &self.keys {
            Keys::Hashed(table) => table.before(row),
            _ => self.next.get(row as usize).copied().unwrap_or(NONE),
        }
    }

    /// Returns whether no two rows have equal keys.
    pub(super) fn is_unique(&self) -> bool {
        match &self.keys {
            Keys::Hashed(table) => table.is_unique(),
            _ => self.next.is_empty(),
        }
    }

    /// Returns whether all rows are inserted.
    pub(super) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Returns the name of the form in which keys are kept.
    #[cfg(test)]
    pub(super) fn form(&self) -> &'static str {
        match &self.keys {
            Keys::Dense(_) => "dense",
            Keys::Ranked(..) => "ranked",
            Keys::Hashed(_) => "hashed",
        }
    }

    /// Returns the bytes of memory that the index takes.
    pub(super) fn bytes(&self) -> usize {
        let of_keys = match &self.keys {
            Keys::Dense(_) => 0,
            Keys::Ranked(_, ranked) => ranked.bytes(),
            Keys::Hashed(table) => table.bytes(),
        };
        of_keys + (self.heads.capacity() + self.next.capacity()) * size_of::<u32>()
    }
}

fn is_dense(entries: usize, rows: usize) -> bool {
    entries <= ENTRIES_FREE.max(rows.saturating_mul(ENTRIES_PER_ROW))
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
