//! Estimates how many pairs of rows match on two columns, from the sketches of the columns.
//!
//! If the values of a column are unique, a join with it has as many rows as the other side, and no sketch is
//! needed. If both sides repeat their values, a few frequent ones can make the join a thousand times as large
//! as evenly distributed values would: then the engine asks the pool for the sketches of these columns, once
//! for each version of a table that has a profile.
//!
//! Invariant: a size refers to the versions that the query reads; without sketches there is no size.

use super::Share;
use farpool_model::{TableInfo, TableName, TableStatistics, Version};
use farpool_statistics::Sketch;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of rows for each distinct value from which a column is assumed to repeat its values.
const REPEATS_FROM: f64 = 1.2;

/// Pairs of rows below which a join takes a tenth of a second at most, even if all of them match.
const PAIRS_MIN: f64 = 1e7;

/// Largest number of sketches of one pool that are cached, of some 100 KiB each; beyond it the cache is
/// cleared.
const KEPT_MAX: usize = 256;

/// One version of a table in a pool. Clones are the same version.
#[derive(Clone, Debug)]
pub struct Source {
    /// Description of the version.
    pub info: Arc<TableInfo>,
    /// The cached sketches of the pool's tables.
    pub sketches: Arc<Sketches>,
}

/// A column of a table.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The table.
    pub table: Source,
    /// Index of the column in the table's schema.
    pub column: usize,
}

/// A cache of the sketches of columns in one pool's tables.
#[derive(Debug, Default)]
pub struct Sketches {
    tables: Mutex<HashMap<TableName, (Version, Columns)>>,
    /// Shares computed before, by the numbers of the two sketches.
    shares: Mutex<HashMap<(u64, u64), Option<Share>>>,
}

/// Sketches by column index; `None` for a column that the pool has no sketch of.
type Columns = HashMap<usize, Option<Arc<Numbered>>>;

#[derive(Debug)]
struct Numbered {
    number: u64,
    sketch: Sketch,
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Returns whether a join of the two columns, which have these numbers of distinct values, can be much larger than
/// evenly distributed values would make it.
pub fn worth_asking(left: &Origin, right: &Origin, distinct: (f64, f64)) -> bool {
    let (rows, others) = (left.rows(), right.rows());
    let repeats = rows > REPEATS_FROM * distinct.0 && others > REPEATS_FROM * distinct.1;
    repeats && rows * others >= PAIRS_MIN
}

/// Returns the share of pairs of rows of the two tables that are equal in these columns; `None` unless both
/// sketches are known.
pub fn share(left: &Origin, right: &Origin) -> Option<Share> {
    let (ours, theirs) = (left.known()??, right.known()??);
    let numbers = (ours.number, theirs.number);
    let cache = &left.table.sketches;
    if let Some(known) = cache.shares.lock().get(&numbers) {
        return *known;
    }
    let pairs = left.rows() * right.rows();
    let found = ours.sketch.join_size(&theirs.sketch).ok().flatten().filter(|_| pairs > 0.0);
    let share =
        found.map(|size| Share { value: size.value / pairs, low: size.low / pairs, high: size.high / pairs });
    cache.shares.lock().insert(numbers, share);
    share
}

impl Source {
    /// Returns whether both are the same version of the same table.
    pub fn is(&self, other: &Source) -> bool {
        Arc::ptr_eq(&self.sketches, &other.sketches)
            && (&self.info.name, self.info.version) == (&other.info.name, other.info.version)
    }

    /// Returns the indices, in ascending order, of those columns among `wanted` that belong to this table and
    /// that the pool was not asked for yet.
    pub fn unknown(&self, wanted: &[Origin]) -> Vec<usize> {
        let unknown = wanted.iter().filter(|origin| origin.table.is(self) && origin.known().is_none());
        let columns: BTreeSet<usize> = unknown.map(|origin| origin.column).collect();
        columns.into_iter().collect()
    }

    /// Caches the sketches of `columns` from the pool's answer about the table. Ignores an answer about
    /// another version, or about only a part of the rows.
    pub fn learn(&self, columns: &[usize], statistics: &TableStatistics) {
        if statistics.table.version != self.info.version || statistics.table.rows_profiled.is_some() {
            return;
        }
        let read = columns.iter().map(|&column| {
            let state = statistics.columns.get(column).and_then(|states| states.sketch.as_ref());
            (column, state.and_then(|bytes| Sketch::from_bytes(bytes).ok()).map(numbered))
        });
        self.sketches.add(&self.info.name, self.info.version, read.collect());
    }
}

fn numbered(sketch: Sketch) -> Arc<Numbered> {
    Arc::new(Numbered { number: NUMBERS.fetch_add(1, Ordering::Relaxed), sketch })
}

impl Origin {
    fn rows(&self) -> f64 {
        self.table.info.rows as f64
    }

    /// Returns whether both are the same column.
    pub fn is(&self, other: &Origin) -> bool {
        self.column == other.column && self.table.is(&other.table)
    }

    /// Returns the pool's answer about the column; `None` if it was not asked.
    fn known(&self) -> Option<Option<Arc<Numbered>>> {
        let info = &self.table.info;
        let tables = self.table.sketches.tables.lock();
        let (version, columns) = tables.get(&info.name)?;
        if *version == info.version { columns.get(&self.column).cloned() } else { None }
    }
}

impl Sketches {
    fn add(&self, name: &TableName, version: Version, more: Columns) {
        let mut tables = self.tables.lock();
        if tables.values().map(|(_, columns)| columns.len()).sum::<usize>() > KEPT_MAX {
            tables.clear();
            self.shares.lock().clear();
        }
        let (kept, columns) = tables.entry(name.clone()).or_insert_with(|| (version, Columns::new()));
        if *kept != version {
            (*kept, *columns) = (version, Columns::new());
        }
        columns.extend(more);
    }
}
