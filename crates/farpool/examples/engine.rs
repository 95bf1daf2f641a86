//! A minimal engine without DataFusion: it sends Substrait plans to a pool, gets the pool's answer to each operator,
//! runs the plans that it can use, and merges groups that the pool returns in parts.
//!
//! `cargo run --release --example engine`, or `-- farpool://127.0.0.1:9797` for a remote node. The pool that the
//! example opens itself has so little memory for groups that they come in parts.

use arrow::array::{ArrayRef, AsArray, Decimal128Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Decimal128Type, Field, Int64Type, Schema, SchemaRef};
use farpool::model::{
    Aggregate, AggregateFunction, Answer, CompareOp, Expr, Literal, NamedExpr, Output, Program, SortKey,
    Value,
};
use farpool::node::{Node, NodeConfig};
use farpool::{EmbeddedPool, Error, LoadMode, Pool, Result, TableName, TenantName};
use farpool_planner::finish::{Finish, PartMerge, Step};
use farpool_wire::substrait::{decode_program, encode_program};
use futures::{StreamExt, TryStreamExt};
use std::collections::BTreeMap;
use std::sync::Arc;

const ORDERS: i64 = 100_000;
const CUSTOMERS: i64 = 20_000;
const GROUP_BYTES: usize = 64 << 10;

#[tokio::main]
async fn main() -> Result<()> {
    let pool: Arc<dyn Pool> = match std::env::args().nth(1) {
        Some(url) => farpool::connect(&url, None).await?,
        None => {
            let config = NodeConfig { memory_bytes: 64 << 20, ..NodeConfig::default() };
            EmbeddedPool::over(Node::start_within(config, GROUP_BYTES)?, TenantName::default())
        }
    };
    let (table, rows) = (TableName::new("orders")?, orders());
    let batches = futures::stream::once(async { Ok(rows) }).boxed();
    let info = pool.load(&table, LoadMode::Replace.into(), schema(), None, batches).await?;
    println!("{} orders at {}", info.rows, pool.url());
    let schema = info.schema;

    // A real engine would encode the Substrait plans itself; this example uses farpool's encoder.
    for (what, program) in [("largest orders", largest()?), ("totals", totals()?), ("names", names()?)] {
        let plan = encode_program(&program, &schema)?;
        println!("\n{what}: a plan of {} bytes", plan.len());
        run(&*pool, &schema, &plan).await?;
    }
    pool.drop_table(&table).await
}

/// Runs a Substrait plan over a table with this schema and prints its result.
async fn run(pool: &dyn Pool, schema: &SchemaRef, plan: &[u8]) -> Result<()> {
    let program = decode_program(plan, &|_| Ok(schema.clone()))?;
    let prepared = pool.prepare(&program, schema).await?;
    for answer in &prepared.answers {
        let reason = answer.reason.as_deref().unwrap_or_default();
        println!("  {:<10}{:<9}{} {reason}", answer.operator, word(answer.answer), answer.detail);
    }
    let finish = Finish::of(&program, &prepared, schema);
    if !prepared.is_exact() && finish.is_none() {
        // A real engine would request the columns that the rest of its plan needs, and run its own operators on them.
        let columns: Vec<&str> = prepared.schema.fields().iter().map(|f| f.name().as_str()).collect();
        println!("  this engine has no operators: it would go on with {}", columns.join(", "));
        return Ok(());
    }
    let execution = pool.execute_prepared(&prepared, None, 1).await?;
    let batches: Vec<RecordBatch> = futures::stream::iter(execution.streams).flatten().try_collect().await?;
    let rows = match finish {
        Some(finish) => merged(&finish, &program.result_schema(schema)?, &batches)?,
        None => arrow::compute::concat_batches(&prepared.schema, &batches).map_err(of_arrow)?,
    };
    let shown = rows.slice(0, rows.num_rows().min(3));
    println!("{}", arrow::util::pretty::pretty_format_batches(&[shown]).map_err(of_arrow)?);
    let receipt = execution.receipt.get().unwrap_or_default();
    println!(
        "  {} rows; the pool read {} bytes and gave {} rows, {} of them ungrouped",
        rows.num_rows(),
        receipt.bytes_scanned,
        receipt.rows_returned,
        receipt.rows_bypassed
    );
    Ok(())
}

/// Merges the parts of groups into the result with schema `result`. This engine supports one integer key, and
/// sums.
fn merged(finish: &Finish, result: &SchemaRef, parts: &[RecordBatch]) -> Result<RecordBatch> {
    let calls = finish.calls();
    if finish.keys() != 1 || calls.iter().any(|call| call.merge != PartMerge::Sum) {
        return Err(Error::invalid("this engine merges sums and counts by one key"));
    }
    let mut groups: BTreeMap<i64, Vec<i128>> = BTreeMap::new();
    for batch in parts {
        let keys = batch.column(0).as_primitive::<Int64Type>();
        for (call, place) in calls.iter().enumerate() {
            let values = exact(batch.column(1 + place.part));
            for (key, value) in keys.values().iter().zip(values) {
                groups.entry(*key).or_insert_with(|| vec![0; calls.len()])[call] += value;
            }
        }
    }
    let sums = calls.iter().enumerate().map(|(call, place)| {
        let sums = groups.values().map(|sums| sums[call]);
        match parts.first().map(|batch| batch.column(1 + place.part).data_type().clone()) {
            Some(DataType::Decimal128(precision, scale)) => {
                let sums = Decimal128Array::from_iter_values(sums);
                Ok(Arc::new(sums.with_precision_and_scale(precision, scale).map_err(of_arrow)?) as ArrayRef)
            }
            _ => Ok(Arc::new(Int64Array::from_iter_values(sums.map(|sum| sum as i64))) as ArrayRef),
        }
    });
    let mut sums = sums.collect::<Result<Vec<ArrayRef>>>()?.into_iter();
    let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(groups.into_keys()))];
    for (merge, field) in finish.merges().iter().zip(&result.fields()[1..]) {
        let mut arguments: Vec<ArrayRef> = sums.by_ref().take(1).collect();
        columns.push(match Step::after(*merge, arguments[0].data_type(), field.data_type()) {
            Some(step) => {
                arguments.extend(sums.by_ref().take(step.arguments() - 1));
                step.apply(&arguments, field)?
            }
            None => arguments.swap_remove(0),
        });
    }
    RecordBatch::try_new(result.clone(), columns).map_err(of_arrow)
}

/// Returns counts or decimals as integers.
fn exact(values: &ArrayRef) -> Vec<i128> {
    match values.data_type() {
        DataType::Int64 => {
            values.as_primitive::<Int64Type>().values().iter().map(|v| i128::from(*v)).collect()
        }
        _ => values.as_primitive::<Decimal128Type>().values().to_vec(),
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("customer", DataType::Int64, false),
        Field::new("amount", DataType::Decimal128(10, 2), false),
    ]))
}

fn orders() -> RecordBatch {
    let customers = Int64Array::from_iter_values((0..ORDERS).map(|order| order * 7919 % CUSTOMERS));
    let amounts = Decimal128Array::from_iter_values((0..ORDERS).map(|order| i128::from(order * 31 % 9973)));
    let amounts = amounts.with_precision_and_scale(10, 2).expect("amounts of 10 digits");
    RecordBatch::try_new(schema(), vec![Arc::new(customers), Arc::new(amounts)]).expect("two columns")
}

/// Returns the program of SELECT customer, amount FROM orders WHERE amount >= 50 ORDER BY amount DESC LIMIT 3.
fn largest() -> Result<Program> {
    let output = Output::Rows(vec![column("customer", 0), column("amount", 1)]);
    let order = vec![SortKey { column: 1, descending: true, nulls_first: false }];
    Ok(Program { order, limit: Some(3), ..program(at_least(50)?, output)? })
}

/// Returns the program of SELECT customer, count(*), sum(amount), avg(amount) FROM orders WHERE amount >= 10 GROUP BY
/// customer.
fn totals() -> Result<Program> {
    let aggregate = |function: AggregateFunction, arguments, data_type| Aggregate {
        name: function.name().to_string(),
        function,
        arguments,
        filter: None,
        data_type,
    };
    let aggregates = vec![
        aggregate(AggregateFunction::Count, Vec::new(), DataType::Int64),
        aggregate(AggregateFunction::Sum, vec![Expr::Column(1)], DataType::Decimal128(20, 2)),
        aggregate(AggregateFunction::Avg, vec![Expr::Column(1)], DataType::Decimal128(14, 6)),
    ];
    program(at_least(10)?, Output::Aggregate { keys: vec![column("customer", 0)], aggregates })
}

/// Returns the program of SELECT name_of(customer) FROM orders WHERE amount >= 10, where only the engine knows the
/// function.
fn names() -> Result<Program> {
    let expr = Expr::opaque("function name_of", vec![Expr::Column(0)]);
    program(at_least(10)?, Output::Rows(vec![NamedExpr { name: "name".to_string(), expr }]))
}

fn program(filter: Expr, output: Output) -> Result<Program> {
    let table = TableName::new("orders")?;
    Ok(Program {
        table,
        version: None,
        lookups: Vec::new(),
        filter: Some(filter),
        output,
        having: None,
        order: Vec::new(),
        limit: None,
    })
}

fn at_least(amount: i128) -> Result<Expr> {
    let amount = Literal::new(Value::Int(amount * 100), DataType::Decimal128(10, 2))?;
    Ok(Expr::compare(CompareOp::GtEq, Expr::Column(1), Expr::Literal(amount)))
}

fn column(name: &str, index: usize) -> NamedExpr {
    NamedExpr { name: name.to_string(), expr: Expr::Column(index) }
}

fn word(answer: Answer) -> &'static str {
    match answer {
        Answer::Exact => "exact",
        Answer::Superset => "superset",
        Answer::Refused => "refused",
    }
}

fn of_arrow(error: arrow::error::ArrowError) -> Error {
    Error::internal(error.to_string())
}
