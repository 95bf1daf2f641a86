//! Hash table of the rows of the build side, for join keys that are no positions in an array.
//!
//! A slot has the number of a row and one half of the hash of its keys; the keys themselves are compared with those in
//! the columns of the build side, and are not copied. Slots are divided into *regions* by the other half of the hash. To
//! build the table, the rows of each batch are sorted by region, and then each region is filled: both by any number of
//! threads, and a region while it is in the cache of one (Balkesen et al., *Main-memory hash joins on multi-core CPUs*,
//! ICDE 2013).
//!
//! The rows with equal keys form a chain: the slot has the last one, and each row has the one before.

use super::NONE;
use super::build::BuildStep;
use super::equal::Equal;
use super::part::{Claim, Part};
use crate::group::HashKey;
use crate::pace::Pace;
use arrow_array::{Array, ArrayRef};
use farpool_columns::working;
use farpool_model::cast::u32_checked;
use farpool_model::{Error, Result, limits};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Slots for each row. Reason: with half of the slots free, most keys are in their first slot.
const SLOTS_PER_ROW: usize = 2;

/// Number of rows of a region, unless there are more than [`REGIONS_MAX`] regions. Reason: their slots fit the L2 cache.
const REGION_ROWS: usize = 32 << 10;

/// Maximum number of regions. Reason: the rows of a batch are sorted into that many places.
const REGIONS_MAX: usize = 256;

/// Number of rows that are inserted before the pace is asked whether the step ends. Reason: asking reads a clock.
const ROWS_AT_ONCE: usize = 4096;

/// Number of keys that are looked up together. Reason: with what is known of them they fit the L1 cache.
const KEYS_AT_ONCE: usize = 1024;

/// The hash table. A slot is 0 if it is free; otherwise its low half is the number of a row plus 1, and its high half
/// that of the hash.
pub(super) struct Hashed {
    hash_key: HashKey,
    /// The first slot of each region, and the end of the last one.
    regions: Vec<usize>,
    slots: Vec<AtomicU64>,
    /// For each row the number of the row before it with equal keys, plus 1, or 0; made once two rows have equal keys.
    before: OnceLock<Vec<AtomicU32>>,
    rows: usize,
}

/// Buffers for one batch of keys.
#[derive(Default)]
pub(super) struct Scratch {
    hashes: Vec<u64>,
    /// Whether the first slot of each key has a row with another key, so that the next slots are searched.
    differs: Vec<bool>,
}

impl Hashed {
    fn new(hash_key: HashKey, rows_of_regions: &[usize]) -> Hashed {
        let mut regions = vec![0];
        for rows in rows_of_regions {
            // At least one slot stays free, so that each search ends.
            regions.push(regions[regions.len() - 1] + rows * SLOTS_PER_ROW + 1);
        }
        let slots = working::shared_zeros(regions[rows_of_regions.len()]);
        Hashed { hash_key, regions, slots, before: OnceLock::new(), rows: rows_of_regions.iter().sum() }
    }

    /// Returns the region of a hash, of `regions`.
    #[inline(always)]
    fn region_of(hash: u64, regions: usize) -> usize {
        (((hash >> 32) * regions as u64) >> 32) as usize
    }

    /// Returns the first slot of a key, and the slots of its region.
    #[inline(always)]
    fn home(&self, hash: u64) -> (usize, std::ops::Range<usize>) {
        let region = Hashed::region_of(hash, self.regions.len() - 1);
        let slots = self.regions[region]..self.regions[region + 1];
        let place = (u64::from(hash as u32) * slots.len() as u64) >> 32;
        (slots.start + place as usize, slots)
    }

    /// Returns the first slot from the one at `home` on, in a region with these `slots`, that is free or has a row for which
    /// `is_it` returns true; and that row, or [`NONE`].
    #[inline]
    fn search(
        &self,
        hash: u64,
        (home, slots): (usize, std::ops::Range<usize>),
        mut is_it: impl FnMut(u32) -> bool,
    ) -> (usize, u32) {
        let mut at = home;
        loop {
            let slot = self.slots[at].load(Relaxed);
            let row = (slot as u32).wrapping_sub(1);
            if row == NONE || (slot >> 32 == hash >> 32 && is_it(row)) {
                return (at, row);
            }
            at = if at + 1 == slots.end { slots.start } else { at + 1 };
        }
    }

    /// Stores a row in a slot. A region is filled by one thread at a time.
    fn store(&self, at: usize, hash: u64, row: u32) {
        self.slots[at].store(hash >> 32 << 32 | u64::from(row + 1), Relaxed);
    }

    /// Appends to `found` the last row of `columns`, the join keys of the build side, with each of `keys`, or [`NONE`]. The
    /// result for a NULL is unspecified.
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
        let Scratch { hashes, differs } = scratch;
        hash_rows(self.hash_key, keys, hashes)?;
        let pairs = keys.iter().zip(columns).map(|(key, column)| Equal::of(key, column));
        let pairs: Vec<Equal<'_>> = pairs.collect::<Result<_>>()?;
        for (piece, hashes) in hashes.chunks(KEYS_AT_ONCE).enumerate() {
            let (first, row) = (found.len(), piece * KEYS_AT_ONCE);
            // One slot per key is read, and no search followed, so that the CPU overlaps the cache misses of many keys.
            differs.clear();
            for hash in hashes {
                let slot = self.slots[self.home(*hash).0].load(Relaxed);
                let is_other = slot != 0 && slot >> 32 != hash >> 32;
                differs.push(is_other);
                found.push(if is_other { NONE } else { (slot as u32).wrapping_sub(1) });
            }
            pairs.iter().for_each(|pair| pair.note_different(row, &found[first..], differs));
            for ((place, hash), differs) in hashes.iter().enumerate().zip(&*differs) {
                if *differs {
                    let is_it = |other| pairs.iter().all(|pair| pair.test(row + place, other as usize));
                    found[first + place] = self.search(*hash, self.home(*hash), is_it).1;
                }
            }
        }
        Ok(())
    }

    /// Returns the row before `row` with the same keys, or [`NONE`].
    pub(super) fn before(&self, row: u32) -> u32 {
        self.before.get().map_or(NONE, |before| before[row as usize].load(Relaxed).wrapping_sub(1))
    }

    /// Returns whether no two rows have equal keys.
    pub(super) fn is_unique(&self) -> bool {
        self.before.get().is_none()
    }

    fn link(&self, row: u32, before: u32) {
        let links = self.before.get_or_init(|| working::shared_small_zeros(self.rows));
        links[row as usize].store(before + 1, Relaxed);
    }

    /// Returns the bytes of memory that the table takes.
    pub(super) fn bytes(&self) -> usize {
        let of_links = self.before.get().map_or(0, |before| before.capacity() * size_of::<AtomicU32>());
        let of_slots = self.slots.capacity() * size_of::<AtomicU64>();
        of_slots + of_links + self.regions.capacity() * size_of::<usize>()
    }
}

/// Replaces `hashes` by the hash of each row's keys. That of a row with a NULL is unspecified.
fn hash_rows(hash_key: HashKey, keys: &[ArrayRef], hashes: &mut Vec<u64>) -> Result<()> {
    hashes.clear();
    hashes.resize(keys.first().map_or(0, |key| key.len()), 0);
    keys.iter().try_for_each(|key| hash_key.add_values(key, hashes))
}

/// A hash table that is being built, in steps, by any number of threads.
pub(super) struct HashedBuild {
    hash_key: HashKey,
    regions: usize,
    /// Number of the next batch that no thread has begun to sort.
    next_batch: AtomicUsize,
    /// The number of the first row of each batch.
    firsts: Vec<usize>,
    batches: Vec<OnceLock<Sorted>>,
    /// Bytes of the sorted rows.
    sorted_bytes: AtomicUsize,
    table: OnceLock<Arc<Hashed>>,
    fills: Vec<Part<Fill>>,
}

/// The rows of a batch, sorted by region.
struct Sorted {
    /// The end of each region.
    ends: Vec<u32>,
    hashes: Vec<u64>,
    /// Numbers of the rows in the batch.
    rows: Vec<u16>,
}

/// The progress of filling a region.
#[derive(Default)]
struct Fill {
    /// Number of the next batch, and of its next row in this region.
    batch: usize,
    row: usize,
}

impl HashedBuild {
    /// Begins to build a table of rows in `batches`, each with at most [`limits::BATCH_ROWS`], given their join keys.
    pub(super) fn new(hash_key: HashKey, batches: &[Vec<ArrayRef>]) -> HashedBuild {
        let mut firsts = vec![0];
        for keys in batches {
            firsts.push(firsts[firsts.len() - 1] + keys.first().map_or(0, |key| key.len()));
        }
        let rows = firsts[batches.len()];
        let regions = rows.div_ceil(REGION_ROWS).clamp(1, REGIONS_MAX);
        HashedBuild {
            hash_key,
            regions,
            next_batch: AtomicUsize::new(0),
            firsts,
            batches: batches.iter().map(|_| OnceLock::new()).collect(),
            sorted_bytes: AtomicUsize::new(0),
            table: OnceLock::new(),
            fills: (0..regions).map(|_| Part::default()).collect(),
        }
    }

    /// Returns the bytes of memory that the table and what it is made of take so far.
    pub(super) fn bytes(&self) -> usize {
        self.sorted_bytes.load(Relaxed) + self.table.get().map_or(0, |table| table.bytes())
    }

    /// Takes one step, which ends soon after `pace` does. `batches` must be those of [`HashedBuild::new`].
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn step(&self, batches: &[Vec<ArrayRef>], pace: &mut dyn Pace) -> Result<BuildStep> {
        let mut step = BuildStep::Done;
        loop {
            let batch = self.next_batch.load(Relaxed);
            let Some(keys) = batches.get(batch) else { break };
            if self.next_batch.compare_exchange(batch, batch + 1, Relaxed, Relaxed).is_err() {
                continue;
            }
            self.sort(batch, keys)?;
            step = BuildStep::Worked;
            if pace.ends() {
                return Ok(step);
            }
        }
        let Some(sorted) = self.batches.iter().map(OnceLock::get).collect::<Option<Vec<&Sorted>>>() else {
            // Other threads are still sorting.
            return Ok(if step == BuildStep::Worked { step } else { BuildStep::Busy });
        };
        let table = self.table.get_or_init(|| Arc::new(self.empty_table(&sorted)));
        for (region, part) in self.fills.iter().enumerate() {
            let mut fill = match part.claim() {
                Claim::Mine(fill) => fill,
                Claim::Busy if step == BuildStep::Done => {
                    step = BuildStep::Busy;
                    continue;
                }
                Claim::Busy | Claim::Done => continue,
            };
            step = BuildStep::Worked;
            let has_ended = self.fill(table, region, &mut fill, (&sorted, batches), pace)?;
            if fill.batch == sorted.len() {
                part.finish();
            }
            if has_ended {
                break;
            }
        }
        Ok(step)
    }

    fn sort(&self, batch: usize, keys: &[ArrayRef]) -> Result<()> {
        let mut hashes = Vec::new();
        hash_rows(self.hash_key, keys, &mut hashes)?;
        let sorted = Sorted::of(hashes, self.regions);
        self.sorted_bytes.fetch_add(sorted.bytes(), Relaxed);
        let is_first = self.batches[batch].set(sorted).is_ok();
        assert!(is_first, "a batch is sorted once, by the thread that took its number");
        Ok(())
    }

    fn empty_table(&self, sorted: &[&Sorted]) -> Hashed {
        let rows = |region: usize| sorted.iter().map(|sorted| sorted.region(region).len()).sum();
        Hashed::new(self.hash_key, &(0..self.regions).map(rows).collect::<Vec<usize>>())
    }

    /// Inserts rows of a region. Returns whether the step has ended.
    fn fill(
        &self,
        table: &Hashed,
        region: usize,
        fill: &mut Fill,
        (sorted, batches): (&[&Sorted], &[Vec<ArrayRef>]),
        pace: &mut dyn Pace,
    ) -> Result<bool> {
        let mut inserted = 0;
        while let Some(batch) = sorted.get(fill.batch) {
            let places = batch.region(region);
            let end = places.end.min(places.start + fill.row + ROWS_AT_ONCE);
            for place in places.start + fill.row..end {
                let (hash, row) = (batch.hashes[place], usize::from(batch.rows[place]));
                let keys = &batches[fill.batch];
                // Rows with equal halves of their hashes nearly always have equal keys.
                let is_it = |other: u32| self.are_equal((keys, row), other as usize, batches);
                let (at, before) = table.search(hash, table.home(hash), is_it);
                let number = u32_checked(self.firsts[fill.batch] + row);
                table.store(at, hash, number);
                if before != NONE {
                    table.link(number, before);
                }
            }
            inserted += end - places.start - fill.row;
            (fill.batch, fill.row) = match end == places.end {
                true => (fill.batch + 1, 0),
                false => (fill.batch, end - places.start),
            };
            if inserted >= ROWS_AT_ONCE {
                inserted = 0;
                if pace.ends() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Returns whether a row of a batch with these keys has the keys of the row with the number `other`.
    fn are_equal(&self, (keys, row): (&[ArrayRef], usize), other: usize, batches: &[Vec<ArrayRef>]) -> bool {
        let batch = self.firsts.partition_point(|first| *first <= other) - 1;
        let others = keys.iter().zip(&batches[batch]);
        let same = |(key, column)| {
            Equal::of(key, column).is_ok_and(|pair| pair.test(row, other - self.firsts[batch]))
        };
        others.into_iter().all(same)
    }

    /// Returns the table, after a step was [`BuildStep::Done`].
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn take(&self) -> Result<Arc<Hashed>> {
        self.table.get().cloned().ok_or_else(|| Error::internal("a hash table is taken before it is built"))
    }
}

impl Sorted {
    fn of(hashes: Vec<u64>, regions: usize) -> Sorted {
        let mut ends = vec![0_u32; regions];
        if regions == 1 {
            return Sorted {
                ends: vec![u32_checked(hashes.len())],
                rows: numbers(hashes.len()).collect(),
                hashes,
            };
        }
        hashes.iter().for_each(|hash| ends[Hashed::region_of(*hash, regions)] += 1);
        let mut end = 0;
        for of_region in &mut ends {
            // First the begin of each region, which moves to its end while rows are placed.
            end += std::mem::replace(of_region, end);
        }
        let (mut sorted, mut rows) = (vec![0; hashes.len()], vec![0; hashes.len()]);
        for (row, hash) in numbers(hashes.len()).zip(&hashes) {
            let place = &mut ends[Hashed::region_of(*hash, regions)];
            (sorted[*place as usize], rows[*place as usize]) = (*hash, row);
            *place += 1;
        }
        Sorted { ends, hashes: sorted, rows }
    }

    /// Returns the places of the rows of a region.
    fn region(&self, region: usize) -> std::ops::Range<usize> {
        let start = region.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        start..self.ends[region] as usize
    }

    fn bytes(&self) -> usize {
        self.hashes.capacity() * size_of::<u64>()
            + self.rows.capacity() * size_of::<u16>()
            + self.ends.capacity() * size_of::<u32>()
    }
}

/// Returns the numbers of the rows of a batch with this many.
fn numbers(rows: usize) -> impl Iterator<Item = u16> {
    const { assert!(limits::BATCH_ROWS <= 1 << u16::BITS, "the numbers of a batch's rows fit") };
    (0..rows).map(|row| row as u16)
}
