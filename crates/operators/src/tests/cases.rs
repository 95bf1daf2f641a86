//! Compares the results of random programs with those of an interpreter (`naive.rs`), and has fixed cases that
//! random programs reach too rarely.

use super::random::{self, Random};
use super::{POOL, TestTable, check, compile, fixed_cases, naive, run, sorted};
use crate::aggregate::{Aggregation, FittedAggregation};
use crate::plan::{Paths, Plan};
use arrow_array::{
    ArrayRef, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array, StringViewArray,
    TimestampSecondArray,
};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use farpool_model::cpu::Level;
use farpool_model::{
    Aggregate, AggregateFunction, ArithmeticOp, CompareOp, DatePart, Expr, Literal, NamedExpr, Output,
    Program, TableName, Value, limits,
};
use proptest::prelude::*;
use std::ops::ControlFlow;
use std::sync::Arc;

proptest! {
    #![proptest_config(fixed_cases())]

    #[test]
    fn random_programs_agree_with_the_interpreter(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let table = random::table(&mut random, 200);
        for _ in 0..6 {
            check(&random::program(&mut random, &table.schema), &table);
        }
    }

    #[test]
    fn random_programs_agree_across_block_borders(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let table = random::table(&mut random, 2500);
        check(&random::program(&mut random, &table.schema), &table);
    }
}

/// Checks that the comparison is meaningful: enough of the random programs succeed, and enough take the fast paths.
#[test]
fn random_programs_run_and_reach_the_fast_paths() {
    let (mut programs, mut run, mut groups, mut fused) = (0, 0, 0, 0);
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let table = random::table(&mut random, 100);
        let program = random::program(&mut random, &table.schema);
        programs += 1;
        run += usize::from(naive::run(&program, &table.schema, &table.rows).is_ok());
        if let Output::Aggregate { keys, aggregates } = &program.output {
            let schema = program.result_schema(&table.schema).unwrap();
            let aggregation = Aggregation::new(keys, aggregates, &table.schema, schema).unwrap();
            let aggregation = FittedAggregation::of_any(aggregation).unwrap();
            groups += table.groups.len();
            let fits = |group| usize::from(aggregation.fuses(group));
            fused += table.groups.iter().map(fits).sum::<usize>();
        }
    }
    assert!(run * 10 > programs * 7, "{run} of {programs} ran");
    assert!(fused * 10 > groups, "{fused} of {groups} were fused");
}

/// Regression test of the comparison with random programs: the maximum of zeros of both signs.
#[test]
fn seeds_that_once_failed_pass() {
    for seed in [12_638_067_828_640_877_805] {
        let mut random = Random::new(seed);
        let table = random::table(&mut random, 200);
        for _ in 0..6 {
            check(&random::program(&mut random, &table.schema), &table);
        }
    }
}

fn program(filter: Option<Expr>, output: Output) -> Program {
    Program {
        table: TableName::new("t").unwrap(),
        version: None,
        lookups: Vec::new(),
        filter,
        output,
        having: None,
        order: Vec::new(),
        limit: None,
    }
}

fn aggregate(function: AggregateFunction, argument: Option<Expr>, data_type: DataType) -> Aggregate {
    Aggregate {
        name: "a".into(),
        function,
        arguments: argument.into_iter().collect(),
        filter: None,
        data_type,
    }
}

fn ungrouped(aggregates: Vec<Aggregate>) -> Program {
    program(None, Output::Aggregate { keys: Vec::new(), aggregates })
}

fn by(key: Expr, aggregates: Vec<Aggregate>) -> Program {
    let keys = vec![NamedExpr { name: "k".into(), expr: key }];
    program(None, Output::Aggregate { keys, aggregates })
}

fn table_of(columns: Vec<(DataType, ArrayRef)>) -> TestTable {
    let fields: Vec<Field> =
        columns.iter().enumerate().map(|(i, (t, _))| Field::new(format!("c{i}"), t.clone(), true)).collect();
    let arrays: Vec<ArrayRef> = columns.into_iter().map(|(_, a)| a).collect();
    TestTable::new(Arc::new(Schema::new(fields)), &[arrays])
}

fn int(value: i128) -> Expr {
    Expr::Literal(Literal::new(Value::Int(value), DataType::Int64).unwrap())
}

#[test]
fn plans_states_and_merges_go_from_thread_to_thread() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Plan>();
    shared::<crate::Merge>();
    sent::<crate::State>();
}

#[test]
fn a_sum_that_does_not_fit_is_an_error_and_a_wider_type_takes_it() {
    let values: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX, i64::MAX]));
    let table = table_of(vec![(DataType::Int64, values)]);
    let sum = |t: DataType| ungrouped(vec![aggregate(AggregateFunction::Sum, Some(Expr::Column(0)), t)]);
    let error = run(&sum(DataType::Int64), &table, Paths::ALL, 1).unwrap_err();
    assert!(error.message.contains("overflows"), "{error}");
    let rows = run(&sum(DataType::Decimal128(38, 0)), &table, Paths::ALL, 1).unwrap();
    assert_eq!(rows, vec![vec![Value::Int(2 * i128::from(i64::MAX))]]);
}

#[test]
fn sums_that_leave_128_bits_on_the_way_are_exact() {
    let big = 17 * 10_i128.pow(37);
    let values =
        Decimal128Array::from(vec![big, big, -big, -big, 7]).with_precision_and_scale(38, 0).unwrap();
    let table = table_of(vec![(DataType::Decimal128(38, 0), Arc::new(values))]);
    let of = |function| aggregate(function, Some(Expr::Column(0)), DataType::Decimal128(38, 0));
    let rows =
        run(&ungrouped(vec![of(AggregateFunction::Sum), of(AggregateFunction::Avg)]), &table, Paths::ALL, 1);
    assert_eq!(rows.unwrap(), vec![vec![Value::Int(7), Value::Int(1)]]);
}

#[test]
fn without_rows_an_aggregation_gives_one_row_and_a_grouping_none() {
    let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
    let table = TestTable::new(schema, &[]);
    let count = aggregate(AggregateFunction::Count, None, DataType::Int64);
    let sum = aggregate(AggregateFunction::Sum, Some(Expr::Column(0)), DataType::Int64);
    let rows = run(&ungrouped(vec![count.clone(), sum]), &table, Paths::ALL, 1).unwrap();
    assert_eq!(rows, vec![vec![Value::Int(0), Value::Null]]);
    assert!(run(&by(Expr::Column(0), vec![count]), &table, Paths::ALL, 2).unwrap().is_empty());
    let plan =
        compile(&ungrouped(vec![aggregate(AggregateFunction::Count, None, DataType::Int64)]), &table.schema);
    assert_eq!(plan.unwrap().merge(Vec::new()).tasks(), 1, "even without any state");
}

#[test]
fn zeros_of_either_sign_are_one_group_and_nans_group_by_their_bits() {
    let values: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0, f64::NAN, f64::NAN, 1.0]));
    let table = table_of(vec![(DataType::Float64, values.clone()), (DataType::Float64, values)]);
    let count = aggregate(AggregateFunction::Count, None, DataType::Int64);
    let one = by(Expr::Column(0), vec![count.clone()]);
    assert_eq!(run(&one, &table, Paths::ALL, 1).unwrap().len(), 3);
    check(&one, &table);
    let keys = (0..2).map(|i| NamedExpr { name: format!("k{i}"), expr: Expr::Column(i) }).collect();
    let two = program(None, Output::Aggregate { keys, aggregates: vec![count] });
    assert_eq!(run(&two, &table, Paths::ALL, 1).unwrap().len(), 3);
}

#[test]
fn what_may_fail_runs_only_where_earlier_conditions_hold() {
    let divisors: ArrayRef = Arc::new(Int64Array::from(vec![Some(0), Some(2), None, Some(0), Some(5)]));
    let table = table_of(vec![(DataType::Int64, divisors)]);
    let quotient = Expr::arithmetic(ArithmeticOp::Divide, int(10), Expr::Column(0));
    let nonzero = Expr::compare(CompareOp::NotEq, Expr::Column(0), int(0));
    let large = Expr::compare(CompareOp::Gt, quotient.clone(), int(3));
    let count = vec![aggregate(AggregateFunction::Count, None, DataType::Int64)];
    let keyless =
        |filter| program(Some(filter), Output::Aggregate { keys: Vec::new(), aggregates: count.clone() });
    check(&keyless(Expr::And(vec![large.clone(), nonzero.clone()])), &table);
    let rows = run(&keyless(Expr::And(vec![large.clone(), nonzero.clone()])), &table, Paths::ALL, 1).unwrap();
    assert_eq!(rows, vec![vec![Value::Int(1)]]);
    let error = run(&keyless(large), &table, Paths::ALL, 1).unwrap_err();
    assert!(error.message.contains("division by zero"), "{error}");

    let guarded = Expr::Case {
        branches: vec![(nonzero.clone(), quotient.clone())],
        otherwise: Some(Box::new(int(-1))),
    };
    let rows = Output::Rows(vec![NamedExpr { name: "q".into(), expr: guarded }]);
    let got = run(&program(None, rows), &table, Paths::ALL, 1).unwrap();
    let expected = [-1, 5, -1, -1, 2].map(|v| vec![Value::Int(v)]);
    assert_eq!(sorted(got), sorted(expected.to_vec()));

    let sum = Aggregate {
        filter: Some(nonzero),
        ..aggregate(AggregateFunction::Sum, Some(quotient), DataType::Int64)
    };
    assert_eq!(run(&ungrouped(vec![sum]), &table, Paths::ALL, 1).unwrap(), vec![vec![Value::Int(7)]]);
}

#[test]
fn many_groups_are_merged_in_partitions() {
    let rows = limits::ROW_GROUP_ROWS;
    let schema = Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("s", DataType::Utf8View, true),
        Field::new("v", DataType::Int32, true),
    ]));
    let group = |number: usize| -> Vec<ArrayRef> {
        let key = |row: usize| ((row + number * rows / 2) * 7919) as i64;
        vec![
            Arc::new((0..rows).map(|r| (r != 5).then(|| key(r))).collect::<Int64Array>()),
            Arc::new((0..rows).map(|r| Some(format!("key {}", key(r)))).collect::<StringViewArray>()),
            Arc::new(Int32Array::from_iter_values((0..rows).map(|r| r as i32))),
        ]
    };
    let groups: Vec<Vec<ArrayRef>> = (0..3).map(group).collect();
    let table = TestTable::new(schema, &groups);
    let sum = aggregate(AggregateFunction::Sum, Some(Expr::Column(2)), DataType::Int64);
    let min = aggregate(AggregateFunction::Min, Some(Expr::Column(1)), DataType::Utf8View);
    for key in [0, 1] {
        let program = by(Expr::Column(key), vec![sum.clone(), min.clone()]);
        let plan = compile(&program, &table.schema).unwrap();
        let mut states = vec![plan.new_state(), plan.new_state()];
        for (index, group) in table.groups.iter().enumerate() {
            plan.process(group, &mut states[index % 2], &mut |_| ControlFlow::Continue(())).unwrap();
        }
        assert_eq!(plan.merge(states).tasks(), 32);
        check(&program, &table);
    }
}

#[test]
fn a_handful_of_groups_adds_up_on_every_level() {
    let rows = 5000;
    let schema = Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("f", DataType::Int64, true),
        Field::new("v", DataType::Int64, true),
        Field::new("w", DataType::Int32, true),
    ]));
    // Row group 0 has no NULLs and negative values among others, row group 1 has NULLs, row group 2 a single value.
    let group = |number: i64| -> Vec<ArrayRef> {
        let key = |r: i64| Some((r * 7919 + number) % 13 - 4).filter(|_| number != 1 || r % 9 != 0);
        vec![
            Arc::new((0..rows).map(|r| if number == 2 { Some(3) } else { key(r) }).collect::<Int64Array>()),
            Arc::new((0..rows).map(|r| Some(r * 31 % 100)).collect::<Int64Array>()),
            Arc::new(Int64Array::from_iter_values((0..rows).map(|r| -70 + r * 997 % (1 << 20)))),
            Arc::new(Int32Array::from_iter_values((0..rows).map(|r| i32::MAX - (r % 50) as i32))),
        ]
    };
    let table = TestTable::new(schema, &[group(0), group(1), group(2)]);
    let sum = |column| aggregate(AggregateFunction::Sum, Some(Expr::Column(column)), DataType::Int64);
    let count = aggregate(AggregateFunction::Count, None, DataType::Int64);
    for below in [None, Some(80), Some(20), Some(0)] {
        let Program { output, .. } = by(Expr::Column(0), vec![sum(2), count.clone(), sum(3)]);
        let filter = below.map(|below| Expr::compare(CompareOp::Lt, Expr::Column(1), int(below)));
        let program = program(filter, output);
        let expected = sorted(naive::run(&program, &table.schema, &table.rows).unwrap());
        for level in Level::all() {
            let rows = level.within(|| run(&program, &table, Paths::ALL, 1));
            assert_eq!(sorted(rows.unwrap()), expected, "{level:?}");
        }
        check(&program, &table);
    }
}

#[test]
fn few_rows_of_many_groups_leave_in_few_batches() {
    let rows = limits::ROW_GROUP_ROWS;
    let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
    let values =
        || vec![Arc::new(Int64Array::from_iter_values((0..rows).map(|r| (r % 100) as i64))) as ArrayRef];
    let table = TestTable::new(schema, &[values(), values(), values(), values()]);
    let filter = Expr::compare(CompareOp::Eq, Expr::Column(0), int(17));
    let output = Output::Rows(vec![NamedExpr::column(&table.schema, 0)]);
    let mut rare = program(Some(filter), output);
    check(&rare, &table);
    let batches = |program: &Program| {
        let plan = compile(program, &table.schema).unwrap();
        let (mut state, mut sizes) = (plan.new_state(), Vec::new());
        let mut before_merge = 0;
        for group in &table.groups {
            plan.process(group, &mut state, &mut |b| {
                sizes.push(b.num_rows());
                ControlFlow::Continue(())
            })
            .unwrap();
            before_merge = sizes.iter().sum();
        }
        let merge = plan.merge(vec![state]);
        for task in 0..merge.tasks() {
            merge
                .run(task, &mut |b| {
                    sizes.push(b.num_rows());
                    ControlFlow::Continue(())
                })
                .unwrap();
        }
        (sizes, before_merge)
    };
    assert_eq!(batches(&rare).0, vec![4 * 656]);
    rare.limit = Some(10);
    assert!(batches(&rare).1 >= 10, "rows that are enough for the limit do not wait");
}

#[test]
fn without_columns_only_rows_are_counted() {
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..3000));
    let table = table_of(vec![(DataType::Int64, values)]);
    let filter = Expr::compare(CompareOp::Lt, Expr::Column(0), int(1234));
    for filter in [None, Some(filter)] {
        let counted = program(filter.clone(), Output::Rows(Vec::new()));
        let rows = run(&counted, &table, Paths::ALL, 2).unwrap();
        assert_eq!(rows.len(), if filter.is_some() { 1234 } else { 3000 });
    }
    assert!(POOL.usage().bytes_used > 0);
}

#[test]
fn any_value_is_a_value_of_its_group() {
    let rows = 20_000_i64;
    let keys: ArrayRef = Arc::new((0..rows).map(|r| (r % 7 != 0).then_some(r % 40)).collect::<Int64Array>());
    let many: ArrayRef = Arc::new((0..rows).map(|r| Some((r * 7919) % 500)).collect::<Int64Array>());
    let value = |r: i64| (r % 3 != 0 && r % 40 != 5).then_some(r * r % 10_007);
    let integers: ArrayRef = Arc::new((0..rows).map(value).collect::<Int64Array>());
    let floats: ArrayRef = Arc::new((0..rows).map(|r| value(r).map(|v| v as f64)).collect::<Float64Array>());
    let texts: ArrayRef =
        Arc::new((0..rows).map(|r| value(r).map(|v| format!("text {v}"))).collect::<StringViewArray>());
    let types = [DataType::Int64, DataType::Int64, DataType::Int64, DataType::Float64, DataType::Utf8View];
    let table = table_of(types.into_iter().zip([keys, many, integers, floats, texts]).collect());
    let any = |column: usize| {
        let data_type = table.schema.field(column).data_type().clone();
        aggregate(AggregateFunction::AnyValue, Some(Expr::Column(column)), data_type)
    };
    let all = || vec![any(2), any(3), any(4)];
    let group_of = |key: usize, row: i64| match key {
        0 => (row % 7 != 0).then_some(row % 40),
        _ => Some((row * 7919) % 500),
    };
    for (key, keyed) in [(0, by(Expr::Column(0), all())), (1, by(Expr::Column(1), all()))] {
        for paths in [Paths::ALL, Paths::ENCODED, Paths::NONE, Paths::PARTITIONED] {
            let results = run(&keyed, &table, paths, 2).unwrap();
            assert!(results.len() == if key == 0 { 41 } else { 500 });
            for result in results {
                let is_in = |row: &i64| {
                    let group = group_of(key, *row).map_or(Value::Null, |key| Value::Int(i128::from(key)));
                    group == result[0]
                };
                let values: Vec<i64> = (0..rows).filter(is_in).filter_map(value).collect();
                let of = |column: usize, shown: &dyn Fn(i64) -> Value| match &result[column] {
                    Value::Null => values.is_empty(),
                    found => values.iter().any(|value| shown(*value) == *found),
                };
                assert!(of(1, &|v| Value::Int(i128::from(v))), "{result:?}");
                assert!(of(2, &|v| Value::Float(v as f64)), "{result:?}");
                assert!(of(3, &|v| Value::Text(format!("text {v}"))), "{result:?}");
            }
        }
    }
}

#[test]
fn parts_of_times_beyond_the_calendar_are_null() {
    let stamp = DataType::Timestamp(TimeUnit::Second, None);
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values((0..300).map(|row| row % 3)));
    // Group 0 has only times that no calendar has, and group 1 some.
    let days = |row: i32| [2_000_000_000 - row, if row % 2 == 0 { i32::MIN } else { row }, row * 99 - 9_000];
    let days = (0..300).map(|row: i32| days(row)[row as usize % 3]);
    let seconds = days.clone().map(|day| i64::from(day) * 86_400 - 1);
    let table = table_of(vec![
        (DataType::Int64, keys),
        (DataType::Date32, Arc::new(Date32Array::from_iter_values(days))),
        (stamp, Arc::new(TimestampSecondArray::from_iter_values(seconds))),
    ]);
    for (part, column) in DatePart::all().flat_map(|part| [(part, 1), (part, 2)]) {
        let extract = Expr::Extract(part, Box::new(Expr::Column(column)));
        if extract.data_type(&table.schema).is_err() {
            assert!(part.is_of_time() && column == 1);
            continue;
        }
        let folded = |function| aggregate(function, Some(extract.clone()), DataType::Int64);
        let all = || {
            use AggregateFunction::{Count, Max, Min, Sum};
            [Min, Max, Sum, Count].map(folded).to_vec()
        };
        for program in [by(Expr::Column(0), all()), by(extract.clone(), all()), ungrouped(all())] {
            check(&program, &table);
            let passing = Expr::compare(CompareOp::Gt, extract.clone(), int(3));
            check(&Program { filter: Some(passing), ..program }, &table);
        }
    }
}
