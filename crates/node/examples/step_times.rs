//! Measures the CPU time of the steps of a run, the longest and the usual ones, on one thread, over generated
//! rows.
//!
//! `cargo run --release -p farpool-node --example step_times -- [MILLIONS OF ROWS [NAME]]`

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use farpool_columns::{Table, TableBuilder};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::{
    Aggregate, AggregateFunction, ArithmeticOp, Clock, CompareOp, Expr, Literal, NamedExpr, NullHandling,
    Output, Pattern, Program, SortKey, StateFunction, TableName, TenantName, Value, Version, limits,
};
use farpool_node::clock::SystemClock;
use farpool_pipeline::{BoundProgram, Budget, Run, Step};
use std::sync::Arc;

/// Number of integer columns of small values, after the other columns.
const SMALL_COLUMNS: usize = 64;

const NAMED: [&str; 7] = ["row", "million", "sparse", "code", "name", "word", "long"];

fn schema() -> SchemaRef {
    let text = |name: &str| ["code", "name", "word", "long"].contains(&name);
    let named = NAMED
        .iter()
        .map(|name| Field::new(*name, if text(name) { DataType::Utf8View } else { DataType::Int64 }, false));
    let small = (0..SMALL_COLUMNS).map(|i| Field::new(format!("v{i}"), DataType::Int64, false));
    Arc::new(Schema::new(named.chain(small).collect::<Vec<_>>()))
}

fn columns(first: usize, rows: usize) -> Vec<ArrayRef> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ (first as u64 + 1);
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 11
    };
    let mut ints = |f: &dyn Fn(u64, usize) -> i64| {
        let values = (0..rows).map(|row| f(next(), first + row));
        Arc::new(Int64Array::from_iter_values(values)) as ArrayRef
    };
    let spread = |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8) as i64;
    let row = ints(&|_, row| row as i64);
    let million = ints(&|random, _| (random % 1_000_000) as i64);
    let sparse = ints(&|random, _| spread(random % 1_000_000));
    let small: Vec<ArrayRef> =
        (0..SMALL_COLUMNS).map(|i| ints(&move |random, _| (random % (10 + i as u64)) as i64)).collect();
    let mut texts = |of: u64, f: &dyn Fn(u64) -> String| {
        let values = (0..rows).map(|_| f(next() % of));
        Arc::new(StringViewArray::from_iter_values(values)) as ArrayRef
    };
    let long = |n: u64| {
        let words = (0..32).map(|i| format!("{:07x}", spread(n + i) & 0xfff_ffff));
        words.collect::<Vec<_>>().join(" ")
    };
    let texts = [
        texts(100, &|n| format!("code {n}")),
        texts(100_000, &|n| format!("the customer with number {n}")),
        texts(20_000, &|n| format!("{} {n}", "some words that come often ".repeat(4))),
        texts(1 << 40, &long),
    ];
    [row, million, sparse].into_iter().chain(texts).chain(small).collect()
}

fn column(name: &str) -> Expr {
    Expr::Column(schema().index_of(name).expect("a column"))
}

fn int(value: i64) -> Expr {
    Expr::Literal(Literal::new(Value::Int(value.into()), DataType::Int64).expect("fits"))
}

fn regex(name: &str, pattern: &str) -> Expr {
    let pattern = Pattern::new(pattern, false).expect("a pattern");
    Expr::Regex { value: Box::new(column(name)), pattern }
}

fn aggregate(function: AggregateFunction, arguments: Vec<Expr>) -> Aggregate {
    let state = function.is_state();
    let data_type = if state { DataType::BinaryView } else { DataType::Int64 };
    Aggregate { name: function.name().into(), function, arguments, filter: None, data_type }
}

fn program(filter: Option<Expr>, output: Output) -> Program {
    let table = TableName::new("rows").expect("a name");
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

fn grouped(keys: &[&str], aggregates: Vec<Aggregate>) -> Output {
    let key = |name: &&str| NamedExpr { name: (*name).into(), expr: column(name) };
    Output::Aggregate { keys: keys.iter().map(key).collect(), aggregates }
}

fn rows(names: &[&str]) -> Output {
    let named = |name: &&str| NamedExpr { name: (*name).into(), expr: column(name) };
    Output::Rows(names.iter().map(named).collect())
}

fn programs() -> Vec<(&'static str, Program)> {
    use AggregateFunction::{Count, Max, Min, Sum};
    let count = || vec![aggregate(Count, Vec::new())];
    let sum = || vec![aggregate(Sum, vec![column("v60")])];
    let small = || (0..SMALL_COLUMNS).map(|i| column(&format!("v{i}"))).collect::<Vec<_>>();
    let listwise = || StateFunction::Moments(NullHandling::Listwise).into();
    let all = || StateFunction::Sketch("".parse().expect("parameters")).into();
    let below = |name, value| Some(Expr::compare(CompareOp::Lt, column(name), int(value)));
    let divided = Expr::arithmetic(
        ArithmeticOp::Divide,
        Expr::arithmetic(ArithmeticOp::Multiply, column("row"), column("v9")),
        Expr::arithmetic(ArithmeticOp::Add, column("v7"), int(1)),
    );
    let case = Expr::Case {
        branches: (0..8)
            .map(|i| (Expr::compare(CompareOp::Eq, column("v3"), int(i)), column(&format!("v{i}"))))
            .collect(),
        otherwise: Some(Box::new(int(-1))),
    };
    let order = |descending| SortKey { column: 0, descending, nulls_first: false };
    let top = |names: &[&str], rows_max| Program {
        order: vec![order(true)],
        limit: Some(rows_max),
        ..program(None, rows(names))
    };
    vec![
        ("count where half", program(below("million", 500_000), grouped(&[], count()))),
        ("sum", program(None, grouped(&[], sum()))),
        ("rows where one in ten", program(below("million", 100_000), rows(&["row", "million", "code"]))),
        ("rows where half", program(below("million", 500_000), rows(&["row", "million", "name", "long"]))),
        ("rows by regex, 256 B", program(Some(regex("long", "a.*b[0-9]{3}.*c")), rows(&["row"]))),
        (
            "count by slow regex, 256 B",
            program(Some(regex("long", "([a-f]{3}|x).{20}\\d+z")), grouped(&[], count())),
        ),
        ("count by regex, dictionary", program(Some(regex("word", "often.*1.*7$")), grouped(&[], count()))),
        ("sum of quotients", program(None, grouped(&[], vec![aggregate(Max, vec![divided])]))),
        ("sum of cases", program(None, grouped(&[], vec![aggregate(Sum, vec![case])]))),
        ("sum by 1 M", program(None, grouped(&["million"], sum()))),
        ("sum by 1 M sparse", program(None, grouped(&["sparse"], sum()))),
        (
            "min text by 1 M sparse",
            program(None, grouped(&["sparse"], vec![aggregate(Min, vec![column("code")])])),
        ),
        ("sum by code", program(None, grouped(&["code"], sum()))),
        ("sum by name", program(None, grouped(&["name"], sum()))),
        ("sum by word, code", program(None, grouped(&["word", "code"], sum()))),
        ("sum by long", program(None, grouped(&["long"], sum()))),
        (
            "sketches of 6",
            program(
                None,
                grouped(&[], NAMED.iter().take(6).map(|n| aggregate(all(), vec![column(n)])).collect()),
            ),
        ),
        ("sketch of long", program(None, grouped(&[], vec![aggregate(all(), vec![column("long")])]))),
        ("sketch by code", program(None, grouped(&["code"], vec![aggregate(all(), vec![column("sparse")])]))),
        ("moments of 64", program(None, grouped(&[], vec![aggregate(listwise(), small())]))),
        ("top 10", top(&["sparse", "row"], 10)),
        ("top 65536", top(&["sparse", "row", "name"], 65_536)),
        ("top 65536 by text", top(&["name", "row"], 65_536)),
    ]
}

/// Executes a program; returns the milliseconds that each step took, first of the scan, then of the work after it.
fn steps(program: &Program, table: &Arc<Table>) -> Option<(Vec<f64>, Vec<f64>)> {
    let budget = Budget { workers: 2, ..Budget::default() };
    let program = BoundProgram::prepare(program, table.clone(), Version(1), budget).ok()?;
    let run = Run::start_shipping(&program).ok()?;
    let clock = SystemClock::new();
    let (mut scan, mut rest) = (Vec::new(), Vec::new());
    loop {
        let is_scanned = run.receipt().rows_scanned + run.receipt().rows_skipped == table.rows;
        let begun = clock.thread_cpu_ns();
        let step = run.step(&clock).expect("runs");
        let ms = (clock.thread_cpu_ns() - begun) as f64 * 1e-6;
        if is_scanned {
            rest.push(ms)
        } else {
            scan.push(ms)
        }
        if matches!(step, Step::Done) {
            return Some((scan, rest));
        }
    }
}

/// Formats the sum, the median, the 99th percentile and the maximum of `times`, which are in milliseconds.
fn described(mut times: Vec<f64>) -> String {
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times.get((times.len() as f64 * part) as usize).copied().unwrap_or(0.0);
    let (all, last) = (times.iter().sum::<f64>(), times.last().copied().unwrap_or(0.0));
    format!("{:6} steps {all:9.1} ms, p50 {:6.2} p99 {:6.2} max {last:7.2}", times.len(), at(0.5), at(0.99))
}

fn main() {
    let argument = |n: usize| std::env::args().nth(n);
    let millions: usize = argument(1).and_then(|a| a.parse().ok()).unwrap_or(2);
    let wanted = argument(2).unwrap_or_default();
    let pool = Pool::new(PoolConfig { bytes_limit: 4 << 30 }).expect("memory");
    let tenant = TenantName::new("example").expect("a name");
    let mut builder = TableBuilder::new(pool, tenant, &schema(), None).expect("a table");
    for group in 0..millions * 1_000_000 / limits::ROW_GROUP_ROWS {
        let first = group * limits::ROW_GROUP_ROWS;
        let batch = RecordBatch::try_new(schema(), columns(first, limits::ROW_GROUP_ROWS)).expect("a batch");
        builder.push(&batch).expect("encodes");
    }
    let table = Arc::new(builder.finish().expect("a table"));
    for (name, program) in programs().into_iter().filter(|(name, _)| name.contains(&wanted)) {
        // Warms up: only the second execution, which reuses the memory of the first, is reported.
        let _ = steps(&program, &table);
        match steps(&program, &table) {
            Some((scan, rest)) => println!("{name:28} {}  then {}", described(scan), described(rest)),
            None => println!("{name:28} refused"),
        }
    }
}
