//! Tests of programs with lookups (joins in the pool) over the tables of TPC-H, in-process, compared with the joins of
//! the engine above the same pool.

use crate::support::pools::{self, Pools, Way};
use crate::support::tpch;
use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Int64Type, Schema};
use farpool::model::{
    Aggregate, AggregateFunction, CompareOp, Expr, Literal, Lookup, LookupKey, LookupKind, NamedExpr, Output,
    Program, Value,
};
use farpool::node::{Node, NodeConfig};
use farpool::{EmbeddedPool, ErrorKind, LoadMode, LoadOptions, Pool, Result, TableName, TenantName, Tier};
use farpool_planner::finish::Finish;
use futures::{StreamExt, TryStreamExt};
use std::collections::HashMap;
use std::sync::Arc;

/// The schemas of the tables, for programs that name columns.
struct Tables(HashMap<&'static str, Schema>);

impl Tables {
    fn at(&self, table: &str, column: &str) -> usize {
        self.0[table].index_of(column).expect("a column of the table")
    }

    fn column(&self, table: &str, column: &str) -> Expr {
        Expr::Column(self.at(table, column))
    }

    fn width(&self, table: &str) -> usize {
        self.0[table].fields().len()
    }

    /// A program that returns these columns of the rows that pass.
    fn rows(&self, table: &str, columns: &[&str], filter: Option<Expr>) -> Program {
        let columns: Vec<usize> = columns.iter().map(|column| self.at(table, column)).collect();
        Program { filter, ..Program::scan(TableName::new(table).unwrap(), &self.0[table], &columns) }
    }
}

fn lookup(kind: LookupKind, program: Program, row: usize) -> Lookup {
    let keys = vec![LookupKey { row, result: 0 }];
    Lookup { kind, program, keys, residual: None, mark: "mark".to_string() }
}

fn text(column: Expr, op: CompareOp, value: &str) -> Option<Expr> {
    let value = Literal::new(Value::Text(value.to_string()), DataType::Utf8View).unwrap();
    Some(Expr::compare(op, column, Expr::Literal(value)))
}

fn date(column: Expr, op: CompareOp, days: i128) -> Expr {
    Expr::compare(op, column, Expr::Literal(Literal::new(Value::Int(days), DataType::Date32).unwrap()))
}

fn count() -> Aggregate {
    Aggregate {
        name: "n".to_string(),
        function: AggregateFunction::Count,
        arguments: Vec::new(),
        filter: None,
        data_type: DataType::Int64,
    }
}

/// Counts the rows of a program, and returns it with the receipt's number of scanned rows.
async fn counted(pool: &dyn Pool, program: &Program) -> Result<(i64, u64)> {
    let output = Output::Aggregate { keys: Vec::new(), aggregates: vec![count()] };
    let execution = pool.execute(&Program { output, ..program.clone() }, 1).await?;
    let batches: Vec<RecordBatch> = futures::stream::iter(execution.streams).flatten().try_collect().await?;
    let receipt = execution.receipt.get().expect("the program has ended");
    Ok((
        batches[0].column(0).as_primitive::<Int64Type>().value(0),
        receipt.rows_scanned + receipt.rows_skipped,
    ))
}

async fn loaded(encryption: Option<Tier>) -> (Pools, Tables) {
    filled(Pools::start(1 << 30).await, 0.01, encryption).await
}

async fn filled(pools: Pools, scale: f64, encryption: Option<Tier>) -> (Pools, Tables) {
    let mut schemas = HashMap::new();
    for (name, schema, batches) in tpch::tables(scale) {
        let options = LoadOptions { encryption, ..LoadMode::Replace.into() };
        let info = pools::load_with(&*pools.embedded, name, schema, batches, options).await;
        schemas.insert(name, info.schema.as_ref().clone());
    }
    (pools, Tables(schemas))
}

/// Days from 1970-01-01 to 1995-03-15.
const MARCH_1995: i128 = 9204;

/// The rows of the third query of TPC-H.
const THIRD: &str = "from customer, orders, lineitem where c_mktsegment = 'BUILDING' and c_custkey = o_custkey and \
                     l_orderkey = o_orderkey and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15'";

/// The rows of the third query of TPC-H: line items of orders of customers of a segment.
fn third(tables: &Tables) -> Program {
    let customers = tables.rows(
        "customer",
        &["c_custkey"],
        text(tables.column("customer", "c_mktsegment"), CompareOp::Eq, "BUILDING"),
    );
    let of_segment = lookup(LookupKind::Semi, customers, tables.at("orders", "o_custkey"));
    let before = date(tables.column("orders", "o_orderdate"), CompareOp::Lt, MARCH_1995);
    let orders = tables.rows("orders", &["o_orderkey", "o_orderdate"], Some(before));
    let orders = Program { lookups: vec![of_segment], ..orders };
    let after = date(tables.column("lineitem", "l_shipdate"), CompareOp::Gt, MARCH_1995);
    let lines = tables.rows("lineitem", &["l_orderkey"], Some(after));
    let of_orders = lookup(LookupKind::Inner, orders, tables.at("lineitem", "l_orderkey"));
    Program { lookups: vec![of_orders], ..lines }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lookups_give_what_the_engine_joins() {
    for encryption in [None, Some(Tier::Standard)] {
        let (pools, tables) = loaded(encryption).await;
        let session = pools.session(Way::Embedded, true).await;
        let nations = || tables.rows("nation", &["n_nationkey", "n_name"], None);
        let by_nation = |kind, table: &str, key: &str| {
            let scanned = tables.rows(table, &[key], None);
            Program { lookups: vec![lookup(kind, nations(), tables.at(table, key))], ..scanned }
        };
        let french = {
            let name = Expr::Column(tables.width("supplier") + 1);
            let program = by_nation(LookupKind::Inner, "supplier", "s_nationkey");
            Program { filter: text(name, CompareOp::Eq, "FRANCE"), ..program }
        };
        let orders = || tables.rows("orders", &["o_custkey"], None);
        let of_orders = |kind| Program {
            lookups: vec![lookup(kind, orders(), tables.at("customer", "c_custkey"))],
            ..tables.rows("customer", &["c_custkey"], None)
        };
        let late = {
            // Line items that another line item of the same order followed.
            let lines = tables.rows("lineitem", &["l_orderkey", "l_linenumber"], None);
            let width = tables.width("lineitem");
            let next = Expr::compare(
                CompareOp::Lt,
                tables.column("lineitem", "l_linenumber"),
                Expr::Column(width + 1),
            );
            let followed = lookup(LookupKind::Semi, lines.clone(), tables.at("lineitem", "l_orderkey"));
            Program { lookups: vec![Lookup { residual: Some(next), ..followed }], ..lines }
        };
        for (program, sql) in [
            (third(&tables), THIRD),
            (french, "from supplier join nation on s_nationkey = n_nationkey where n_name = 'FRANCE'"),
            (of_orders(LookupKind::Left), "from customer left join orders on c_custkey = o_custkey"),
            (
                of_orders(LookupKind::Anti),
                "from customer where not exists (select 1 from orders where o_custkey = c_custkey)",
            ),
            (
                of_orders(LookupKind::NotIn),
                "from customer where c_custkey not in (select o_custkey from orders)",
            ),
            (
                late,
                "from lineitem l where exists (select 1 from lineitem k where k.l_orderkey = l.l_orderkey and \
                 k.l_linenumber > l.l_linenumber)",
            ),
        ] {
            let query = session.sql(format!("select count(*) {sql}").as_str()).await.unwrap();
            let expected = query.collect().await.unwrap()[0].column(0).as_primitive::<Int64Type>().value(0);
            let (found, _) = counted(&*pools.embedded, &program).await.unwrap();
            assert_eq!(found, expected, "{sql}");
            assert!(found > 0, "{sql}");
        }
        // The statistics are those of all tables together.
        let all = ["lineitem", "orders", "customer"].map(|name| TableName::new(name).unwrap());
        let mut rows = 0;
        for table in &all {
            rows += pools.embedded.table(table).await.unwrap().rows;
        }
        let before = pools.embedded.status().await.unwrap().work_bytes_used;
        assert_eq!(counted(&*pools.embedded, &third(&tables)).await.unwrap().1, rows);
        let after = pools.embedded.status().await.unwrap().work_bytes_used;
        assert_eq!(after, before, "the tables of lookups are gone");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lookups_over_tables_larger_than_memory_give_what_the_engine_joins() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pools, tables) = filled(Pools::start_durable(16 << 20, folder.path()).await, 0.1, None).await;
    let session = pools.session(Way::Embedded, true).await;
    let query = session.sql(format!("select count(*) {THIRD}").as_str()).await.unwrap();
    let expected = query.collect().await.unwrap()[0].column(0).as_primitive::<Int64Type>().value(0);
    for _ in 0..3 {
        assert_eq!(counted(&*pools.embedded, &third(&tables)).await.unwrap().0, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_behind_lookups_are_those_of_the_engine() {
    let (pools, tables) = loaded(None).await;
    let session = pools.session(Way::Embedded, true).await;
    let schema = Arc::new(
        third(&tables)
            .row_schema(
                &tables.0["lineitem"],
                [&Schema::new(vec![
                    tables.0["orders"].field(tables.at("orders", "o_orderkey")).clone(),
                    tables.0["orders"].field(tables.at("orders", "o_orderdate")).clone(),
                ])],
            )
            .unwrap(),
    );
    let key = NamedExpr { name: "o_orderdate".to_string(), expr: Expr::Column(tables.width("lineitem") + 1) };
    let output = Output::Aggregate { keys: vec![key], aggregates: vec![count()] };
    let program = Program { output, ..third(&tables) };
    let prepared = pools.embedded.prepare(&program, &Arc::new(tables.0["lineitem"].clone())).await.unwrap();
    // The groups may come in parts, and are then merged.
    assert!(
        prepared.is_exact() || Finish::of(&program, &prepared, &schema).is_some(),
        "{:?}",
        prepared.answers
    );
    let execution = pools.embedded.execute_prepared(&prepared, None, 1).await.unwrap();
    let batches: Vec<RecordBatch> =
        futures::stream::iter(execution.streams).flatten().try_collect().await.unwrap();
    let counts = batches.iter().flat_map(|batch| batch.column(1).as_primitive::<Int64Type>().values().iter());
    let (_, mut days) = (counts.clone().count(), HashMap::new());
    for batch in &batches {
        let dates = batch.column(0).as_primitive::<arrow::datatypes::Date32Type>().values();
        for (date, count) in dates.iter().zip(batch.column(1).as_primitive::<Int64Type>().values()) {
            *days.entry(*date).or_insert(0) += count;
        }
    }
    let sql = format!("select o_orderdate, count(*) {THIRD} group by o_orderdate");
    let expected = session.sql(sql.as_str()).await.unwrap().collect().await.unwrap();
    let mut found = 0;
    for batch in &expected {
        let dates = batch.column(0).as_primitive::<arrow::datatypes::Date32Type>().values();
        for (date, count) in dates.iter().zip(batch.column(1).as_primitive::<Int64Type>().values()) {
            assert_eq!(days.get(date), Some(count), "day {date}");
            found += 1;
        }
    }
    assert!(found == days.len() && found > 10, "{found} days");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_strings_of_few_looked_up_rows_are_joined_to_many() {
    let pools = Pools::start(256 << 20).await;
    let numbers =
        |rows: i64| Arc::new(Int64Array::from_iter_values((0..rows).map(|row| row % 2))) as ArrayRef;
    let texts = [0, 1].map(|row| "x".repeat(300_000 + row));
    let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(&texts));
    let few = RecordBatch::try_from_iter([("key", numbers(2)), ("text", texts)]).unwrap();
    let many = RecordBatch::try_from_iter([("key", numbers(20_000))]).unwrap();
    let mut schemas = HashMap::new();
    for (name, batch) in [("few", few), ("many", many)] {
        let info = pools::load(&*pools.embedded, name, batch.schema(), vec![batch]).await;
        schemas.insert(name, info.schema.as_ref().clone());
    }
    let tables = Tables(schemas);
    let lookups = vec![lookup(LookupKind::Inner, tables.rows("few", &["key", "text"], None), 0)];
    let joined = Program { lookups, ..tables.rows("many", &["key"], None) };
    let longest = Aggregate {
        name: "longest".to_string(),
        function: AggregateFunction::Max,
        arguments: vec![Expr::Column(2)],
        filter: None,
        data_type: DataType::Utf8View,
    };
    let output = Output::Aggregate { keys: Vec::new(), aggregates: vec![longest, count()] };
    let execution = pools.embedded.execute(&Program { output, ..joined }, 1).await.unwrap();
    let batches: Vec<RecordBatch> =
        futures::stream::iter(execution.streams).flatten().try_collect().await.unwrap();
    assert_eq!(batches[0].column(0).as_string_view().value(0).len(), 300_001);
    assert_eq!(batches[0].column(1).as_primitive::<Int64Type>().value(0), 20_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lookups_that_cannot_be_are_refused() {
    let (pools, tables) = loaded(None).await;
    let pool = &*pools.embedded;
    // A table that is not there, or another tenant's.
    let other = EmbeddedPool::over(
        Node::start(NodeConfig { memory_bytes: 16 << 20, ..NodeConfig::default() }).unwrap(),
        TenantName::new("other").unwrap(),
    );
    let error = counted(&*other, &third(&tables)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
    let mut program = third(&tables);
    program.lookups[0].program.table = TableName::new("nothing").unwrap();
    let error = counted(pool, &program).await.unwrap_err();
    assert!(error.kind == ErrorKind::NotFound && error.message.contains("nothing"), "{error}");
    // Keys of different types.
    let mut program = third(&tables);
    program.lookups[0].keys[0].result = 1;
    let error = counted(pool, &program).await.unwrap_err();
    assert!(error.kind == ErrorKind::Invalid && error.message.contains("o_orderdate"), "{error}");
    // Too many, and too deep.
    let nested = (0..20).fold(tables.rows("nation", &["n_nationkey"], None), |inner, _| Program {
        lookups: vec![lookup(LookupKind::Semi, inner, 0)],
        ..tables.rows("nation", &["n_nationkey"], None)
    });
    assert_eq!(counted(pool, &nested).await.unwrap_err().kind, ErrorKind::OverLimit);
    // The protocol cannot express lookups.
    let error = counted(&*pools.remote, &third(&tables)).await.unwrap_err();
    assert!(error.kind == ErrorKind::Invalid && error.message.contains("lookups"), "{error}");
    // What the program of a lookup leaves to the engine is not joined.
    let mut program = third(&tables);
    program.lookups[0].program.filter = Some(Expr::opaque("nobody knows", Vec::new()));
    let error = counted(pool, &program).await.unwrap_err();
    assert!(error.kind == ErrorKind::Invalid && error.message.contains("nobody knows"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_of_billions_of_pairs_is_cancelled_at_once() {
    let (pools, tables) = loaded(None).await;
    let lines = || tables.rows("lineitem", &["l_returnflag"], None);
    let all = lookup(LookupKind::Inner, lines(), tables.at("lineitem", "l_returnflag"));
    let program = Program { lookups: vec![all], ..lines() };
    let output = Output::Aggregate { keys: Vec::new(), aggregates: vec![count()] };
    let program = Program { output, ..program };
    let execution = pools.embedded.execute(&program, 1).await.unwrap();
    let rows = futures::stream::iter(execution.streams).flatten().try_collect::<Vec<RecordBatch>>();
    let ended = tokio::time::timeout(std::time::Duration::from_millis(300), rows).await;
    assert!(ended.is_err(), "there are more than a billion pairs: {ended:?}");
    for _ in 0..50 {
        if pools.embedded.status().await.unwrap().programs_running == 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the program goes on after its rows were dropped");
}
