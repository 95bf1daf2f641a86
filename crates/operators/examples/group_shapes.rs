//! Times DISTINCT, GROUP BY and aggregation without groups on made-up rows, with one thread and with two.
//!
//! `cargo run --release -p farpool-operators --example group_shapes -- [MILLIONS OF ROWS [NAME [RUNS]]]`

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use farpool_columns::{Table, TableBuilder};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::{
    Aggregate, AggregateFunction, CompareOp, Expr, Literal, NamedExpr, Output, Program, StateFunction,
    TableName, TenantName, Value, limits,
};
use farpool_operators::{HashKey, Memory, Plan, State};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const COLUMNS: [&str; 13] = [
    "few",
    "million",
    "eight_million",
    "value",
    "sparse",
    "sorted",
    "zipf",
    "sparse_sorted",
    "sparse_zipf",
    "code",
    "name",
    "flag",
    "float",
];

fn schema() -> SchemaRef {
    let field = |name: &&str| {
        let text = ["code", "name"].contains(name);
        let t = if *name == "float" { DataType::Float64 } else { DataType::Int64 };
        Field::new(*name, if text { DataType::Utf8View } else { t }, false)
    };
    Arc::new(Schema::new(COLUMNS.iter().map(field).collect::<Vec<_>>()))
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
    let below = |n: u64| move |random: u64, _| (random % n) as i64;
    // Spreads the values over 56 bits, so that they are too large to be array indices.
    let spread = |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8) as i64;
    let sparse = |random: u64, _| spread(random % 1_000_000);
    let zipf = |random: u64, _| {
        let uniform = (random & 0xffff_ffff) as f64 / f64::from(u32::MAX);
        1_000_000_f64.powf(uniform) as i64
    };
    let numbers = vec![
        ints(&below(16)),
        ints(&below(1_000_000)),
        ints(&below(8_000_000)),
        ints(&below(1_000_000)),
        ints(&sparse),
        ints(&|_, row| (row / 16) as i64),
        ints(&zipf),
        ints(&|_, row| spread((row / 16) as u64)),
        ints(&|random, row| spread(zipf(random, row) as u64)),
    ];
    let codes = ints(&below(100));
    let names = ints(&below(100_000));
    let texts = |numbers: &ArrayRef, prefix: &str| {
        let numbers = arrow_array::cast::AsArray::as_primitive::<arrow_array::types::Int64Type>(numbers);
        let text = |number: &i64| format!("{prefix}{number}");
        Arc::new(StringViewArray::from_iter_values(numbers.values().iter().map(text))) as ArrayRef
    };
    let (codes, names) = (texts(&codes, "code "), texts(&names, "the customer with number "));
    let floats = Float64Array::from_iter_values((0..rows).map(|row| (row as f64).sqrt()));
    numbers.into_iter().chain([codes, names, ints(&below(2)), Arc::new(floats)]).collect()
}

fn program(filter: Option<Expr>, keys: &[&str], aggregates: &[(AggregateFunction, Option<&str>)]) -> Program {
    let position = |name: &str| COLUMNS.iter().position(|c| *c == name).expect("a column");
    let keys = keys.iter().map(|key| NamedExpr::column(&schema(), position(key))).collect();
    let aggregate = |(function, argument): &(AggregateFunction, Option<&str>)| Aggregate {
        name: function.name().into(),
        function: *function,
        arguments: argument.map(|a| Expr::Column(position(a))).into_iter().collect(),
        filter: None,
        data_type: match function {
            AggregateFunction::State(_) => DataType::BinaryView,
            AggregateFunction::Avg => DataType::Float64,
            _ if *argument == Some("float") => DataType::Float64,
            _ => DataType::Int64,
        },
    };
    let output = Output::Aggregate { keys, aggregates: aggregates.iter().map(aggregate).collect() };
    Program {
        table: TableName::new("rows").expect("a name"),
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
    use AggregateFunction::{Avg, Count, Max, Min, Sum};
    let sum = [(Sum, Some("value"))];
    let sketch = AggregateFunction::from(StateFunction::Sketch("distinct=12".parse().expect("parameters")));
    let half = Literal::new(Value::Int(500_000), DataType::Int64).expect("fits");
    let half = || Some(Expr::compare(CompareOp::Lt, Expr::Column(3), Expr::Literal(half.clone())));
    vec![
        ("distinct 16", program(None, &["few"], &[])),
        ("distinct 1 M", program(None, &["million"], &[])),
        ("distinct 8 M", program(None, &["eight_million"], &[])),
        ("distinct 1 M sparse", program(None, &["sparse"], &[])),
        ("distinct sorted", program(None, &["sorted"], &[])),
        ("sum by 16", program(None, &["few"], &sum)),
        ("sum by 1 M", program(None, &["million"], &sum)),
        ("sum by 8 M", program(None, &["eight_million"], &sum)),
        ("sum by 1 M sparse", program(None, &["sparse"], &sum)),
        ("sum by sorted sparse", program(None, &["sparse_sorted"], &sum)),
        ("sum by zipf sparse", program(None, &["sparse_zipf"], &sum)),
        ("sum by sorted", program(None, &["sorted"], &sum)),
        ("sum by zipf", program(None, &["zipf"], &sum)),
        ("sum by 1 M where half", program(half(), &["million"], &sum)),
        (
            "five by 1 M",
            program(
                None,
                &["million"],
                &[(Count, None), sum[0], (Min, Some("few")), (Max, Some("value")), (Avg, Some("value"))],
            ),
        ),
        ("sum by 1 M, 2", program(None, &["million", "flag"], &sum)),
        ("sum by 16, 2", program(None, &["few", "flag"], &sum)),
        ("sum by sparse, 16", program(None, &["sparse", "few"], &sum)),
        ("sum by code", program(None, &["code"], &sum)),
        ("sum by name", program(None, &["name"], &sum)),
        ("sum by code, 16", program(None, &["code", "few"], &sum)),
        ("sum by name, 16", program(None, &["name", "few"], &sum)),
        ("sum of floats", program(None, &[], &[(Sum, Some("float"))])),
        ("sum of floats where half", program(half(), &[], &[(Sum, Some("float"))])),
        ("sum of floats by 16", program(None, &["few"], &[(Sum, Some("float"))])),
        ("sum", program(None, &[], &sum)),
        ("sum where half", program(half(), &[], &sum)),
        ("count where half", program(half(), &[], &[(Count, None)])),
        ("min, max, count", program(None, &[], &[(Min, Some("value")), (Max, Some("value")), (Count, None)])),
        ("sketch of 16", program(None, &[], &[(sketch, Some("few"))])),
        ("sketch of code", program(None, &[], &[(sketch, Some("code"))])),
        ("sketch of name", program(None, &[], &[(sketch, Some("name"))])),
        ("sketch of code where half", program(half(), &[], &[(sketch, Some("code"))])),
        ("avg, min where half", program(half(), &[], &[(Avg, Some("value")), (Min, Some("million"))])),
    ]
}

#[expect(clippy::disallowed_methods, reason = "a measurement takes the time")]
fn now() -> Instant {
    Instant::now()
}

/// Returns the results of all threads, and the seconds of CPU time that they used together.
#[expect(clippy::disallowed_methods, reason = "a measurement has threads of its own")]
fn on_threads<T: Send>(threads: usize, work: impl Fn() -> T + Sync) -> (Vec<T>, f64) {
    let timed = || {
        let given = work();
        // The first number in the file is the time that the thread was on a processor, in nanoseconds.
        let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let ns = schedule.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0.0);
        (given, ns * 1e-9)
    };
    let given: Vec<(T, f64)> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(timed)).collect();
        handles.into_iter().map(|handle| handle.join().expect("no panic")).collect()
    });
    let cpu = given.iter().map(|(_, seconds)| seconds).sum();
    (given.into_iter().map(|(given, _)| given).collect(), cpu)
}

/// Returns the seconds until all row groups were scanned, the seconds until the groups of all threads were merged,
/// the seconds of CPU time, and the number of result rows.
fn run(plan: &Plan, table: &Table, threads: usize) -> (f64, f64, f64, usize) {
    let (next, rows) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let emit = |batch: RecordBatch| {
        rows.fetch_add(batch.num_rows(), Ordering::Relaxed);
        ControlFlow::Continue(())
    };
    let start = now();
    let (states, cpu_scan) = on_threads(threads, || {
        let mut state: State = plan.new_state();
        while let Some(group) = table.row_groups.get(next.fetch_add(1, Ordering::Relaxed)) {
            plan.process(group, &mut state, &mut |batch| emit(batch)).expect("runs");
        }
        state
    });
    let scanned = start.elapsed().as_secs_f64();
    let merge = plan.merge(states);
    let task = AtomicUsize::new(0);
    let (_, cpu_merge) = on_threads(threads, || {
        loop {
            let task = task.fetch_add(1, Ordering::Relaxed);
            if task >= merge.tasks() {
                break;
            }
            merge.run(task, &mut |batch| emit(batch)).expect("runs");
        }
    });
    let all = start.elapsed().as_secs_f64();
    (scanned, all, cpu_scan + cpu_merge, rows.load(Ordering::Relaxed))
}

fn main() {
    let argument = |n: usize| std::env::args().nth(n);
    let millions: usize = argument(1).and_then(|a| a.parse().ok()).unwrap_or(16);
    let wanted = argument(2).unwrap_or_default();
    let runs: usize = argument(3).and_then(|a| a.parse().ok()).unwrap_or(5);
    let pool = Pool::new(PoolConfig { bytes_limit: 4 << 30 }).expect("memory");
    let tenant = TenantName::new("example").expect("a name");
    let rows = limits::ROW_GROUP_ROWS;
    let mut builder = TableBuilder::new(pool, tenant, &schema(), None).expect("a table");
    for group in 0..millions * 1_000_000 / rows {
        let batch = RecordBatch::try_new(schema(), columns(group * rows, rows)).expect("a batch");
        builder.push(&batch).expect("encodes");
    }
    let table = builder.finish().expect("a table");
    for (name, program) in programs().into_iter().filter(|(name, _)| name.contains(&wanted)) {
        let memory = Memory { bytes_max: 4 << 30, workers: 2, hash_key: HashKey::default() };
        let plan = Plan::compile(&program, &table, memory).expect("compiles");
        let mut line = format!("{name:24}");
        for threads in [1, 2] {
            let mut best = (f64::MAX, f64::MAX, f64::MAX, 0);
            for _ in 0..runs {
                let this = run(&plan, &table, threads);
                best = if this.1 < best.1 { (this.0, this.1, this.2.min(best.2), this.3) } else { best };
                best.2 = best.2.min(this.2);
            }
            let (scan, all, cpu, out) = best;
            let (merge, cpu) = ((all - scan) * 1e3, cpu * 1e3);
            line += &format!("  {:8.1} ms ({merge:6.1} merging, {cpu:7.1} CPU)", all * 1e3);
            if threads == 2 {
                line += &format!("  {out} rows out{}", if plan.fits(memory) { "" } else { ", may spill" });
            }
        }
        println!("{line}");
        if let Some(way) = plan.way(table.row_groups.iter().map(|group| &**group)).expect("a way") {
            println!("{:24}  {way}", "");
        }
    }
}
