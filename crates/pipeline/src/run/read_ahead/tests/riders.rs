//! Tests of runs (executions of programs) that share reads of one table, against the same runs executed alone.
//!
//! A *handle* is a column chunk whose values may be evicted from memory and read again. A *rider* is a run that takes
//! part in a shared scan.

use super::*;
use crate::{BoundProgram, SharedScans};
use farpool_memory::WorkMemory;
use farpool_model::{SortKey, TableName};

/// Memory with room for some bytes of a shelf's values: evicts the oldest values that are not in use.
struct Memory<'a> {
    shelf: &'a Shelf,
    bytes_max: usize,
    came: Vec<Arc<Chunk>>,
}

impl<'a> Memory<'a> {
    fn new(shelf: &'a Shelf, bytes_max: usize) -> Memory<'a> {
        Memory { shelf, bytes_max, came: Vec::new() }
    }

    /// Answers the oldest request for values. Values stay in memory until they are used, up to half of the memory.
    fn answer(&mut self) -> bool {
        let next = self.shelf.requests.lock().first().map(|request| request.handles.clone());
        let Some(handles) = next else { return false };
        self.came.extend(handles.into_iter().filter(|handle| handle.is_absent()));
        let used: usize =
            self.came.iter().filter(|handle| is_used(handle)).map(|handle| handle.bytes_encoded()).sum();
        self.shelf.requests.lock().rotate_left(1);
        let last = self.shelf.requests.lock().len() - 1;
        self.shelf.answer(last, used <= self.bytes_max / 2);
        let mut bytes: usize = self.came.iter().map(|handle| handle.bytes_encoded()).sum();
        self.came.retain(|handle| {
            let leaves = bytes > self.bytes_max && !is_used(handle);
            if leaves {
                bytes -= handle.bytes_encoded();
                drop(handle.take_values());
            }
            !leaves
        });
        true
    }
}

/// Returns whether the values of `handle` are referenced by anything but the handle and the shelf.
fn is_used(handle: &Arc<Chunk>) -> bool {
    handle.values().is_some_and(|values| Arc::strong_count(&values) > 3)
}

struct Rider {
    run: Arc<Run>,
    batches: Vec<RecordBatch>,
    is_done: bool,
}

impl Rider {
    fn new(
        table: &Arc<Table>,
        shared_scans: &Arc<SharedScans>,
        filter: Option<Expr>,
        output: Output,
    ) -> Rider {
        Rider::of(&bound(table, filter, output, None, Budget::default()), shared_scans)
    }

    fn of(program: &BoundProgram, shared_scans: &Arc<SharedScans>) -> Rider {
        let run = Run::start(program).unwrap();
        run.join(shared_scans.sharing(program, &WorkMemory::new(1 << 30).account(&TenantName::default())));
        // The read-ahead is limited to about two row groups.
        run.read_ahead.most.store(AHEAD, Ordering::Relaxed);
        Rider { run, batches: Vec::new(), is_done: false }
    }

    /// Executes a step of the run. Returns false if there is nothing to do until values arrive.
    fn step(&mut self) -> bool {
        match self.run.step(&Ticking::default()).unwrap() {
            Step::Batches(more) => self.batches.extend(more),
            Step::Busy => return false,
            Step::Done => self.is_done = true,
            Step::Worked | Step::Encoded(_) | Step::Fetched(..) => {}
        }
        true
    }
}

/// Executes steps of all runs in turn until they are done. Run number i gets `speeds[i]` steps per turn.
fn ride(riders: &mut [Rider], speeds: &[usize], memory: &mut Memory<'_>) {
    while riders.iter().any(|rider| !rider.is_done) {
        let mut has_worked = false;
        for (rider, speed) in riders.iter_mut().zip(speeds) {
            for _ in 0..*speed {
                has_worked |= !rider.is_done && rider.step();
            }
        }
        let has_come = memory.answer();
        assert!(has_worked || has_come, "nobody goes on");
    }
}

fn bytes_of(table: &Table, columns: &[usize]) -> usize {
    let groups = table.row_groups.iter();
    groups.flat_map(|group| columns.iter().map(|column| group.chunks[*column].bytes_encoded())).sum()
}

fn sum_of(column: usize) -> Output {
    let sum = Aggregate {
        name: "sum".into(),
        function: AggregateFunction::Sum,
        arguments: vec![Expr::Column(column)],
        filter: None,
        data_type: arrow_schema::DataType::Int64,
    };
    Output::Aggregate { keys: vec![], aggregates: vec![sum] }
}

/// Number of row groups of the tables in these tests; and in `FITTING` the number that fits into memory.
const GROUPS: i64 = 64;
const FITTING: i64 = 16;

/// Maximum number of bytes that a run reads ahead.
const AHEAD: usize = 50_000;

fn shelved() -> (Arc<Table>, Arc<Table>, Arc<Shelf>) {
    let plain = table_of(GROUPS, GROUP_ROWS);
    let (table, shelf) = on_shelf(&plain, None);
    (plain, table, shelf)
}

#[test]
fn what_several_need_is_read_once() {
    let (_, table, shelf) = shelved();
    let once = bytes_of(&table, &[0, 2]);
    let mut memory = Memory::new(&shelf, once / (GROUPS / FITTING) as usize);
    let shared_scans = Arc::<SharedScans>::default();
    let mut riders: Vec<Rider> =
        (0..6).map(|_| Rider::new(&table, &shared_scans, None, rows_sum())).collect();
    ride(&mut riders, &[1; 6], &mut memory);
    assert_eq!(shelf.fetched.load(Ordering::Relaxed), once);
    let answers: Vec<_> = riders.iter().map(|rider| rows_of(&rider.batches)).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    // Reads are counted for the run that requested them first, and as shared for the other runs.
    let receipts: Vec<_> = riders.iter().map(|rider| rider.run.receipt()).collect();
    assert_eq!(receipts.iter().map(|receipt| receipt.bytes_from_disk).sum::<u64>(), once as u64);
    for receipt in &receipts {
        assert_eq!(receipt.bytes_from_disk + receipt.bytes_from_cache, once as u64);
        assert_eq!(receipt.bytes_from_cache, receipt.bytes_shared);
    }
    // One read shared by all runs does not count as repeated use.
    assert!(shelf.handles.lock().iter().all(|handle| handle.uses() <= 1));
    // If the runs share no scan, each run reads everything.
    shelf.handles.lock().iter().for_each(|handle| drop(handle.take_values()));
    shelf.fetched.store(0, Ordering::Relaxed);
    let mut riders: Vec<Rider> =
        (0..6).map(|_| Rider::new(&table, &Arc::default(), None, rows_sum())).collect();
    // The runs may begin at different times.
    for rider in &mut riders {
        ride(std::slice::from_mut(rider), &[1], &mut memory);
    }
    assert!(shelf.fetched.load(Ordering::Relaxed) > 5 * once);
}

/// Returns an output with the sums of two columns.
fn rows_sum() -> Output {
    let Output::Aggregate { keys, mut aggregates } = sum_of(2) else { unreachable!() };
    let Output::Aggregate { aggregates: more, .. } = sum_of(0) else { unreachable!() };
    aggregates.extend(more.into_iter().map(|sum| Aggregate { name: "more".into(), ..sum }));
    Output::Aggregate { keys, aggregates }
}

#[test]
fn who_comes_late_rides_along_and_reads_the_rest_later() {
    let (_, table, shelf) = shelved();
    let once = bytes_of(&table, &[2]);
    let mut memory = Memory::new(&shelf, once / (GROUPS / FITTING) as usize);
    let shared_scans = Arc::<SharedScans>::default();
    let mut riders = vec![Rider::new(&table, &shared_scans, None, sum_of(2))];
    while shelf.fetched.load(Ordering::Relaxed) < once / 2 {
        riders[0].step();
        memory.answer();
    }
    riders.push(Rider::new(&table, &shared_scans, None, sum_of(2)));
    ride(&mut riders, &[1, 1], &mut memory);
    let read = shelf.fetched.load(Ordering::Relaxed);
    assert!(read < once * 3 / 2 + once / 16, "{read} of {once}");
    assert_eq!(rows_of(&riders[0].batches), rows_of(&riders[1].batches));
}

#[test]
fn who_is_slower_is_not_waited_for() {
    let (_, table, shelf) = shelved();
    let once = bytes_of(&table, &[2]);
    let mut memory = Memory::new(&shelf, once / (GROUPS / FITTING) as usize);
    let shared_scans = Arc::<SharedScans>::default();
    let mut riders: Vec<Rider> = (0..2).map(|_| Rider::new(&table, &shared_scans, None, sum_of(2))).collect();
    // The second run executes no step before the first is done; the first must not wait for it.
    let (fast, slow) = riders.split_at_mut(1);
    ride(fast, &[1], &mut memory);
    assert_eq!(shelf.fetched.load(Ordering::Relaxed), once);
    ride(slow, &[1], &mut memory);
    assert!(shelf.fetched.load(Ordering::Relaxed) <= 2 * once);
    assert_eq!(rows_of(&riders[0].batches), rows_of(&riders[1].batches));
}

#[test]
fn all_together_read_no_more_ahead_than_one() {
    let (_, table, shelf) = shelved();
    let shared_scans = Arc::<SharedScans>::default();
    let mut riders: Vec<Rider> =
        (0..12).map(|_| Rider::new(&table, &shared_scans, None, sum_of(2))).collect();
    // Values arrive only after all runs wait for some.
    for _ in 0..100 {
        riders.iter_mut().for_each(|rider| _ = rider.step());
    }
    assert!(riders.iter().all(|rider| rider.run.waits_for_values()));
    let awaited: std::collections::BTreeSet<usize> = {
        let requests = shelf.requests.lock();
        requests
            .iter()
            .flat_map(|request| request.handles.iter().map(|handle| Arc::as_ptr(handle) as usize))
            .collect()
    };
    let group = bytes_of(&table, &[2]) / GROUPS as usize;
    // The bytes that one run may read ahead, plus the row group that exceeds them.
    assert!(awaited.len() * group <= AHEAD + 2 * group, "{} row groups", awaited.len());
    let mut memory = Memory::new(&shelf, bytes_of(&table, &[2]) / (GROUPS / FITTING) as usize);
    ride(&mut riders, &[1; 12], &mut memory);
    let read = shelf.fetched.load(Ordering::Relaxed);
    assert!(read <= bytes_of(&table, &[2]) + group, "{read}");
}

#[test]
fn columns_that_only_one_needs_are_read_for_it_alone() {
    let (_, table, shelf) = shelved();
    let shared_scans = Arc::<SharedScans>::default();
    let mut riders = vec![
        Rider::new(&table, &shared_scans, None, rows_sum()),
        Rider::new(&table, &shared_scans, None, sum_of(2)),
    ];
    let once = bytes_of(&table, &[0, 2]);
    let mut memory = Memory::new(&shelf, once / (GROUPS / FITTING) as usize);
    ride(&mut riders, &[1, 1], &mut memory);
    let read = shelf.fetched.load(Ordering::Relaxed);
    assert!(read <= once + once / 10, "{read} of {once}");
}

#[test]
fn an_order_of_its_own_is_kept() {
    let (_, table, shelf) = shelved();
    let shared_scans = Arc::<SharedScans>::default();
    let top = farpool_model::Program {
        table: TableName::new("t").unwrap(),
        version: None,
        lookups: Vec::new(),
        filter: None,
        output: Output::Rows(vec![NamedExpr { name: "c".into(), expr: Expr::Column(2) }]),
        having: None,
        order: vec![SortKey { column: 0, descending: true, nulls_first: false }],
        limit: Some(3),
    };
    let top = BoundProgram::prepare(&top, table.clone(), farpool_model::Version(1), Budget::default());
    let mut riders =
        vec![Rider::new(&table, &shared_scans, None, sum_of(2)), Rider::of(&top.unwrap(), &shared_scans)];
    let mut memory = Memory::new(&shelf, bytes_of(&table, &[2]) / (GROUPS / FITTING) as usize);
    ride(&mut riders, &[1, 1], &mut memory);
    // Zone maps exclude all row groups but the last, even those that other runs have read.
    assert_eq!(riders[1].run.receipt().rows_scanned, GROUP_ROWS as u64);
    assert_eq!(riders[1].run.receipt().bytes_shared, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn riders_that_come_and_go_get_what_they_would_get_alone(
        count in 1..6_usize,
        tier in prop_oneof![3 => Just(None), 1 => Just(Some(Tier::Fast))],
        seed in any::<u64>(),
    ) {
        let plain = table_of(12, GROUP_ROWS);
        let (table, shelf) = on_shelf(&plain, tier);
        let shared_scans = Arc::<SharedScans>::default();
        let mut random = random(seed);
        let mut riders: Vec<(Rider, Vec<Vec<Option<i64>>>)> = Vec::new();
        let mut left = 3 * count;
        while left > 0 || !riders.is_empty() {
            if left > 0 && riders.len() < count && (riders.is_empty() || random().is_multiple_of(16)) {
                left -= 1;
                let filter = random().is_multiple_of(2).then(|| id_compares(CompareOp::GtEq, 40_000).unwrap());
                let output = outputs().swap_remove(random() % 3);
                let alone = bound(&plain, filter.clone(), output.clone(), None, Budget::default());
                let alone = drive(&Run::start(&alone).unwrap(), None, &mut random);
                riders.push((Rider::new(&table, &shared_scans, filter, output), rows_of(&alone)));
            }
            let place = random() % riders.len();
            let (rider, expected) = &mut riders[place];
            match random() % 40 {
                0 => shelf.evict(random()),
                1 => rider.run.keep_values(HoldPolicy::Nothing),
                2 => rider.run.keep_values(HoldPolicy::Everything),
                3 => {
                    rider.run.cancel();
                    riders.swap_remove(place);
                    continue;
                }
                4..10 => drop(shelf.answer(random(), random().is_multiple_of(2))),
                _ => {}
            }
            if !rider.step() && random().is_multiple_of(2) {
                shelf.answer(random(), true);
            }
            if rider.is_done {
                prop_assert_eq!(&rows_of(&rider.batches), expected);
                let receipt = rider.run.receipt();
                prop_assert_eq!(receipt.rows_scanned + receipt.rows_skipped, table.rows);
                prop_assert!(receipt.bytes_shared <= receipt.bytes_from_cache);
                riders.swap_remove(place);
            }
        }
    }
}
