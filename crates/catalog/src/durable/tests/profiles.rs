//! Tests of profiles (statistics of tables) that recovery leaves on disk.
//!
//! A *segment* is a file of column chunks and profiles in the data directory.

use super::*;
use crate::AwaitedStatistics;
use farpool_model::TableStatistics;
use std::collections::VecDeque;

/// Number of columns of a table whose profile is too large for recovery to read it at once; `ROWS` is its number of
/// rows.
const COLUMNS: usize = 48;
const ROWS: i64 = limits::ROW_GROUP_ROWS as i64;

/// A [`Background`] that computes and reads when a test says so.
#[derive(Debug, Default)]
struct Waiting {
    chores: Mutex<Vec<Chore>>,
    reads: Mutex<VecDeque<Job>>,
}

impl Background for Waiting {
    fn submit(&self, chore: Chore) {
        self.chores.lock().push(chore);
    }

    fn rows_came(&self) {}

    fn read(&self, job: Box<dyn FnOnce() + Send>) {
        self.reads.lock().push_back(Job(job));
    }
}

impl Waiting {
    /// Runs all queued reads, and returns their number.
    fn read_all(&self) -> usize {
        let mut jobs = 0;
        while let Some(job) = { self.reads.lock().pop_front() } {
            job.0();
            jobs += 1;
        }
        jobs
    }

    /// Works on all chores, until only reads from disk are left.
    fn work(&self) {
        while let Some(chore) = { self.chores.lock().pop() } {
            while chore.step(&|| true) == StepOutcome::Worked {}
            chore.leave();
        }
    }

    fn run(&self) {
        self.work();
        while self.read_all() > 0 {
            self.work();
        }
    }
}

fn start(directory: &Arc<SimulatedDirectory>) -> (Arc<Catalog>, Arc<Waiting>) {
    let waiting = Arc::new(Waiting::default());
    let pool = Pool::new(PoolConfig { bytes_limit: 256 << 20 }).unwrap();
    let catalog = Arc::new(Catalog::new(pool, Arc::new(Two), waiting.clone()));
    let recovery = catalog.open(encrypted::unlocked(directory).unwrap(), 7).unwrap();
    assert!(recovery.damaged.is_empty());
    (catalog, waiting)
}

fn rows(columns: usize, rows: std::ops::Range<i64>) -> RecordBatch {
    let column = |place: usize| {
        let values = rows.clone().map(|row| row * (place as i64 + 1));
        (format!("c{place}"), Arc::new(arrow_array::Int64Array::from_iter_values(values)) as ArrayRef)
    };
    RecordBatch::try_from_iter((0..columns).map(column)).unwrap()
}

fn load(catalog: &Arc<Catalog>, table: &str, mode: LoadMode, rows: &RecordBatch) {
    let mut load = catalog.begin_load(&tenant(), &name(table), &rows.schema(), mode.into(), None).unwrap();
    load.push(rows).unwrap();
    load.commit().unwrap();
}

/// Returns the statistics of the table `t` that are known without further work.
fn known(catalog: &Catalog) -> TableStatistics {
    let columns: Vec<usize> = (0..catalog.info(&tenant(), &name("t")).unwrap().columns.len()).collect();
    catalog.known_statistics(&tenant(), &name("t"), &columns).unwrap()
}

fn is_known(catalog: &Catalog) -> bool {
    known(catalog).columns.iter().all(|states| states.sketch.is_some())
}

/// Creates a directory with profiled tables, and returns the statistics of the first one, `t`.
fn filled(is_encrypted: bool, columns: usize, tables: &[&str]) -> (Arc<SimulatedDirectory>, TableStatistics) {
    let directory = encrypted::new_directory(is_encrypted);
    let (catalog, waiting) = start(&directory);
    tables.iter().for_each(|table| load(&catalog, table, LoadMode::Create, &rows(columns, 0..ROWS)));
    waiting.run();
    let known = known(&catalog);
    assert!(is_known(&catalog));
    catalog.close().unwrap();
    (directory, known)
}

fn ask(catalog: &Catalog) -> (AwaitedStatistics, Arc<AtomicU64>) {
    let woken = Arc::new(AtomicU64::new(0));
    let count = woken.clone();
    let wake = Box::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    (catalog.await_statistics(&tenant(), &name("t"), wake).unwrap(), woken)
}

#[test]
fn many_are_read_after_the_start_and_few_before() {
    for is_encrypted in [false, true] {
        let (directory, before) = filled(is_encrypted, COLUMNS, &["t"]);
        let read = directory.bytes_read("segment");
        let (catalog, waiting) = start(&directory);
        assert!(directory.bytes_read("segment") - read < 200_000, "of more than a megabyte");
        let tables = catalog.tables(&tenant());
        assert_eq!(tables[0].rows_profiled, Some(ROWS as u64), "the description is not complete");
        assert!(tables[0].columns.iter().all(|column| column.spread.is_none()));
        waiting.read_all();
        assert!(known(&catalog) == before);
        assert!(waiting.chores.lock().is_empty(), "nothing is computed");
        let (directory, before) = filled(is_encrypted, 2, &["t"]);
        let (catalog, _) = start(&directory);
        assert!(known(&catalog) == before);
    }
}

#[test]
fn who_asks_at_once_waits_until_it_is_read() {
    let (directory, before) = filled(false, COLUMNS, &["t"]);
    let (catalog, waiting) = start(&directory);
    let (asked, woken) = ask(&catalog);
    let profile = asked.profile();
    assert!(!profile.is_settled() && !profile.has_step() && !profile.step(&|| true));
    assert_eq!(profile.bytes_lacking(), None);
    // If a request for a profile is cancelled, the read is left to other requests.
    profile.give_up(&Error::cancelled());
    assert_eq!((waiting.reads.lock().len(), woken.load(Ordering::Relaxed)), (2, 0), "it is read out of turn");
    let urgent = waiting.reads.lock().pop_back();
    urgent.into_iter().for_each(|job| (job.0)());
    assert!(woken.load(Ordering::Relaxed) > 0 && profile.is_settled());
    let told = asked.get().unwrap();
    assert!(told.columns == before.columns && told.table.rows_profiled.is_none() && told.moments.is_some());
    // Describing a table also causes its profile to be read, but only once.
    let (catalog, waiting) = start(&directory);
    (0..3).for_each(|_| assert!(!is_known(&catalog)));
    assert_eq!(waiting.reads.lock().len(), 2);
    // A thread that blocks until the profile was read.
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| catalog.statistics(&tenant(), &name("t")).unwrap());
        while !asking.is_finished() {
            waiting.read_all();
        }
        assert!(asking.join().unwrap().columns == before.columns);
    });
}

#[test]
fn checkpoints_keep_those_that_were_not_read() {
    for is_encrypted in [false, true] {
        let (directory, before) = filled(is_encrypted, COLUMNS, &["t"]);
        for seed in 1..4 {
            let (catalog, _) = start(&directory);
            load(&catalog, "t", LoadMode::Append, &rows(COLUMNS, 0..10));
            catalog.checkpoint().unwrap();
            directory.crash(seed);
        }
        let (catalog, waiting) = start(&directory);
        waiting.read_all();
        let known = known(&catalog);
        assert_eq!(known.table.rows, ROWS as u64 + 30);
        assert!(known.columns == before.columns);
    }
}

#[test]
fn one_that_was_not_read_moves_when_its_segment_is_compacted() {
    for is_encrypted in [false, true] {
        let (directory, before) = filled(is_encrypted, COLUMNS, &["t", "u", "v"]);
        // The last segment was written by the final checkpoint, and has the profiles.
        let segment =
            directory.names().unwrap().into_iter().rfind(|name| name.starts_with("segment")).unwrap();
        let (catalog, waiting) = start(&directory);
        for table in ["u", "v"] {
            catalog.drop_table(&tenant(), &name(table)).unwrap().wait().unwrap();
        }
        catalog.compact().unwrap();
        assert!(!directory.names().unwrap().contains(&segment));
        waiting.read_all();
        assert!(known(&catalog).columns == before.columns);
        directory.crash(1);
        let (catalog, waiting) = start(&directory);
        waiting.read_all();
        assert!(known(&catalog).columns == before.columns);
    }
}

#[test]
fn appends_build_on_one_that_was_not_read() {
    let (directory, _) = filled(false, COLUMNS, &["t"]);
    let (catalog, waiting) = start(&directory);
    load(&catalog, "t", LoadMode::Append, &rows(COLUMNS, ROWS..2 * ROWS));
    waiting.work();
    assert!(!is_known(&catalog));
    waiting.run();
    let whole = known(&catalog);
    assert!(whole.table.rows_profiled.is_none());
    let fresh = encrypted::new_directory(false);
    let (catalog, waiting) = start(&fresh);
    load(&catalog, "t", LoadMode::Create, &rows(COLUMNS, 0..ROWS));
    load(&catalog, "t", LoadMode::Append, &rows(COLUMNS, ROWS..2 * ROWS));
    waiting.run();
    let expected = known(&catalog);
    assert!(whole.columns == expected.columns && whole.table.columns == expected.table.columns);
}

#[test]
fn a_table_that_is_dropped_before_leaves_nothing() {
    let (directory, _) = filled(false, COLUMNS, &["t"]);
    let (catalog, waiting) = start(&directory);
    let (asked, _) = ask(&catalog);
    catalog.drop_table(&tenant(), &name("t")).unwrap().wait().unwrap();
    drop(asked);
    assert!(waiting.read_all() > 0);
    assert_eq!(catalog.pool().usage().bytes_used, 0);
    catalog.checkpoint().unwrap();
    assert!(!directory.names().unwrap().iter().any(|name| name.starts_with("segment")));
}

#[test]
fn one_that_is_damaged_is_computed_again() {
    for (columns, is_asked) in [(COLUMNS, true), (COLUMNS, false), (2, true), (2, false)] {
        let (directory, before) = filled(false, columns, &["t"]);
        let segment =
            directory.names().unwrap().into_iter().rfind(|name| name.starts_with("segment")).unwrap();
        // The profile is the last part in the segment.
        let bytes = directory.open(&segment).unwrap().bytes().unwrap() as usize;
        directory.flip(&segment, bytes - (16 << 10), 4);
        let (catalog, waiting) = start(&directory);
        let asked = is_asked.then(|| ask(&catalog).0);
        waiting.read_all();
        assert_eq!(catalog.tables(&tenant())[0].rows_profiled, Some(0));
        match asked {
            Some(asked) => {
                while !asked.profile().is_settled() {
                    assert!(asked.profile().step(&|| true) || waiting.read_all() > 0);
                }
                assert!(asked.get().unwrap().columns == before.columns);
            }
            None => waiting.run(),
        }
        assert!(known(&catalog) == before);
        // The next checkpoint stores the profile again, and the next start finds it.
        load(&catalog, "t", LoadMode::Append, &rows(columns, 0..1));
        catalog.close().unwrap();
        let (catalog, waiting) = start(&directory);
        waiting.read_all();
        assert!(known(&catalog).columns == before.columns && waiting.chores.lock().is_empty());
    }
}

#[test]
fn one_that_has_no_room_is_made_on_request() {
    let (directory, before) = filled(false, COLUMNS, &["t"]);
    let (catalog, waiting) = start(&directory);
    catalog.pool().set_quota(&tenant(), Some(0));
    let (asked, _) = ask(&catalog);
    waiting.run();
    assert_eq!(asked.get().map(drop).unwrap_err().kind, ErrorKind::OverLimit);
    assert!(!is_known(&catalog) && catalog.tables(&tenant())[0].rows_profiled.is_none());
    catalog.pool().set_quota(&tenant(), None);
    let (asked, _) = ask(&catalog);
    while !asked.profile().is_settled() {
        assert!(asked.profile().step(&|| true) || waiting.read_all() > 0);
    }
    assert!(asked.get().unwrap().columns == before.columns);
}
