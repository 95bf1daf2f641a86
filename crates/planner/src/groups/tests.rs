//! Tests which programs are combined into one: compares the chosen groups with the best of all partitions, and
//! checks which programs are left separate.

use super::*;
use crate::cost::Link;
use arrow_schema::{DataType, Field, Schema};
use farpool_model::{
    Aggregate, AggregateFunction, ArithmeticOp, ColumnStatistics, CompareOp, Literal, NamedExpr, TableName,
    Value, Version,
};
use proptest::prelude::*;
use std::sync::Arc;

const COLUMNS: usize = 8;

fn int(value: i128) -> Literal {
    Literal::new(Value::Int(value), DataType::Int64).unwrap()
}

/// Returns the description of a table of `rows` rows: columns of integers from 0 to 1000, and a string column.
fn info(rows: u64) -> TableInfo {
    let mut fields: Vec<Field> =
        (0..COLUMNS).map(|at| Field::new(format!("c{at}"), DataType::Int64, true)).collect();
    fields.push(Field::new("s", DataType::Utf8View, true));
    let column = ColumnStatistics {
        null_count: 0,
        min: Some(int(0)),
        max: Some(int(1000)),
        distinct_count: Some(1000),
        bytes_encoded: rows * 2,
        distinct_estimate: None,
        spread: None,
    };
    TableInfo {
        name: TableName::new("t").unwrap(),
        version: Version(1),
        schema: Arc::new(Schema::new(fields)),
        rows,
        bytes_plain: rows * 8 * 9,
        bytes_encoded: rows * 2 * 9,
        columns: vec![column; COLUMNS + 1],
        rows_profiled: None,
        encryption: None,
        bytes_resident: None,
        is_pinned: false,
    }
}

/// Returns a pool behind a network link of 1 Gbit/s.
fn far() -> Place {
    Place { link: Some(Link { bytes_per_s: 1.25e8, latency_ns: 1e5 }), workers: 2, threads: 2 }
}

fn above(column: usize, bound: i128) -> Expr {
    Expr::compare(CompareOp::Gt, Expr::Column(column), Expr::Literal(int(bound)))
}

fn like() -> Expr {
    let value = Box::new(Expr::Column(COLUMNS));
    Expr::Like { value, pattern: "%farpool%".to_string(), case_insensitive: false }
}

fn program(conditions: Vec<Expr>, output: Output) -> Program {
    let table = TableName::new("t").unwrap();
    Program {
        table,
        version: None,
        lookups: Vec::new(),
        filter: Expr::all(conditions),
        output,
        having: None,
        order: Vec::new(),
        limit: None,
    }
}

fn rows(columns: &[usize]) -> Output {
    let named = |at: &usize| NamedExpr { name: format!("x{at}"), expr: Expr::Column(*at) };
    Output::Rows(columns.iter().map(named).collect())
}

fn sums(keys: usize, columns: &[usize]) -> Output {
    let Output::Rows(keys) = rows(&(0..keys).collect::<Vec<_>>()) else { panic!("groups") };
    let sum = |at: &usize| Aggregate {
        name: format!("s{at}"),
        function: AggregateFunction::Sum,
        arguments: vec![Expr::Column(*at)],
        filter: None,
        data_type: DataType::Int64,
    };
    Output::Aggregate { keys, aggregates: columns.iter().map(sum).collect() }
}

fn grouped(programs: &[Program], info: &TableInfo, bytes_max: f64) -> Vec<Group> {
    let programs: Vec<&Program> = programs.iter().collect();
    groups(&programs, info, far(), &Rates::default(), bytes_max)
}

fn members(groups: &[Group]) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = groups.iter().map(|group| group.members.clone()).collect();
    all.iter_mut().for_each(|members| members.sort_unstable());
    all.sort();
    all
}

/// Generates conditions: some are expensive, some pass many rows, and some overlap.
fn condition() -> impl Strategy<Value = Expr> {
    prop_oneof![
        1 => Just(like()),
        4 => (0..3_usize, prop::sample::select(vec![100_i128, 500, 600, 950]))
            .prop_map(|(column, bound)| above(column, bound)),
    ]
}

fn any_program() -> impl Strategy<Value = Program> {
    let columns = || prop::collection::vec(0..COLUMNS, 1..5);
    let output = prop_oneof![
        3 => columns().prop_map(|columns| rows(&columns)),
        1 => columns().prop_map(|columns| sums(1, &columns)),
    ];
    (prop::collection::vec(condition(), 0..3), output)
        .prop_map(|(conditions, output)| program(conditions, output))
}

/// Returns the predicted cost of the best partition of the members, found by trying all partitions.
fn best(kind: &Kind) -> f64 {
    fn go(kind: &Kind, at: usize, groups: &mut Vec<Joint>, best: &mut f64) {
        if at == kind.members.len() {
            let is_small =
                |group: &Joint| group.members.len() == 1 || group.expected.bytes_plain <= kind.bytes_max;
            if groups.iter().all(is_small) {
                *best = best.min(groups.iter().map(|group| group.expected.ns).sum());
            }
            return;
        }
        let single = kind.alone(at);
        for place in 0..groups.len() {
            if kind.may_join(&groups[place], &single) {
                let before = groups[place].clone();
                groups[place] = kind.join(&before, &single);
                go(kind, at + 1, groups, best);
                groups[place] = before;
            }
        }
        groups.push(single);
        go(kind, at + 1, groups, best);
        groups.pop();
    }
    let mut least = f64::INFINITY;
    go(kind, 0, &mut Vec::new(), &mut least);
    least
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn groups_cost_little_more_than_the_best_and_never_more_than_none(
        programs in prop::collection::vec(any_program(), 1..9),
        rows in prop::sample::select(vec![1000_u64, 1_000_000]),
        is_far in any::<bool>(),
        bytes_max in prop::sample::select(vec![1e4, 4e6, 1e9]),
    ) {
        let info = info(rows);
        let place = if is_far { far() } else { Place { link: None, ..far() } };
        let all: Vec<&Program> = programs.iter().collect();
        for positions in kinds(&all) {
            let kind = Kind::new(positions, &all, &info, place, &Rates::default(), bytes_max);
            let apart: f64 = (0..kind.members.len()).map(|at| kind.alone(at).expected.ns).sum();
            let searched: f64 = kind.searched().iter().map(|group| group.expected.ns).sum();
            prop_assert!(searched <= apart * (1.0 + 1e-9), "{searched} of {apart} apart");
            let found = kind.grouped();
            let cost: f64 = found.iter().map(|group| group.expected.ns).sum();
            prop_assert!(cost <= apart * (1.0 + 1e-9), "{cost} of {apart} apart");
            let least = best(&kind);
            prop_assert!(cost <= least * (1.0 + 1e-9), "{cost}, at best {least}, {apart} apart");
            let mut members: Vec<usize> = found.iter().flat_map(|group| group.members.clone()).collect();
            members.sort_unstable();
            prop_assert_eq!(members, (0..kind.members.len()).collect::<Vec<_>>());
            for group in found.iter().filter(|group| group.members.len() > 1) {
                prop_assert!(group.expected.bytes_plain <= bytes_max);
            }
        }
    }
}

#[test]
fn programs_with_one_filter_are_one() {
    let all = [
        program(vec![above(0, 500)], sums(0, &[1])),
        program(vec![above(0, 500)], sums(0, &[2])),
        program(vec![above(0, 500)], sums(1, &[2])),
        program(vec![above(0, 500)], rows(&[2])),
    ];
    assert_eq!(members(&grouped(&all, &info(1_000_000), 1e9)), [[0, 1]]);
}

#[test]
fn rows_that_several_want_are_sent_once() {
    // The programs read ranges that contain one another, so that the combined program sends no row twice.
    let all = [
        program(vec![above(0, 500)], rows(&[1, 2])),
        program(vec![above(0, 600)], rows(&[1, 2])),
        program(vec![above(0, 550)], rows(&[2, 1])),
    ];
    let found = grouped(&all, &info(1_000_000), 1e9);
    assert_eq!(members(&found), [[0, 1, 2]]);
    assert!(found[0].together.bytes < 0.5 * found[0].apart.bytes, "{found:?}");
    // Programs with other rows and other columns are not combined, because each row would be sent with columns that
    // its program does not need; nor are programs whose result exceeds the memory.
    let others =
        [program(vec![above(0, 900)], rows(&[1])), program(vec![above(1, 900)], rows(&[2, 3, 4, 5]))];
    assert_eq!(members(&grouped(&others, &info(1_000_000), 1e9)), Vec::<Vec<usize>>::new());
    assert_eq!(members(&grouped(&all, &info(1_000_000), 1e6)), Vec::<Vec<usize>>::new());
    // If the pool is in the engine's process, nothing crosses a network, so that combining programs saves nothing.
    let here: Vec<&Program> = all.iter().collect();
    let place = Place { link: None, ..far() };
    assert!(groups(&here, &info(1_000_000), place, &Rates::default(), 1e9).is_empty());
}

#[test]
fn an_expensive_condition_is_evaluated_once() {
    let all = [
        program(vec![like(), above(0, 100)], sums(0, &[1])),
        program(vec![above(1, 100), like()], sums(0, &[1])),
        program(vec![above(1, 200)], sums(0, &[1])),
    ];
    assert_eq!(members(&grouped(&all, &info(1_000_000), 1e9)), [[0, 1]]);
}

#[test]
fn what_may_fail_is_not_computed_for_others() {
    let inverse = Expr::arithmetic(ArithmeticOp::Divide, Expr::Literal(int(1)), Expr::Column(0));
    let named = |expr: &Expr| Output::Rows(vec![NamedExpr { name: "x".to_string(), expr: expr.clone() }]);
    let all = [
        program(vec![above(0, 10)], named(&inverse)),
        program(vec![above(0, 20)], named(&inverse)),
        program(vec![above(0, 20)], named(&inverse)),
    ];
    assert_eq!(members(&grouped(&all, &info(1_000_000), 1e9)), [[1, 2]]);
}

#[test]
fn a_thousand_programs_are_grouped() {
    let many = |distinct: usize| -> Vec<Program> {
        let bound = |n: usize| (n * 1000 / distinct % 1000) as i128;
        let conditions = |n: usize| vec![above(n % 3, bound(n % distinct)), like(), above(3, 500)];
        (0..1000)
            .map(|n| match n % 2 {
                0 => program(conditions(n), rows(&[n % COLUMNS, (n / 7) % COLUMNS])),
                _ => program(conditions(n), sums(n % 3, &[n % COLUMNS])),
            })
            .collect()
    };
    for distinct in [10, 100, 1000] {
        let programs = many(distinct);
        let info = info(1_000_000);
        let found = grouped(&programs, &info, 1e9);
        let (together, apart) = found.iter().fold((0.0, 0.0), |(together, apart), group| {
            (together + group.together.ns, apart + group.apart.ns)
        });
        assert!(together < 0.5 * apart, "{together} of {apart}");
    }
}
