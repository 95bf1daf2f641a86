//! Tests of programs that share the results of a filter (the predicate cache), against the same programs executed
//! alone.

use super::*;
use crate::SharedScans;
use farpool_columns::table_cipher;
use farpool_memory::{Account, WorkMemory};
use farpool_model::{Tier, cast};

/// Number of rows per row group. Reason: enough for each row group to be processed in a step of its own.
const ROWS: i64 = 20_000;

fn account(bytes: usize) -> Account {
    WorkMemory::new(bytes).account(&TenantName::default())
}

/// Creates a filter that zone maps cannot decide: ids with this remainder modulo seven.
fn of_remainder(remainder: i64) -> Option<Expr> {
    Some(Expr::compare(CompareOp::Eq, Expr::Column(1), int(remainder)))
}

fn outputs() -> Vec<Output> {
    let max =
        Output::Aggregate { keys: vec![], aggregates: vec![aggregate(AggregateFunction::Max, Some(2))] };
    vec![rows(&[0, 2]), sum_and_count_by_k(), max, rows(&[])]
}

fn sorted(batches: &[RecordBatch]) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for batch in batches {
        let text = |row: usize| {
            let values = batch.columns().iter().map(|column| format!("{:?}", column.slice(row, 1)));
            values.collect::<Vec<_>>().join(" | ")
        };
        rows.extend((0..batch.num_rows()).map(text));
    }
    rows.sort_unstable();
    rows
}

fn joined(program: &BoundProgram, shared_scans: &Arc<SharedScans>, account: &Account) -> Arc<Run> {
    let run = Run::start(program).unwrap();
    run.join(shared_scans.sharing(program, account));
    run
}

#[test]
fn a_filter_is_evaluated_once_for_all_that_have_it() {
    let table = table_of(6, ROWS);
    let (shared_scans, account) = (Arc::<SharedScans>::default(), account(1 << 30));
    for (turn, output) in outputs().into_iter().chain(outputs()).enumerate() {
        let program = bound(&table, of_remainder(2), output, None, Budget::default());
        let expected = sorted(&drive(&Run::start(&program).unwrap(), 1).unwrap());
        let run = joined(&program, &shared_scans, &account);
        assert_eq!(sorted(&drive(&run, 1).unwrap()), expected, "turn {turn}");
        let receipt = run.receipt();
        // The results of the filter are recorded from the second program on, and known from the third on.
        let known = if turn < 2 { 0 } else { table.rows };
        assert_eq!((receipt.rows_known, receipt.rows_scanned), (known, table.rows), "turn {turn}");
        assert!(account.memory().usage().bytes_used < 1 << 20);
    }
    // The column of the filter is not read, because its results are known.
    let program = bound(&table, of_remainder(2), rows(&[0]), None, Budget::default());
    let receipt = {
        let run = joined(&program, &shared_scans, &account);
        drive(&run, 1).unwrap();
        run.receipt()
    };
    let of_column =
        |column: usize| table.row_groups.iter().map(move |group| group.chunks[column].bytes_encoded());
    assert_eq!(receipt.bytes_scanned, of_column(0).sum::<usize>() as u64);
    // Cached results are used neither for another filter nor for the same filter with added conditions.
    let other = bound(&table, of_remainder(3), rows(&[0]), None, Budget::default());
    let narrowed = program.narrowed(&id_compares(CompareOp::Lt, 5_000).unwrap()).unwrap();
    for program in [other, narrowed] {
        let expected = sorted(&drive(&Run::start(&program).unwrap(), 1).unwrap());
        let run = joined(&program, &shared_scans, &account);
        assert_eq!(sorted(&drive(&run, 1).unwrap()), expected);
        assert_eq!(run.receipt().rows_known, 0);
    }
    drop(shared_scans);
    assert_eq!(account.memory().usage().bytes_used, 0);
}

#[test]
fn where_no_row_passes_nothing_is_read() {
    let table = table_of(4, ROWS);
    let (shared_scans, account) = (Arc::<SharedScans>::default(), account(1 << 30));
    // Creates a filter for one row that zone maps cannot find.
    let squared = Expr::arithmetic(ArithmeticOp::Multiply, Expr::Column(0), Expr::Column(0));
    let filter = Some(Expr::compare(CompareOp::Eq, squared, int(9)));
    let program = bound(&table, filter, rows(&[2]), None, Budget::default());
    let runs: Vec<Arc<Run>> = (0..3).map(|_| joined(&program, &shared_scans, &account)).collect();
    for run in &runs {
        assert_eq!(drive(run, 1).unwrap().iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
    }
    let receipt = runs[2].receipt();
    assert_eq!((receipt.rows_scanned, receipt.rows_known), (ROWS as u64, ROWS as u64));
    assert_eq!(receipt.rows_skipped, 3 * ROWS as u64);
}

#[test]
fn those_that_run_at_once_judge_each_a_part() {
    let table = table_of(16, ROWS);
    let (shared_scans, account) = (Arc::<SharedScans>::default(), account(1 << 30));
    let programs: Vec<BoundProgram> = outputs()
        .into_iter()
        .map(|output| bound(&table, of_remainder(5), output, None, Budget::default()))
        .collect();
    let expected: Vec<_> =
        programs.iter().map(|program| sorted(&drive(&Run::start(program).unwrap(), 1).unwrap())).collect();
    let runs: Vec<Arc<Run>> =
        programs.iter().map(|program| joined(program, &shared_scans, &account)).collect();
    let mut batches: Vec<Vec<RecordBatch>> = vec![Vec::new(); runs.len()];
    let mut left: Vec<usize> = (0..runs.len()).collect();
    while !left.is_empty() {
        left.retain(|place| match runs[*place].step(&Standing).unwrap() {
            Step::Batches(more) => {
                batches[*place].extend(more);
                true
            }
            Step::Done => false,
            _ => true,
        });
    }
    let mut judged = 0;
    for ((run, batches), expected) in runs.iter().zip(&batches).zip(&expected) {
        assert_eq!(&sorted(batches), expected);
        let receipt = run.receipt();
        judged += receipt.rows_scanned - receipt.rows_known;
    }
    assert_eq!(judged, table.rows, "each row group is judged once");
}

#[test]
fn what_is_known_is_of_row_groups_and_not_of_tables() {
    let (first, other) = (table_of(4, ROWS), table_of(4, ROWS));
    let (shared_scans, account) = (Arc::<SharedScans>::default(), account(1 << 30));
    for table in [&first, &first, &other] {
        let program = bound(table, of_remainder(1), rows(&[0]), None, Budget::default());
        let run = joined(&program, &shared_scans, &account);
        drive(&run, 1).unwrap();
        assert_eq!(run.receipt().rows_known, 0);
    }
    // Cached results of a dropped table are removed to make room for those of another.
    let held = account.memory().usage().bytes_used;
    assert!(held > 0);
    drop((first, other));
    let (table, small) = (table_of(1, ROWS), self::account(limits::JUDGED_PART * 8_000));
    for _ in 0..3 {
        let program = bound(&table, of_remainder(1), rows(&[0]), None, Budget::default());
        drive(&joined(&program, &shared_scans, &small), 1).unwrap();
    }
    assert_eq!(account.memory().usage().bytes_used, 0, "bits of row groups that are gone are kept");
    let held = small.memory().usage().bytes_used;
    assert!(held > 0 && shared_scans.bytes_held() as u64 == held);
    // Cached results of a dropped table are also removed at a lookup.
    drop(table);
    shared_scans.forget_gone();
    assert_eq!(small.memory().usage().bytes_used, 0);
}

#[test]
fn of_encrypted_tables_nothing_is_known() {
    let plain = table_of(2, ROWS);
    let cipher = table_cipher(Tier::Fast).unwrap();
    let pool = Pool::new(PoolConfig { bytes_limit: 64 << 20 }).unwrap();
    let builder = TableBuilder::new(pool, TenantName::default(), &plain.schema, None).unwrap();
    let mut builder = builder.encrypting(Some(&cipher));
    for group in &plain.row_groups {
        let columns: Vec<_> = group.chunks.iter().map(|chunk| chunk.decode(0..group.rows).unwrap()).collect();
        let group = builder.encoder().encode(&farpool_columns::PlainGroup::of(&columns)).unwrap();
        builder.add_row_group(Arc::new(group)).unwrap();
    }
    let table = Arc::new(builder.finish().unwrap());
    let (shared_scans, account) = (Arc::<SharedScans>::default(), account(1 << 30));
    for _ in 0..3 {
        let program = bound(&table, of_remainder(1), rows(&[0]), None, Budget::default());
        let run = joined(&program, &shared_scans, &account);
        drive(&run, 1).unwrap();
        assert_eq!(run.receipt().rows_known, 0);
    }
    assert_eq!(account.memory().usage().bytes_used, 0);
}

#[test]
fn a_filter_that_fails_fails_each_time() {
    let table = table_of(2, ROWS);
    let (shared_scans, account) = (Arc::<SharedScans>::default(), account(1 << 30));
    let quotient = Expr::arithmetic(ArithmeticOp::Divide, int(1), Expr::Column(1));
    let filter = Some(Expr::compare(CompareOp::Eq, quotient, int(1)));
    for _ in 0..4 {
        let program = bound(&table, filter.clone(), rows(&[0]), None, Budget::default());
        let error = drive(&joined(&program, &shared_scans, &account), 1).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn known_or_not_answers_are_the_same(
        threads in 1..4_usize,
        bytes in prop_oneof![Just(1 << 30), Just(limits::JUDGED_PART * 6_000)],
        seed in any::<u64>(),
    ) {
        let table = table_of(6, ROWS);
        let (shared_scans, account) = (Arc::<SharedScans>::default(), account(bytes));
        let mut random = random(seed);
        for _ in 0..6 {
            let programs: Vec<BoundProgram> = (0..3).map(|_| {
                let remainder = of_remainder(random() as i64 % 3);
                let after = id_compares(CompareOp::GtEq, 30_000);
                let filter = if random().is_multiple_of(2) { remainder } else {
                    Expr::all(remainder.into_iter().chain(after).collect())
                };
                let output = outputs().swap_remove(random() % 4);
                bound(&table, filter, output, None, Budget::default())
            }).collect();
            let runs: Vec<Arc<Run>> = programs.iter().map(|program| joined(program, &shared_scans, &account)).collect();
            let answers: Vec<_> = std::thread::scope(|scope| {
                let driven: Vec<_> =
                    runs.iter().map(|run| scope.spawn(move || drive(run, threads).unwrap())).collect();
                driven.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            for (program, answer) in programs.iter().zip(&answers) {
                let alone = drive(&Run::start(program).unwrap(), 1).unwrap();
                prop_assert_eq!(sorted(answer), sorted(&alone));
            }
            let most = cast::u64_from(limits::JUDGED_BYTES_MAX.min(bytes / limits::JUDGED_PART));
            prop_assert!(account.memory().usage().bytes_used <= most);
        }
    }
}
