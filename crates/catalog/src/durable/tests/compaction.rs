//! Tests of the compaction of sparse segments (files of column chunks of which less than half is still needed).

use super::*;

const ROWS: i64 = 2_600_000;

/// A [`Background`] that runs jobs which use the disk at once or, after [`Waiting::begin`], when a test says so.
#[derive(Debug, Default)]
struct Waiting {
    jobs: Mutex<Vec<Job>>,
    waits: AtomicBool,
}

impl Background for Waiting {
    fn submit(&self, _chore: Chore) {}

    fn rows_came(&self) {}

    fn write(&self, job: Box<dyn FnOnce() + Send>) {
        match self.waits.load(Ordering::Relaxed) {
            true => self.jobs.lock().push(Job(job)),
            false => job(),
        }
    }
}

impl Waiting {
    fn begin(&self) {
        self.waits.store(true, Ordering::Relaxed);
    }

    /// Runs all queued jobs, and returns their number.
    fn run(&self) -> usize {
        let mut jobs = 0;
        while let Some(job) = { self.jobs.lock().pop() } {
            job.0();
            jobs += 1;
        }
        jobs
    }
}

fn open_waiting(directory: &Arc<SimulatedDirectory>) -> (Arc<Catalog>, Arc<Waiting>) {
    let waiting = Arc::new(Waiting::default());
    let pool = Pool::new(PoolConfig { bytes_limit: 256 << 20 }).unwrap();
    let catalog = Arc::new(Catalog::new(pool, Arc::new(Two), waiting.clone()));
    catalog.close_taps();
    catalog.open(encrypted::opened(directory).unwrap(), 7).unwrap();
    (catalog, waiting)
}

/// Returns the ids of the segments on disk, and their lengths in bytes.
fn segments(directory: &Arc<SimulatedDirectory>) -> BTreeMap<u64, u64> {
    let names = directory.names().unwrap();
    let segment = |name: &String| {
        Some((farpool_disk::segment_number(name)?, directory.open(name).unwrap().bytes().unwrap()))
    };
    names.iter().filter_map(segment).collect()
}

/// Removes all row groups of a table except the first and the last.
fn thin_out(catalog: &Arc<Catalog>, table: &TableName) -> Vec<Option<i64>> {
    let (version, base) = catalog.get(&tenant(), table).unwrap();
    let last = base.row_groups.len() - 1;
    let removed = (1..last).map(|place| (place, None)).collect();
    let made = catalog.replace_row_groups(&tenant(), table, (version, &base), &removed, None).unwrap();
    drop(base);
    made.wait().unwrap();
    values(&catalog.get(&tenant(), table).unwrap().1)
}

#[test]
fn what_is_left_of_a_segment_is_written_anew_by_itself() {
    for is_encrypted in [false, true] {
        let directory = encrypted::new_directory(is_encrypted);
        let t = name("t");
        let (catalog, waiting) = open_waiting(&directory);
        larger::load(&catalog, &t, LoadMode::Create, 0..ROWS).unwrap();
        waiting.begin();
        let before = segments(&directory);
        let expected = thin_out(&catalog, &t);
        // Compaction must not depend on whether the values are in memory.
        catalog.durable.get().unwrap().reads.cache.reclaim(None, 64 * limits::PAGE_BYTES);
        assert!(waiting.run() < 20, "compaction ends");
        let after = segments(&directory);
        let (was, is) = (before.values().sum::<u64>(), after.values().sum::<u64>());
        assert!(is < was / 4, "{was} bytes became {is}");
        assert!(values(&catalog.get(&tenant(), &t).unwrap().1) == expected);
        // After two losses of power, chunks that were moved are found where the manifest says.
        drop(catalog);
        for seed in 1..3 {
            directory.crash(seed);
            let (catalog, _) = open_waiting(&directory);
            assert!(values(&catalog.get(&tenant(), &t).unwrap().1) == expected);
        }
    }
}

#[test]
fn a_segment_that_an_old_version_needs_is_left_alone_until_it_is_gone() {
    let directory = SimulatedDirectory::new();
    let t = name("t");
    let (catalog, waiting) = open_waiting(&directory);
    larger::load(&catalog, &t, LoadMode::Create, 0..ROWS).unwrap();
    waiting.begin();
    let (_, reader) = catalog.get(&tenant(), &t).unwrap();
    let before = segments(&directory);
    thin_out(&catalog, &t);
    waiting.run();
    assert_eq!(segments(&directory), before);
    assert_eq!(values(&reader).len() as i64, ROWS);
    drop(reader);
    waiting.run();
    let after = segments(&directory);
    assert!(before.keys().all(|number| !after.contains_key(number)));
}

/// A change that was recorded before a compaction, and becomes durable after it, still refers to the old locations of
/// chunks.
#[test]
fn changes_under_way_may_name_a_segment_that_is_gone() {
    let directory = SimulatedDirectory::new();
    let t = name("t");
    let (catalog, waiting) = open_waiting(&directory);
    larger::load(&catalog, &t, LoadMode::Create, 0..ROWS).unwrap();
    waiting.begin();
    let expected = thin_out(&catalog, &t);
    let before = segments(&directory);
    let (version, base) = catalog.get(&tenant(), &t).unwrap();
    let group = filled(&base.row_groups[0]);
    let mut columns: Vec<_> = group.chunks.iter().map(|chunk| chunk.decode(0..group.rows).unwrap()).collect();
    columns[1] = arrow_array::new_null_array(columns[1].data_type(), group.rows);
    // One column of the row group is new; the other one shares its chunk with the old version.
    let mut chunks = base.row_groups[0].chunks.clone();
    chunks[1] = encoded(&catalog, &base, &columns).chunks[1].clone();
    let changed = BTreeMap::from([(0, Some(Arc::new(RowGroup { rows: group.rows, chunks })))]);
    let made = catalog.replace_row_groups(&tenant(), &t, (version, &base), &changed, None).unwrap();
    drop((base, group));
    catalog.compact().unwrap();
    made.wait().unwrap();
    waiting.run();
    let after = segments(&directory);
    assert!(before.keys().all(|number| !after.contains_key(number)), "{before:?}, {after:?}");
    drop(catalog);
    for seed in 1..4 {
        directory.crash(seed);
        let (catalog, _) = open_waiting(&directory);
        assert!(values(&catalog.get(&tenant(), &t).unwrap().1) == expected);
    }
}

/// Each disk call of a compaction fails in turn, followed by a loss of power.
#[test]
fn compaction_loses_nothing_on_a_disk_that_fails() {
    let mut compacted = 0;
    for after in 0..12 {
        let mut bench = Bench::new();
        let t = name("t");
        larger::load(&bench.catalog, &t, LoadMode::Create, 0..400_000).unwrap();
        let expected = thin_out(&bench.catalog, &t);
        bench.tables = [(t.clone(), expected)].into();
        bench.directory.set_faults(Faults { fails_after: Some(after), ..Faults::default() });
        let first = bench.catalog.compact();
        bench.check();
        // After the failure, the next compaction completes the work.
        bench.directory.set_faults(Faults::default());
        compacted += usize::from(bench.catalog.compact().is_ok() || first.is_ok());
        bench.check();
        bench.again(Some(after + 1));
        bench.check();
    }
    assert!(compacted > 0);
}
