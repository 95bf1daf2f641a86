//! Tests of runs (executions of programs) over tables whose values are loaded and evicted meanwhile, against the
//! same runs over tables in memory.
//!
//! A *handle* is a column chunk whose values may be evicted from memory and read again.

mod riders;

use super::*;
use crate::budget::Budget;
use crate::run::Step;
use crate::run::tests::{Ticking, bound, id_compares, int, random, sum_and_count_by_k, table_of};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use farpool_columns::{Encoder, PlainGroup, TableBuilder, ValueSource, table_cipher};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::{
    Aggregate, AggregateFunction, ArithmeticOp, CompareOp, Expr, NamedExpr, Output, TenantName, Tier,
};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::HashMap;

const GROUP_ROWS: i64 = 12_000;

/// A source of values in place of a disk: stores the values of all handles, and returns them when a test says so.
#[derive(Debug, Default)]
struct Shelf {
    tenant: TenantName,
    values: Mutex<HashMap<usize, Arc<Chunk>>>,
    handles: Mutex<Vec<Arc<Chunk>>>,
    requests: Mutex<Vec<Request>>,
    fetched: AtomicUsize,
}

struct Request {
    handles: Vec<Arc<Chunk>>,
    reader: Box<dyn ValueReader>,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("handles", &self.handles.len()).finish_non_exhaustive()
    }
}

impl ValueSource for Shelf {
    fn tenant(&self) -> &TenantName {
        &self.tenant
    }

    fn fetch(&self, handles: Vec<Arc<Chunk>>, reader: Box<dyn ValueReader>) {
        let is_awaited = |handle: &Arc<Chunk>| {
            let requests = self.requests.lock();
            requests.iter().any(|request| request.handles.iter().any(|awaited| Arc::ptr_eq(awaited, handle)))
        };
        let new: Vec<_> =
            handles.iter().filter(|handle| handle.is_absent() && !is_awaited(handle)).cloned().collect();
        reader.asked_first(&new);
        self.requests.lock().push(Request { handles, reader });
    }
}

impl Shelf {
    /// Answers a request for values. With `keeps`, the values stay in memory until they are used.
    fn answer(&self, random: usize, keeps: bool) -> bool {
        let request = {
            let mut requests = self.requests.lock();
            let place = random.checked_rem(requests.len());
            place.map(|place| requests.swap_remove(place))
        };
        let Some(Request { handles, reader }) = request else { return false };
        let mut kept = Vec::new();
        for handle in &handles {
            let values = self.values.lock()[&(Arc::as_ptr(handle) as usize)].clone();
            if handle.is_absent() {
                self.fetched.fetch_add(values.bytes_encoded(), Ordering::Relaxed);
                handle.put_values(values.clone());
            }
            kept.push(values);
        }
        kept.retain(|_| keeps);
        reader.arrived(Ok(Arc::new(kept)));
        true
    }

    /// Evicts the values of a randomly chosen handle.
    fn evict(&self, random: usize) {
        let handles = self.handles.lock();
        drop(handles[random % handles.len()].take_values());
    }
}

/// Returns the same table with handles whose values are stored in a [`Shelf`], encrypted in memory if a tier is
/// given.
fn on_shelf(table: &Table, tier: Option<Tier>) -> (Arc<Table>, Arc<Shelf>) {
    let cipher = tier.map(|tier| table_cipher(tier).unwrap());
    let shelf = Arc::new(Shelf::default());
    let source: Arc<dyn ValueSource> = shelf.clone();
    let pool = Pool::new(PoolConfig { bytes_limit: 64 << 20 }).unwrap();
    let builder = TableBuilder::new(pool, TenantName::default(), &table.schema, None).unwrap();
    let mut builder = builder.encrypting(cipher.as_ref());
    for group in &table.row_groups {
        let handle = |chunk: &Arc<Chunk>| {
            let handle = Chunk::handle(chunk.clone(), &source);
            if handle.is_handle() {
                shelf.values.lock().insert(Arc::as_ptr(&handle) as usize, chunk.clone());
                shelf.handles.lock().push(handle.clone());
            }
            handle
        };
        let columns: Vec<_> = group.chunks.iter().map(|chunk| chunk.decode(0..group.rows).unwrap()).collect();
        let copy = builder.encoder().encode(&PlainGroup::of(&columns)).unwrap();
        let chunks = if cipher.is_some() { &copy.chunks } else { &group.chunks };
        let chunks = chunks.iter().map(handle).collect();
        builder.add_row_group(Arc::new(RowGroup { rows: group.rows, chunks })).unwrap();
    }
    shelf.handles.lock().iter().for_each(|handle| drop(handle.take_values()));
    (Arc::new(builder.finish().unwrap()), shelf)
}

fn rows_of(batches: &[RecordBatch]) -> Vec<Vec<Option<i64>>> {
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<_> =
            batch.columns().iter().map(|column| column.as_primitive::<Int64Type>()).collect();
        rows.extend((0..batch.num_rows()).map(|row| {
            columns.iter().map(|column| column.is_valid(row).then(|| column.value(row))).collect::<Vec<_>>()
        }));
    }
    rows.sort_unstable();
    rows
}

/// Executes steps of a run until it is done, while values are loaded and evicted at random.
fn drive(run: &Run, shelf: Option<&Shelf>, random: &mut dyn FnMut() -> usize) -> Vec<RecordBatch> {
    let clock = Ticking::default();
    let mut batches = Vec::new();
    for _ in 0..1_000_000 {
        if let Some(shelf) = shelf {
            if random().is_multiple_of(4) {
                shelf.evict(random());
            }
            if random().is_multiple_of(3) {
                shelf.answer(random(), random().is_multiple_of(2));
            }
            if random().is_multiple_of(8) {
                let all = [HoldPolicy::Nothing, HoldPolicy::Missed, HoldPolicy::Everything];
                run.keep_values(all[random() % 3]);
            }
        }
        match run.step(&clock).unwrap() {
            Step::Batches(more) => batches.extend(more),
            Step::Encoded(_) | Step::Fetched(..) => unreachable!("nothing is shipped"),
            Step::Worked => {}
            Step::Busy => {
                assert!(run.waits_for_values());
                assert!(shelf.unwrap().answer(random(), true), "a run waits for nothing");
            }
            Step::Done => return batches,
        }
    }
    panic!("a run does not end");
}

fn outputs() -> Vec<Output> {
    let column = |i: usize| NamedExpr { name: format!("c{i}"), expr: Expr::Column(i) };
    let sum = Aggregate {
        name: "sum".into(),
        function: AggregateFunction::Sum,
        arguments: vec![Expr::Column(2)],
        filter: None,
        data_type: arrow_schema::DataType::Int64,
    };
    let greatest = Aggregate { name: "max".into(), function: AggregateFunction::Max, ..sum.clone() };
    vec![
        Output::Rows(vec![column(0), column(2)]),
        Output::Aggregate { keys: vec![], aggregates: vec![greatest] },
        Output::Aggregate { keys: vec![], aggregates: vec![sum] },
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn values_that_come_and_go_change_nothing(
        groups in 1..8_i64,
        least in 0..90_000_i64,
        form in 0..3_usize,
        filters in any::<bool>(),
        limit in prop_oneof![3 => Just(None), 1 => (1..30_000_u64).prop_map(Some)],
        tier in prop_oneof![2 => Just(None), 1 => Just(Some(Tier::Fast)), 1 => Just(Some(Tier::Strict))],
        seed in any::<u64>(),
    ) {
        let plain = table_of(groups, GROUP_ROWS);
        let (shelved, shelf) = on_shelf(&plain, tier);
        let mut random = random(seed);
        let filter = || {
            filters.then(|| {
                let odd = Expr::compare(CompareOp::NotEq, Expr::Column(1), int(3));
                Expr::all(vec![id_compares(CompareOp::GtEq, least).unwrap(), odd]).unwrap()
            })
        };
        let output = outputs().swap_remove(form);
        let limit = limit.filter(|_| form == 0);
        let start = |table: &Arc<Table>| {
            Run::start(&bound(table, filter(), output.clone(), limit, Budget::default())).unwrap()
        };
        let expected = rows_of(&drive(&start(&plain), None, &mut random));
        let run = start(&shelved);
        let found = rows_of(&drive(&run, Some(&shelf), &mut random));
        let receipt = run.receipt();
        match limit {
            None => prop_assert_eq!(found, expected),
            Some(_) => prop_assert_eq!(found.len(), expected.len()),
        }
        prop_assert_eq!(receipt.rows_scanned + receipt.rows_skipped, shelved.rows);
        // No more bytes are read than were returned by the source, and a run that needs no values reads none.
        if form == 1 && !filters {
            prop_assert_eq!(receipt.bytes_from_disk, 0);
        }
    }
}

#[test]
fn other_columns_are_read_only_where_a_row_passes() {
    let (table, shelf) = on_shelf(&table_of(6, GROUP_ROWS), None);
    // Zone maps cannot decide a condition on the square of an id.
    let squared = Expr::arithmetic(ArithmeticOp::Multiply, Expr::Column(0), Expr::Column(0));
    let last = Expr::compare(CompareOp::GtEq, squared, int(25 * GROUP_ROWS * GROUP_ROWS));
    let output = outputs().swap_remove(2);
    let bound = bound(&table, Some(last), output, None, Budget::default());
    let run = Run::start(&bound).unwrap();
    drive_plainly(&run, &shelf);
    let of = |column: usize| table.row_groups.iter().map(move |group| group.chunks[column].bytes_encoded());
    let expected: usize = of(0).sum::<usize>() + of(2).last().unwrap();
    let read = shelf.fetched.load(Ordering::Relaxed);
    assert!(read <= of(0).sum::<usize>() + of(2).sum::<usize>() && read >= expected, "{read} of {expected}");
    let receipt = run.receipt();
    assert_eq!((receipt.bytes_from_disk, receipt.bytes_from_cache), (read as u64, 0));
    // All bytes count as read again, because all values were in memory when the table was created.
    assert_eq!(receipt.bytes_again, read as u64);
    // The columns of the filter count as used, even if no row passes.
    assert!(table.row_groups.iter().all(|group| group.chunks[0].take_use() > 0));
    // The next run finds in memory what the previous run has read.
    let again = Run::start(&bound).unwrap();
    drive_plainly(&again, &shelf);
    let receipt = again.receipt();
    assert_eq!((receipt.bytes_from_disk, receipt.bytes_from_cache), (0, read as u64));
    // Values that are evicted are read again by the next run.
    let left = table.row_groups[0].chunks[0].take_values().unwrap().bytes_encoded() as u64;
    let third = Run::start(&bound).unwrap();
    drive_plainly(&third, &shelf);
    let receipt = third.receipt();
    assert_eq!((receipt.bytes_from_disk, receipt.bytes_again), (left, left));
}

fn drive_plainly(run: &Run, shelf: &Shelf) -> Vec<RecordBatch> {
    let clock = Ticking::default();
    let mut batches = Vec::new();
    loop {
        match run.step(&clock).unwrap() {
            Step::Batches(more) => batches.extend(more),
            Step::Busy => drop(shelf.answer(0, true)),
            Step::Done => return batches,
            Step::Worked | Step::Encoded(_) | Step::Fetched(..) => {}
        }
    }
}

#[test]
fn rows_are_deleted_from_row_groups_that_were_not_in_memory() {
    let plain = table_of(4, GROUP_ROWS);
    for tier in [None, Some(Tier::Standard)] {
        rows_are_deleted(&plain, tier);
    }
}

fn rows_are_deleted(plain: &Arc<Table>, tier: Option<Tier>) {
    let (shelved, shelf) = on_shelf(plain, tier);
    let pool = Pool::new(PoolConfig { bytes_limit: 64 << 20 }).unwrap();
    let changed = |table: &Arc<Table>| {
        let filter = id_compares(CompareOp::Lt, GROUP_ROWS + 500);
        let program = bound(table, filter, Output::Rows(vec![]), None, Budget::default());
        let run = Run::start_changing(&program, |schema| {
            Encoder::new(pool.clone(), TenantName::default(), schema).encrypting(table.cipher())
        });
        let run = run.unwrap();
        drive_plainly(&run, &shelf);
        run.take_changed()
    };
    let (expected, found) = (changed(plain), changed(&shelved));
    assert_eq!((found.rows, found.rows), (expected.rows, (GROUP_ROWS + 500) as u64));
    assert!(found.groups[&0].is_none());
    let decode = |changed: &crate::ChangedGroups, column: usize| {
        let group = changed.groups[&1].clone().unwrap();
        let opened = group.with_values(0..3).unwrap();
        let group = opened.as_ref().unwrap_or(&group);
        group.chunks[column].decode(0..group.rows).unwrap()
    };
    for column in 0..3 {
        assert_eq!(decode(&found, column).to_data(), decode(&expected, column).to_data());
    }
}

#[test]
fn what_is_cancelled_waits_for_nothing() {
    let (table, shelf) = on_shelf(&table_of(3, GROUP_ROWS), None);
    let run = Run::start(&bound(&table, None, sum_and_count_by_k(), None, Budget::default())).unwrap();
    let clock = Ticking::default();
    while !matches!(run.step(&clock).unwrap(), Step::Busy) {}
    run.cancel();
    let waiting = shelf.requests.lock().iter().filter(|request| request.reader.is_waiting()).count();
    assert_eq!(waiting, 0);
    while shelf.answer(0, true) {}
    assert!(run.step(&clock).is_err());
    // An error of the disk stops the run.
    let run = Run::start(&bound(&table, None, sum_and_count_by_k(), None, Budget::default())).unwrap();
    shelf.handles.lock().iter().for_each(|handle| drop(handle.take_values()));
    while !matches!(run.step(&clock).unwrap(), Step::Busy) {}
    let request = shelf.requests.lock().pop().unwrap();
    request.reader.arrived(Err(Error::unavailable("the disk is gone")));
    assert!(run.step(&clock).unwrap_err().message.contains("the disk is gone"));
}
