//! Estimates how many pairs of rows match on two columns, from sketches of the columns.
//!
//! If the values of a column are unique, a join on it returns at most the rows of the other side, and no sketch is
//! needed. If both sides repeat their values (a many-to-many join), a few frequent values can make the result a
//! thousand times as large as evenly distributed values would. The engine then asks the pool for the sketches of these
//! columns, once for each table version whose statistics are complete.
//!
//! Invariant: an estimate refers to the table versions that the query reads. There is none without sketches of these
//! versions.

use super::Share;
use farpool_model::{TableInfo, TableName, TableStatistics, Version};
use farpool_statistics::Sketch;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Minimum average number of rows per distinct value from which a column is assumed to repeat its values.
const REPEATS_FROM: f64 = 1.2;

/// Minimum number of pairs of rows for which sketches are requested. Reason: with fewer, a join takes at most a tenth
/// of a second, even if all pairs match.
const PAIRS_MIN: f64 = 1e7;

/// Maximum number of cached sketches for one pool; if there are more, the cache is cleared. Reason: a sketch takes some
/// 100 KiB.
const KEPT_MAX: usize = 256;

/// One version of a table in a pool, with the cache of sketches. Clones refer to the same version.
#[derive(Clone, Debug)]
pub struct Source {
    /// Description of the table version.
    pub info: Arc<TableInfo>,
    /// The cached sketches of the columns of the pool's tables.
    pub sketches: Arc<Sketches>,
}

/// A column of a table version.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The version of the table that has the column.
    pub table: Source,
    /// Index of the column in the table's schema.
    pub column: usize,
}

/// A cache of the sketches of columns in the tables of one pool.
#[derive(Debug, Default)]
pub struct Sketches {
    tables: Mutex<HashMap<TableName, (Version, Columns)>>,
    /// Fractions of matching pairs that have been computed, by the ids of the two sketches.
    shares: Mutex<HashMap<(u64, u64), Option<Share>>>,
}

/// Sketches by column index; `None` for a column of which the pool has no sketch.
type Columns = HashMap<usize, Option<Arc<Numbered>>>;

#[derive(Debug)]
struct Numbered {
    number: u64,
    sketch: Sketch,
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Returns whether a join of the two columns may be much larger than evenly distributed values would make it, so that
/// sketches are worth requesting. `distinct` has the numbers of distinct values of the two columns.
pub fn worth_asking(left: &Origin, right: &Origin, distinct: (f64, f64)) -> bool {
    let (rows, others) = (left.rows(), right.rows());
    let repeats = rows > REPEATS_FROM * distinct.0 && others > REPEATS_FROM * distinct.1;
    repeats && rows * others >= PAIRS_MIN
}

/// Returns the fraction of pairs of rows of the two tables that are equal in these columns; `None` unless the sketches
/// of both columns are cached.
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
    /// Returns whether both refer to the same version of the same table.
    pub fn is(&self, other: &Source) -> bool {
        Arc::ptr_eq(&self.sketches, &other.sketches)
            && (&self.info.name, self.info.version) == (&other.info.name, other.info.version)
    }

    /// Returns the indexes, in ascending order, of those columns among `wanted` that belong to this table and for which
    /// the pool has not been asked yet.
    pub fn unknown(&self, wanted: &[Origin]) -> Vec<usize> {
        let unknown = wanted.iter().filter(|origin| origin.table.is(self) && origin.known().is_none());
        let columns: BTreeSet<usize> = unknown.map(|origin| origin.column).collect();
        columns.into_iter().collect()
    }

    /// Caches the sketches of `columns` from the pool's answer about the table. Ignores an answer about another
    /// version, or about only some of the rows.
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

    /// Returns what the pool answered about the column (`Some(None)` if it has no sketch); `None` if it has not been
    /// asked.
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
