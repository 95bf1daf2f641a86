//! How many pairs of rows two columns have in common, by the sketches that were gathered of them.
//!
//! Where a column has each value once, a join with it has as many rows as the other side, and there is nothing
//! to ask. Where both sides repeat their values, a few frequent ones can make the join a thousand times as
//! large as even values would: then the pool is asked for the sketches of these columns, once for a version whose
//! profile is there.
//!
//! Invariant: a size is of the versions that the query reads; without sketches, there is none.

use crate::table::PoolTable;
use farpool_model::{TableName, Version};
use farpool_planner::joins::Share;
use farpool_statistics::Sketch;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows for each distinct value from which on a column is taken to repeat its values.
const REPEATS_FROM: f64 = 1.2;

/// Pairs of rows below which a join takes a tenth of a second at most, even if all of them match.
const PAIRS_MIN: f64 = 1e7;

/// Sketches that are kept of a pool's tables, of some 100 KiB each; when there are more all are forgotten.
const KEPT_MAX: usize = 256;

/// A column of a table.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub table: Arc<PoolTable>,
    pub column: usize,
}

/// The sketches of columns of a pool's tables.
#[derive(Debug, Default)]
pub(crate) struct Sketches {
    tables: Mutex<HashMap<TableName, (Version, Columns)>>,
    /// What became of pairs, by the numbers of the sketches.
    shares: Mutex<HashMap<(u64, u64), Option<Share>>>,
}

/// By column; `None` where there is none.
type Columns = HashMap<usize, Option<Arc<Numbered>>>;

#[derive(Debug)]
struct Numbered {
    number: u64,
    sketch: Sketch,
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Whether a join of the two columns can be much larger than even values would make it.
pub(crate) fn worth_asking(left: &Origin, right: &Origin, distinct: (f64, f64)) -> bool {
    let (rows, others) = (left.rows(), right.rows());
    let repeats = rows > REPEATS_FROM * distinct.0 && others > REPEATS_FROM * distinct.1;
    repeats && rows * others >= PAIRS_MIN
}

/// Has the sketches of `columns` at hand. What keeps a pool from giving them only leaves estimates rough.
pub(crate) async fn load(columns: &[Origin]) {
    for origin in columns {
        if origin.known().is_some() {
            continue;
        }
        let table = &origin.table;
        let of_table = columns.iter().filter(|other| other.is_of(table) && other.known().is_none());
        let wanted: BTreeSet<usize> = of_table.map(|other| other.column).collect();
        let wanted: Vec<usize> = wanted.into_iter().collect();
        let statistics = table.pool().statistics(&table.info().name, Some(&wanted)).await;
        let Ok(statistics) = statistics else { continue };
        if statistics.table.version != table.info().version || statistics.table.rows_profiled.is_some() {
            continue;
        }
        let read = wanted.into_iter().map(|column| {
            let state = statistics.columns.get(column).and_then(|states| states.sketch.as_ref());
            (column, state.and_then(|bytes| Sketch::from_bytes(bytes).ok()).map(numbered))
        });
        table.sketches().add(&table.info().name, table.info().version, read.collect());
    }
}

fn numbered(sketch: Sketch) -> Arc<Numbered> {
    Arc::new(Numbered { number: NUMBERS.fetch_add(1, Ordering::Relaxed), sketch })
}

/// The share of pairs of rows of the two tables that are equal in these columns, if sketches are at hand.
pub(crate) fn share(left: &Origin, right: &Origin) -> Option<Share> {
    let (ours, theirs) = (left.known()??, right.known()??);
    let numbers = (ours.number, theirs.number);
    let cache = left.table.sketches();
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

impl Origin {
    fn rows(&self) -> f64 {
        self.table.info().rows as f64
    }

    /// Whether both are the same column.
    pub fn is(&self, other: &Origin) -> bool {
        self.column == other.column && self.is_of(&other.table)
    }

    /// Whether it is a column of this table.
    pub fn is_of(&self, table: &PoolTable) -> bool {
        let (ours, theirs) = (self.table.info(), table.info());
        Arc::ptr_eq(self.table.sketches(), table.sketches())
            && (&ours.name, ours.version) == (&theirs.name, theirs.version)
    }

    /// Whether it was asked for, and what came of it.
    fn known(&self) -> Option<Option<Arc<Numbered>>> {
        let info = self.table.info();
        let tables = self.table.sketches().tables.lock();
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
