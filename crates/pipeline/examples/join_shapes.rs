//! Times whole programs with lookups (joins) on made-up rows: the shapes of TPC-H queries 12 and 5, and others.
//!
//! `cargo run --release -p farpool-pipeline --example join_shapes -- [MILLIONS OF ROWS [THREADS [NAME]]]`

use arrow_array::{ArrayRef, Date32Array, Decimal128Array, Int64Array, RecordBatch, StringViewArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use farpool_columns::{Table, TableBuilder};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::{
    Aggregate, AggregateFunction, ArithmeticOp, Clock, CompareOp, Expr, Literal, Lookup, LookupKey,
    LookupKind, NamedExpr, Output, Program, TableName, TenantName, Value, Version, limits,
};
use farpool_pipeline::{BoundProgram, Budget, Run, Step};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Number of runs of a program, of which the fastest counts. Reason: other processes use the machine.
const ROUNDS: usize = 7;

/// Rows of the fact table for each order.
const LINES: usize = 4;
const PARTS: usize = 200_000;
const SUPPLIERS: usize = 10_000;
const BRANDS: usize = 25;

#[derive(Debug)]
struct SystemClock(Instant);

impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    fn thread_cpu_ns(&self) -> u64 {
        0
    }
}

#[expect(clippy::disallowed_methods, reason = "a measurement takes the time")]
fn now() -> Instant {
    Instant::now()
}

/// Returns a number that depends on `row` and looks random.
fn mixed(row: usize, seed: u64) -> usize {
    let mut state = (row as u64 ^ seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    state ^= state >> 29;
    (state.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20) as usize
}

fn int64(rows: std::ops::Range<usize>, value: impl Fn(usize) -> usize) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(rows.map(|row| value(row) as i64)))
}

fn money(rows: std::ops::Range<usize>, value: impl Fn(usize) -> usize) -> ArrayRef {
    let values = Decimal128Array::from_iter_values(rows.map(|row| value(row) as i128));
    Arc::new(values.with_precision_and_scale(15, 2).expect("15 digits"))
}

fn date(rows: std::ops::Range<usize>, value: impl Fn(usize) -> usize) -> ArrayRef {
    Arc::new(Date32Array::from_iter_values(rows.map(|row| value(row) as i32)))
}

fn text(rows: std::ops::Range<usize>, value: impl Fn(usize) -> String) -> ArrayRef {
    Arc::new(StringViewArray::from_iter_values(rows.map(value)))
}

type Columns = Vec<(&'static str, ArrayRef)>;

fn lines(rows: std::ops::Range<usize>, total: usize) -> Columns {
    vec![
        ("l_orderkey", int64(rows.clone(), |row| row / LINES * 4 + 1)),
        ("l_partkey", int64(rows.clone(), |row| mixed(row, 1) % PARTS)),
        ("l_suppkey", int64(rows.clone(), |row| mixed(row, 2) % SUPPLIERS)),
        ("l_extendedprice", money(rows.clone(), |row| 90_000 + mixed(row, 3) % 10_000_000)),
        ("l_discount", money(rows.clone(), |row| mixed(row, 4) % 11)),
        ("l_custkey", int64(rows, |row| mixed(row, 7) % (total / LINES) * 4 + 1)),
    ]
}

fn orders(rows: std::ops::Range<usize>) -> Columns {
    let priority = |row| ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"][mixed(row, 6) % 5];
    vec![
        ("o_orderkey", int64(rows.clone(), |row| row * 4 + 1)),
        ("o_orderdate", date(rows.clone(), |row| 8036 + mixed(row, 5) % 2400)),
        ("o_orderpriority", text(rows.clone(), |row| priority(row).to_string())),
        ("o_comment", text(rows, |row| format!("a comment that is longer than a view, {row}"))),
    ]
}

fn parts(rows: std::ops::Range<usize>) -> Columns {
    vec![
        ("p_partkey", int64(rows.clone(), |row| row)),
        ("p_brand", text(rows.clone(), |row| format!("Brand#{}", mixed(row, 8) % BRANDS))),
        ("p_size", int64(rows, |row| mixed(row, 9) % 50)),
    ]
}

fn suppliers(rows: std::ops::Range<usize>) -> Columns {
    vec![
        ("s_suppkey", int64(rows.clone(), |row| row)),
        ("s_nationkey", int64(rows, |row| mixed(row, 10) % 25)),
    ]
}

fn nations(rows: std::ops::Range<usize>) -> Columns {
    vec![
        ("n_nationkey", int64(rows.clone(), |row| row)),
        ("n_name", text(rows, |row| format!("NATION {row} OF THE WORLD"))),
    ]
}

fn table(pool: &Arc<Pool>, rows: usize, columns: impl Fn(std::ops::Range<usize>) -> Columns) -> Arc<Table> {
    let field = |(name, column): (&str, ArrayRef)| Field::new(name, column.data_type().clone(), false);
    let schema: SchemaRef = Arc::new(Schema::new(columns(0..0).into_iter().map(field).collect::<Vec<_>>()));
    let tenant = TenantName::new("example").expect("a name");
    let mut builder = TableBuilder::new(pool.clone(), tenant, &schema, None).expect("a table");
    for first in (0..rows).step_by(limits::ROW_GROUP_ROWS) {
        let columns = columns(first..rows.min(first + limits::ROW_GROUP_ROWS));
        let columns = columns.into_iter().map(|(_, column)| column).collect();
        builder.push(&RecordBatch::try_new(schema.clone(), columns).expect("a batch")).expect("encodes");
    }
    Arc::new(builder.finish().expect("a table"))
}

/// The tables of the programs.
struct Tables {
    lines: Arc<Table>,
    orders: Arc<Table>,
    parts: Arc<Table>,
    suppliers: Arc<Table>,
    nations: Arc<Table>,
}

fn rows(table: &Table, columns: &[usize], filter: Option<Expr>) -> Program {
    let name = TableName::new("t").expect("a name");
    Program { filter, ..Program::scan(name, &table.schema, columns) }
}

fn budget() -> Budget {
    Budget { state_bytes_max: 1 << 30, workers: 2, ..Budget::default() }
}

fn prepared(program: &Program, table: &Arc<Table>, sides: Vec<Arc<BoundProgram>>) -> Arc<BoundProgram> {
    let bound = BoundProgram::prepare_joined(program, table.clone(), Version(1), budget(), sides);
    Arc::new(bound.expect("a program for the table"))
}

fn lookup(kind: LookupKind, side: &BoundProgram, row: usize) -> Lookup {
    let program = side.prepared().effective.clone();
    let keys = vec![LookupKey { row, result: 0 }];
    let table_schema = side.table().schema.clone();
    Lookup { kind, program, table_schema, given: None, keys, residual: None, mark: "mark".to_string() }
}

fn literal(value: i128, data_type: DataType) -> Expr {
    Expr::Literal(Literal::new(Value::Int(value), data_type).expect("fits"))
}

/// The sum of the price after discount, and the number of rows, by columns of the joined rows.
fn revenue_by(keys: &[usize]) -> Output {
    let less = literal(1, DataType::Decimal128(20, 0));
    let less = Expr::arithmetic(ArithmeticOp::Subtract, less, Expr::Column(4));
    let revenue = Expr::arithmetic(ArithmeticOp::Multiply, Expr::Column(3), less);
    let aggregate = |function, arguments, data_type| Aggregate {
        name: "a".to_string(),
        function,
        arguments,
        filter: None,
        data_type,
    };
    let aggregates = vec![
        aggregate(AggregateFunction::Sum, vec![revenue], DataType::Decimal128(38, 4)),
        aggregate(AggregateFunction::Count, Vec::new(), DataType::Int64),
    ];
    let key = |key: &usize| NamedExpr { name: format!("k{key}"), expr: Expr::Column(*key) };
    Output::Aggregate { keys: keys.iter().map(key).collect(), aggregates }
}

fn output_of(columns: &[usize]) -> Output {
    let named = |column: &usize| NamedExpr { name: format!("c{column}"), expr: Expr::Column(*column) };
    Output::Rows(columns.iter().map(named).collect())
}

/// Number of columns of the fact table, behind which those of the lookups are.
const WIDTH: usize = 6;

fn programs(tables: &Tables) -> Vec<(&'static str, Arc<BoundProgram>)> {
    let Tables { lines, orders, parts, suppliers, nations } = tables;
    let of_orders = |columns: &[usize], days: i128| {
        let early = literal(8036 + days, DataType::Date32);
        let early = Expr::compare(CompareOp::Lt, Expr::Column(1), early);
        prepared(&rows(orders, columns, Some(early)), orders, Vec::new())
    };
    let joined = |output: Output, lookups: Vec<(LookupKind, Arc<BoundProgram>, usize)>| {
        let of = lookups.iter().map(|(kind, side, row)| lookup(*kind, side, *row)).collect();
        let sides = lookups.into_iter().map(|(_, side, _)| side).collect();
        prepared(&Program { lookups: of, output, ..rows(lines, &[], None) }, lines, sides)
    };
    let all =
        |table: &Arc<Table>, columns: &[usize]| prepared(&rows(table, columns, None), table, Vec::new());
    let inner = LookupKind::Inner;
    let half = || vec![(inner, of_orders(&[0, 1], 1200), 0)];
    let star = || {
        vec![
            (inner, all(parts, &[0, 1, 2]), 1),
            (inner, all(suppliers, &[0, 1]), 2),
            (inner, all(nations, &[0, 1]), WIDTH + 4),
        ]
    };
    vec![
        ("sum", joined(revenue_by(&[]), half())),
        ("by date", joined(revenue_by(&[WIDTH + 1]), half())),
        ("by priority", joined(revenue_by(&[WIDTH + 1]), vec![(inner, of_orders(&[0, 2], 1200), 0)])),
        (
            "by date, random keys",
            joined(revenue_by(&[WIDTH + 1]), vec![(inner, of_orders(&[0, 1], 2400), 5)]),
        ),
        ("by order", joined(revenue_by(&[0]), half())),
        ("star by brand, nation", joined(revenue_by(&[WIDTH + 1, WIDTH + 6]), star())),
        ("star by size", joined(revenue_by(&[WIDTH + 2]), star())),
        ("rows", joined(output_of(&[0, 3, WIDTH + 1]), half())),
        ("rows with text", joined(output_of(&[0, WIDTH + 1]), vec![(inner, of_orders(&[0, 3], 1200), 0)])),
        ("semi, count", joined(revenue_by(&[]), vec![(LookupKind::Semi, of_orders(&[0], 1200), 5)])),
    ]
}

/// Runs a program by `threads` threads. Returns the seconds that it took, and the number of result rows.
fn seconds(program: &BoundProgram, threads: usize) -> (f64, usize) {
    let run = Run::start(program).expect("a run");
    let rows = AtomicUsize::new(0);
    let begun = now();
    let clock = SystemClock(begun);
    let work = || {
        loop {
            match run.step(&clock).expect("a step") {
                Step::Batches(batches) => {
                    let count: usize = batches.iter().map(RecordBatch::num_rows).sum();
                    rows.fetch_add(count, Ordering::Relaxed);
                }
                Step::Busy => std::thread::yield_now(),
                Step::Done => break,
                Step::Worked | Step::Encoded(_) | Step::Fetched(..) => {}
            }
        }
    };
    #[expect(clippy::disallowed_methods, reason = "an example has threads of its own")]
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    (begun.elapsed().as_secs_f64(), rows.into_inner())
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let millions: usize = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(6);
    let threads: usize = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1);
    let wanted = arguments.next().unwrap_or_default();
    let pool = Pool::new(PoolConfig { bytes_limit: 2 << 30 }).expect("memory");
    let total = millions * 1_000_000;
    let tables = Tables {
        lines: table(&pool, total, |rows| lines(rows, total)),
        orders: table(&pool, total / LINES, orders),
        parts: table(&pool, PARTS, parts),
        suppliers: table(&pool, SUPPLIERS, suppliers),
        nations: table(&pool, 25, nations),
    };
    for (name, program) in programs(&tables).into_iter().filter(|(name, _)| name.starts_with(&wanted)) {
        let runs: Vec<(f64, usize)> = (0..ROUNDS).map(|_| seconds(&program, threads)).collect();
        let best = runs.iter().map(|(seconds, _)| *seconds).fold(f64::INFINITY, f64::min);
        let rows = runs[0].1;
        println!(
            "{name:24} {:8.1} ms  {:6.2} ns/row  {rows} rows out",
            best * 1e3,
            best * 1e9 / total as f64
        );
    }
}
