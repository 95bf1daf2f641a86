//! Times the shapes of TPC-H queries 1 and 6 and a few others on made-up rows, on one thread.
//!
//! `cargo run --release -p farpool-operators --example query_shapes -- [MILLIONS OF ROWS [NAME]]`

use arrow_array::{ArrayRef, Date32Array, Decimal128Array, Int64Array, RecordBatch, StringViewArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use farpool_columns::{Table, TableBuilder};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::{
    Aggregate, AggregateFunction, ArithmeticOp, CompareOp, Expr, Literal, NamedExpr, Output, Program,
    TableName, TenantName, Value, limits,
};
use farpool_operators::{HashKey, Memory, Plan};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

const MONEY: DataType = DataType::Decimal128(15, 2);

fn schema() -> SchemaRef {
    let field = |name: &str, data_type| Field::new(name, data_type, false);
    Arc::new(Schema::new(vec![
        field("l_quantity", MONEY),
        field("l_extendedprice", MONEY),
        field("l_discount", MONEY),
        field("l_tax", MONEY),
        field("l_returnflag", DataType::Utf8View),
        field("l_linestatus", DataType::Utf8View),
        field("l_shipdate", DataType::Date32),
        field("l_orderkey", DataType::Int64),
        field("l_partkey", DataType::Int64),
    ]))
}

fn columns(first: usize, rows: usize) -> Vec<ArrayRef> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ (first as u64 + 1);
    let mut below = move |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % n
    };
    let mut money = |least: u64, n: u64| {
        let values: Vec<i128> = (0..rows).map(|_| i128::from(least + below(n))).collect();
        Arc::new(Decimal128Array::from(values).with_precision_and_scale(15, 2).expect("fits")) as ArrayRef
    };
    let (quantity, price, discount, tax) =
        (money(1, 50), money(90_000, 10_400_000), money(0, 11), money(0, 9));
    let quantity = Arc::new(
        arrow_array::cast::AsArray::as_primitive::<arrow_array::types::Decimal128Type>(&quantity)
            .unary::<_, arrow_array::types::Decimal128Type>(|v| v * 100)
            .with_precision_and_scale(15, 2)
            .expect("fits"),
    );
    let dates: Vec<i32> = (0..rows).map(|_| 8036 + below(2526) as i32).collect();
    let flag = |d: &i32| {
        if *d > 9298 {
            "N"
        } else if d % 2 == 0 {
            "A"
        } else {
            "R"
        }
    };
    let status = |d: &i32| if *d > 9298 { "O" } else { "F" };
    vec![
        quantity,
        price,
        discount,
        tax,
        Arc::new(StringViewArray::from_iter_values(dates.iter().map(flag))),
        Arc::new(StringViewArray::from_iter_values(dates.iter().map(status))),
        Arc::new(Date32Array::from(dates)),
        Arc::new(Int64Array::from_iter_values((first..first + rows).map(|row| (row / 4) as i64))),
        Arc::new(Int64Array::from_iter_values((0..rows).map(|_| below(200_000) as i64))),
    ]
}

fn column(index: usize) -> Expr {
    Expr::Column(index)
}

fn literal(value: i128, data_type: DataType) -> Expr {
    Expr::Literal(Literal::new(Value::Int(value), data_type).expect("fits"))
}

fn is(op: CompareOp, index: usize, value: i128, data_type: DataType) -> Expr {
    Expr::compare(op, column(index), literal(value, data_type))
}

fn aggregate(function: AggregateFunction, argument: Option<Expr>) -> Aggregate {
    let schema = schema();
    let argument_type = argument.as_ref().map(|a| a.data_type(&schema).expect("well typed"));
    let data_type = match (function, argument_type) {
        (AggregateFunction::Sum, Some(DataType::Decimal128(_, s))) => DataType::Decimal128(38, s),
        (AggregateFunction::Avg, Some(DataType::Decimal128(p, s))) => DataType::Decimal128(p + 4, s + 4),
        (AggregateFunction::Min, Some(t)) => t,
        _ => DataType::Int64,
    };
    Aggregate {
        name: "a".into(),
        function,
        arguments: argument.into_iter().collect(),
        filter: None,
        data_type,
    }
}

fn program(filter: Option<Expr>, keys: &[usize], aggregates: Vec<Aggregate>) -> Program {
    let keys = keys.iter().map(|k| NamedExpr::column(&schema(), *k)).collect();
    let output = Output::Aggregate { keys, aggregates };
    Program {
        table: TableName::new("lineitem").expect("a name"),
        version: None,
        lookups: Vec::new(),
        filter,
        output,
        having: None,
        order: Vec::new(),
        limit: None,
    }
}

fn programs() -> Vec<(&'static str, Program)> {
    use AggregateFunction::{Avg, Count, Min, Sum};
    let one = || literal(1, DataType::Decimal128(20, 0));
    let less = Expr::arithmetic(ArithmeticOp::Subtract, one(), column(2));
    let discounted = Expr::arithmetic(ArithmeticOp::Multiply, column(1), less);
    let taxed = Expr::arithmetic(ArithmeticOp::Add, one(), column(3));
    let charge = Expr::arithmetic(
        ArithmeticOp::Multiply,
        Expr::Cast(Box::new(discounted.clone()), DataType::Decimal128(30, 4)),
        taxed,
    );
    let q1 = vec![
        aggregate(Sum, Some(column(0))),
        aggregate(Sum, Some(column(1))),
        aggregate(Sum, Some(discounted)),
        aggregate(Sum, Some(charge)),
        aggregate(Avg, Some(column(0))),
        aggregate(Avg, Some(column(1))),
        aggregate(Avg, Some(column(2))),
        aggregate(Count, None),
    ];
    let q6 = Expr::And(vec![
        is(CompareOp::GtEq, 6, 8766, DataType::Date32),
        is(CompareOp::Lt, 6, 9131, DataType::Date32),
        is(CompareOp::GtEq, 2, 5, MONEY),
        is(CompareOp::LtEq, 2, 7, MONEY),
        is(CompareOp::Lt, 0, 2400, MONEY),
    ]);
    let revenue = Expr::arithmetic(ArithmeticOp::Multiply, column(1), column(2));
    let rows = |filter: Option<Expr>| Program {
        output: Output::Rows((0..4).map(|c| NamedExpr::column(&schema(), c)).collect()),
        ..program(filter, &[], Vec::new())
    };
    vec![
        ("q1", program(Some(is(CompareOp::LtEq, 6, 10_471, DataType::Date32)), &[4, 5], q1)),
        ("q6", program(Some(q6.clone()), &[], vec![aggregate(Sum, Some(revenue))])),
        ("count where", program(Some(q6), &[], vec![aggregate(Count, None)])),
        ("rows 1 %", rows(Some(is(CompareOp::Lt, 6, 8061, DataType::Date32)))),
        ("rows 10 %", rows(Some(is(CompareOp::Lt, 6, 8289, DataType::Date32)))),
        ("rows 50 %", rows(Some(is(CompareOp::Lt, 6, 9299, DataType::Date32)))),
        ("rows all", rows(None)),
        ("group by orderkey", program(None, &[7], vec![aggregate(Sum, Some(column(0)))])),
        ("group by partkey", program(None, &[8], vec![aggregate(Sum, Some(column(0)))])),
        ("group by partkey, flag", program(None, &[8, 4], vec![aggregate(Sum, Some(column(0)))])),
        ("min by shipdate", program(None, &[6], vec![aggregate(Min, Some(column(1)))])),
        ("distinct partkey", program(None, &[8], Vec::new())),
    ]
}

#[expect(clippy::disallowed_methods, reason = "a measurement takes the time")]
fn now() -> Instant {
    Instant::now()
}

fn main() {
    let millions: usize = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(6);
    let pool = Pool::new(PoolConfig { bytes_limit: 2 << 30 }).expect("memory");
    let tenant = TenantName::new("example").expect("a name");
    let rows = limits::ROW_GROUP_ROWS;
    let mut builder = TableBuilder::new(pool, tenant, &schema(), None).expect("a table");
    for group in 0..millions * 1_000_000 / rows {
        let batch = RecordBatch::try_new(schema(), columns(group * rows, rows)).expect("a batch");
        builder.push(&batch).expect("encodes");
    }
    let table: Table = builder.finish().expect("a table");
    let groups = &table.row_groups;
    let total = groups.iter().map(|g| g.rows).sum::<usize>();
    let memory = Memory { bytes_max: 4 << 30, workers: 1, hash_key: HashKey::default() };
    let wanted = std::env::args().nth(2).unwrap_or_default();
    for (name, program) in programs().into_iter().filter(|(name, _)| name.starts_with(&wanted)) {
        let plan = Plan::compile(&program, &table, memory).expect("compiles");
        // Takes the best time of each row group separately, because other processes may be using the machine.
        let mut best = vec![f64::MAX; groups.len() + 1];
        let mut out = 0;
        for _ in 0..9 {
            out = 0;
            let mut emit = |batch: RecordBatch| {
                out += batch.num_rows();
                ControlFlow::Continue(())
            };
            let mut state = plan.new_state();
            for (group, best) in groups.iter().zip(&mut best) {
                let start = now();
                plan.process(group, &mut state, &mut emit).expect("runs");
                *best = best.min(start.elapsed().as_secs_f64());
            }
            let start = now();
            let merge = plan.merge(vec![state]);
            (0..merge.tasks()).for_each(|task| merge.run(task, &mut emit).expect("runs"));
            let last = best.last_mut().expect("there is one for the merge");
            *last = last.min(start.elapsed().as_secs_f64());
        }
        let merge = best.last().copied().unwrap_or_default() * 1e3;
        let best: f64 = best.iter().sum();
        println!(
            "{name:24} {:8.2} ms  {:6.2} ns/row  {merge:6.2} ms of it merging  {out} rows out",
            best * 1e3,
            best * 1e9 / total as f64
        );
    }
}
