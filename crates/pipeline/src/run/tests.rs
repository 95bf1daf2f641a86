//! Tests of runs (executions of programs) over small tables, with real threads, against simple loops over the
//! rows.

#![expect(clippy::disallowed_methods, reason = "a test has threads of its own")]

mod joined;
mod judged;

use super::*;
use crate::{BoundProgram, Scheduler, Sink, WorkerThread};
use arrow_array::{
    ArrayRef, Int64Array,
    cast::AsArray,
    types::{Decimal128Type, Int64Type},
};
use arrow_schema::{DataType, Field, Schema};
use farpool_columns::{TableBuilder, encode_row_group};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::{
    Aggregate, AggregateFunction, ArithmeticOp, Clock, CompareOp, Expr, Literal, NamedExpr, Output, Program,
    SortKey, TableName, TenantName, Value, Version, limits,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const GROUP_ROWS: i64 = 1_000;

/// Creates a table with `groups` row groups of [`GROUP_ROWS`] rows: column `id` counts up, `k` is `id % 7`, `v` is
/// `id * 3`.
pub(super) fn table(groups: i64) -> Arc<Table> {
    table_of(groups, GROUP_ROWS)
}

/// Creates a table like [`table`], with row groups of `rows` rows.
pub(super) fn table_of(groups: i64, rows: i64) -> Arc<Table> {
    let pool = Pool::new(PoolConfig { bytes_limit: 256 << 20 }).unwrap();
    let tenant = TenantName::default();
    let field = |name| Field::new(name, DataType::Int64, true);
    let schema = Schema::new(vec![field("id"), field("k"), field("v")]);
    let mut builder = TableBuilder::new(pool.clone(), tenant.clone(), &schema, None).unwrap();
    for group in 0..groups {
        let ids = || group * rows..(group + 1) * rows;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(ids())),
            Arc::new(Int64Array::from_iter_values(ids().map(|id| id % 7))),
            Arc::new(Int64Array::from_iter_values(ids().map(|id| id * 3))),
        ];
        let schema = builder.schema().clone();
        let group = encode_row_group(&pool, &tenant, &schema, &columns).unwrap();
        builder.add_row_group(Arc::new(group)).unwrap();
    }
    Arc::new(builder.finish().unwrap())
}

/// Generates random numbers from a seed (xorshift).
pub(super) fn random(seed: u64) -> impl FnMut() -> usize {
    let mut state = seed | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 8) as usize
    }
}

pub(super) fn int(value: i64) -> Expr {
    Expr::Literal(Literal::new(Value::Int(value.into()), DataType::Int64).unwrap())
}

pub(super) fn id_compares(op: CompareOp, value: i64) -> Option<Expr> {
    Some(Expr::compare(op, Expr::Column(0), int(value)))
}

fn rows(indices: &[usize]) -> Output {
    let named = |&i: &usize| NamedExpr { name: format!("c{i}"), expr: Expr::Column(i) };
    Output::Rows(indices.iter().map(named).collect())
}

fn aggregate(function: AggregateFunction, argument: Option<usize>) -> Aggregate {
    Aggregate {
        name: format!("{}_{argument:?}", function.name()),
        function,
        arguments: argument.map(Expr::Column).into_iter().collect(),
        filter: None,
        data_type: DataType::Int64,
    }
}

pub(super) fn sum_and_count_by_k() -> Output {
    let keys = vec![NamedExpr { name: "k".into(), expr: Expr::Column(1) }];
    let aggregates =
        vec![aggregate(AggregateFunction::Sum, Some(2)), aggregate(AggregateFunction::Count, None)];
    Output::Aggregate { keys, aggregates }
}

fn start(table: &Arc<Table>, filter: Option<Expr>, output: Output, limit: Option<u64>) -> Arc<Run> {
    start_within(table, filter, output, limit, Budget::default())
}

fn start_within(
    table: &Arc<Table>,
    filter: Option<Expr>,
    output: Output,
    limit: Option<u64>,
    budget: Budget,
) -> Arc<Run> {
    Run::start(&bound(table, filter, output, limit, budget)).unwrap()
}

pub(super) fn bound(
    table: &Arc<Table>,
    filter: Option<Expr>,
    output: Output,
    limit: Option<u64>,
    budget: Budget,
) -> BoundProgram {
    let name = TableName::new("t").unwrap();
    let program = Program {
        table: name,
        version: None,
        lookups: Vec::new(),
        filter,
        output,
        having: None,
        order: Vec::new(),
        limit,
    };
    BoundProgram::prepare(&program, table.clone(), Version(1), budget).unwrap()
}

/// A clock that stands still. A step then never exceeds its time, so that it processes a whole row group.
#[derive(Debug)]
struct Standing;

impl Clock for Standing {
    fn now_ns(&self) -> u64 {
        0
    }
    fn thread_cpu_ns(&self) -> u64 {
        0
    }
}

/// A clock that advances by the time of a whole step whenever it is read, so that steps are as short as possible.
#[derive(Debug, Default)]
pub(super) struct Ticking(pub(super) AtomicU64);

impl Clock for Ticking {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(limits::STEP_NS, Ordering::Relaxed)
    }
    fn thread_cpu_ns(&self) -> u64 {
        0
    }
}

/// Executes steps of `run` on `threads` threads until it is done.
fn drive(run: &Arc<Run>, threads: usize) -> Result<Vec<RecordBatch>> {
    drive_by(&Standing, run, threads)
}

/// Executes a run as [`drive`] does, with another clock.
fn drive_by(clock: &dyn Clock, run: &Arc<Run>, threads: usize) -> Result<Vec<RecordBatch>> {
    let drive_one = || {
        let mut batches = Vec::new();
        loop {
            match run.step(clock)? {
                Step::Batches(more) => batches.extend(more),
                Step::Encoded(group) | Step::Fetched(_, group) => {
                    batches.push(decoded(&group, run.schema()));
                }
                Step::Worked => {}
                Step::Busy => std::thread::yield_now(),
                Step::Done => return Ok(batches),
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(drive_one)).collect();
        let parts: Result<Vec<Vec<RecordBatch>>> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        Ok(parts?.concat())
    })
}

fn column_values(batches: &[RecordBatch], column: usize) -> Vec<i64> {
    let values = |batch: &RecordBatch| batch.column(column).as_primitive::<Int64Type>().values().to_vec();
    batches.iter().flat_map(values).collect()
}

/// Checks the invariants of a finished run's execution statistics ([`Receipt`]).
#[track_caller]
fn check_receipt(run: &Run, table: &Table, batches: &[RecordBatch]) -> Receipt {
    let receipt = run.receipt();
    assert_eq!(receipt.rows_scanned + receipt.rows_skipped, table.rows);
    assert_eq!(receipt.bytes_scanned + receipt.bytes_skipped, table.bytes_encoded);
    assert_eq!(receipt.rows_returned, batches.iter().map(|b| b.num_rows() as u64).sum::<u64>());
    receipt
}

#[test]
fn four_threads_see_every_row_once() {
    let table = table(12);
    let run = start(&table, None, rows(&[0, 2]), None);
    let batches = drive(&run, 4).unwrap();
    let mut ids = column_values(&batches, 0);
    ids.sort_unstable();
    assert_eq!(ids, (0..12 * GROUP_ROWS).collect::<Vec<_>>());
    let receipt = check_receipt(&run, &table, &batches);
    assert_eq!(receipt.rows_scanned, 12_000);
    assert!(receipt.bytes_scanned > 0 && receipt.bytes_skipped > 0, "column k was not read: {receipt:?}");
    assert!(matches!(run.step(&Standing), Ok(Step::Done)));
    assert_eq!(Arc::strong_count(&table), 1, "a run that is done lets go of its table");
}

#[test]
fn zone_maps_rule_out_row_groups() {
    let table = table(10);
    let run = start(&table, id_compares(CompareOp::GtEq, 8_500), rows(&[0]), None);
    let batches = drive(&run, 2).unwrap();
    assert_eq!(column_values(&batches, 0).len(), 1_500);
    let receipt = check_receipt(&run, &table, &batches);
    assert_eq!((receipt.rows_scanned, receipt.rows_skipped), (2_000, 8_000));
    assert_eq!(run.bytes_scanned(), receipt.bytes_scanned);
}

#[test]
fn a_filter_that_nothing_passes_skips_all_in_one_step() {
    let table = table(10);
    let run = start(&table, id_compares(CompareOp::Lt, -1), rows(&[0]), None);
    assert!(matches!(run.step(&Standing), Ok(Step::Done)));
    assert_eq!(check_receipt(&run, &table, &[]).rows_skipped, 10_000);
}

#[test]
fn a_limit_is_exact_and_stops_the_scan() {
    let table = table(10);
    for (limit, threads) in [(0, 1), (1, 4), (999, 1), (1_000, 1), (2_500, 4), (9_999, 4), (50_000, 2)] {
        let run = start(&table, None, rows(&[0]), Some(limit));
        let batches = drive(&run, threads).unwrap();
        let mut ids = column_values(&batches, 0);
        assert_eq!(ids.len() as u64, limit.min(10_000));
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len() as u64, limit.min(10_000), "no row twice");
        let receipt = check_receipt(&run, &table, &batches);
        if threads == 1 {
            assert_eq!(receipt.rows_scanned, limit.next_multiple_of(1_000).min(10_000));
        }
    }
}

#[test]
fn partial_aggregations_of_all_threads_come_together() {
    let table = table(12);
    let run = start(&table, id_compares(CompareOp::Lt, 11_111), sum_and_count_by_k(), None);
    let batches = drive(&run, 4).unwrap();
    let mut expected: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for id in 0..11_111 {
        let (sum, count) = expected.entry(id % 7).or_default();
        (*sum, *count) = (*sum + id * 3, *count + 1);
    }
    let (keys, sums, counts) =
        (column_values(&batches, 0), column_values(&batches, 1), column_values(&batches, 2));
    assert_eq!(keys.len(), 7);
    let got: BTreeMap<_, _> = keys.into_iter().zip(sums.into_iter().zip(counts)).collect();
    assert_eq!(got, expected);
    check_receipt(&run, &table, &batches);
}

#[test]
fn a_limit_cuts_groups_too() {
    let run = start(&table(3), None, sum_and_count_by_k(), Some(3));
    assert_eq!(column_values(&drive(&run, 2).unwrap(), 0).len(), 3);
    let run = start(&table(3), None, sum_and_count_by_k(), Some(0));
    assert!(drive(&run, 2).unwrap().is_empty());
}

fn start_top(table: &Arc<Table>, filter: Option<Expr>, output: Output, key: SortKey, limit: u64) -> Arc<Run> {
    let name = TableName::new("t").unwrap();
    let program = Program {
        table: name,
        version: None,
        lookups: Vec::new(),
        filter,
        output,
        having: None,
        order: vec![key],
        limit: Some(limit),
    };
    let program = BoundProgram::prepare(&program, table.clone(), Version(1), Budget::default()).unwrap();
    assert!(program.prepared().is_exact());
    Run::start(&program).unwrap()
}

#[test]
fn the_first_rows_leave_and_most_row_groups_are_skipped() {
    let table = table(12);
    let key = SortKey { column: 1, descending: true, nulls_first: false };
    for (threads, limit) in [(1, 5), (3, 5), (3, 1_500), (2, 60_000), (2, 0)] {
        let run = start_top(&table, id_compares(CompareOp::Lt, 11_500), rows(&[2, 0]), key, limit);
        let batches = drive(&run, threads).unwrap();
        let expected: Vec<i64> = (0..11_500).rev().take(limit as usize).collect();
        assert_eq!(column_values(&batches, 1), expected, "in order, as it happens");
        let receipt = check_receipt(&run, &table, &batches);
        if threads == 1 {
            assert_eq!(receipt.rows_skipped, 11_000, "the best row group comes first and is enough");
        }
    }
}

#[test]
fn the_first_groups_leave() {
    let table = table(12);
    let key = SortKey { column: 1, descending: true, nulls_first: false };
    let run = start_top(&table, None, sum_and_count_by_k(), key, 2);
    let batches = drive(&run, 3).unwrap();
    let sum = |k: i64| (0..12 * GROUP_ROWS).filter(|id| id % 7 == k).map(|id| id * 3).sum::<i64>();
    let mut sums: Vec<i64> = (0..7).map(sum).collect();
    sums.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(column_values(&batches, 1), sums[..2]);
    check_receipt(&run, &table, &batches);
    let many = Output::Aggregate {
        keys: vec![NamedExpr { name: "id".into(), expr: Expr::Column(0) }],
        aggregates: vec![aggregate(AggregateFunction::Sum, Some(2))],
    };
    let table = self::table(80);
    let batches = drive(&start_top(&table, None, many, key, 4), 3).unwrap();
    assert_eq!(column_values(&batches, 0), [79_999, 79_998, 79_997, 79_996], "of 16 partitions");
}

#[test]
fn an_aggregation_over_no_rows_is_one_row_and_a_scan_none() {
    let count =
        Output::Aggregate { keys: vec![], aggregates: vec![aggregate(AggregateFunction::Count, None)] };
    let run = start(&table(0), None, count.clone(), None);
    assert_eq!(column_values(&drive(&run, 2).unwrap(), 0), [0]);
    let run = start(&table(4), id_compares(CompareOp::Lt, 0), count, None);
    assert_eq!(column_values(&drive(&run, 2).unwrap(), 0), [0]);
    let run = start(&table(0), None, rows(&[0]), None);
    assert!(matches!(run.step(&Standing), Ok(Step::Done)));
}

#[test]
fn rows_without_columns_are_counted() {
    let run = start(&table(3), id_compares(CompareOp::Gt, 500), rows(&[]), None);
    let batches = drive(&run, 2).unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 2_499);
}

#[test]
fn few_rows_leave_as_one_batch() {
    let table = table(4);
    let run = start(&table, id_compares(CompareOp::Lt, 3_010), rows(&[0]), None);
    assert_eq!(drive(&run, 1).unwrap().len(), 1, "from all four row groups together");
}

#[test]
fn row_groups_of_a_few_rows_share_a_step() {
    let run = start(&table_of(50, 5), None, sum_and_count_by_k(), None);
    run.step(&Standing).unwrap();
    assert_eq!(run.receipt().rows_scanned, 250);
    let run = start(&table_of(50, 5), None, sum_and_count_by_k(), None);
    run.step(&Ticking::default()).unwrap();
    assert!(run.receipt().rows_scanned < 250, "a step is about a millisecond");
}

#[test]
fn cancelling_frees_the_table_and_every_later_step_says_so() {
    let table = table(5);
    let run = start(&table, None, rows(&[0]), None);
    assert!(matches!(run.step(&Standing), Ok(Step::Worked)), "a thousand rows wait for others");
    run.cancel();
    assert!(run.is_cancelled());
    assert_eq!(Arc::strong_count(&table), 1);
    assert_eq!(run.step(&Standing).unwrap_err().kind, ErrorKind::Cancelled);
    assert_eq!(run.error().unwrap().kind, ErrorKind::Cancelled);
    assert_eq!(run.receipt().rows_scanned, 1_000, "what was done before stays on the receipt");
}

#[test]
fn cancelling_what_is_done_changes_nothing() {
    let run = start(&table(1), None, rows(&[0]), None);
    drive(&run, 1).unwrap();
    run.cancel();
    assert!(!run.is_cancelled());
    assert!(matches!(run.step(&Standing), Ok(Step::Done)));
}

#[test]
fn an_error_in_one_step_stops_the_run_for_all_threads() {
    let table = table(8);
    // The division fails at id 5500, in the sixth row group.
    let divisor = Expr::arithmetic(ArithmeticOp::Subtract, Expr::Column(0), int(5_500));
    let quotient = Expr::arithmetic(ArithmeticOp::Divide, int(1), divisor);
    let output = Output::Rows(vec![NamedExpr { name: "q".into(), expr: quotient }]);
    let run = start(&table, None, output, None);
    let error = drive(&run, 4).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    assert_eq!(run.step(&Standing).unwrap_err(), error);
    assert_eq!(Arc::strong_count(&table), 1);
}

#[test]
fn groups_beyond_the_budget_leave_in_parts() {
    let keys = vec![NamedExpr { name: "id".into(), expr: Expr::Column(2) }];
    let sum = aggregate(AggregateFunction::Sum, Some(0));
    let output = Output::Aggregate { keys, aggregates: vec![sum] };
    for (workers, state_bytes_max) in [(1, 0), (2, 100_000), (4, 400_000)] {
        let budget = Budget { state_bytes_max, workers, ..Budget::default() };
        let run = start_within(&table(8), None, output.clone(), None, budget);
        assert!(run.prepared().is_partial());
        let batches = drive(&run, workers).unwrap();
        let mut ids = column_values(&batches, 0);
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids, (0..8 * GROUP_ROWS).map(|id| id * 3).collect::<Vec<_>>());
        let sums =
            batches.iter().flat_map(|b| b.column(1).as_primitive::<Decimal128Type>().values().to_vec());
        assert_eq!(sums.sum::<i128>(), (0..i128::from(8 * GROUP_ROWS)).sum());
        assert!(state_bytes_max > 0 || run.receipt().rows_bypassed > 0);
    }
}

/// Decodes a row group to a batch.
fn decoded(group: &RowGroup, schema: &SchemaRef) -> RecordBatch {
    let columns = group.chunks.iter().map(|chunk| chunk.decode(0..group.rows).unwrap()).collect();
    RecordBatch::try_new(schema.clone(), columns).unwrap()
}

/// Starts a run as [`start`] does. This one may return whole row groups as encoded chunks.
fn start_shipping(table: &Arc<Table>, filter: Option<Expr>, output: Output, limit: Option<u64>) -> Arc<Run> {
    Run::start_shipping(&bound(table, filter, output, limit, Budget::default())).unwrap()
}

#[test]
fn row_groups_that_pass_whole_are_shipped_and_the_answer_is_the_same() {
    let table = table(4);
    let plain = || rows(&[1, 0]);
    let filters = [None, Some(2_500), Some(0), Some(100_000)];
    for filter in filters.map(|bound| bound.and_then(|bound| id_compares(CompareOp::GtEq, bound))) {
        for limit in [None, Some(0), Some(1_000), Some(1_500), Some(1 << 40)] {
            let whole = start_shipping(&table, filter.clone(), plain(), limit);
            let shipped = drive(&whole, 2).unwrap();
            let receipt = check_receipt(&whole, &table, &shipped);
            let run = start(&table, filter.clone(), plain(), limit);
            let batches = drive(&run, 2).unwrap();
            assert_eq!(receipt.rows_returned, check_receipt(&run, &table, &batches).rows_returned);
            if limit.is_none() {
                assert_eq!(sorted(&shipped), sorted(&batches));
            }
        }
    }
    let run = start_shipping(&table, None, plain(), None);
    assert!(matches!(run.step(&Standing), Ok(Step::Encoded(group)) if group.chunks.len() == 2));
    // Computed columns have no chunks that could be returned encoded.
    let run = start_shipping(&table, None, sum_and_count_by_k(), None);
    assert!(matches!(run.step(&Standing), Ok(Step::Worked)));
}

/// Returns the rows of all batches as sorted strings.
fn sorted(batches: &[RecordBatch]) -> Vec<String> {
    let mut rows: Vec<String> = batches
        .iter()
        .flat_map(|batch| (0..batch.num_rows()).map(|row| format!("{:?}", batch.slice(row, 1).columns())))
        .collect();
    rows.sort();
    rows
}

#[derive(Default)]
struct Collected {
    batches: Mutex<Vec<RecordBatch>>,
    outcome: Mutex<Option<Result<Receipt>>>,
}

impl Sink for Collected {
    fn ready(&self) -> bool {
        true
    }
    fn batch(&self, batch: RecordBatch) {
        self.batches.lock().push(batch);
    }
    fn encoded(&self, _group: RowGroup) {
        panic!("nothing here ships row groups");
    }
    fn fetched(&self, _place: usize, _group: RowGroup) {
        panic!("nothing here ships chunks");
    }
    fn finish(&self, outcome: Result<Receipt>) {
        assert!(self.outcome.lock().replace(outcome).is_none());
    }
}

struct Worker;

impl WorkerThread for Worker {}

#[test]
fn no_rows_of_no_rows_is_an_end() {
    for (groups, limit) in [(0, None), (0, Some(0)), (0, Some(5)), (3, Some(0))] {
        let run = start(&table(groups), None, rows(&[0]), limit);
        assert!(matches!(run.step(&Standing), Ok(Step::Done)), "{groups} row groups, limit {limit:?}");
    }
}

#[test]
fn a_scheduler_takes_runs_to_their_end() {
    let table = table(20);
    let scheduler = Scheduler::new(Arc::new(Standing));
    let region = scheduler.add_region(&scheduler.add_tenant(1));
    let runs: Vec<_> = (1..=6)
        .map(|i| {
            let run = start(&table, id_compares(CompareOp::Lt, i * 3_000), sum_and_count_by_k(), None);
            (run, Arc::new(Collected::default()))
        })
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| while scheduler.work(&Worker) {});
        }
        runs.iter().for_each(|(run, sink)| {
            scheduler.submit_run(&region, run.clone(), sink.clone());
        });
        while runs.iter().any(|(_, sink)| sink.outcome.lock().is_none()) {
            std::thread::yield_now();
        }
        scheduler.shutdown();
    });
    for (i, (run, sink)) in (1..).zip(&runs) {
        let batches = sink.batches.lock();
        assert_eq!(column_values(&batches, 2).iter().sum::<i64>(), i * 3_000);
        let receipt = sink.outcome.lock().take().unwrap().unwrap();
        assert_eq!(receipt, check_receipt(run, &table, &batches));
        assert_eq!(Arc::strong_count(run), 1);
    }
    assert_eq!(Arc::strong_count(&table), 1);
}

#[test]
fn short_steps_give_what_whole_row_groups_give() {
    let table = table_of(3, 5_000);
    let filter = || id_compares(CompareOp::GtEq, 1_000);
    let key = SortKey { column: 0, descending: false, nulls_first: false };
    let runs = || {
        [
            start(&table, filter(), rows(&[0, 2]), None),
            start(&table, filter(), sum_and_count_by_k(), None),
            start_shipping(&table, filter(), rows(&[1, 0]), None),
            start_top(&table, filter(), rows(&[2, 1]), key, 2_000),
        ]
    };
    for threads in [1, 3] {
        for (whole, short) in runs().into_iter().zip(runs()) {
            let expected = drive(&whole, threads).unwrap();
            let got = drive_by(&Ticking::default(), &short, threads).unwrap();
            assert_eq!(sorted(&got), sorted(&expected));
            check_receipt(&short, &table, &got);
        }
    }
}

#[test]
fn a_step_that_takes_long_leaves_the_rest_to_the_next_one() {
    let table = table_of(2, 5_000);
    let clock = Ticking::default();
    let run = start(&table, None, sum_and_count_by_k(), None);
    let block = limits::BLOCK_ROWS as u64;
    for rows in [block, 2 * block, 3 * block, 4 * block, 5_000, 5_000 + block] {
        assert!(matches!(run.step(&clock), Ok(Step::Worked)));
        assert_eq!(run.receipt().rows_scanned, rows);
    }
    drive(&run, 2).unwrap();
}

/// A clock that cancels a run when it has been read a number of times.
#[derive(Debug)]
struct Cancelling {
    run: Arc<Run>,
    reads: AtomicU64,
}

impl Clock for Cancelling {
    fn now_ns(&self) -> u64 {
        if self.reads.fetch_add(1, Ordering::Relaxed) == 3 {
            self.run.cancel();
        }
        0
    }
    fn thread_cpu_ns(&self) -> u64 {
        0
    }
}

#[test]
fn a_filter_that_lets_nothing_pass_sees_between_batches_that_it_is_cancelled() {
    let table = table_of(1, 60_000);
    let (k, v) = (Expr::Column(1), Expr::Column(2));
    let never =
        Expr::And(vec![Expr::compare(CompareOp::Eq, k, int(3)), Expr::compare(CompareOp::Eq, v, int(0))]);
    let run = start(&table, Some(never), rows(&[0]), None);
    let clock = Cancelling { run: run.clone(), reads: AtomicU64::new(0) };
    assert_eq!(run.step(&clock).unwrap_err().kind, ErrorKind::Cancelled);
    // One block for the filter was processed, then one batch.
    assert_eq!(run.receipt().rows_scanned, (limits::BLOCK_ROWS + limits::BATCH_ROWS) as u64);
}

#[test]
fn row_groups_that_zone_maps_rule_out_do_not_make_a_step_long() {
    let table = table(10);
    let run = start(&table, id_compares(CompareOp::Lt, -1), rows(&[0]), None);
    assert!(matches!(run.step(&Ticking::default()), Ok(Step::Worked)));
    assert_eq!(run.receipt().rows_skipped, 1_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn filters_and_limits_agree_with_a_loop(
        groups in 0i64..6,
        low in -100i64..18_100,
        key in 0i64..8,
        limit in proptest::option::of(0u64..4_000),
        threads in 1usize..4,
        is_short in any::<bool>(),
    ) {
        let table = table_of(groups, 3 * GROUP_ROWS);
        let of_key = Expr::compare(CompareOp::NotEq, Expr::Column(1), int(key));
        let filter = Expr::And(vec![id_compares(CompareOp::GtEq, low).unwrap(), of_key]);
        let run = start(&table, Some(filter), rows(&[0, 2]), limit);
        let ticking = Ticking::default();
        let clock: &dyn Clock = if is_short { &ticking } else { &Standing };
        let batches = drive_by(clock, &run, threads).unwrap();
        let ids = column_values(&batches, 0);
        let passing = (0..3 * groups * GROUP_ROWS).filter(|id| *id >= low && id % 7 != key).count() as u64;
        prop_assert_eq!(ids.len() as u64, passing.min(limit.unwrap_or(u64::MAX)));
        prop_assert!(ids.iter().all(|id| *id >= low && id % 7 != key));
        prop_assert!(ids.iter().zip(column_values(&batches, 1)).all(|(id, v)| v == id * 3));
        check_receipt(&run, &table, &batches);
    }
}

#[test]
fn a_run_that_is_done_before_it_begins_ends_whatever_memory_it_has() {
    for (groups, limit) in [(0, None), (3, Some(0))] {
        let run = start(&table(groups), None, rows(&[0]), limit);
        let account = farpool_memory::WorkMemory::new(1 << 20).account(&TenantName::default());
        let need = run.need().unwrap();
        run.keep_to(need, account.take(need.bytes()));
        assert!(matches!(run.step(&Standing).unwrap(), Step::Done));
        assert_eq!(account.free(), 1 << 20);
    }
}
