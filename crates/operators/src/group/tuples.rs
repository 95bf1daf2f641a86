//! Groups of several keys: each combination is a tuple of 64-bit lanes.
//!
//! A key of up to 64 bits takes one lane, a decimal two, a string the number that [`Texts`] gives it. One
//! more lane holds a bit for each key that is NULL (strings need none: their NULL has a number). Tuples are
//! kept row-major, so that a comparison touches one place; the table holds half of the hash beside the group,
//! so that most misses are found out without touching the tuples at all.

use super::KeyValues;
use super::ints::{array_of_lanes, fold};
use super::texts::Texts;
use arrow_array::ArrayRef;
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use farpool_columns::working;
use farpool_model::cast::u32_checked;
use farpool_model::{Result, limits};

/// No group: a free slot.
const NONE: u32 = u32::MAX;

const SLOTS_MIN: usize = 256;

/// Keys whose NULLs one lane tells.
const KEYS_PER_NULL_LANE: usize = 64;

/// A table of groups.
pub(crate) struct TupleTable {
    keys: Vec<Key>,
    /// Lanes of a tuple.
    width: usize,
    /// The first lane of NULL bits.
    null_lane: usize,
    tuples: Vec<i64>,
    hashes: Vec<u64>,
    /// The upper half of the hash, and the group. A power of two, at most half of them taken.
    slots: Vec<(u32, u32)>,
    scratch: Scratch,
}

struct Key {
    data_type: DataType,
    lane: usize,
    texts: Option<Texts>,
}

/// The tuples of a batch.
#[derive(Default)]
struct Scratch {
    tuples: Vec<i64>,
    hashes: Vec<u64>,
    ids: Vec<u32>,
}

impl TupleTable {
    /// An empty table of keys of these canonical types.
    pub(crate) fn new(types: &[DataType]) -> Self {
        let mut width = 0;
        let key = |data_type: &DataType| {
            let lane = width;
            width += if matches!(data_type, DataType::Decimal128(..)) { 2 } else { 1 };
            let is_text = farpool_model::schema::is_bytes(data_type);
            let texts = is_text.then(|| Texts::new(data_type.clone()));
            Key { data_type: data_type.clone(), lane, texts }
        };
        let keys: Vec<Key> = types.iter().map(key).collect();
        let null_lane = width;
        TupleTable {
            width: width + keys.len().div_ceil(KEYS_PER_NULL_LANE),
            keys,
            null_lane,
            tuples: Vec::new(),
            hashes: Vec::new(),
            slots: working::filled((0, NONE), SLOTS_MIN),
            scratch: Scratch::default(),
        }
    }

    /// The number of groups.
    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Bytes held, but for those of a batch.
    pub(crate) fn bytes(&self) -> usize {
        let texts: usize = self.keys.iter().filter_map(|k| k.texts.as_ref()).map(Texts::bytes).sum();
        (self.tuples.capacity() + self.hashes.capacity() + self.slots.capacity()) * 8 + texts
    }

    /// The most bytes that a group of keys of `types` adds, strings aside: vectors and slots, just grown.
    pub(crate) fn bytes_per_group(types: &[DataType]) -> usize {
        let table = TupleTable::new(types);
        let texts = table.keys.iter().filter(|k| k.texts.is_some()).count();
        (2 * table.width + 2 + 4) * 8 + texts * super::texts::BYTES_PER_VALUE
    }

    /// Adds the group of each of `rows` rows to `ids`.
    ///
    /// # Errors
    /// None but defects.
    pub(crate) fn intern(
        &mut self,
        keys: &mut [KeyValues<'_>],
        rows: usize,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.tuples.clear();
        scratch.tuples.resize(rows * self.width, 0);
        scratch.hashes.clear();
        scratch.hashes.resize(rows, 0);
        for (index, values) in keys.iter_mut().enumerate() {
            self.fill(index, values, &mut scratch)?;
        }
        self.look_up(&scratch, ids);
        self.scratch = scratch;
        Ok(())
    }

    /// Adds the numbers here of the groups `wanted` of `other` to `ids`.
    pub(crate) fn intern_groups(&mut self, other: &Self, wanted: &[u32], ids: &mut Vec<u32>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        // Texts that many groups share are looked for once. Of more texts than groups few would be found again.
        let known = |key: &Key| {
            let texts = key.texts.as_ref().map_or(0, Texts::len);
            vec![NONE; if texts <= wanted.len() { texts } else { 0 }]
        };
        let mut known: Vec<Vec<u32>> = other.keys.iter().map(known).collect();
        for wanted in wanted.chunks(limits::BATCH_ROWS) {
            scratch.tuples.clear();
            scratch.hashes.clear();
            for group in wanted {
                scratch.tuples.extend_from_slice(other.tuple(*group as usize));
                scratch.hashes.push(other.hashes[*group as usize]);
            }
            for ((key, theirs), known) in self.keys.iter_mut().zip(&other.keys).zip(&mut known) {
                let (Some(texts), Some(others)) = (&mut key.texts, &theirs.texts) else { continue };
                let lane = || scratch.tuples.chunks_exact(self.width).map(|tuple| tuple[key.lane] as u32);
                scratch.ids.clear();
                if known.is_empty() {
                    texts.adopt(others, &lane().collect::<Vec<_>>(), &mut scratch.ids);
                } else {
                    let mut fresh: Vec<u32> = lane().filter(|id| known[*id as usize] == NONE).collect();
                    fresh.sort_unstable();
                    fresh.dedup();
                    texts.adopt(others, &fresh, &mut scratch.ids);
                    fresh.iter().zip(&scratch.ids).for_each(|(theirs, here)| known[*theirs as usize] = *here);
                    scratch.ids.clear();
                    scratch.ids.extend(lane().map(|id| known[id as usize]));
                }
                for (tuple, id) in scratch.tuples.chunks_exact_mut(self.width).zip(&scratch.ids) {
                    tuple[key.lane] = i64::from(*id);
                }
            }
            self.look_up(&scratch, ids);
        }
        self.scratch = scratch;
    }

    /// The hash of a group.
    pub(crate) fn hash(&self, group: u32) -> u64 {
        self.hashes[group as usize]
    }

    /// The keys of the groups `wanted`, an array per key.
    ///
    /// # Errors
    /// None but defects.
    pub(crate) fn keys(&self, wanted: &[u32]) -> Result<Vec<ArrayRef>> {
        let of = |(index, key): (usize, &Key)| {
            let lane = |lane: usize| wanted.iter().map(move |g| self.tuple(*g as usize)[lane]);
            if let Some(texts) = &key.texts {
                return texts.array(lane(key.lane).map(|id| id as u32));
            }
            let bit = index % KEYS_PER_NULL_LANE;
            let nulls = lane(self.null_lane + index / KEYS_PER_NULL_LANE);
            let nulls: NullBuffer = nulls.map(|bits| bits >> bit & 1 == 0).collect();
            let nulls = Some(nulls).filter(|n| n.null_count() > 0);
            let values: Vec<i128> = if let DataType::Decimal128(..) = key.data_type {
                let high = lane(key.lane + 1).map(|high| i128::from(high) << 64);
                high.zip(lane(key.lane)).map(|(high, low)| high | i128::from(low.cast_unsigned())).collect()
            } else {
                lane(key.lane).map(i128::from).collect()
            };
            array_of_lanes(&key.data_type, values.into_iter(), nulls)
        };
        self.keys.iter().enumerate().map(of).collect()
    }

    fn tuple(&self, group: usize) -> &[i64] {
        &self.tuples[group * self.width..(group + 1) * self.width]
    }

    /// Writes the lanes of one key and mixes them into the hashes.
    fn fill(&mut self, index: usize, values: &mut KeyValues<'_>, scratch: &mut Scratch) -> Result<()> {
        let (width, key) = (self.width, &mut self.keys[index]);
        let tuples = scratch.tuples.chunks_exact_mut(width);
        let rows = tuples.zip(&mut scratch.hashes);
        if let Some(texts) = &mut key.texts {
            scratch.ids.clear();
            texts.intern(values, &mut scratch.ids)?;
            for ((tuple, hash), id) in rows.zip(&scratch.ids) {
                tuple[key.lane] = i64::from(*id);
                *hash = fold(*hash ^ texts.hash(*id));
            }
            return Ok(());
        }
        let lane = key.lane;
        if let DataType::Decimal128(..) = key.data_type {
            for ((tuple, hash), value) in rows.zip(values.wide()?) {
                let (low, high) = (value as i64, (value >> 64) as i64);
                (tuple[lane], tuple[lane + 1]) = (low, high);
                *hash = mix_wide(*hash, low, high);
            }
        } else {
            for ((tuple, hash), value) in rows.zip(values.narrow()?.iter()) {
                tuple[lane] = *value;
                *hash = fold(*hash ^ value.cast_unsigned());
            }
        }
        self.fill_nulls(index, values, scratch);
        Ok(())
    }

    /// A NULL counts as 0 with its bit set.
    fn fill_nulls(&self, index: usize, values: &KeyValues<'_>, scratch: &mut Scratch) {
        let Some(nulls) = values.nulls() else { return };
        let (lane, bit) = (self.null_lane + index / KEYS_PER_NULL_LANE, index % KEYS_PER_NULL_LANE);
        let key = &self.keys[index];
        let lanes = if matches!(key.data_type, DataType::Decimal128(..)) { 2 } else { 1 };
        for (row, tuple) in scratch.tuples.chunks_exact_mut(self.width).enumerate() {
            if nulls.is_null(row) {
                tuple[key.lane..key.lane + lanes].fill(0);
                tuple[lane] |= 1 << bit;
            }
        }
        // What lay under the NULLs is in the hashes: they are made again, from the tuples.
        for (tuple, hash) in scratch.tuples.chunks_exact(self.width).zip(&mut scratch.hashes) {
            *hash = self.hash_of(tuple, index);
        }
    }

    /// The hash of the keys up to `last`.
    fn hash_of(&self, tuple: &[i64], last: usize) -> u64 {
        self.keys[..=last].iter().fold(0, |hash, key| {
            let value = tuple[key.lane].cast_unsigned();
            match (&key.texts, &key.data_type) {
                (Some(texts), _) => fold(hash ^ texts.hash(value as u32)),
                (None, DataType::Decimal128(..)) => mix_wide(hash, tuple[key.lane], tuple[key.lane + 1]),
                _ => fold(hash ^ value),
            }
        })
    }

    /// As in [`super::ints`]: a pass over slots first, which lets cache misses overlap, then the tuples.
    fn look_up(&mut self, scratch: &Scratch, ids: &mut Vec<u32>) {
        let first = ids.len();
        let mask = self.slots.len() - 1;
        ids.extend(scratch.hashes.iter().map(|hash| {
            let (tag, group) = self.slots[*hash as usize & mask];
            if tag == tag_of(*hash) { group } else { NONE }
        }));
        let tuples = scratch.tuples.chunks_exact(self.width);
        for ((id, tuple), hash) in ids[first..].iter_mut().zip(tuples).zip(&scratch.hashes) {
            if *id == NONE || self.tuple(*id as usize) != tuple {
                *id = self.insert(tuple, *hash);
            }
        }
    }

    fn insert(&mut self, tuple: &[i64], hash: u64) -> u32 {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            match self.slots[slot] {
                (_, NONE) => break,
                (tag, group) if tag == tag_of(hash) && self.tuple(group as usize) == tuple => return group,
                _ => slot = (slot + 1) & mask,
            }
        }
        let group = u32_checked(self.hashes.len());
        working::reserve(&mut self.tuples, tuple.len());
        self.tuples.extend_from_slice(tuple);
        self.hashes.push(hash);
        self.slots[slot] = (tag_of(hash), group);
        if self.hashes.len() * 2 > self.slots.len() {
            self.grow();
        }
        group
    }

    fn grow(&mut self) {
        let mask = self.slots.len() * 2 - 1;
        let mut slots = working::filled((0, NONE), mask + 1);
        for (group, hash) in self.hashes.iter().enumerate() {
            let mut slot = *hash as usize & mask;
            while slots[slot].1 != NONE {
                slot = (slot + 1) & mask;
            }
            slots[slot] = (tag_of(*hash), u32_checked(group));
        }
        self.slots = slots;
    }
}

/// The half of a hash that does not choose the slot.
fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32
}

fn mix_wide(hash: u64, low: i64, high: i64) -> u64 {
    fold(fold(hash ^ low.cast_unsigned()) ^ high.cast_unsigned())
}
