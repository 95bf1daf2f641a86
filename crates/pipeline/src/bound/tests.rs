//! Tests of prepared programs that are kept under handles, and of conditions added to them.

use super::*;
use crate::{Run, Step};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use arrow_schema::{DataType, Field, Schema};
use farpool_columns::TableBuilder;
use farpool_memory::{Pool, PoolConfig};
use farpool_model::{
    Aggregate, AggregateFunction, ArithmeticOp, Clock, CompareOp, ErrorKind, Literal, NamedExpr, Output,
    TableName, TenantName, Value, limits,
};

const ROWS: i64 = 3000;

/// Creates a table: `id` counts up, `text` is NULL or a letter.
fn table() -> Arc<Table> {
    let pool = Pool::new(PoolConfig { bytes_limit: 16 << 20 }).unwrap();
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("text", DataType::Utf8View, true),
    ]));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(0..ROWS)),
        Arc::new(StringViewArray::from_iter((0..ROWS).map(|r| (r % 3 > 0).then_some("a")))),
    ];
    let mut builder = TableBuilder::new(pool, TenantName::default(), &schema, None).unwrap();
    builder.push(&RecordBatch::try_new(schema, columns).unwrap()).unwrap();
    Arc::new(builder.finish().unwrap())
}

fn int(value: i64) -> Expr {
    Expr::Literal(Literal::new(Value::Int(value.into()), DataType::Int64).unwrap())
}

fn below(value: i64) -> Expr {
    Expr::compare(CompareOp::Lt, Expr::Column(0), int(value))
}

fn program(filter: Option<Expr>, output: Output) -> BoundProgram {
    let table_name = TableName::new("t").unwrap();
    let program = Program {
        table: table_name,
        version: None,
        lookups: Vec::new(),
        filter,
        output,
        having: None,
        order: Vec::new(),
        limit: None,
    };
    BoundProgram::prepare(&program, table(), Version(1), Budget::default()).unwrap()
}

fn ids() -> Output {
    Output::Rows(vec![NamedExpr { name: "id".into(), expr: Expr::Column(0) }])
}

fn count(keys: &[usize]) -> Output {
    let count = Aggregate {
        name: "n".into(),
        function: AggregateFunction::Count,
        arguments: Vec::new(),
        filter: None,
        data_type: DataType::Int64,
    };
    let key = |key: &usize| NamedExpr { name: format!("k{key}"), expr: Expr::Column(*key) };
    Output::Aggregate { keys: keys.iter().map(key).collect(), aggregates: vec![count] }
}

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

fn rows(program: &BoundProgram) -> usize {
    let run = Run::start(program).unwrap();
    let mut rows = 0;
    loop {
        match run.step(&Standing).unwrap() {
            Step::Batches(batches) => rows += batches.iter().map(RecordBatch::num_rows).sum::<usize>(),
            Step::Done => return rows,
            _ => {}
        }
    }
}

#[test]
fn a_program_is_compiled_once() {
    let rows_of = program(Some(below(100)), ids());
    assert!(rows_of.plan.get().is_none(), "nothing is compiled for the answers");
    assert_eq!((rows(&rows_of), rows(&rows_of)), (100, 100));
    assert!(rows_of.plan.get().is_some());
    assert!(program(None, count(&[0])).plan.get().is_some(), "whether groups fit is known once compiled");
}

#[test]
fn conditions_thin_out_and_leave_the_program_as_it_is() {
    let whole = program(Some(below(100)), ids());
    let narrow = whole.narrowed(&below(10)).unwrap();
    assert_eq!((rows(&narrow), rows(&whole)), (10, 100));
    assert!(Arc::ptr_eq(whole.prepared(), narrow.prepared()), "no new answers");
    assert!(narrow.bytes() > whole.bytes());
    assert_eq!(rows(&narrow.narrowed(&Expr::IsNull(Box::new(Expr::Column(1)))).unwrap()), 4);
    // Conditions can also be added to a program without a filter, and to one with a grouping.
    assert_eq!(rows(&program(None, ids()).narrowed(&below(7)).unwrap()), 7);
    assert_eq!(rows(&program(None, count(&[0])).narrowed(&below(7)).unwrap()), 7);
    assert_eq!(rows(&program(None, count(&[])).narrowed(&below(-1)).unwrap()), 1, "a count of nothing");
}

#[test]
fn conditions_that_do_more_than_thin_out_are_refused() {
    let whole = program(None, ids());
    let quotient = Expr::arithmetic(ArithmeticOp::Divide, int(1), Expr::Column(0));
    let deep = (0..limits::EXPR_DEPTH_MAX + 1).fold(below(1), |inner, _| Expr::not(inner));
    for (conditions, kind, said) in [
        (Expr::opaque("strange(id)", vec![Expr::Column(0)]), ErrorKind::Invalid, "must be exact"),
        (Expr::compare(CompareOp::Lt, quotient, int(1)), ErrorKind::Invalid, "may fail"),
        (Expr::Column(0), ErrorKind::Invalid, "must be boolean"),
        (Expr::compare(CompareOp::Lt, Expr::Column(9), int(1)), ErrorKind::Invalid, "column 9"),
        (deep, ErrorKind::OverLimit, "deep"),
    ] {
        let error = whole.narrowed(&conditions).unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.message.contains(said), "{error}");
    }
}
