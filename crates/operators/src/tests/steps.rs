//! Tests steps (the work of a thread at a time) that end anywhere in a row group: the result, and the counts of
//! rows and bytes, must equal those of processing whole row groups.

use super::random::{self, Random};
use super::{TestTable, compile, naive, run_plan, run_steps};
use crate::pace::{Pace, Progress};
use crate::plan::PART_ROWS;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use arrow_schema::{DataType, Field, Schema};
use farpool_model::{
    Aggregate, AggregateFunction, CompareOp, Expr, Literal, NamedExpr, Output, Pattern, Program,
    StateFunction, TableName, Value, limits,
};
use proptest::prelude::*;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A [`Pace`] for tests: whole row groups, or steps that end at random. Each step processes something.
#[derive(Debug)]
pub(crate) struct Steps {
    random: Option<Random>,
    has_begun: bool,
}

impl Steps {
    /// Creates steps that each take a whole row group.
    pub(crate) fn whole() -> Steps {
        Steps { random: None, has_begun: false }
    }

    /// Creates steps that end at random.
    pub(crate) fn random(seed: u64) -> Steps {
        Steps { random: Some(Random::new(seed)), has_begun: false }
    }

    /// Begins the next step.
    pub(crate) fn begin(&mut self) {
        self.has_begun = false;
    }
}

impl Pace for Steps {
    fn rows(&mut self, left: usize) -> usize {
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        let Some(random) = &mut self.random else { return left };
        let most = if random.chance(8) { limits::BLOCK_ROWS / 8 } else { 3 * limits::BLOCK_ROWS };
        if has_begun && random.chance(40) { 0 } else { 1 + random.below(most) }
    }

    fn ends(&mut self) -> bool {
        self.random.as_mut().is_some_and(|random| random.chance(60))
    }
}

/// A [`Pace`] with the shortest steps possible.
struct Short {
    has_begun: bool,
}

impl Pace for Short {
    fn rows(&mut self, _left: usize) -> usize {
        usize::from(!std::mem::replace(&mut self.has_begun, true))
    }

    fn ends(&mut self) -> bool {
        true
    }
}

/// Creates one row group of numbers, and of strings with `texts` distinct values.
fn table(rows: usize, texts: usize) -> TestTable {
    let fields = [Field::new("n", DataType::Int64, true), Field::new("s", DataType::Utf8View, true)];
    let text = |r: usize| (!r.is_multiple_of(97)).then(|| format!("{} of many texts", r * 7919 % texts));
    let columns: Vec<ArrayRef> = vec![
        Arc::new((0..rows).map(|r| Some((r % 700) as i64)).collect::<Int64Array>()),
        Arc::new((0..rows).map(text).collect::<StringViewArray>()),
    ];
    TestTable::new(Arc::new(Schema::new(fields.to_vec())), &[columns])
}

fn program(filter: Option<Expr>, output: Output) -> Program {
    let table = TableName::new("t").unwrap();
    Program {
        table,
        version: None,
        lookups: Vec::new(),
        filter,
        output,
        having: None,
        order: Vec::new(),
        limit: None,
    }
}

fn like(pattern: &str) -> Expr {
    let value = Box::new(Expr::Column(1));
    Expr::Regex { value, pattern: Pattern::new(pattern, false).unwrap() }
}

/// Executes `program` in the shortest steps; returns the number of steps, and the number of steps that processed no
/// rows.
fn steps_of(program: &Program, table: &TestTable) -> (usize, usize) {
    let plan = compile(program, &table.schema).unwrap();
    let (mut state, mut progress) = (plan.new_state(), Progress::default());
    let (mut steps, mut without_rows) = (0, 0);
    while !progress.is_done() {
        let group = &table.groups[0];
        let emit = &mut |_| ControlFlow::Continue(());
        let (work, _) = plan
            .process_encoded(group, &mut progress, &mut state, &mut Short { has_begun: false }, emit)
            .unwrap();
        steps += 1;
        without_rows += usize::from(work.rows_in == 0);
        assert!(steps <= 1000, "a step that leads nowhere");
    }
    (steps, without_rows)
}

#[test]
fn a_dictionary_is_asked_once_however_many_steps_there_are() {
    let table = table(20 * limits::BLOCK_ROWS, 5_000);
    assert!(table.groups[0].chunks[1].dictionary().is_some());
    let count = Aggregate {
        name: "n".into(),
        function: AggregateFunction::Count,
        arguments: vec![Expr::Column(0)],
        filter: Some(like("[13]7 of")),
        data_type: DataType::Int64,
    };
    let counted =
        |aggregate: &Aggregate| Output::Aggregate { keys: Vec::new(), aggregates: vec![aggregate.clone()] };
    // The filter is evaluated on 5000 dictionary entries in five pieces; the step of the last piece also processes
    // the first rows.
    let filtered = program(Some(like("[13]7 of")), counted(&Aggregate { filter: None, ..count.clone() }));
    let parts = 20 * limits::BLOCK_ROWS / PART_ROWS;
    assert_eq!(steps_of(&filtered, &table), (4 + parts, 4));
    assert_eq!(steps_of(&program(None, counted(&count)), &table), (4 + parts, 4));
    for program in [filtered, program(None, counted(&count))] {
        let plan = compile(&program, &table.schema).unwrap();
        let whole = run_plan(&plan, &table, 1, usize::MAX).unwrap();
        assert_eq!(run_steps(&plan, &table, 2, usize::MAX, &mut Steps::random(3)).unwrap(), whole);
    }
}

#[test]
fn columns_are_picked_and_counts_taken_in_one_by_one() {
    let table = table(4 * limits::BLOCK_ROWS, 500);
    let column = |index: usize| NamedExpr::column(&table.schema, index);
    let most = Expr::compare(CompareOp::Gt, Expr::Column(0), int(100));
    let rows = program(Some(most), Output::Rows(vec![column(0), column(1), column(0)]));
    let parts = 4 * limits::BLOCK_ROWS / PART_ROWS;
    assert_eq!(steps_of(&rows, &table), (parts + 2, 2), "the last batch and the first column go together");
    let numbers = program(rows.filter.clone(), Output::Rows(vec![column(0), column(0)]));
    assert_eq!(steps_of(&numbers, &table), (4 + 1, 1), "blocks of numbers are not parted");
    let sketch = |column: usize| Aggregate {
        name: format!("s{column}"),
        function: StateFunction::Sketch("distinct=12".parse().unwrap()).into(),
        arguments: vec![Expr::Column(column)],
        filter: None,
        data_type: DataType::BinaryView,
    };
    let sketches =
        program(None, Output::Aggregate { keys: Vec::new(), aggregates: vec![sketch(0), sketch(1)] });
    assert_eq!(steps_of(&sketches, &table), (parts + 1, 1));
    super::check(&sketches, &table);
}

fn int(value: i64) -> Expr {
    Expr::Literal(Literal::new(Value::Int(value.into()), DataType::Int64).unwrap())
}

proptest! {
    #![proptest_config(super::fixed_cases())]

    #[test]
    fn bytes_are_those_of_whole_row_groups(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let table = random::table(&mut random, 6000);
        for _ in 0..3 {
            let program = random::program(&mut random, &table.schema);
            let plan = compile(&program, &table.schema).unwrap();
            let mut steps = Steps::random(random.next());
            for group in &table.groups {
                let bytes = |steps: &mut Steps| {
                    let (mut state, mut progress) = (plan.new_state(), Progress::default());
                    while !progress.is_done() {
                        steps.begin();
                        let emit = &mut |_| ControlFlow::Continue(());
                        plan.process_part(group, &mut progress, &mut state, steps, emit).ok()?;
                    }
                    Some(progress.bytes_read())
                };
                // An expression that fails may do so on any row, so that only successful executions have equal
                // counts.
                if let (Some(whole), Some(parts)) = (bytes(&mut Steps::whole()), bytes(&mut steps)) {
                    prop_assert_eq!(whole, parts, "{:#?}", program);
                }
            }
        }
    }
}

#[test]
fn rows_that_pass_are_marked_wherever_steps_end() {
    let table = table(5 * limits::BLOCK_ROWS + 77, 500);
    let group = &table.groups[0];
    let filters = [
        None,
        Some(Expr::compare(CompareOp::Lt, Expr::Column(0), int(9))),
        Some(Expr::compare(CompareOp::Gt, Expr::Column(0), int(2))),
        Some(like("[13]7 of")),
    ];
    for filter in filters {
        for columns in [vec![], vec![NamedExpr::column(&table.schema, 1)]] {
            let program = program(filter.clone(), Output::Rows(columns));
            let plan = compile(&program, &table.schema).unwrap();
            for seed in 0..4 {
                let (mut state, mut progress, mut steps) =
                    (plan.new_state(), Progress::marking(), Steps::random(seed));
                let (mut passed, mut left) = (0, 0);
                let mut emit = |batch: RecordBatch| {
                    left += batch.num_rows();
                    ControlFlow::Continue(())
                };
                while !progress.is_done() {
                    steps.begin();
                    let step = plan.process_part(group, &mut progress, &mut state, &mut steps, &mut emit);
                    passed += step.unwrap().rows_passed;
                }
                let merge = plan.merge(vec![state]);
                (0..merge.tasks()).for_each(|task| merge.run(task, &mut emit).unwrap());
                let is_marked = |row: usize| progress.marked()[row / 64] >> (row % 64) & 1 == 1;
                let marked: Vec<_> = (0..group.rows)
                    .filter(|row| is_marked(*row))
                    .map(|row| table.rows[row].clone())
                    .collect();
                let all = Output::Rows((0..2).map(|c| NamedExpr::column(&table.schema, c)).collect());
                let expected = naive::run(&self::program(filter.clone(), all), &table.schema, &table.rows);
                assert_eq!(marked, expected.unwrap());
                assert_eq!((marked.len() as u64, marked.len()), (passed, left));
            }
        }
    }
}
