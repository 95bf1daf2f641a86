//! Tests of programs with lookups, random ones against nested loops over plain rows.

mod groups;

use super::*;
use arrow_array::StringViewArray;
use farpool_model::{Lookup, LookupKey, LookupKind};

/// A row; the columns are those of the program's rows behind its lookups.
type Row = Vec<Option<i64>>;

/// A random program, and the rows that it returns.
struct Case {
    program: BoundProgram,
    rows: Vec<Row>,
}

/// The rows of a [`table_of`] with `rows` rows.
fn rows_of_table(rows: i64) -> Vec<Row> {
    (0..rows).map(|id| vec![Some(id), Some(id % 7), Some(id * 3)]).collect()
}

fn compares(row: &Row, column: usize, op: CompareOp, value: i64) -> bool {
    row[column].is_some_and(|found| match op {
        CompareOp::Lt => found < value,
        CompareOp::GtEq => found >= value,
        _ => found != value,
    })
}

/// Joins by nested loops; `None` if a scalar subquery has several rows.
fn joined(rows: &[Row], results: &[Row], lookup: &Lookup, width: usize) -> Option<Vec<Row>> {
    let mut joined = Vec::new();
    for row in rows {
        let is_match = |result: &&Row| {
            lookup.keys.iter().all(|key| row[key.row].is_some() && row[key.row] == result[key.result])
                && lookup.residual.as_ref().is_none_or(|residual| {
                    let Expr::Compare(_, left, right) = residual else { panic!("{residual}") };
                    let pair = [&row[..], result].concat();
                    let value = |expr: &Expr| pair[expr.as_column().unwrap()];
                    value(left).zip(value(right)).is_some_and(|(left, right)| left < right)
                })
        };
        let matches: Vec<&Row> = results.iter().filter(is_match).collect();
        let with = |more: &[Option<i64>]| [&row[..], more].concat();
        let has_null = lookup.keys.first().is_some_and(|key| {
            row[key.row].is_none() || results.iter().any(|result| result[key.result].is_none())
        });
        let is_in = match (matches.is_empty(), has_null && !results.is_empty()) {
            (false, _) => Some(1),
            (true, true) => None,
            (true, false) => Some(0),
        };
        match lookup.kind {
            LookupKind::Single if matches.len() > 1 => return None,
            LookupKind::Left | LookupKind::Single if matches.is_empty() => {
                joined.push(with(&vec![None; width]))
            }
            LookupKind::Inner | LookupKind::Left | LookupKind::Single => {
                joined.extend(matches.iter().map(|result| with(result)));
            }
            LookupKind::Semi => joined.extend((!matches.is_empty()).then(|| row.clone())),
            LookupKind::Anti => joined.extend(matches.is_empty().then(|| row.clone())),
            LookupKind::NotIn => joined.extend((is_in == Some(0)).then(|| row.clone())),
            LookupKind::Exists => joined.push(with(&[Some(i64::from(!matches.is_empty()))])),
            LookupKind::In => joined.push(with(&[is_in])),
        }
    }
    Some(joined)
}

/// Depth of lookups in random programs.
const DEPTH: usize = 3;

/// Creates a random program over a small table, with lookups up to `depth` deep; below [`DEPTH`], it is that of a lookup
/// and may return distinct rows. Returns `None` if a scalar subquery
/// has several rows, or there are too many rows for nested loops.
fn case(random: &mut impl FnMut() -> usize, depth: usize, budget: Budget) -> Option<Case> {
    let (groups, per_group) = ([0, 1, 3][random() % 3], [1, 20, 90][random() % 3]);
    let table = table_of(groups, per_group);
    let mut rows = rows_of_table(groups * per_group);
    // Whether each column of the rows is a number, rather than a boolean.
    let mut numbers = vec![true; 3];
    let (mut lookups, mut sides) = (Vec::new(), Vec::new());
    for _ in 0..if depth == 0 { 0 } else { random() % 4 } {
        let side = case(random, depth - 1, budget)?;
        let of_side: Vec<bool> = side
            .program
            .prepared()
            .schema
            .fields()
            .iter()
            .map(|field| *field.data_type() == DataType::Int64)
            .collect();
        let mut number_of = |columns: &[bool]| {
            let columns: Vec<usize> = (0..columns.len()).filter(|column| columns[*column]).collect();
            columns[random() % columns.len()]
        };
        let mut key = || LookupKey { row: number_of(&numbers), result: number_of(&of_side) };
        let keys = vec![key(), key()];
        let less =
            Expr::compare(CompareOp::Lt, Expr::Column(key().row), Expr::Column(numbers.len() + key().result));
        let kind = LookupKind::ALL[random() % LookupKind::ALL.len()];
        let is_in = kind.minds_nulls();
        let keys = if is_in || random().is_multiple_of(2) { keys[..1].to_vec() } else { keys };
        let residual = (!is_in && random().is_multiple_of(3)).then_some(less);
        let program = side.program.prepared().effective.clone();
        let table_schema = side.program.table().schema.clone();
        let lookup =
            Lookup { kind, program, table_schema, given: None, keys, residual, mark: "mark".to_string() };
        rows = joined(&rows, &side.rows, &lookup, of_side.len())?;
        if rows.len() > 20_000 {
            return None;
        }
        if kind.adds_columns() {
            numbers.extend(&of_side);
        }
        if kind.adds_mark() {
            numbers.push(false);
        }
        lookups.push(lookup);
        sides.push(Arc::new(side.program));
    }
    let mut conditions = Vec::new();
    for _ in 0..random() % 3 {
        let column = random() % numbers.len();
        if numbers[column] {
            let op = [CompareOp::Lt, CompareOp::GtEq, CompareOp::NotEq][random() % 3];
            let value = (random() % 60) as i64;
            conditions.push(Expr::compare(op, Expr::Column(column), int(value)));
            rows.retain(|row| compares(row, column, op, value));
        }
    }
    let columns: Vec<usize> =
        (0..3).chain((3..numbers.len()).filter(|_| random().is_multiple_of(2))).collect();
    let mut output = self::rows(&columns);
    let mut rows: Vec<Row> =
        rows.iter().map(|row| columns.iter().map(|column| row[*column]).collect()).collect();
    let is_side = depth < DEPTH;
    if let (Output::Rows(keys), true) = (&output, is_side && random().is_multiple_of(3)) {
        output = Output::Aggregate { keys: keys.clone(), aggregates: Vec::new() };
        rows.sort();
        rows.dedup();
    }
    let program = Program {
        table: TableName::new("t").unwrap(),
        version: None,
        lookups,
        filter: Expr::all(conditions),
        output,
        having: None,
        order: Vec::new(),
        limit: None,
    };
    let prepare = if is_side { BoundProgram::prepare_side } else { BoundProgram::prepare_joined };
    let program = prepare(&program, table, Version(1), budget, sides).unwrap();
    Some(Case { program, rows })
}

fn rows_returned(batches: &[RecordBatch]) -> Vec<Row> {
    let value = |column: &ArrayRef, row: usize| {
        let is_valid = arrow_array::Array::is_valid(column, row);
        is_valid.then(|| match column.data_type() {
            DataType::Boolean => i64::from(column.as_boolean().value(row)),
            _ => column.as_primitive::<Int64Type>().value(row),
        })
    };
    let rows = |batch: &RecordBatch| {
        (0..batch.num_rows())
            .map(|row| batch.columns().iter().map(|column| value(column, row)).collect())
            .collect()
    };
    let mut rows: Vec<Row> = batches.iter().flat_map(|batch| -> Vec<Row> { rows(batch) }).collect();
    rows.sort();
    rows
}

#[test]
fn programs_with_lookups_return_what_nested_loops_do() {
    let mut random = random(46);
    let (mut returned, mut deep, mut direct) = (0, 0, 0);
    for round in 0..600 {
        let budget = Budget { workers: 1 + round % 3, ..Budget::default() };
        let Some(Case { program, mut rows }) = case(&mut random, DEPTH, budget) else { continue };
        rows.sort();
        returned += rows.len();
        deep += usize::from(
            program.prepared().effective.lookups.iter().any(|lookup| !lookup.program.lookups.is_empty()),
        );
        let run = Run::start(&program).unwrap();
        assert!(run.need().is_ok());
        let ticking = Ticking::default();
        let clock: &dyn Clock = if round % 2 == 0 { &Standing } else { &ticking };
        let batches = drive_by(clock, &run, 1 + round % 3).unwrap();
        assert_eq!(rows_returned(&batches), rows, "round {round}: {:?}", program.prepared().effective);
        assert_eq!(run.receipt().rows_returned, rows.len() as u64);
        direct += usize::from(run.joins.as_ref().is_some_and(|joins| !joins.looks_up()));
    }
    assert!(returned > 10_000 && deep > 300, "{returned} rows, {deep} programs");
    assert!(direct > 20, "{direct} programs have no lookups but conditions");
}

/// A star: a table with two lookups by `k` and `id`, of which the first one has a condition.
fn star(groups: i64, output: Output, limit: Option<u64>, order: Vec<SortKey>) -> BoundProgram {
    let budget = Budget { workers: 3, ..Budget::default() };
    let few = Arc::new(bound(&table_of(1, 5), id_compares(CompareOp::GtEq, 2), rows(&[1, 2]), None, budget));
    let all = Arc::new(bound(&table(groups), None, rows(&[0, 2]), None, budget));
    let lookup = |side: &BoundProgram, key: usize| Lookup {
        kind: LookupKind::Inner,
        program: side.prepared().effective.clone(),
        table_schema: side.table().schema.clone(),
        given: None,
        keys: vec![LookupKey { row: key, result: 0 }],
        residual: None,
        mark: String::new(),
    };
    let program = Program {
        table: TableName::new("t").unwrap(),
        version: None,
        lookups: vec![lookup(&few, 1), lookup(&all, 0)],
        filter: id_compares(CompareOp::Lt, groups * GROUP_ROWS - 100),
        output,
        having: None,
        order,
        limit,
    };
    BoundProgram::prepare_joined(&program, table(groups), Version(1), budget, vec![few, all]).unwrap()
}

/// The rows of a [`star`]: of each row the columns id, k and v, then k and v of the first lookup, id and v of the
/// second.
fn star_rows(groups: i64) -> impl Iterator<Item = [i64; 7]> {
    let ids = (0..groups * GROUP_ROWS - 100).filter(|id| (2..5).contains(&(id % 7)));
    ids.map(|id| [id, id % 7, id * 3, id % 7, id % 7 * 3, id, id * 3])
}

#[test]
fn rows_behind_lookups_are_grouped_and_ordered() {
    let keys = vec![NamedExpr { name: "k".into(), expr: Expr::Column(4) }];
    let aggregates =
        vec![aggregate(AggregateFunction::Sum, Some(6)), aggregate(AggregateFunction::Count, None)];
    let program = star(4, Output::Aggregate { keys, aggregates }, None, Vec::new());
    assert!(program.prepared().is_partial(), "{:?}", program.refusal());
    let batches = drive(&Run::start(&program).unwrap(), 3).unwrap();
    let mut sums: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for batch in &batches {
        let [keys, counts] = [0, 2].map(|column| column_values(std::slice::from_ref(batch), column));
        let of_keys = batch.column(1).as_primitive::<Decimal128Type>().values();
        for ((key, count), sum) in keys.iter().zip(counts).zip(of_keys) {
            let entry = sums.entry(*key).or_default();
            *entry = (entry.0 + *sum as i64, entry.1 + count);
        }
    }
    let mut expected: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for row in star_rows(4) {
        let sum = expected.entry(row[4]).or_default();
        *sum = (sum.0 + row[6], sum.1 + 1);
    }
    assert_eq!(sums, expected);
    let order = vec![SortKey { column: 1, descending: true, nulls_first: false }];
    let program = star(4, rows(&[3, 6]), Some(10), order);
    let batches = drive(&Run::start(&program).unwrap(), 3).unwrap();
    let mut largest: Vec<i64> = star_rows(4).map(|row| row[6]).collect();
    largest.sort_unstable_by(|a, b| b.cmp(a));
    let mut returned = column_values(&batches, 1);
    returned.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(returned, largest[..10]);
}

/// The string in row `id` of a table of strings: one of `distinct`, or NULL.
fn text_of(id: i64, distinct: i64) -> Option<String> {
    let number = id * 7919 % distinct;
    (id % 11 != 0).then(|| format!("number {number}, {}", "x".repeat(number as usize % 20)))
}

/// Creates a table with a number, which counts up from 0, and a string of [`text_of`].
fn table_of_texts(rows: i64, distinct: i64) -> Arc<Table> {
    let pool = Pool::new(PoolConfig { bytes_limit: 64 << 20 }).unwrap();
    let fields = vec![Field::new("id", DataType::Int64, true), Field::new("text", DataType::Utf8View, true)];
    let schema = Arc::new(Schema::new(fields));
    let mut builder = TableBuilder::new(pool, TenantName::default(), &schema, None).unwrap();
    let texts = StringViewArray::from_iter((0..rows).map(|id| text_of(id, distinct)));
    let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(0..rows)), Arc::new(texts)];
    builder.push(&RecordBatch::try_new(schema, columns).unwrap()).unwrap();
    Arc::new(builder.finish().unwrap())
}

#[test]
fn strings_of_lookups_are_compared_and_grouped_whether_they_repeat_or_not() {
    let budget = Budget::default();
    let scanned = table(3);
    // Some rows have no match.
    let looked_up = 3 * GROUP_ROWS - 300;
    for (distinct, least) in [1, 7, 300, 5000].into_iter().flat_map(|distinct| [(distinct, 0), (distinct, 3)])
    {
        let texts = table_of_texts(looked_up, distinct);
        let side = Arc::new(bound(&texts, None, rows(&[0, 1]), None, budget));
        let lookup = Lookup {
            kind: LookupKind::Left,
            program: side.prepared().effective.clone(),
            table_schema: side.table().schema.clone(),
            given: None,
            keys: vec![LookupKey { row: 0, result: 0 }],
            residual: None,
            mark: String::new(),
        };
        let least = (least > 0).then(|| format!("number {least}"));
        let literal = |text: &String| {
            Expr::Literal(Literal::new(Value::Text(text.clone()), DataType::Utf8View).unwrap())
        };
        let filter =
            least.as_ref().map(|least| Expr::compare(CompareOp::GtEq, Expr::Column(4), literal(least)));
        let keys = vec![NamedExpr { name: "text".into(), expr: Expr::Column(4) }];
        let output = Output::Aggregate { keys, aggregates: vec![aggregate(AggregateFunction::Count, None)] };
        let scan = Program::scan(TableName::new("t").unwrap(), &scanned.schema, &[0]);
        let program = Program { lookups: vec![lookup], filter, output, ..scan };
        let program =
            BoundProgram::prepare_joined(&program, scanned.clone(), Version(1), budget, vec![side]).unwrap();
        let mut counts: BTreeMap<Option<String>, i64> = BTreeMap::new();
        for batch in drive(&Run::start(&program).unwrap(), 2).unwrap() {
            let counted = column_values(std::slice::from_ref(&batch), 1);
            for (text, count) in batch.column(0).as_string_view().iter().zip(counted) {
                *counts.entry(text.map(str::to_string)).or_default() += count;
            }
        }
        let mut expected: BTreeMap<Option<String>, i64> = BTreeMap::new();
        for id in 0..3 * GROUP_ROWS {
            let text = Some(id).filter(|id| *id < looked_up).and_then(|id| text_of(id, distinct));
            if least.is_none() || text >= least {
                *expected.entry(text).or_default() += 1;
            }
        }
        assert_eq!(counts, expected, "{distinct} strings");
    }
}

#[test]
fn keys_of_lookups_thin_out_the_scan() {
    let budget = Budget::default();
    let few = || Arc::new(bound(&table_of(1, 5), None, rows(&[0]), None, budget));
    let none = Arc::new(bound(&table_of(1, 5), id_compares(CompareOp::GtEq, 5), rows(&[0]), None, budget));
    // The kind, the rows that are looked up, and the numbers of rows that are read and returned.
    for (kind, side, read, returned) in [
        (LookupKind::Semi, few(), GROUP_ROWS, 5),
        (LookupKind::Inner, few(), GROUP_ROWS, 5),
        (LookupKind::Inner, none.clone(), 0, 0),
        (LookupKind::Anti, few(), 9 * GROUP_ROWS, 9 * GROUP_ROWS - 5),
        (LookupKind::Left, none, 9 * GROUP_ROWS, 9 * GROUP_ROWS),
    ] {
        let of_side = side.table().rows;
        let lookup = Lookup {
            kind,
            program: side.prepared().effective.clone(),
            table_schema: side.table().schema.clone(),
            given: None,
            keys: vec![LookupKey { row: 0, result: 0 }],
            residual: None,
            mark: String::new(),
        };
        let table = table(9);
        let scan = Program::scan(TableName::new("t").unwrap(), &table.schema, &[0]);
        let program = Program { lookups: vec![lookup], ..scan };
        let program = BoundProgram::prepare_joined(&program, table, Version(1), budget, vec![side]).unwrap();
        let run = Run::start(&program).unwrap();
        let batches = drive(&run, 1).unwrap();
        assert_eq!(column_values(&batches, 0).len() as i64, returned, "{kind:?}");
        let receipt = run.receipt();
        assert!(receipt.rows_scanned <= of_side + read as u64, "{kind:?}: {}", receipt.rows_scanned);
        assert_eq!(receipt.rows_scanned + receipt.rows_skipped, of_side + 9 * GROUP_ROWS as u64);
    }
}

/// A program over `table` with one lookup in `side`, by the column `key` and its first column, that returns `id` and `v`.
fn with_lookup(
    kind: LookupKind,
    table: &Arc<Table>,
    filter: Option<Expr>,
    key: usize,
    side: BoundProgram,
) -> BoundProgram {
    let lookup = Lookup {
        kind,
        program: side.prepared().effective.clone(),
        table_schema: side.table().schema.clone(),
        given: None,
        keys: vec![LookupKey { row: key, result: 0 }],
        residual: None,
        mark: String::new(),
    };
    let scan = Program::scan(TableName::new("t").unwrap(), &table.schema, &[0, 2]);
    let program = Program { lookups: vec![lookup], filter, ..scan };
    let side = vec![Arc::new(side)];
    BoundProgram::prepare_joined(&program, table.clone(), Version(1), Budget::default(), side).unwrap()
}

#[test]
fn a_join_with_many_matches_gives_its_rows_piece_by_piece() {
    let table = table(3);
    let side = bound(&table, None, rows(&[1]), None, Budget::default());
    let run = Run::start(&with_lookup(LookupKind::Inner, &table, None, 1, side)).unwrap();
    let (mut returned, mut steps) = (0, 0);
    loop {
        match run.step(&Standing).unwrap() {
            Step::Batches(batches) => {
                let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
                assert!(rows <= 3 * limits::BATCH_ROWS, "{rows} rows at once");
                (returned, steps) = (returned + rows, steps + 1);
            }
            Step::Done => break,
            _ => {}
        }
    }
    let matches = |k: i64| (0..3 * GROUP_ROWS).filter(|id| id % 7 == k).count();
    assert_eq!(returned, (0..7).map(|k| matches(k) * matches(k)).sum::<usize>());
    assert!(steps > 50, "{steps}");
    assert!(run.joins.as_ref().unwrap().are_dropped(), "the tables are gone with the run");
}

#[test]
fn many_scanned_rows_without_a_match_are_joined() {
    // Of each batch of the scan more rows pass than a batch may have.
    let table = table_of(1, 60_000);
    let filter = Some(Expr::compare(CompareOp::Lt, Expr::Column(1), int(4)));
    let expected = (0..60_000).filter(|id| id % 7 < 4).count();
    for kind in [LookupKind::Left, LookupKind::Single, LookupKind::Anti, LookupKind::Exists] {
        let none = id_compares(CompareOp::Lt, 0);
        let side = bound(&table_of(1, 5), none, rows(&[0, 2]), None, Budget::default());
        let run = Run::start(&with_lookup(kind, &table, filter.clone(), 0, side)).unwrap();
        let batches = drive(&run, 1).unwrap();
        assert_eq!(column_values(&batches, 1).len(), expected, "{kind:?}");
    }
}

#[test]
fn the_memory_of_lookups_in_lookups_is_counted() {
    let (table, budget) = (table(5), Budget::default());
    let inner = with_lookup(LookupKind::Semi, &table, None, 0, bound(&table, None, rows(&[0]), None, budget));
    let of_inner = Run::start(&inner).unwrap().need().unwrap();
    assert!(of_inner.lookups > 0);
    let outer = with_lookup(LookupKind::Semi, &table, None, 0, inner);
    let of_outer = Run::start(&outer).unwrap().need().unwrap();
    assert!(of_outer.lookups > of_inner.bytes(), "{of_outer:?} {of_inner:?}");
}

/// A clock that takes a step of a run, as another thread would, whenever a thread that builds the first table of the run
/// asks for the time in the middle of its step.
#[derive(Debug)]
struct Meanwhile {
    run: Arc<Run>,
    is_in_step: AtomicBool,
    /// The rows that the program of the second lookup had read after each such step, if the step did something.
    read: Mutex<Vec<u64>>,
}

impl Clock for Meanwhile {
    fn now_ns(&self) -> u64 {
        let joins = self.run.joins.as_ref().unwrap();
        if self.is_in_step.swap(false, Ordering::Relaxed) && joins.is_building(0) {
            if matches!(self.run.step(&Standing).unwrap(), Step::Worked) {
                self.read.lock().push(joins.sides()[1].receipt().rows_scanned);
            }
        } else {
            self.is_in_step.store(true, Ordering::Relaxed);
        }
        0
    }

    fn thread_cpu_ns(&self) -> u64 {
        0
    }
}

#[test]
fn while_a_table_is_built_others_help_and_turn_to_the_next_lookup() {
    let run = Run::start(&star(4, rows(&[0, 4, 6]), None, Vec::new())).unwrap();
    let clock = Meanwhile { run: run.clone(), is_in_step: AtomicBool::default(), read: Mutex::default() };
    let mut returned = 0;
    loop {
        clock.is_in_step.store(false, Ordering::Relaxed);
        match run.step(&clock).unwrap() {
            Step::Batches(batches) => returned += column_values(&batches, 0).len(),
            Step::Done => break,
            _ => {}
        }
    }
    assert_eq!(returned, star_rows(4).count());
    let read = clock.read.into_inner();
    assert!(read[0] > 0, "nobody helps while the rows are looked through, but others scan: {read:?}");
    assert!(read.windows(2).any(|steps| steps[0] == steps[1]), "later others help: {read:?}");
}

#[test]
fn a_limit_ends_a_run_with_lookups_and_so_does_cancelling_it() {
    let program = star(9, rows(&[0, 4]), Some(7), Vec::new());
    let batches = drive(&Run::start(&program).unwrap(), 2).unwrap();
    assert_eq!(column_values(&batches, 0).len(), 7);
    let mut stopped = 0;
    for steps in 0..60 {
        let run = Run::start(&star(3, rows(&[0, 4]), None, Vec::new())).unwrap();
        let clock = Ticking::default();
        (0..steps).for_each(|_| drop(run.step(&clock).unwrap()));
        run.cancel();
        match run.step(&clock) {
            Ok(step) => assert!(matches!(step, Step::Done), "{step:?} after {steps} steps"),
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Cancelled);
                assert!(
                    run.joins
                        .as_ref()
                        .unwrap()
                        .sides()
                        .iter()
                        .all(|side| !matches!(side.table(), Ok(Some(_))))
                );
                stopped += 1;
            }
        }
    }
    assert!(stopped > 10, "{stopped} runs were stopped");
}

#[test]
fn a_lookup_of_more_than_the_budget_is_refused_with_its_size() {
    let budget = Budget { state_bytes_max: 4096, ..Budget::default() };
    let side = Arc::new(bound(&table(3), None, rows(&[0, 2]), None, budget));
    let lookup = Lookup {
        kind: LookupKind::Inner,
        program: side.prepared().effective.clone(),
        table_schema: side.table().schema.clone(),
        given: None,
        keys: vec![LookupKey { row: 0, result: 0 }],
        residual: None,
        mark: String::new(),
    };
    let program = Program {
        lookups: vec![lookup],
        ..Program::scan(TableName::new("t").unwrap(), &table(1).schema, &[0])
    };
    let program = BoundProgram::prepare_joined(&program, table(1), Version(1), budget, vec![side]).unwrap();
    let error = drive(&Run::start(&program).unwrap(), 1).unwrap_err();
    assert!(error.kind == ErrorKind::OverLimit && error.message.contains("a lookup"), "{error}");
}
