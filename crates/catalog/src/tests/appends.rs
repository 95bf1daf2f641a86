//! Tests of small appends to a table: appends share versions, each has its own outcome, and their row groups are
//! merged in the background.

use super::taps::Held;
use super::*;
use farpool_memory::Failures;
use parking_lot::Mutex;
use proptest::prelude::*;

/// An allocation hook that fails all allocations while the flag is set.
#[derive(Debug, Default)]
struct Failing(AtomicBool);

impl Failures for Failing {
    fn next_fails(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn with(failures: Option<Arc<dyn Failures>>, work: Option<Arc<WorkMemory>>) -> (Arc<Held>, Arc<Catalog>) {
    let held = Arc::new(Held::default());
    let pool = Pool::failing(PoolConfig { bytes_limit: 256 << 20 }, failures).unwrap();
    let mut catalog = Catalog::new(pool, Arc::new(Two), held.clone());
    catalog.close_taps();
    if let Some(work) = work {
        catalog = catalog.within(work);
    }
    (held, Arc::new(catalog))
}

/// Returns an append of `rows` that waits in the queue of the table.
fn in_line(catalog: &Arc<Catalog>, rows: std::ops::Range<i64>) -> Append {
    let mut load = begin(catalog, "t", LoadMode::Append).unwrap();
    load.buffer(&batch(rows)).unwrap();
    load.complete();
    assert!(!load.has_piece(), "few rows are not encoded alone");
    load.append(Box::new(|| {})).unwrap()
}

fn groups(catalog: &Catalog) -> Vec<usize> {
    let (_, table) = catalog.get(&tenant(), &name("t")).unwrap();
    table.row_groups.iter().map(|group| group.rows).collect()
}

fn version(catalog: &Catalog) -> Version {
    catalog.get(&tenant(), &name("t")).unwrap().0
}

#[test]
fn those_in_line_become_one_version_and_one_row_group() {
    let (_, catalog) = with(None, None);
    load(&catalog, "t", LoadMode::Create, 0..10).unwrap();
    let appends: Vec<Append> = (0..5).map(|i| in_line(&catalog, 10 + 2 * i..12 + 2 * i)).collect();
    assert_eq!(groups(&catalog), [10]);
    let infos: Vec<TableInfo> = appends.iter().map(|append| append.try_commit().unwrap().unwrap()).collect();
    assert!(
        infos.iter().all(|info| *info == infos[0] && info.rows == 20 && info.version == version(&catalog))
    );
    assert_eq!(groups(&catalog), [10, 10]);
    assert_eq!(ids(&catalog, "t"), (0..20).collect::<Vec<_>>());
}

#[test]
fn one_that_fails_fails_alone() {
    let (_, catalog) = with(None, None);
    let required = |rows: std::ops::Range<i64>| {
        let schema = Schema::new(vec![Field::new("id", DataType::Int64, false)]);
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(rows));
        RecordBatch::try_new(Arc::new(schema), vec![ids]).unwrap()
    };
    let nulls: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(1)]));
    let nulls = RecordBatch::try_from_iter_with_nullable([("id", nulls, true)]).unwrap();
    let begin = |mode: LoadMode, rows: &RecordBatch| {
        let mut load = catalog.begin_load(&tenant(), &name("t"), &rows.schema(), mode.into(), None).unwrap();
        load.push(rows).unwrap();
        load.complete();
        load
    };
    begin(LoadMode::Create, &required(0..1)).commit().unwrap();
    let append = |rows: &RecordBatch| begin(LoadMode::Append, rows).append(Box::new(|| {})).unwrap();
    let (first, wrong, last) = (append(&required(1..2)), append(&nulls), append(&required(2..3)));
    assert_eq!(first.try_commit().unwrap().unwrap().rows, 3);
    assert_eq!(wrong.try_commit().unwrap().unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(last.try_commit().unwrap().unwrap().rows, 3);
    assert_eq!(ids(&catalog, "t"), [0, 1, 2]);
}

#[test]
fn without_memory_each_is_told_and_nothing_is_visible() {
    let failing = Arc::new(Failing::default());
    let (_, catalog) = with(Some(failing.clone()), None);
    load(&catalog, "t", LoadMode::Create, 0..1).unwrap();
    let appends = [in_line(&catalog, 1..2), in_line(&catalog, 2..3)];
    failing.0.store(true, Ordering::Relaxed);
    let before = version(&catalog);
    for append in &appends {
        assert_eq!(append.try_commit().unwrap().unwrap_err().kind, ErrorKind::OverLimit);
    }
    failing.0.store(false, Ordering::Relaxed);
    assert_eq!((version(&catalog), ids(&catalog, "t")), (before, vec![0]));
    load(&catalog, "t", LoadMode::Append, 3..4).unwrap();
    assert_eq!(ids(&catalog, "t"), [0, 3]);
}

#[test]
fn who_leaves_the_line_leaves_it_to_the_next() {
    let (_, catalog) = with(None, None);
    load(&catalog, "t", LoadMode::Create, 0..1).unwrap();
    let gone = in_line(&catalog, 1..2);
    let woken = Arc::new(Mutex::new(0));
    let mut next = begin(&catalog, "t", LoadMode::Append).unwrap();
    next.buffer(&batch(2..3)).unwrap();
    next.complete();
    let counter = woken.clone();
    let next = next.append(Box::new(move || *counter.lock() += 1)).unwrap();
    drop(gone);
    assert!(*woken.lock() > 0 && next.has_step());
    next.commit().unwrap();
    assert_eq!(ids(&catalog, "t"), [0, 2]);
    // The table is dropped while an append waits in its queue.
    let late = in_line(&catalog, 5..6);
    catalog.drop_table(&tenant(), &name("t")).unwrap().wait().unwrap();
    assert_eq!(late.commit().unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(bytes_used(&catalog), 0);
}

#[test]
fn many_threads_append_one_row_at_a_time() {
    let catalog = roomy();
    load(&catalog, "t", LoadMode::Create, 0..0).unwrap();
    let first = version(&catalog);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let catalog = &catalog;
            scope.spawn(move || {
                for i in 0..100 {
                    let id = thread * 100 + i;
                    let info = load(catalog, "t", LoadMode::Append, id..id + 1).unwrap();
                    assert!(info.rows > 0 && ids(catalog, "t").contains(&id), "told before it is visible");
                }
            });
        }
    });
    let mut all = ids(&catalog, "t");
    all.sort_unstable();
    assert!(all.into_iter().eq(0..800));
    assert!(version(&catalog).0 - first.0 <= 800);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Random appends, merge steps of any length, and failing allocations, compared with a list of rows. Readers keep
    /// the version that they have got.
    #[test]
    fn merges_change_neither_rows_nor_versions(
        steps in prop::collection::vec((0..10_u8, 1..300_usize), 1..120), fails in any::<bool>(),
    ) {
        let failing = Arc::new(Failing::default());
        let work = WorkMemory::new(64 << 20);
        let (held, catalog) = with(Some(failing.clone()), Some(work.clone()));
        load(&catalog, "t", LoadMode::Create, 0..3).unwrap();
        let mut rows = 3;
        let mut readers = Vec::new();
        for (kind, size) in steps {
            failing.0.store(fails && kind == 9, Ordering::Relaxed);
            match kind {
                0..5 => {
                    let end = rows + if kind == 0 { size as i64 } else { 1 + size as i64 % 3 };
                    load(&catalog, "t", LoadMode::Append, rows..end).unwrap();
                    rows = end;
                }
                5 => readers.push((catalog.get(&tenant(), &name("t")).unwrap(), rows)),
                6 => drop((!readers.is_empty()).then(|| readers.swap_remove(size % readers.len()))),
                _ => {
                    let before = version(&catalog);
                    for _ in 0..size % 4 {
                        held.step(&|| size % 2 == 0);
                    }
                    prop_assert_eq!(version(&catalog), before);
                }
            }
        }
        failing.0.store(false, Ordering::Relaxed);
        // A merge that failed is retried after the next append.
        load(&catalog, "t", LoadMode::Append, rows..rows + 1).unwrap();
        while held.step(&|| true) {}
        rows += 1;
        prop_assert_eq!(ids(&catalog, "t"), (0..rows).collect::<Vec<_>>());
        let info = catalog.info(&tenant(), &name("t")).unwrap();
        prop_assert_eq!((info.rows, groups(&catalog).iter().sum::<usize>()), (rows as u64, rows as usize));
        // The row group of the rows with which the table was created is not merged.
        prop_assert!(groups(&catalog).len() <= 1 + limits::SMALL_GROUPS_MAX, "{:?}", groups(&catalog));
        load(&catalog, "whole", LoadMode::Create, 0..rows).unwrap();
        let whole = catalog.info(&tenant(), &name("whole")).unwrap();
        for (ours, whole) in info.columns.iter().zip(&whole.columns) {
            let told = |column: &farpool_model::ColumnStatistics| {
                (column.min.clone(), column.max.clone(), column.null_count, column.distinct_count)
            };
            prop_assert_eq!(told(ours), told(whole));
        }
        for ((_, table), rows) in &readers {
            let decoded = table.row_groups.iter().map(|group| {
                group.chunks[0].decode(0..group.rows).unwrap().as_primitive::<Int64Type>().values().to_vec()
            });
            prop_assert_eq!(decoded.flatten().collect::<Vec<_>>(), (0..*rows).collect::<Vec<_>>());
        }
        drop(readers);
        for table in ["t", "whole"] {
            catalog.drop_table(&tenant(), &name(table)).unwrap().wait().unwrap();
        }
        prop_assert_eq!((bytes_used(&catalog), work.usage().bytes_used), (0, 0));
    }
}

#[test]
fn without_background_appends_do_the_merges() {
    let (_, catalog) = with(None, None);
    load(&catalog, "t", LoadMode::Create, 0..0).unwrap();
    let mut most = 0;
    for id in 0..2_000 {
        load(&catalog, "t", LoadMode::Append, id..id + 1).unwrap();
        most = most.max(groups(&catalog).len());
    }
    assert!(most <= limits::MERGES_BEHIND_MAX + 4, "{most} row groups");
    assert_eq!(ids(&catalog, "t"), (0..2_000).collect::<Vec<_>>());
}

#[test]
fn only_merged_rows_are_profiled_before_somebody_asks() {
    let (held, catalog) = Held::catalog();
    load(&catalog, "t", LoadMode::Create, 0..10_000).unwrap();
    while held.step(&|| true) {}
    let told = || catalog.info(&tenant(), &name("t")).unwrap();
    assert_eq!(told().rows_profiled, None);
    load(&catalog, "t", LoadMode::Append, 10_000..10_100).unwrap();
    while held.step(&|| true) {}
    assert_eq!(told().rows_profiled, Some(10_000));
    assert!(told().columns[0].spread.is_some(), "that of most rows stands for all");
    // A request for statistics computes the profile of all rows. The next request returns the same.
    let statistics = catalog.statistics(&tenant(), &name("t")).unwrap();
    assert_eq!((statistics.table.rows_profiled, statistics.table.rows), (None, 10_100));
    assert_eq!(told().rows_profiled, None);
    // Further appends, so that a merge produces a row group that is too large to be merged again.
    let rows = limits::LARGE_GROUP_ROWS as i64 / 2;
    for i in 0..4 {
        load(&catalog, "t", LoadMode::Append, 10_100 + i * rows..10_100 + (i + 1) * rows).unwrap();
    }
    assert_eq!(told().rows_profiled, Some(10_000));
    assert!(told().columns[0].spread.is_none());
    while held.step(&|| true) {}
    let merged = 10_100 + 3 * rows as u64;
    assert_eq!((told().rows_profiled, told().rows), (Some(merged), merged + rows as u64));
}

#[test]
fn a_table_that_is_dropped_with_merges_to_do_leaves_nothing_to_the_background() {
    let (held, catalog) = with(None, None);
    load(&catalog, "t", LoadMode::Create, 0..1).unwrap();
    (1..30).for_each(|row| drop(load(&catalog, "t", LoadMode::Append, row..row + 1).unwrap()));
    catalog.drop_table(&tenant(), &name("t")).unwrap().wait().unwrap();
    let steps = (0..100).take_while(|_| held.step(&|| true)).count();
    assert!((1..100).contains(&steps), "{steps} steps");
}

#[test]
fn a_merge_that_found_the_pool_full_is_tried_again_when_there_is_more_room() {
    let failing = Arc::new(Failing::default());
    let (held, catalog) = with(Some(failing.clone()), None);
    load(&catalog, "t", LoadMode::Create, 0..10).unwrap();
    let large = noise(600_000, 1);
    let mut other =
        catalog.begin_load(&tenant(), &name("u"), &large.schema(), LoadMode::Create.into(), None).unwrap();
    other.push(&large).unwrap();
    other.commit().unwrap();
    for i in 0..=limits::SMALL_GROUPS_MAX as i64 {
        load(&catalog, "t", LoadMode::Append, 10 + i..11 + i).unwrap();
    }
    let before = groups(&catalog);
    let merging = held.take_oldest();
    failing.0.store(true, Ordering::Relaxed);
    let free = catalog.pool.bytes_free(&tenant());
    // A merge that found the pool full is not encoded again as long as nothing changes.
    while merging.step(&|| true) == StepOutcome::Worked {}
    failing.0.store(false, Ordering::Relaxed);
    for _ in 0..3 {
        assert_eq!(merging.step(&|| true), StepOutcome::Lacked);
    }
    assert_eq!((groups(&catalog), catalog.pool.bytes_free(&tenant())), (before, free));
    catalog.drop_table(&tenant(), &name("u")).unwrap().wait().unwrap();
    while merging.step(&|| true) == StepOutcome::Worked {}
    merging.leave();
    assert!(groups(&catalog).len() <= 2, "{:?}", groups(&catalog));
    assert_eq!(ids(&catalog, "t").len(), 11 + limits::SMALL_GROUPS_MAX);
}
