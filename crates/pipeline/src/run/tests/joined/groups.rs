//! Tests of groups that must stay whole: behind lookups with a condition or a limit, and of the programs of lookups.

use super::*;
use crate::budget::Overflow;

/// Groups that a program returns: those with at least `rows_min` rows, of these the first `limit`, or any if the order does
/// not matter. All of these are whole.
#[derive(Clone, Copy, Default)]
struct Wanted {
    rows_min: Option<i64>,
    limit: Option<u64>,
    is_ordered: bool,
}

/// A program with the lookups of `case` that groups its rows by some columns.
fn in_groups_of(case: &Case, keys: &[usize], wanted: Wanted, budget: Budget) -> BoundProgram {
    let program = &case.program;
    let effective = &program.prepared().effective;
    let Output::Rows(columns) = &effective.output else { panic!("{effective:?}") };
    let key = |(place, key): (usize, &usize)| NamedExpr {
        name: format!("key {place}"),
        expr: columns[*key].expr.clone(),
    };
    let of_id =
        Aggregate { arguments: vec![columns[0].expr.clone()], ..aggregate(AggregateFunction::Max, Some(0)) };
    let ascending = |column| SortKey { column, descending: false, nulls_first: false };
    let order = [SortKey { descending: true, ..ascending(keys.len()) }].into_iter();
    let order = order.chain((0..keys.len()).map(ascending)).collect();
    let grouped = Program {
        output: Output::Aggregate {
            keys: keys.iter().enumerate().map(key).collect(),
            aggregates: vec![aggregate(AggregateFunction::Count, None), of_id],
        },
        having: wanted.rows_min.map(|rows| {
            let rows = Literal::new(Value::Int(rows.into()), DataType::Int64).unwrap();
            Expr::compare(CompareOp::GtEq, Expr::Column(keys.len()), Expr::Literal(rows))
        }),
        order: if wanted.is_ordered { order } else { Vec::new() },
        limit: wanted.limit,
        ..effective.clone()
    };
    let sides = program.joined().expect("a program with lookups").sides.clone();
    let table = program.table().clone();
    BoundProgram::prepare_joined(&grouped, table, Version(1), budget, sides).unwrap()
}

/// All groups of the rows, the largest first: their keys, the number of rows, and the greatest `id`.
fn groups_of(rows: &[Row], keys: &[usize]) -> Vec<Row> {
    let mut groups: BTreeMap<_, (i64, Option<i64>)> = BTreeMap::new();
    for row in rows {
        let key: Vec<_> = keys.iter().map(|key| (row[*key].is_none(), row[*key])).collect();
        let (count, most) = groups.entry(key).or_default();
        (*count, *most) = (*count + 1, (*most).max(row[0]));
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(key, (count, _))| (-count, key.clone()));
    let row = |(key, (count, most)): (Vec<_>, (i64, Option<i64>))| {
        key.into_iter().map(|(_, key): (bool, Option<i64>)| key).chain([Some(count), most]).collect()
    };
    groups.into_iter().map(row).collect()
}

#[test]
fn the_first_groups_behind_lookups_are_those_of_nested_loops() {
    let mut random = random(47);
    let (mut returned, mut cut, mut regrouped) = (0, 0, 0);
    for round in 0..700 {
        let budget = Budget { workers: 1 + round % 3, ..Budget::default() };
        let Some(case) = case(&mut random, DEPTH, budget) else { continue };
        if case.program.joined().is_none() {
            continue;
        }
        let width = case.program.prepared().schema.fields().len();
        let keys: Vec<usize> = (0..1 + random() % 5).map(|_| random() % width).collect();
        let (limit, is_ordered) = (random() % 30, round % 4 > 0);
        let rows_min = (round % 5 < 2).then_some(2);
        let wanted = Wanted { rows_min, limit: Some(limit as u64), is_ordered };
        let program = in_groups_of(&case, &keys, wanted, budget);
        assert_eq!((program.refusal(), program.overflow()), (None, Overflow::Error));
        let run = Run::start(&program).unwrap();
        let ticking = Ticking::default();
        let clock: &dyn Clock = if round % 2 == 0 { &Standing } else { &ticking };
        let found = rows_returned(&drive_by(clock, &run, 1 + round % 3).unwrap());
        let mut all = groups_of(&case.rows, &keys);
        all.retain(|group| group[keys.len()] >= rows_min);
        let mut first = all[..limit.min(all.len())].to_vec();
        first.sort();
        if is_ordered {
            assert_eq!(found, first, "round {round}: {:?}", program.prepared().effective);
        } else {
            assert_eq!(found.len(), first.len(), "round {round}");
            assert!(found.iter().all(|group| all.contains(group)), "round {round}: {found:?}");
        }
        returned += found.len();
        cut += usize::from(all.len() > limit);
        regrouped += usize::from(run.joins.as_ref().is_some_and(Joins::are_regrouped));
    }
    assert!(returned > 600 && cut > 30, "{returned} groups, {cut} limits");
    assert!(regrouped > 10, "{regrouped} programs are grouped by fewer keys");
}

#[test]
fn parts_of_groups_behind_lookups_add_up_to_the_groups_of_nested_loops() {
    let mut random = random(48);
    let (mut in_parts, mut regrouped) = (0, 0);
    for round in 0..700 {
        let budget = Budget { workers: 1 + round % 3, ..Budget::default() };
        let Some(case) = case(&mut random, DEPTH, budget) else { continue };
        if case.program.joined().is_none() {
            continue;
        }
        let width = case.program.prepared().schema.fields().len();
        let keys: Vec<usize> = (0..1 + random() % 5).map(|_| random() % width).collect();
        let program = in_groups_of(&case, &keys, Wanted::default(), budget);
        let run = Run::start(&program).unwrap();
        if round % 2 == 0 {
            // Nearly every batch has more groups.
            run.group_bytes.store(64, Ordering::Relaxed);
        }
        let ticking = Ticking::default();
        let clock: &dyn Clock = if round % 3 == 0 { &Standing } else { &ticking };
        let parts = rows_returned(&drive_by(clock, &run, 1 + round % 3).unwrap());
        let mut groups: BTreeMap<Row, Row> = BTreeMap::new();
        for mut part in parts.iter().cloned() {
            let aggregates = part.split_off(keys.len());
            let whole = groups.entry(part).or_insert_with(|| vec![Some(0), None]);
            *whole = vec![Some(whole[0].unwrap() + aggregates[0].unwrap()), whole[1].max(aggregates[1])];
        }
        let mut found: Vec<Row> = groups.into_iter().map(|(key, of)| [key, of].concat()).collect();
        let mut all = groups_of(&case.rows, &keys);
        in_parts += usize::from(parts.len() > all.len());
        found.sort();
        all.sort();
        assert_eq!(found, all, "round {round}: {:?}", program.prepared().effective);
        regrouped += usize::from(run.joins.as_ref().is_some_and(Joins::are_regrouped));
    }
    assert!(in_parts > 1 && regrouped > 10, "{in_parts} in parts, {regrouped} with fewer keys");
}

/// A lookup without keys in common, so that all rows of a program pass it.
fn anti(side: &BoundProgram) -> Lookup {
    Lookup {
        kind: LookupKind::Anti,
        program: side.prepared().effective.clone(),
        table_schema: side.table().schema.clone(),
        given: None,
        keys: vec![LookupKey { row: 0, result: 0 }],
        residual: None,
        mark: String::new(),
    }
}

/// Groups by `id`, with the number of rows.
fn by_id() -> Output {
    let keys = vec![NamedExpr { name: "id".into(), expr: Expr::Column(0) }];
    Output::Aggregate { keys, aggregates: vec![aggregate(AggregateFunction::Count, None)] }
}

/// A program over 9,000 rows behind a lookup, with as many groups, of which it returns the first ten.
fn nine_thousand(budget: Budget, workers: usize) -> BoundProgram {
    let budget = Budget { workers, ..budget };
    let none = bound(&table_of(1, 5), id_compares(CompareOp::Lt, 0), rows(&[0]), None, budget);
    let program = Program {
        table: TableName::new("t").unwrap(),
        version: None,
        // Not a lookup that is a condition of the scan.
        lookups: vec![Lookup { kind: LookupKind::Left, ..anti(&none) }],
        filter: None,
        output: by_id(),
        having: None,
        order: vec![SortKey { column: 0, descending: false, nulls_first: false }],
        limit: Some(10),
    };
    BoundProgram::prepare_joined(&program, table(9), Version(1), budget, vec![Arc::new(none)]).unwrap()
}

/// Runs a program within the memory that it needs, made smaller as often as `halvings` allows. Returns the first column,
/// in order. Whatever the outcome, nothing stays reserved.
fn run_reserved(program: &BoundProgram, threads: usize, halvings: usize) -> Result<Vec<i64>> {
    let run = Run::start(program).unwrap();
    let memory = 8 << 30;
    let account = farpool_memory::WorkMemory::new(memory).account(&TenantName::default());
    let need = run.need().unwrap();
    assert_eq!(need.groups, program.budget().state_bytes_max / 2);
    let needs = std::iter::successors(Some(need), |need| need.smaller());
    let need = needs.take(1 + halvings).last().unwrap();
    run.keep_to(need, account.take(need.bytes()));
    assert!(account.free() < memory);
    let found = drive(&run, threads);
    assert_eq!(account.free(), memory, "{found:?}");
    let mut ids = column_values(&found?, 0);
    ids.sort_unstable();
    Ok(ids)
}

#[test]
fn too_many_groups_behind_lookups_end_the_run_with_their_size() {
    for workers in [1, 3] {
        // The maximum size of groups, how often it is halved, and whether the groups fit. With several workers and little
        // memory, that depends on how many rows each happens to get.
        for (state_bytes_max, halvings, fits) in [
            (40_000, 0, Some(false)),
            (200_000, 0, Some(false)),
            (8 << 20, 0, Some(true)),
            (1 << 30, 0, Some(true)),
            (1 << 30, 3, Some(true)),
            (1 << 30, 99, (workers == 1).then_some(true)),
        ] {
            let program = nine_thousand(Budget { state_bytes_max, ..Budget::default() }, workers);
            assert_eq!((program.refusal(), program.overflow()), (None, Overflow::Error));
            match run_reserved(&program, workers, halvings) {
                Ok(ids) => {
                    assert!(
                        fits != Some(false) && ids == (0..10).collect::<Vec<_>>(),
                        "{state_bytes_max}: {ids:?}"
                    );
                }
                Err(error) => {
                    let says = error.message.contains("groups") && error.message.contains("KiB");
                    assert!(
                        fits != Some(true) && says && error.kind == ErrorKind::OverLimit,
                        "{state_bytes_max}: {error}"
                    );
                    assert!(error.to_string().contains("group these rows itself"), "{error}");
                }
            }
        }
    }
}

#[test]
fn groups_behind_lookups_without_a_limit_come_in_parts() {
    let whole = nine_thousand(Budget { state_bytes_max: 40_000, ..Budget::default() }, 2);
    let without_limit = Program { order: Vec::new(), limit: None, ..whole.prepared().effective.clone() };
    let too_many =
        Program { limit: Some(limits::TOP_ROWS_MAX as u64 + 1), ..whole.prepared().effective.clone() };
    for program in [without_limit, too_many] {
        let sides = whole.joined().unwrap().sides.clone();
        let (table, budget) = (whole.table().clone(), whole.budget());
        let program = BoundProgram::prepare_joined(&program, table, Version(1), budget, sides).unwrap();
        assert!(program.prepared().is_partial() && program.overflow() == Overflow::Parts);
        let mut ids = column_values(&drive(&Run::start(&program).unwrap(), 2).unwrap(), 0);
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids, (0..9 * GROUP_ROWS).collect::<Vec<_>>());
    }
}

#[test]
fn groups_behind_lookups_with_a_condition_are_whole() {
    let many = nine_thousand(Budget::default(), 2);
    let seven = Expr::compare(
        CompareOp::Lt,
        Expr::Column(0),
        Expr::Literal(Literal::new(Value::Int(7), DataType::Int64).unwrap()),
    );
    let program =
        Program { having: Some(seven), order: Vec::new(), limit: None, ..many.prepared().effective.clone() };
    let sides = many.joined().unwrap().sides.clone();
    let (table, budget) = (many.table().clone(), many.budget());
    let program = BoundProgram::prepare_joined(&program, table, Version(1), budget, sides).unwrap();
    assert_eq!((program.refusal(), program.overflow()), (None, Overflow::Error));
    let mut ids = column_values(&drive(&Run::start(&program).unwrap(), 2).unwrap(), 0);
    ids.sort_unstable();
    assert_eq!(ids, (0..7).collect::<Vec<_>>());
}

/// A program that looks up the ids of 9,000 rows in groups of rows by `id` and `v`: of all of them, or of the seven rows
/// whose `k` is their `id`.
fn in_groups(state_bytes_max: usize, are_few: bool) -> BoundProgram {
    let budget = Budget { state_bytes_max, ..Budget::default() };
    let name = || TableName::new("t").unwrap();
    let filter = are_few.then(|| Expr::compare(CompareOp::Eq, Expr::Column(1), Expr::Column(0)));
    let keys = [0, 2].map(|column| NamedExpr { name: format!("key{column}"), expr: Expr::Column(column) });
    let output = Output::Aggregate { keys: keys.to_vec(), aggregates: Vec::new() };
    let side = Program { filter, output, ..Program::scan(name(), &table(1).schema, &[0]) };
    let side = BoundProgram::prepare_side(&side, table(9), Version(1), budget, Vec::new()).unwrap();
    let lookup = Lookup { kind: LookupKind::Inner, ..anti(&side) };
    let program = Program { lookups: vec![lookup], ..Program::scan(name(), &table(1).schema, &[0]) };
    BoundProgram::prepare_joined(&program, table(9), Version(1), budget, vec![Arc::new(side)]).unwrap()
}

#[test]
fn the_program_of_a_lookup_has_as_many_groups_as_fit() {
    // All these groups are not sure to fit, according to zone maps.
    let state_bytes_max = 200_000;
    let few = in_groups(state_bytes_max, true);
    assert_eq!(few.joined().unwrap().sides[0].overflow(), Overflow::Error);
    assert_eq!(run_reserved(&few, 1, 99).unwrap(), (0..7).collect::<Vec<_>>());
    let error = run_reserved(&in_groups(state_bytes_max, false), 1, 0).unwrap_err();
    assert!(error.kind == ErrorKind::OverLimit && error.message.contains("groups"), "{error}");
    assert_eq!(in_groups(1 << 30, false).joined().unwrap().sides[0].overflow(), Overflow::Never);
}

#[test]
fn groups_of_a_program_and_of_its_lookups_have_the_same_memory() {
    let many = nine_thousand(Budget::default(), 1);
    let effective = many.prepared().effective.clone();
    let sides = many.joined().unwrap().sides.clone();
    let side =
        BoundProgram::prepare_side(&effective, table(9), Version(1), Budget::default(), sides).unwrap();
    let lookup = Lookup { kind: LookupKind::Inner, ..anti(&side) };
    let output = by_id();
    let program = Program { lookups: vec![lookup], output, ..effective };
    let sides = vec![Arc::new(side)];
    let program =
        BoundProgram::prepare_joined(&program, table(9), Version(1), Budget::default(), sides).unwrap();
    let run = Run::start(&program).unwrap();
    let need = run.need().unwrap();
    let half = limits::GROUP_BYTES_MAX / 2;
    assert_eq!(need.groups, half);
    assert!(need.bytes() < 2 * half + need.lookups && need.groups_least == 1 << 20, "{need:?}");
    let least = MemoryNeed { groups: need.groups_least, ..need };
    let account = farpool_memory::WorkMemory::new(8 << 30).account(&TenantName::default());
    run.keep_to(least, account.take(least.bytes()));
    let of_side = &run.joins.as_ref().unwrap().sides()[0];
    assert_eq!(of_side.group_bytes.load(Ordering::Relaxed), need.groups_least);
    let mut ids = column_values(&drive(&run, 1).unwrap(), 0);
    ids.sort_unstable();
    assert_eq!(ids, (0..10).collect::<Vec<_>>());
}

#[test]
fn groups_of_lookups_that_run_together_divide_the_memory_for_groups() {
    let side = in_groups(200_000, true).joined().unwrap().sides[0].clone();
    let lookup = Lookup { kind: LookupKind::Semi, ..anti(&side) };
    let scan = Program::scan(TableName::new("t").unwrap(), &table(1).schema, &[0]);
    let program = Program { lookups: vec![lookup.clone(), lookup], ..scan };
    let budget = side.budget();
    let sides = vec![side.clone(), side];
    let program = BoundProgram::prepare_joined(&program, table(9), Version(1), budget, sides).unwrap();
    let run = Run::start(&program).unwrap();
    let need = run.need().unwrap();
    assert_eq!((need.groups, need.groups_least), (200_000, 200_000), "{need:?}");
    let account = farpool_memory::WorkMemory::new(8 << 30).account(&TenantName::default());
    run.keep_to(need, account.take(need.bytes()));
    let of_sides = run.joins.as_ref().unwrap().sides().iter();
    let of_sides: Vec<usize> = of_sides.map(|side| side.group_bytes.load(Ordering::Relaxed)).collect();
    assert_eq!(of_sides, [100_000, 100_000]);
    let mut ids = column_values(&drive(&run, 2).unwrap(), 0);
    ids.sort_unstable();
    assert_eq!(ids, (0..7).collect::<Vec<_>>());
}
