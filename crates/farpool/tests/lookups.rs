//! Tests of programs with lookups (joins in the pool) over the tables of TPC-H, in-process and over TCP, compared with the
//! joins of the engine above the same pool.

use crate::support::pools::{self, Pools, Way};
use crate::support::tpch;
use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Int64Type, Schema};
use farpool::model::{
    Aggregate, AggregateFunction, CompareOp, Expr, Literal, Lookup, LookupKey, LookupKind, NamedExpr,
    OperatorAnswer, Output, Program, SortKey, Value,
};
use farpool::node::{Node, NodeConfig};
use farpool::{
    EmbeddedPool, ErrorKind, Execution, LoadMode, LoadOptions, Pool, Result, TableName, TenantName, Tier,
};
use farpool_planner::finish::Finish;
use futures::{StreamExt, TryStreamExt};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The schemas of the tables, for programs that name columns.
struct Tables(HashMap<&'static str, Schema>);

impl Tables {
    /// Returns a lookup in the result of `program` by its first column.
    fn lookup(&self, kind: LookupKind, program: Program, row: usize) -> Lookup {
        let table_schema = Arc::new(self.0[program.table.as_str()].clone());
        let keys = vec![LookupKey { row, result: 0 }];
        Lookup { kind, program, table_schema, given: None, keys, residual: None, mark: "mark".to_string() }
    }

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
    let of_segment = tables.lookup(LookupKind::Semi, customers, tables.at("orders", "o_custkey"));
    let before = date(tables.column("orders", "o_orderdate"), CompareOp::Lt, MARCH_1995);
    let orders = tables.rows("orders", &["o_orderkey", "o_orderdate"], Some(before));
    let orders = Program { lookups: vec![of_segment], ..orders };
    let after = date(tables.column("lineitem", "l_shipdate"), CompareOp::Gt, MARCH_1995);
    let lines = tables.rows("lineitem", &["l_orderkey"], Some(after));
    let of_orders = tables.lookup(LookupKind::Inner, orders, tables.at("lineitem", "l_orderkey"));
    Program { lookups: vec![of_orders], ..lines }
}

/// Returns the work memory that a pool holds, after it has stayed the same for a while: workers release what they held after
/// the last rows have come.
async fn held_at_rest(pool: &EmbeddedPool) -> u64 {
    let (mut held, mut same) = (0, 0);
    while same < 20 {
        let now = pool.status().await.unwrap().work_bytes_used;
        same = if now == held { same + 1 } else { 0 };
        held = now;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    held
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lookups_give_what_the_engine_joins() {
    for encryption in [None, Some(Tier::Standard)] {
        let (pools, tables) = loaded(encryption).await;
        let session = pools.session(Way::Embedded, true).await;
        let nations = || tables.rows("nation", &["n_nationkey", "n_name"], None);
        let by_nation = |kind, table: &str, key: &str| {
            let scanned = tables.rows(table, &[key], None);
            Program { lookups: vec![tables.lookup(kind, nations(), tables.at(table, key))], ..scanned }
        };
        let french = {
            let name = Expr::Column(tables.width("supplier") + 1);
            let program = by_nation(LookupKind::Inner, "supplier", "s_nationkey");
            Program { filter: text(name, CompareOp::Eq, "FRANCE"), ..program }
        };
        let orders = || tables.rows("orders", &["o_custkey"], None);
        let of_orders = |kind| Program {
            lookups: vec![tables.lookup(kind, orders(), tables.at("customer", "c_custkey"))],
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
            let followed =
                tables.lookup(LookupKind::Semi, lines.clone(), tables.at("lineitem", "l_orderkey"));
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
            let here = counted(&*pools.embedded, &program).await.unwrap();
            assert_eq!(here.0, expected, "{sql}");
            assert!(here.0 > 0, "{sql}");
            assert!(pools.remote.takes().lookups && !pools.near.takes().lookups);
            for pool in [&*pools.remote, &*pools.plain, &*pools.near as &dyn Pool] {
                assert_eq!(counted(pool, &program).await.unwrap(), here, "{sql}");
            }
        }
        // The statistics are those of all tables together.
        let all = ["lineitem", "orders", "customer"].map(|name| TableName::new(name).unwrap());
        let mut rows = 0;
        for table in &all {
            rows += pools.embedded.table(table).await.unwrap().rows;
        }
        let before = held_at_rest(&pools.embedded).await;
        assert_eq!(counted(&*pools.embedded, &third(&tables)).await.unwrap().1, rows);
        assert_eq!(held_at_rest(&pools.embedded).await, before, "the tables of lookups are gone");
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

/// Executes a program, and returns its columns, which are integers, row by row.
async fn integers(pool: &dyn Pool, program: &Program) -> Vec<Vec<i64>> {
    let execution = pool.execute(program, 1).await.unwrap();
    let batches = futures::stream::iter(execution.streams).flatten().try_collect().await.unwrap();
    integers_of(batches)
}

fn integers_of(batches: Vec<RecordBatch>) -> Vec<Vec<i64>> {
    let columns = |batch: &RecordBatch| -> Vec<Vec<i64>> {
        batch.columns().iter().map(|column| column.as_primitive::<Int64Type>().values().to_vec()).collect()
    };
    let rows = |columns: Vec<Vec<i64>>| -> Vec<Vec<i64>> {
        (0..columns[0].len()).map(|row| columns.iter().map(|column| column[row]).collect()).collect()
    };
    let mut rows: Vec<Vec<i64>> = batches.iter().map(columns).flat_map(rows).collect();
    rows.sort_unstable();
    rows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_groups_behind_lookups_and_groups_within_lookups_are_whole() {
    let (pools, tables) = loaded(None).await;
    let pool = &*pools.embedded;
    let session = pools.session(Way::Embedded, true).await;
    // The orders with the most line items of the third query.
    let key = NamedExpr { name: "key".to_string(), expr: tables.column("lineitem", "l_orderkey") };
    let output = Output::Aggregate { keys: vec![key], aggregates: vec![count()] };
    let by_order = Program { output, ..third(&tables) };
    let most = |column, descending| SortKey { column, descending, nulls_first: false };
    let top = Program { order: vec![most(1, true), most(0, false)], limit: Some(10), ..by_order.clone() };
    let prepared = pool.prepare(&top, &Arc::new(tables.0["lineitem"].clone())).await.unwrap();
    assert!(prepared.is_exact(), "{:?}", prepared.answers);
    let sql = format!("select l_orderkey, count(*) {THIRD} group by 1 order by 2 desc, 1 limit 10");
    let expected = integers_of(session.sql(sql.as_str()).await.unwrap().collect().await.unwrap());
    assert_eq!(integers(pool, &top).await, expected);
    assert_eq!(expected.len(), 10);
    // Orders that have many of these line items.
    let many = Expr::compare(
        CompareOp::GtEq,
        Expr::Column(tables.width("orders") + 1),
        Expr::Literal(Literal::new(Value::Int(4), DataType::Int64).unwrap()),
    );
    let orders = tables.rows("orders", &["o_orderkey"], Some(many));
    let lookups = vec![tables.lookup(LookupKind::Inner, by_order, tables.at("orders", "o_orderkey"))];
    let found = integers(pool, &Program { lookups, ..orders }).await;
    let sql = format!("select l_orderkey {THIRD} group by 1 having count(*) >= 4");
    let expected = integers_of(session.sql(sql.as_str()).await.unwrap().collect().await.unwrap());
    assert_eq!(found, expected);
    assert!(expected.len() > 10, "{}", expected.len());
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
    let lookups = vec![tables.lookup(LookupKind::Inner, tables.rows("few", &["key", "text"], None), 0)];
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
        lookups: vec![tables.lookup(LookupKind::Semi, inner, 0)],
        ..tables.rows("nation", &["n_nationkey"], None)
    });
    assert_eq!(counted(pool, &nested).await.unwrap_err().kind, ErrorKind::OverLimit);
    // A table of another tenant of the node, over TCP.
    let other = EmbeddedPool::over(pools.embedded.node().clone(), TenantName::new("other").unwrap());
    let batch =
        RecordBatch::try_from_iter([("key", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]).unwrap();
    pools::load(&*other, "secret", batch.schema(), vec![batch]).await;
    let mut program = third(&tables);
    program.lookups[0].program.table = TableName::new("secret").unwrap();
    for pool in [pool as &dyn Pool, &*pools.remote] {
        let error = counted(pool, &program).await.unwrap_err();
        assert!(error.kind == ErrorKind::NotFound && error.message.contains("secret"), "{error}");
    }
    // What the program of a lookup leaves to the engine is not joined.
    let mut program = third(&tables);
    program.lookups[0].program.filter = Some(Expr::opaque("nobody knows", Vec::new()));
    for pool in [pool as &dyn Pool, &*pools.remote] {
        let error = counted(pool, &program).await.unwrap_err();
        assert!(error.kind == ErrorKind::Invalid && error.message.contains("nobody knows"), "{error}");
    }
}

/// The rows of an execution as text, sorted, and the receipt's operators.
async fn shown(execution: Execution) -> (Vec<String>, Vec<OperatorAnswer>) {
    let batches: Vec<RecordBatch> =
        futures::stream::iter(execution.streams).flatten().try_collect().await.unwrap();
    let text = arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string();
    let mut rows: Vec<String> = text.lines().map(str::to_string).collect();
    rows.sort();
    (rows, execution.receipt.get().expect("the program has ended").operators)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_lookup_gives_the_same_over_tcp() {
    let (pools, tables) = loaded(None).await;
    let few = date(tables.column("orders", "o_orderdate"), CompareOp::Lt, MARCH_1995 - 1000);
    let orders = || tables.rows("orders", &["o_custkey", "o_orderkey"], Some(few.clone()));
    let customers = tables.rows("customer", &["c_custkey", "c_nationkey"], None);
    let schema = Arc::new(tables.0["customer"].clone());
    let mut kinds = 0;
    for kind in LookupKind::ALL {
        let mut lookup = tables.lookup(kind, orders(), tables.at("customer", "c_custkey"));
        if kind == LookupKind::Single {
            // A scalar subquery: the number of orders of each customer.
            let key = NamedExpr { name: "key".into(), expr: tables.column("orders", "o_custkey") };
            lookup.program.output = Output::Aggregate { keys: vec![key], aggregates: vec![count()] };
        }
        let mut program = Program { lookups: vec![lookup], ..customers.clone() };
        let row = match program.joined_schema(&schema) {
            Ok(row) => row,
            Err(error) => panic!("{kind:?}: {error}"),
        };
        let added = (schema.fields().len()..row.fields().len()).map(|at| NamedExpr::column(&row, at));
        if let Output::Rows(columns) = &mut program.output {
            columns.extend(added);
        }
        let embedded = pools.embedded.prepare(&program, &schema).await;
        let embedded = match embedded {
            Ok(embedded) => embedded,
            // Groups that may not fit are left to the engine, and so is their join.
            Err(error) if kind == LookupKind::Single => {
                assert!(error.message.contains("carried out whole"), "{error}");
                let remote = pools.remote.prepare(&program, &schema).await.unwrap_err();
                assert_eq!(remote.message, error.message);
                continue;
            }
            Err(error) => panic!("{kind:?}: {error}"),
        };
        kinds += 1;
        // Conditions that an engine adds are on the scanned table.
        let nation = tables.column("customer", "c_nationkey");
        let is_null = Expr::not(Expr::IsNull(Box::new(nation)));
        for conditions in [None, Some(&is_null)] {
            let here = pools.embedded.execute_prepared(&embedded, conditions, 1).await.unwrap();
            let here = shown(here).await;
            assert!(here.0.len() > 10, "{kind:?}");
            for pool in [&*pools.remote, &*pools.plain] {
                let there = pool.prepare(&program, &schema).await.unwrap();
                assert_eq!((&there.answers, &there.schema), (&embedded.answers, &embedded.schema));
                let there = pool.execute_prepared(&there, conditions, 1).await.unwrap();
                assert_eq!(shown(there).await, here, "{kind:?}");
            }
        }
    }
    assert!(kinds >= 7, "{kinds}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_show_each_lookup_in_the_order_of_execution() {
    let (pools, tables) = loaded(None).await;
    for pool in [&*pools.embedded as &dyn Pool, &*pools.remote] {
        let execution = pool.execute(&third(&tables), 1).await.unwrap();
        let (_, operators) = shown(execution).await;
        let shown: Vec<(&str, &str)> =
            operators.iter().map(|o| (o.operator.name(), o.detail.as_str())).collect();
        assert_eq!(
            shown,
            [
                ("scan", "lineitem (l_orderkey, l_shipdate)"),
                (
                    "lookup",
                    "customer (c_custkey) by o_custkey = c_custkey, semi, where c_mktsegment = 'BUILDING'"
                ),
                (
                    "lookup",
                    "orders (o_orderkey, o_orderdate) by l_orderkey = o_orderkey, inner, where o_orderdate < \
                 1995-03-15"
                ),
                ("filter", "l_shipdate > 1995-03-15"),
            ]
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepared_program_keeps_the_versions_of_its_lookups() {
    let (pools, tables) = loaded(None).await;
    let schema = Arc::new(tables.0["lineitem"].clone());
    let output = Output::Aggregate { keys: Vec::new(), aggregates: vec![count()] };
    let program = Program { output, ..third(&tables) };
    let (expected, _) = counted(&*pools.embedded, &third(&tables)).await.unwrap();
    let prepared = pools.remote.prepare(&program, &schema).await.unwrap();
    let versions = |lookups: &[Lookup]| lookups.iter().map(|l| l.program.version).collect::<Vec<_>>();
    let orders = pools.embedded.table(&TableName::new("orders").unwrap()).await.unwrap();
    assert_eq!(versions(&prepared.effective.lookups), [Some(orders.version)]);
    // The orders are gone; what was prepared reads them all the same.
    let empty = RecordBatch::new_empty(orders.schema.clone());
    pools::load(&*pools.embedded, "orders", orders.schema.clone(), vec![empty]).await;
    let execution = pools.remote.execute_prepared(&prepared, None, 1).await.unwrap();
    let batches: Vec<RecordBatch> =
        futures::stream::iter(execution.streams).flatten().try_collect().await.unwrap();
    assert_eq!(batches[0].column(0).as_primitive::<Int64Type>().value(0), expected);
    // So does another program that names the version, as long as that is held.
    let again = prepared.narrowed(None);
    assert_eq!(counted(&*pools.remote, &again).await.unwrap().0, expected);
    assert_eq!(counted(&*pools.remote, &third(&tables)).await.unwrap().0, 0);
    drop(prepared);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_of_billions_of_pairs_is_cancelled_at_once() {
    let (pools, tables) = loaded(None).await;
    let lines = || tables.rows("lineitem", &["l_returnflag"], None);
    let all = tables.lookup(LookupKind::Inner, lines(), tables.at("lineitem", "l_returnflag"));
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
