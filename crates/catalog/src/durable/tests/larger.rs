//! Tests of tables that are larger than the memory pool.

use super::*;
use farpool_columns::{Chunk, HeldValues, ValueReader};
use farpool_memory::Tenure;
use farpool_model::Residency;
use std::time::{Duration, Instant};

/// Number of rows of each table: about forty row groups, 20 MiB.
const ROWS: i64 = 2_600_000;

pub(super) fn small_catalog(directory: &Arc<SimulatedDirectory>, pages: usize) -> (Arc<Catalog>, Recovery) {
    let pool = Pool::new(PoolConfig { bytes_limit: pages * limits::PAGE_BYTES }).unwrap();
    let catalog = Arc::new(Catalog::new(pool, Arc::new(Two), Arc::new(Deferred::default())));
    catalog.close_taps();
    let recovery = catalog.open(encrypted::opened(directory).unwrap(), 7).unwrap();
    (catalog, recovery)
}

pub(super) fn load(
    catalog: &Arc<Catalog>,
    table: &TableName,
    options: impl Into<LoadOptions>,
    rows: std::ops::Range<i64>,
) -> Result<TableInfo> {
    let mut load = catalog.begin_load(&tenant(), table, &batch(0..0).schema(), options.into(), None)?;
    for first in rows.clone().step_by(100_000) {
        load.push(&batch(first..rows.end.min(first + 100_000)))?;
    }
    load.commit()
}

/// Reads a table row group by row group, and returns the sum of its first column.
fn sum(catalog: &Catalog, table: &TableName) -> i64 {
    let (_, table) = catalog.get(&tenant(), table).unwrap();
    let of_group = |group: &Arc<RowGroup>| {
        let group = filled(group);
        let values = group.chunks[0].decode(0..group.rows).unwrap();
        values.as_primitive::<Int64Type>().iter().flatten().sum::<i64>()
    };
    table.row_groups.iter().map(of_group).sum()
}

fn bytes_absent(catalog: &Catalog, table: &TableName) -> usize {
    let (_, table) = catalog.get(&tenant(), table).unwrap();
    let chunks = table.row_groups.iter().flat_map(|group| &group.chunks);
    chunks.filter(|chunk| chunk.is_absent()).map(|chunk| chunk.bytes_encoded()).sum()
}

#[test]
fn a_start_reads_no_values_of_large_row_groups() {
    let directory = SimulatedDirectory::new();
    let t = name("t");
    let (catalog, _) = small_catalog(&directory, 64);
    let made = load(&catalog, &t, LoadMode::Create, 0..ROWS).unwrap();
    catalog.close().unwrap();
    drop(catalog);
    let before = directory.bytes_read("segment");
    let (catalog, _) = small_catalog(&directory, 64);
    let read = directory.bytes_read("segment") - before;
    assert!(read < made.bytes_encoded as usize / 20, "{read} of {}", made.bytes_encoded);
    assert_eq!(sum(&catalog, &t), ROWS * (ROWS - 1) / 2);
}

/// Returns the indices of the row groups whose values of column `column` are in memory.
fn groups_in_memory(catalog: &Catalog, table: &TableName, column: usize) -> Vec<usize> {
    let (_, table) = catalog.get(&tenant(), table).unwrap();
    let groups = table.row_groups.iter().enumerate();
    groups.filter(|(_, group)| !group.chunks[column].is_absent()).map(|(place, _)| place).collect()
}

#[test]
fn what_was_used_before_a_start_is_read_after_it() {
    for is_encrypted in [false, true] {
        let directory = encrypted::new_directory(is_encrypted);
        let t = name("t");
        let (mut catalog, _) = small_catalog(&directory, 8);
        load(&catalog, &t, LoadMode::Create, 0..ROWS).unwrap();
        catalog.durable.get().unwrap().reads.cache.reclaim(None, 64 * limits::PAGE_BYTES);
        let (_, table) = catalog.get(&tenant(), &t).unwrap();
        let all = table.row_groups.len();
        let used: Vec<usize> = (0..all).step_by(4).collect();
        for place in &used {
            let chunk = &table.row_groups[*place].chunks[0];
            farpool_columns::fetch(vec![chunk.clone()], Box::new(Counted(Arc::default())));
            chunk.count_use();
        }
        drop(table);
        // A start and stop without queries keeps the file of the used chunks.
        for _ in 0..2 {
            catalog.close().unwrap();
            (catalog, _) = small_catalog(&directory, 8);
            assert!(groups_in_memory(&catalog, &t, 0).is_empty());
            catalog.preload();
            assert_eq!(groups_in_memory(&catalog, &t, 0), used);
            assert!(groups_in_memory(&catalog, &t, 1).is_empty());
        }
        // If all chunks fit into memory, those that no query used are read after the others.
        catalog.close().unwrap();
        (catalog, _) = small_catalog(&directory, 64);
        catalog.preload();
        assert_eq!(groups_in_memory(&catalog, &t, 1).len(), all);
        // Without the file of the used chunks, everything still works.
        catalog.close().unwrap();
        for at in [0, 9, 25, 90] {
            directory.flip("used", at, 1);
            (catalog, _) = small_catalog(&directory, 8);
            catalog.preload();
            assert!(
                groups_in_memory(&catalog, &t, 1).len() > 1,
                "small tables first, as if nothing were known"
            );
            assert_eq!(sum(&catalog, &t), ROWS * (ROWS - 1) / 2);
            directory.crash(at as u64);
            directory.flip("used", at, 1);
        }
    }
}

#[test]
fn a_table_larger_than_the_pool_is_loaded_read_changed_and_found_again() {
    larger_than_the_pool(None);
}

#[test]
fn an_encrypted_table_larger_than_the_pool_is_too() {
    larger_than_the_pool(Some(Tier::Standard));
}

fn larger_than_the_pool(encryption: Option<Tier>) {
    let directory = encrypted::new_directory(encryption.is_some());
    let t = name("t");
    let (mut catalog, _) = small_catalog(&directory, 4);
    let create = LoadOptions { encryption, ..LoadMode::Create.into() };
    let made = load(&catalog, &t, create, 0..ROWS).unwrap();
    assert!(made.bytes_encoded > 2 * 4 * limits::PAGE_BYTES as u64, "{}", made.bytes_encoded);
    assert!(bytes_absent(&catalog, &t) > 0);
    let expected = ROWS * (ROWS - 1) / 2;
    for _ in 0..2 {
        assert_eq!(sum(&catalog, &t), expected);
        assert!(catalog.pool().usage().bytes_used <= catalog.pool().usage().bytes_limit);
    }
    // The change removes row group 7, and replaces row group 3 by one with the same values.
    let (version, base) = catalog.get(&tenant(), &t).unwrap();
    let group = filled(&base.row_groups[7]);
    let (gone, replaced) = (group.rows as i64, filled(&base.row_groups[3]));
    let first = 7 * limits::ROW_GROUP_ROWS as i64;
    let columns: Vec<_> =
        replaced.chunks.iter().map(|chunk| chunk.decode(0..replaced.rows).unwrap()).collect();
    let same = encoded(&catalog, &base, &columns);
    let changed = BTreeMap::from([(3, Some(Arc::new(same))), (7, None)]);
    drop((group, replaced, columns));
    catalog.replace_row_groups(&tenant(), &t, (version, &base), &changed, None).unwrap().wait().unwrap();
    // The old version must be dropped, because it would keep values in a pool that has only a few pages.
    drop(changed);
    let expected = expected - gone * (2 * first + gone - 1) / 2;
    assert_eq!(sum(&catalog, &t), expected);
    load(&catalog, &t, LoadMode::Append, 0..100).unwrap();
    let expected = expected + 99 * 100 / 2;
    assert_eq!(sum(&catalog, &t), expected);
    for crash in [true, false, true] {
        if crash {
            directory.crash(3)
        } else {
            catalog.close().unwrap()
        }
        let recovery;
        (catalog, recovery) = small_catalog(&directory, 3);
        assert!(recovery.damaged.is_empty());
        // Opening the directory read only the heads (metadata) of chunks, and small row groups.
        assert!(catalog.pool().usage().bytes_used <= limits::PAGE_BYTES as u64);
        assert_eq!(sum(&catalog, &t), expected);
        assert_eq!(catalog.info(&tenant(), &t).unwrap().encryption, encryption);
    }
}

#[test]
fn what_is_used_often_outlives_a_scan() {
    let directory = SimulatedDirectory::new();
    let (hot, cold) = (name("hot"), name("cold"));
    let (catalog, _) = small_catalog(&directory, 8);
    load(&catalog, &hot, LoadMode::Create, 0..400_000).unwrap();
    load(&catalog, &cold, LoadMode::Create, 0..ROWS).unwrap();
    let (_, table) = catalog.get(&tenant(), &hot).unwrap();
    for _ in 0..4 {
        for group in &table.row_groups {
            drop(filled(group));
            group.chunks.iter().for_each(|chunk| chunk.count_use());
        }
    }
    for _ in 0..3 {
        sum(&catalog, &cold);
    }
    assert_eq!(bytes_absent(&catalog, &hot), 0);
    assert!(bytes_absent(&catalog, &cold) > 0);
}

#[test]
fn damage_of_absent_values_is_an_error_that_names_the_place() {
    let directory = SimulatedDirectory::new();
    Bench::sized(directory.clone(), 0, LOG_BYTES).catalog.close().unwrap();
    let t = name("t");
    let (catalog, _) = small_catalog(&directory, 8);
    load(&catalog, &t, LoadMode::Create, 0..200_000).unwrap();
    catalog.close().unwrap();
    let segment = directory.names().unwrap().into_iter().find(|name| name.starts_with("segment")).unwrap();
    let bytes = directory.open(&segment).unwrap().bytes().unwrap() as usize;
    let (mut damaged, mut refused) = (0, 0);
    for at in (0..bytes).step_by(bytes / 97) {
        let copy = without_reserve(&directory);
        copy.flip(&segment, at, 4);
        let pool = Pool::new(PoolConfig { bytes_limit: 8 * limits::PAGE_BYTES }).unwrap();
        let catalog = Arc::new(Catalog::new(pool, Arc::new(Two), Arc::new(Deferred::default())));
        catalog.close_taps();
        if let Err(error) = catalog.open(copy, 7) {
            assert!(error.message.contains(&segment), "{error}");
            refused += 1;
            continue;
        }
        let (_, table) = catalog.get(&tenant(), &t).unwrap();
        let mut first = 0;
        for group in &table.row_groups {
            let filled = filled(group);
            for chunk in &filled.chunks {
                if let Err(error) = chunk.decode(0..group.rows) {
                    assert!(error.kind == ErrorKind::Corrupt && error.message.contains(&segment), "{error}");
                    damaged += 1;
                }
            }
            if let Ok(values) = filled.chunks[0].decode(0..group.rows) {
                let expected = first..first + group.rows as i64;
                assert!(values.as_primitive::<Int64Type>().iter().eq(expected.map(Some)));
            }
            first += group.rows as i64;
        }
    }
    assert!(damaged > 60 && refused > 0, "{damaged} of 97 damaged, {refused} refused");
}

#[test]
fn a_trace_has_what_was_read_and_used_and_is_bounded() {
    let directory = SimulatedDirectory::new();
    let t = name("t");
    let (catalog, _) = small_catalog(&directory, 64);
    load(&catalog, &t, LoadMode::Create, 0..400_000).unwrap();
    catalog.close().unwrap();
    drop(catalog);
    let traced = |len_limit: usize| {
        let pool = Pool::new(PoolConfig { bytes_limit: 64 * limits::PAGE_BYTES }).unwrap();
        let catalog = Catalog::new(pool, Arc::new(Two), Arc::new(Deferred::default()));
        let trace = Arc::new(AccessTrace::new(len_limit));
        let catalog = Arc::new(catalog.with_trace(Some(trace.clone())));
        catalog.open(encrypted::opened(&directory).unwrap(), 7).unwrap();
        let (_, table) = catalog.get(&tenant(), &t).unwrap();
        let group = table.row_groups[3].clone();
        for _ in 0..2 {
            drop(filled(&group));
            group.chunks.iter().for_each(|chunk| chunk.count_use());
        }
        (catalog, trace, group)
    };
    let (catalog, trace, group) = traced(100);
    let handles: Vec<&Arc<Chunk>> = group.chunks.iter().filter(|chunk| chunk.is_handle()).collect();
    let of = |kind: AccessKind| {
        let access = move |handle: &&Arc<Chunk>| Access {
            chunk: Location::existing(handle).unwrap().number,
            kind,
            bytes: handle.bytes_encoded(),
            bytes_on_disk: handle.bytes_on_disk(),
        };
        handles.iter().map(access).collect::<Vec<_>>()
    };
    let used = of(AccessKind::Used);
    assert!(!handles.is_empty());
    let recorded = trace.take();
    assert_eq!(recorded.accesses, [of(AccessKind::Read), used.clone(), used].concat());
    assert_eq!((recorded.lost, trace.take().accesses.len()), (0, 0));
    let mut places: Vec<PlaceOnDisk> =
        handles.iter().map(|handle| place_on_disk(handle).expect("it is in a segment")).collect();
    places.sort_by_key(|place| place.offset);
    let end = directory.open(&places[0].file).unwrap().bytes().unwrap();
    assert!(places.windows(2).all(|two| two[0].offset + two[0].bytes <= two[1].offset));
    assert!(places.iter().all(|place| place.bytes > 0 && place.offset + place.bytes < end));
    catalog.close().unwrap();
    drop((catalog, group));
    let (_, trace, _) = traced(2);
    let recorded = trace.take();
    assert_eq!((recorded.accesses.len(), recorded.lost), (2, 3 * places.len() as u64 - 2));
}

/// A reader of values that counts how often they arrive.
struct Counted(Arc<AtomicU64>);

impl ValueReader for Counted {
    fn is_waiting(&self) -> bool {
        true
    }

    fn arrived(self: Box<Self>, outcome: Result<HeldValues>) {
        drop(outcome.unwrap());
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A [`Background`] that reads from disk when a test says so. It writes at once, until it is told to queue writes,
/// too.
#[derive(Debug, Default)]
struct Later {
    reads: Mutex<Vec<Job>>,
    writes: Mutex<Vec<Job>>,
    defers_writes: AtomicBool,
}

impl Later {
    fn run(jobs: &Mutex<Vec<Job>>) -> usize {
        let jobs = std::mem::take(&mut *jobs.lock());
        let count = jobs.len();
        jobs.into_iter().for_each(|job| (job.0)());
        count
    }
}

impl Background for Later {
    fn submit(&self, _chore: Chore) {}

    fn rows_came(&self) {}

    fn read(&self, job: Box<dyn FnOnce() + Send>) {
        self.reads.lock().push(Job(job));
    }

    fn write(&self, job: Box<dyn FnOnce() + Send>) {
        match self.defers_writes.load(Ordering::Relaxed) {
            true => self.writes.lock().push(Job(job)),
            false => job(),
        }
    }
}

/// Creates a catalog over a new directory with a pool of `pages` pages. Also returns the background of the catalog.
fn waiting_catalog(pages: usize) -> (Arc<Catalog>, Arc<Later>) {
    let later = Arc::new(Later::default());
    let pool = Pool::new(PoolConfig { bytes_limit: pages * limits::PAGE_BYTES }).unwrap();
    let catalog = Arc::new(Catalog::new(pool, Arc::new(Two), later.clone()));
    catalog.close_taps();
    catalog.open(SimulatedDirectory::new(), 7).unwrap();
    (catalog, later)
}

/// Begins a load and buffers all its rows. Also returns a counter of how often the load is woken.
fn begun(catalog: &Arc<Catalog>, table: &TableName, rows: i64) -> (Load, Arc<AtomicU64>) {
    let options = LoadMode::Create.into();
    let mut load = catalog.begin_load(&tenant(), table, &batch(0..0).schema(), options, None).unwrap();
    let woken = Arc::new(AtomicU64::new(0));
    let counted = woken.clone();
    load.set_wake(Arc::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    load.buffer(&batch(0..rows)).unwrap();
    load.complete();
    (load, woken)
}

/// Does all pieces of work that a load has ready.
fn work_on(load: &mut Load) -> Result<()> {
    while let Some(piece) = load.next_piece() {
        load.done(piece.run())?;
    }
    Ok(())
}

#[test]
fn a_load_waits_for_memory_that_others_have_in_use() {
    let (t, u) = (name("t"), name("u"));
    let (catalog, later) = waiting_catalog(8);
    load(&catalog, &t, LoadMode::Create, 0..ROWS).unwrap();
    let values_of = |table: &TableName| -> Vec<Arc<Chunk>> {
        let (_, table) = catalog.get(&tenant(), table).unwrap();
        table.row_groups.iter().flat_map(|group| &group.chunks).filter_map(|chunk| chunk.values()).collect()
    };
    let in_use = values_of(&t);
    let (mut waiting, woken) = begun(&catalog, &u, 1_000_000);
    work_on(&mut waiting).unwrap();
    assert!(waiting.is_waiting() && waiting.is_encoding() && !waiting.has_piece());
    assert_eq!(woken.load(Ordering::Relaxed), 0);
    drop(in_use);
    while waiting.is_waiting() {
        assert!(Later::run(&later.reads) > 0);
        assert!(waiting.has_piece() && woken.load(Ordering::Relaxed) > 0);
        work_on(&mut waiting).unwrap();
        if !waiting.is_waiting() && waiting.seal() {
            work_on(&mut waiting).unwrap();
        }
    }
    waiting.publish().unwrap().wait().unwrap();
    assert_eq!(catalog.info(&tenant(), &u).unwrap().rows, 1_000_000);
    // If memory stays full, the load gives up after a bounded number of retries.
    let piece = || catalog.pool().allocate_piece(&tenant(), 1 << 10, Tenure::Passing).ok();
    let in_use: Vec<_> = std::iter::from_fn(piece).collect();
    let (mut hopeless, _) = begun(&catalog, &name("v"), ROWS);
    work_on(&mut hopeless).unwrap();
    assert!(hopeless.is_waiting());
    let mut turns = 0;
    // Other reads proceed between the retries of the load.
    while Later::run(&later.reads) > 0 {
        turns += 1;
    }
    assert!(turns > 10, "{turns}");
    let error = work_on(&mut hopeless).unwrap_err();
    assert!(error.kind == ErrorKind::OverLimit && error.to_string().contains("in use"), "{error}");
    assert!(!hopeless.is_waiting() && !hopeless.seal());
    hopeless.publish().unwrap_err();
    // A load that was dropped is not retried any more.
    let (mut gone, _) = begun(&catalog, &name("v"), ROWS);
    work_on(&mut gone).unwrap();
    drop(gone);
    let begin = Instant::now();
    assert!(Later::run(&later.reads) > 0);
    assert!(begin.elapsed() < Duration::from_millis(500));
    drop(in_use);
}

#[test]
fn a_load_waits_for_the_disk_elsewhere_and_does_not_run_ahead_of_it() {
    let t = name("t");
    let (catalog, later) = waiting_catalog(8);
    later.defers_writes.store(true, Ordering::Relaxed);
    let (mut loading, woken) = begun(&catalog, &t, ROWS);
    let mut stops = 0;
    loop {
        work_on(&mut loading).unwrap();
        if !loading.seal() {
            break;
        }
        stops += 1;
        assert!(!loading.has_piece() && !later.writes.lock().is_empty());
        let before = woken.load(Ordering::Relaxed);
        let jobs = Later::run(&later.writes) as u64;
        assert_eq!(woken.load(Ordering::Relaxed) - before, jobs);
    }
    // The load stops to wait for the last segment, and several times because too many segments are not durable yet.
    assert!(stops > 2, "{stops}");
    later.defers_writes.store(false, Ordering::Relaxed);
    loading.publish().unwrap().wait().unwrap();
    assert_eq!(catalog.info(&tenant(), &t).unwrap().rows, ROWS as u64);
}

#[test]
fn values_that_two_want_are_read_once() {
    let directory = SimulatedDirectory::new();
    let t = name("t");
    let (catalog, _) = small_catalog(&directory, 8);
    load(&catalog, &t, LoadMode::Create, 0..200_000).unwrap();
    catalog.close().unwrap();
    let later = Arc::new(Later::default());
    let pool = Pool::new(PoolConfig { bytes_limit: 8 * limits::PAGE_BYTES }).unwrap();
    let catalog = Arc::new(Catalog::new(pool, Arc::new(Two), later.clone()));
    catalog.open(directory, 7).unwrap();
    let (_, table) = catalog.get(&tenant(), &t).unwrap();
    let absent: Vec<Arc<Chunk>> =
        table.row_groups[0].chunks.iter().filter(|chunk| chunk.is_absent()).cloned().collect();
    let arrived = Arc::new(AtomicU64::new(0));
    for _ in 0..3 {
        farpool_columns::fetch(absent.clone(), Box::new(Counted(arrived.clone())));
    }
    let jobs = std::mem::take(&mut *later.reads.lock());
    assert_eq!((jobs.len(), arrived.load(Ordering::Relaxed)), (absent.len(), 0));
    jobs.into_iter().for_each(|job| (job.0)());
    assert_eq!(arrived.load(Ordering::Relaxed), 3);
    assert!(absent.iter().all(|chunk| !chunk.is_absent()));
}

#[test]
fn a_tenant_that_scans_leaves_others_what_they_have() {
    let directory = SimulatedDirectory::new();
    let t = name("t");
    let other = TenantName::new("other").unwrap();
    let (catalog, _) = small_catalog(&directory, 16);
    let fill = |tenant: &TenantName, rows: i64| {
        let mut load =
            catalog.begin_load(tenant, &t, &batch(0..0).schema(), LoadMode::Create.into(), None).unwrap();
        for first in (0..rows).step_by(100_000) {
            load.push(&batch(first..rows.min(first + 100_000))).unwrap();
        }
        load.commit().unwrap();
    };
    fill(&other, 400_000);
    fill(&tenant(), 2 * ROWS);
    // Values of the other tenant are evicted neither by a scan that finds the pool full nor by one that has exhausted
    // its tenant's quota.
    for quota in [None, Some(6 * limits::PAGE_BYTES)] {
        catalog.pool().set_quota(&tenant(), quota);
        for _ in 0..2 {
            assert_eq!(sum(&catalog, &t), ROWS * (2 * ROWS - 1));
        }
        let (_, table) = catalog.get(&other, &t).unwrap();
        assert!(table.row_groups.iter().flat_map(|group| &group.chunks).all(|chunk| !chunk.is_absent()));
        assert!(bytes_absent(&catalog, &t) > 0);
    }
}

#[test]
fn a_tenant_has_no_more_on_disk_than_its_quota() {
    let directory = SimulatedDirectory::new();
    let (t, u) = (name("t"), name("u"));
    let (catalog, _) = small_catalog(&directory, 16);
    let made = load(&catalog, &t, LoadMode::Create, 0..200_000).unwrap();
    catalog.set_disk_quota(&tenant(), Some(made.bytes_encoded * 3 / 2));
    // A load that would exceed the disk quota ends and leaves no rows; so does an append.
    let mut begun =
        catalog.begin_load(&tenant(), &u, &batch(0..0).schema(), LoadMode::Create.into(), None).unwrap();
    let pushed = (0..40).try_for_each(|part| begun.push(&batch(part * 100_000..(part + 1) * 100_000)));
    let error = pushed.unwrap_err();
    assert!(error.kind == ErrorKind::OverLimit && error.message.contains("on disk"), "{error}");
    drop(begun);
    let append = load(&catalog, &t, LoadMode::Append, 0..150_000).unwrap_err();
    assert_eq!(append.kind, ErrorKind::OverLimit);
    let info = catalog.info(&tenant(), &t).unwrap();
    assert_eq!((info.rows, info.bytes_encoded), (200_000, made.bytes_encoded));
    // A load within the quota succeeds. So does one that exceeds the quota but makes a table smaller.
    load(&catalog, &u, LoadMode::Create, 0..50_000).unwrap();
    catalog.set_disk_quota(&tenant(), Some(1));
    load(&catalog, &t, LoadMode::Replace, 0..100).unwrap();
    load(&catalog, &t, LoadMode::Append, 0..100_000).unwrap_err();
    catalog.set_disk_quota(&tenant(), None);
    load(&catalog, &t, LoadMode::Append, 0..100_000).unwrap();
}

#[test]
fn loads_that_end_at_once_share_the_quota() {
    const LOADS: usize = 4;
    for _ in 0..20 {
        let (catalog, _) = small_catalog(&SimulatedDirectory::new(), 16);
        let bytes = load(&catalog, &name("t"), LoadMode::Create, 0..2000).unwrap().bytes_encoded;
        // The quota has room for one of two loads beside the first table, but not for both.
        catalog.set_disk_quota(&tenant(), Some(bytes * 5 / 2));
        let ready = std::sync::Barrier::new(LOADS);
        let (catalog, ready) = (&catalog, &ready);
        let made = std::thread::scope(|scope| {
            let begin = |number| {
                move || {
                    ready.wait();
                    load(catalog, &name(&format!("t{number}")), LoadMode::Create, 0..2000).is_ok()
                }
            };
            let loads: Vec<_> = (0..LOADS).map(|number| scope.spawn(begin(number))).collect();
            loads.into_iter().map(|load| load.join().unwrap()).filter(|made| *made).count()
        });
        assert_eq!(made, 1);
    }
}

#[test]
fn handles_that_are_gone_are_forgotten() {
    let directory = SimulatedDirectory::new();
    let t = name("t");
    let (catalog, _) = small_catalog(&directory, 64);
    let durable = catalog.durable.get().unwrap().clone();
    load(&catalog, &t, LoadMode::Create, 0..200_000).unwrap();
    let of_one = durable.reads.cache.entries();
    assert!(of_one > 3);
    for _ in 0..400 {
        // Creates and drops as many handles (chunks whose values may be evicted) as a load has.
        let (_, table) = catalog.get(&tenant(), &t).unwrap();
        for chunk in table.row_groups.iter().flat_map(|group| &group.chunks).filter(|chunk| chunk.is_handle())
        {
            let values = chunk.values().unwrap();
            let copy = Chunk::handle(values, &durable.reads.source(&tenant()));
            durable.reads.cache.add(&copy, u64::MAX);
        }
    }
    assert!(durable.reads.cache.entries() < 400 * of_one && durable.reads.cache.entries() < 1100);
    assert_eq!(sum(&catalog, &t), 200_000 * 199_999 / 2);
}

fn staying(mode: LoadMode, residency: Residency) -> LoadOptions {
    LoadOptions { residency, ..mode.into() }
}

#[test]
fn pinned_tables_stay_in_memory() {
    let directory = SimulatedDirectory::new();
    let (t, u, small) = (name("t"), name("u"), name("small"));
    let (mut catalog, _) = small_catalog(&directory, 8);
    // The table takes about 6 MiB of a pool of 16 MiB.
    let pinned = staying(LoadMode::Create, Residency::Pinned);
    let made = load(&catalog, &t, pinned, 0..ROWS / 4).unwrap();
    assert!(made.is_pinned && made.bytes_encoded > 2 << 20, "{}", made.bytes_encoded);
    let refused = load(&catalog, &u, pinned, 0..ROWS).unwrap_err();
    assert!(
        refused.kind == ErrorKind::OverLimit && refused.message.contains("cannot be pinned"),
        "{refused}"
    );
    load(&catalog, &u, LoadMode::Create, 0..ROWS).unwrap();
    let refused = load(&catalog, &u, staying(LoadMode::Append, Residency::Pinned), 0..10).unwrap_err();
    assert!(refused.kind == ErrorKind::Invalid && refused.message.contains("is not pinned"), "{refused}");
    // Rows that are appended to a pinned table, or changed in it, are pinned, too.
    load(&catalog, &t, LoadMode::Append, 0..70_000).unwrap();
    load(&catalog, &small, LoadMode::Create, 0..10).unwrap();
    let expected = |rows: i64| rows * (rows - 1) / 2;
    for _ in 0..2 {
        let tables = catalog.tables(&tenant());
        let flags: Vec<bool> = tables.iter().map(|table| table.is_pinned).collect();
        assert_eq!(flags, [false, true, false], "small, t, u");
        assert_eq!(sum(&catalog, &t), expected(ROWS / 4) + expected(70_000));
        for _ in 0..2 {
            assert_eq!(sum(&catalog, &u), expected(ROWS));
            assert_eq!(bytes_absent(&catalog, &t), 0);
        }
        assert!(bytes_absent(&catalog, &u) > 0);
        catalog.close().unwrap();
        (catalog, _) = small_catalog(&directory, 8);
    }
}

#[test]
fn a_load_that_is_not_kept_leaves_memory() {
    let directory = SimulatedDirectory::new();
    let t = name("t");
    let (catalog, _) = small_catalog(&directory, 64);
    let made = load(&catalog, &t, staying(LoadMode::Create, Residency::Passing), 0..ROWS).unwrap();
    let absent = bytes_absent(&catalog, &t) as u64;
    assert!(absent > made.bytes_encoded / 10 * 9, "{absent} of {}", made.bytes_encoded);
    assert_eq!(sum(&catalog, &t), ROWS * (ROWS - 1) / 2);
    assert_eq!(bytes_absent(&catalog, &t), 0, "what was read is cached");
    // Without a data directory, these residencies are refused, because evicted rows could not be read again.
    let (catalog, _) = new_catalog();
    for residency in [Residency::Pinned, Residency::Passing] {
        let refused = load(&catalog, &t, staying(LoadMode::Create, residency), 0..10).unwrap_err();
        assert!(
            refused.kind == ErrorKind::Invalid && refused.message.contains("no data directory"),
            "{refused}"
        );
    }
}
