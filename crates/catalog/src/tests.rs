//! Tests of loads and of the table versions that they create, and that memory is freed however a load ends.

#![expect(clippy::disallowed_methods, reason = "a test has threads of its own")]

mod alters;
mod appends;
mod changes;
mod claims;
mod lacking;
mod schemas;
mod taps;
mod views;

use super::*;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray, cast::AsArray, types::Int64Type};
use arrow_schema::{DataType, Field, Schema};
use farpool_memory::PoolConfig;
pub(super) use farpool_model::LoadMode;
use farpool_model::limits::{PAGE_BYTES, ROW_GROUP_ROWS};
use farpool_model::{Error, ErrorKind, limits};
use std::collections::BTreeMap;
use std::time::Duration;

fn catalog(bytes_limit: usize) -> Arc<Catalog> {
    profiled_by(bytes_limit, Arc::new(Threads))
}

fn profiled_by(bytes_limit: usize, background: Arc<dyn Background>) -> Arc<Catalog> {
    Arc::new(Catalog::new(Pool::new(PoolConfig { bytes_limit }).unwrap(), Arc::new(Two), background))
}

/// A [`Background`] that runs each chore (background work on a table) at once, on a new thread.
#[derive(Debug)]
struct Threads;

impl Background for Threads {
    fn submit(&self, chore: Chore) {
        let work = move || {
            while chore.step(&|| true) == StepOutcome::Worked {}
            chore.leave();
        };
        std::thread::Builder::new().spawn(work).unwrap();
    }

    fn rows_came(&self) {}
}

/// [`HelperThreads`] of two threads: the caller's and one more.
#[derive(Debug)]
pub(super) struct Two;

impl HelperThreads for Two {
    fn threads_max(&self) -> usize {
        2
    }

    fn run(&self, threads: usize, work: &(dyn Fn() + Sync)) -> Result<()> {
        std::thread::scope(|scope| {
            (1..threads).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        Ok(())
    }
}

fn roomy() -> Arc<Catalog> {
    catalog(512 << 20)
}

pub(super) fn tenant() -> TenantName {
    TenantName::default()
}

pub(super) fn name(name: &str) -> TableName {
    TableName::new(name).unwrap()
}

fn bytes_used(catalog: &Catalog) -> u64 {
    catalog.pool().usage().bytes_used
}

/// Blocks until at most `bytes` of the pool are used. Polls, because a worker may still hold a column for a profile
/// that was dropped.
fn await_free(catalog: &Catalog, bytes: u64) {
    for _ in 0..60_000 {
        if bytes_used(catalog) <= bytes {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{} bytes are held", bytes_used(catalog));
}

pub(super) fn batch(rows: std::ops::Range<i64>) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.clone()));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(rows.map(|i| format!("row {i}"))));
    RecordBatch::try_from_iter([("id", ids), ("text", texts)]).unwrap()
}

fn begin(catalog: &Arc<Catalog>, table: &str, mode: LoadMode) -> Result<Load> {
    catalog.begin_load(&tenant(), &name(table), &batch(0..0).schema(), mode.into(), None)
}

fn load(
    catalog: &Arc<Catalog>,
    table: &str,
    mode: LoadMode,
    rows: std::ops::Range<i64>,
) -> Result<TableInfo> {
    let mut load = begin(catalog, table, mode)?;
    load.push(&batch(rows))?;
    load.commit()
}

fn ids(catalog: &Catalog, table: &str) -> Vec<i64> {
    let (_, table) = catalog.get(&tenant(), &name(table)).unwrap();
    table.row_groups.iter().flat_map(|group| ids_of(group)).collect()
}

fn ids_of(group: &farpool_columns::RowGroup) -> Vec<i64> {
    let ids = group.chunks[0].decode(0..group.rows).unwrap();
    ids.as_primitive::<Int64Type>().values().to_vec()
}

#[test]
fn small_tables_share_pages_with_their_profiles() {
    let catalog = roomy();
    let table = |number: usize| format!("table {number}");
    for number in 0..1_000 {
        load(&catalog, &table(number), LoadMode::Create, 0..10).unwrap();
        catalog.statistics(&tenant(), &name(&table(number))).unwrap();
    }
    assert!(bytes_used(&catalog) < 16 << 20, "{} bytes", bytes_used(&catalog));
    (0..1_000)
        .for_each(|number| catalog.drop_table(&tenant(), &name(&table(number))).unwrap().wait().unwrap());
    await_free(&catalog, 0);
}

#[test]
fn create_append_replace_drop() {
    let catalog = roomy();
    let created = load(&catalog, "t", LoadMode::Create, 0..10).unwrap();
    assert_eq!((created.rows, created.name.as_str()), (10, "t"));
    let error = load(&catalog, "t", LoadMode::Create, 0..1).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Exists);
    let appended = load(&catalog, "t", LoadMode::Append, 10..25).unwrap();
    assert!(appended.version > created.version);
    assert_eq!(ids(&catalog, "t"), (0..25).collect::<Vec<_>>());
    let replaced = load(&catalog, "t", LoadMode::Replace, 90..95).unwrap();
    assert!(replaced.version > appended.version);
    assert_eq!(ids(&catalog, "t"), (90..95).collect::<Vec<_>>());
    let listed: Vec<_> =
        catalog.tables(&tenant()).into_iter().map(|info| (info.name, info.version)).collect();
    assert_eq!(listed, [(name("t"), replaced.version)]);
    assert_eq!(catalog.tenant_names(), [tenant()]);
    catalog.drop_table(&tenant(), &name("t")).unwrap().wait().unwrap();
    await_free(&catalog, 0);
    assert!(catalog.tenant_names().is_empty() && catalog.tables(&tenant()).is_empty());
    let recreated = load(&catalog, "t", LoadMode::Replace, 0..3).unwrap();
    assert!(recreated.version > replaced.version, "versions grow even over a dropped table");
}

#[test]
fn a_version_is_replaced_only_while_it_stands() {
    let catalog = roomy();
    let first = load(&catalog, "t", LoadMode::Create, 0..10).unwrap().version;
    let second = load(&catalog, "t", LoadMode::ReplaceVersion(first), 5..7).unwrap().version;
    assert_eq!(ids(&catalog, "t"), [5, 6]);
    let refused = load(&catalog, "t", LoadMode::ReplaceVersion(first), 0..1).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Stale, "{refused}");
    assert!(refused.message.contains(&format!("at version {second}, not {first}")), "{refused}");

    // A replacement of a version that another load has replaced in the meantime.
    let mut late = begin(&catalog, "t", LoadMode::ReplaceVersion(second)).unwrap();
    late.push(&batch(0..1)).unwrap();
    load(&catalog, "t", LoadMode::Append, 7..8).unwrap();
    assert_eq!(late.commit().unwrap_err().kind, ErrorKind::Stale);
    assert_eq!(ids(&catalog, "t"), [5, 6, 7]);

    catalog.drop_table(&tenant(), &name("t")).unwrap().wait().unwrap();
    let gone = load(&catalog, "t", LoadMode::ReplaceVersion(second), 0..1).unwrap_err();
    assert_eq!(gone.kind, ErrorKind::NotFound, "{gone}");
}

#[test]
fn names_that_are_not_found_bring_the_closest() {
    let catalog = roomy();
    let orders = name("ordres");
    let error = catalog.get(&tenant(), &orders).unwrap_err();
    assert_eq!(
        (error.kind, error.advice.as_deref()),
        (ErrorKind::NotFound, Some("there are no tables yet: load one first"))
    );
    for table in ["customer", "orders", "part"] {
        load(&catalog, table, LoadMode::Create, 0..1).unwrap();
    }
    for error in [
        catalog.get(&tenant(), &orders).unwrap_err(),
        catalog.info(&tenant(), &orders).unwrap_err(),
        catalog.drop_table(&tenant(), &orders).unwrap_err(),
        begin(&catalog, "ordres", LoadMode::Append).unwrap_err(),
    ] {
        assert_eq!(error.kind, ErrorKind::NotFound);
        assert!(error.message.contains("ordres"));
        assert!(error.advice.unwrap().starts_with("there is: orders, "));
    }
    let other = TenantName::new("other").unwrap();
    assert_eq!(catalog.get(&other, &name("orders")).unwrap_err().kind, ErrorKind::NotFound);
}

#[test]
fn row_groups_keep_the_order_of_the_rows_with_any_number_of_workers() {
    let rows = 5 * ROW_GROUP_ROWS as i64 + 777;
    for workers in [1, 2, 3, 16] {
        let catalog = roomy();
        let mut load = begin(&catalog, "t", LoadMode::Create).unwrap();
        load.set_workers(workers);
        let mut start = 0;
        while start < rows {
            let end = (start + 30_011).min(rows);
            load.push(&batch(start..end)).unwrap();
            start = end;
        }
        let info = load.commit().unwrap();
        assert_eq!(info.rows, rows as u64);
        assert!(ids(&catalog, "t").into_iter().eq(0..rows), "{workers} workers");
        let (_, table) = catalog.get(&tenant(), &name("t")).unwrap();
        assert_eq!(table.row_groups.len(), 6);
        assert!(table.row_groups.iter().take(5).all(|group| group.rows == ROW_GROUP_ROWS));
    }
}

#[test]
fn an_old_version_lives_as_long_as_somebody_reads_it() {
    let catalog = roomy();
    load(&catalog, "t", LoadMode::Create, 0..1_000).unwrap();
    let (version, old) = catalog.get(&tenant(), &name("t")).unwrap();
    load(&catalog, "t", LoadMode::Replace, 0..1_000).unwrap();
    assert_ne!(catalog.get(&tenant(), &name("t")).unwrap().0, version);
    assert_eq!(old.rows, 1_000);
    assert_eq!(old.row_groups[0].chunks[0].decode(0..1_000).unwrap().len(), 1_000);
    let gone = Arc::downgrade(&old);
    drop(old);
    assert!(gone.upgrade().is_none());
}

#[test]
fn an_abandoned_load_gives_all_its_pages_back() {
    let catalog = roomy();
    let mut abandoned = begin(&catalog, "t", LoadMode::Create).unwrap();
    abandoned.push(&batch(0..300_000)).unwrap();
    assert!(bytes_used(&catalog) > 0);
    drop(abandoned);
    await_free(&catalog, 0);
    assert!(catalog.tables(&tenant()).is_empty());
}

#[test]
fn a_load_that_failed_stays_failed_and_leaves_nothing() {
    let catalog = roomy();
    let mut failing = begin(&catalog, "t", LoadMode::Create).unwrap();
    failing.push(&batch(0..100_000)).unwrap();
    let narrow = batch(0..5).project(&[0]).unwrap();
    let error = failing.push(&narrow).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    assert_eq!(failing.push(&batch(0..5)).unwrap_err(), error);
    assert_eq!(failing.commit().unwrap_err(), error);
    await_free(&catalog, 0);
    assert!(catalog.tables(&tenant()).is_empty());
}

/// Generates rows of random numbers, which no encoding compresses.
fn noise(rows: usize, seed: u64) -> RecordBatch {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as i64
    };
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(|_| next())));
    RecordBatch::try_from_iter([("id", ids)]).unwrap()
}

#[test]
fn a_table_that_does_not_fit_is_refused_and_leaves_nothing() {
    let catalog = catalog(3 * PAGE_BYTES);
    for rows_hint in [None, Some(40 * ROW_GROUP_ROWS as u64)] {
        let schema = noise(0, 1).schema();
        let mut load =
            catalog.begin_load(&tenant(), &name("t"), &schema, LoadMode::Create.into(), rows_hint).unwrap();
        let outcome = (0..40).try_for_each(|seed| load.push(&noise(ROW_GROUP_ROWS, seed)));
        let outcome = outcome.and_then(|()| load.commit().map(|_| ()));
        let error = outcome.unwrap_err();
        assert_eq!(error.kind, ErrorKind::OverLimit);
        assert!(error.message.contains("MiB"), "{error}");
        await_free(&catalog, 0);
    }
}

#[test]
fn appends_at_the_same_time_lose_nothing() {
    let catalog = roomy();
    load(&catalog, "t", LoadMode::Create, 0..10).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let catalog = &catalog;
            scope.spawn(move || {
                for i in 0..5 {
                    let start = 10 + (thread * 5 + i) * 100;
                    load(catalog, "t", LoadMode::Append, start..start + 100).unwrap();
                }
            });
        }
    });
    let mut ids = ids(&catalog, "t");
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..2_010));
    assert_eq!(catalog.info(&tenant(), &name("t")).unwrap().rows, 2_010);
}

#[test]
fn of_two_replacements_the_last_to_commit_stays() {
    let catalog = roomy();
    let mut first = begin(&catalog, "t", LoadMode::Replace).unwrap();
    let mut second = begin(&catalog, "t", LoadMode::Replace).unwrap();
    first.push(&batch(0..1)).unwrap();
    second.push(&batch(5..6)).unwrap();
    second.commit().unwrap();
    first.commit().unwrap();
    assert_eq!(ids(&catalog, "t"), [0]);
}

#[test]
fn a_replacement_without_room_says_what_both_versions_take() {
    let catalog = catalog(8 << 20);
    let replace = |mode: LoadMode, rows_hint, parts: u64| {
        let schema = noise(1, 1).schema();
        let mut load = catalog.begin_load(&tenant(), &name("t"), &schema, mode.into(), rows_hint)?;
        for part in 0..parts {
            load.push(&noise(100_000, part + 1))?;
        }
        load.commit()
    };
    // If there is no table to be replaced, the error does not mention a replacement.
    let error = replace(LoadMode::Replace, None, 20).unwrap_err();
    assert!(!error.message.contains("replace"), "{error}");
    let info = replace(LoadMode::Replace, None, 5).unwrap();
    for (mode, rows_hint, needed, advice) in [
        (LoadMode::Replace, None, "more than", "drop the table first"),
        (LoadMode::Replace, Some(2_000_000), "about", "drop the table first"),
        (LoadMode::ReplaceVersion(info.version), Some(2_000_000), "about", "drop other tables"),
    ] {
        let error = replace(mode, rows_hint, 20).unwrap_err();
        assert_eq!(error.kind, ErrorKind::OverLimit);
        let takes = format!("the table takes {}", farpool_memory::size_text(info.bytes_encoded));
        for part in [&takes, needed, "are free"] {
            assert!(error.message.contains(part), "{part:?} is not in {error}");
        }
        assert!(error.advice.as_ref().unwrap().contains(advice), "{error}");
    }
    assert_eq!(catalog.info(&tenant(), &name("t")).unwrap().version, info.version);
}

#[test]
fn an_append_whose_table_changed_its_columns_or_went_is_refused() {
    let catalog = roomy();
    load(&catalog, "t", LoadMode::Create, 0..10).unwrap();
    let mut late = begin(&catalog, "t", LoadMode::Append).unwrap();
    late.push(&batch(10..20)).unwrap();
    let other = noise(5, 1);
    let mut replace =
        catalog.begin_load(&tenant(), &name("t"), &other.schema(), LoadMode::Replace.into(), None).unwrap();
    replace.push(&other).unwrap();
    replace.commit().unwrap();
    assert_eq!(late.commit().unwrap_err().kind, ErrorKind::Invalid);

    load(&catalog, "u", LoadMode::Create, 0..10).unwrap();
    let late = begin(&catalog, "u", LoadMode::Append).unwrap();
    catalog.drop_table(&tenant(), &name("u")).unwrap().wait().unwrap();
    assert_eq!(late.commit().unwrap_err().kind, ErrorKind::NotFound);
}

#[test]
fn rows_that_do_not_fit_a_table_are_refused_with_the_column() {
    let catalog = roomy();
    load(&catalog, "t", LoadMode::Create, 0..10).unwrap();
    let refuse = |fields: Vec<Field>| {
        let begun =
            catalog.begin_load(&tenant(), &name("t"), &Schema::new(fields), LoadMode::Append.into(), None);
        let error = begun.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid);
        error.message
    };
    let id = Field::new("id", DataType::Int64, false);
    assert!(refuse(vec![id.clone()]).contains("2 columns"));
    assert!(refuse(vec![id.clone(), Field::new("txt", DataType::Utf8, true)]).contains("txt"));
    assert!(refuse(vec![id, Field::new("text", DataType::Date32, true)]).contains("Date32"));
}

#[test]
fn an_append_may_not_bring_nulls_where_the_table_has_none() {
    let catalog = roomy();
    load(&catalog, "t", LoadMode::Create, 0..10).unwrap();
    let (_, table) = catalog.get(&tenant(), &name("t")).unwrap();
    assert!(!table.schema.field(0).is_nullable(), "the batches of these tests have no NULLs");
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let rows = RecordBatch::try_from_iter_with_nullable([("id", ids, true), ("text", texts, false)]).unwrap();
    let mut load =
        catalog.begin_load(&tenant(), &name("t"), &rows.schema(), LoadMode::Append.into(), None).unwrap();
    load.push(&rows).unwrap();
    let error = load.commit().unwrap_err();
    assert!(error.kind == ErrorKind::Invalid && error.message.contains("\"id\""), "{error}");
}

#[test]
fn an_empty_table_is_a_table() {
    let catalog = roomy();
    assert_eq!(begin(&catalog, "t", LoadMode::Create).unwrap().commit().unwrap().rows, 0);
    assert_eq!(load(&catalog, "t", LoadMode::Append, 0..3).unwrap().rows, 3);
}
