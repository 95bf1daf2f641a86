//! Tests that sort-merge joins return the rows of hash joins, and replace them if memory does not suffice.

use super::{Fake, rows, rows_of_t, shown};
use crate::joins::HashTables;
use crate::rows::physical_rules;
use crate::{Session, SessionOptions};
use arrow_array::builder::{Decimal128Builder, Float64Builder, Int32Builder, StringViewBuilder};
use arrow_array::{ArrayRef, Int32Array, RecordBatch};
use datafusion::datasource::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use farpool_memory::WorkMemory;
use proptest::prelude::*;
use std::sync::Arc;

/// A row of small numbers: `a`, `s`, `f`, `d` and `b`.
type Row = [Option<i32>; 5];

const FLOATS: [f64; 5] = [0.0, -0.0, f64::NAN, 1.5, -1.5];

fn table(rows: &[Row]) -> RecordBatch {
    let (mut a, mut b) = (Int32Builder::new(), Int32Builder::new());
    let (mut s, mut f) = (StringViewBuilder::new(), Float64Builder::new());
    let mut d = Decimal128Builder::new().with_precision_and_scale(12, 2).unwrap();
    for [of_a, of_s, of_f, of_d, of_b] in rows {
        a.append_option(*of_a);
        s.append_option(of_s.map(|v| format!("a name of some length {v}")));
        f.append_option(of_f.map(|v| FLOATS[v as usize % FLOATS.len()]));
        d.append_option(of_d.map(i128::from));
        b.append_option(*of_b);
    }
    let columns: [(&str, ArrayRef); 6] = [
        ("i", Arc::new(Int32Array::from_iter_values(0..rows.len() as i32))),
        ("a", Arc::new(a.finish())),
        ("s", Arc::new(s.finish())),
        ("f", Arc::new(f.finish())),
        ("d", Arc::new(d.finish())),
        ("b", Arc::new(b.finish())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, name != "i")))
        .unwrap()
}

fn table_rows() -> impl Strategy<Value = Vec<Row>> {
    let value = || prop_oneof![1 => Just(None), 2 => Just(Some(1)), 5 => (0..6).prop_map(Some)];
    prop::collection::vec([value(), value(), value(), value(), value()], 0..40)
}

/// Returns queries that join the tables `l` and `r` by each type of join.
fn queries(on: &str, filter: &str) -> Vec<String> {
    let on_all = format!("{on}{filter}");
    let mut queries: Vec<String> = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
        .iter()
        .map(|join| format!("SELECT * FROM l {join} r ON {on_all}"))
        .collect();
    for join in ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"] {
        queries.push(format!("SELECT l.a, l.f, r.f, r.a FROM l {join} r ON {on_all}"));
        queries.push(format!("SELECT l.d, l.b, r.b, r.s FROM l {join} r ON {on_all}"));
    }
    for join in ["LEFT SEMI", "LEFT ANTI"] {
        queries.push(format!("SELECT l.* FROM l {join} JOIN r ON {on_all}"));
        queries.push(format!("SELECT r.* FROM l {} JOIN r ON {on_all}", join.replace("LEFT", "RIGHT")));
    }
    for mark in ["EXISTS", "NOT EXISTS"] {
        for columns in ["*", "l.s, l.d"] {
            let marked = format!("{mark} (SELECT 1 FROM r WHERE {on_all})");
            queries.push(format!("SELECT {columns} FROM l WHERE l.b = 2 OR {marked}"));
        }
    }
    queries.push(format!(
        "SELECT j.s, r.d FROM (SELECT l.s, r.a FROM l LEFT JOIN r ON {on_all}) j JOIN r ON j.a = r.a"
    ));
    queries.push("SELECT a, s, f FROM l INTERSECT SELECT a, s, f FROM r".to_string());
    queries.push("SELECT f, d FROM l EXCEPT SELECT f, d FROM r".to_string());
    queries.push("SELECT * FROM l WHERE a NOT IN (SELECT a FROM r WHERE b > 2)".to_string());
    queries.push("SELECT * FROM l JOIN r ON l.a IS NOT DISTINCT FROM r.a".to_string());
    queries
}

/// Creates a context over both tables: with DataFusion's rules alone, or also with the rules that run after a plan's
/// hash tables were too large.
fn context(tables: &[RecordBatch; 2], rules: bool, partitions: usize) -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(partitions).with_batch_size(5);
    let builder = SessionStateBuilder::new().with_default_features().with_config(config);
    let builder = match rules {
        true => builder.with_physical_optimizer_rules(physical_rules(HashTables::after(2, 1 << 20))),
        false => builder,
    };
    let context = SessionContext::new_with_state(builder.build());
    for (name, batch) in ["l", "r"].into_iter().zip(tables) {
        let pieces = (0..batch.num_rows()).step_by(7).map(|at| batch.slice(at, 7.min(batch.num_rows() - at)));
        let table = MemTable::try_new(batch.schema(), vec![pieces.collect()]).unwrap();
        context.register_table(name, Arc::new(table)).unwrap();
    }
    context
}

async fn answer(context: &SessionContext, sql: &str) -> (String, Vec<String>) {
    let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    let text = datafusion::physical_plan::displayable(&*plan).indent(false).to_string();
    let run = datafusion::physical_plan::collect(plan, context.task_ctx()).await;
    let mut rows = shown(&run.unwrap_or_else(|error| panic!("{sql}: {error}\n{text}")));
    rows.sort();
    (text, rows)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn joins_on_sorted_rows_are_those_of_hash_tables(
        left in table_rows(),
        right in table_rows(),
        on in prop::sample::select(vec![
            "l.a = r.a", "l.s = r.s", "l.f = r.f", "l.d = r.d", "l.a = r.b AND l.s = r.s", "l.f = r.f AND l.a = r.a",
            "l.d = r.d AND l.f = r.f AND l.s = r.s", "l.a + l.b = r.a",
        ]),
        filter in prop::sample::select(vec!["", " AND l.b < r.b + 1", " AND l.s <> r.s", " AND l.i + 1 <> r.i", " AND r.b > 2"]),
        partitions in 1..4_usize,
    ) {
        let tables = [table(&left), table(&right)];
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (hashed, merged) = (context(&tables, false, partitions), context(&tables, true, partitions));
            for sql in queries(on, filter) {
                let (_, expected) = answer(&hashed, &sql).await;
                let (plan, found) = answer(&merged, &sql).await;
                assert_eq!(found, expected, "{sql}\n{plan}");
                // Only `NOT IN` (`null_aware`), and joins on float keys other than inner joins, still use a hash table.
                let hashed = plan.lines().filter(|line| line.contains("HashJoinExec"));
                for line in hashed {
                    let has_floats = line.contains("(f@") && !line.contains("Inner");
                    assert!(line.contains("null_aware") || has_floats, "{sql}\n{plan}");
                }
            }
        });
    }
}

/// Opens a session with `work_bytes` of memory for work, on a pool with two tables of about 20 MiB.
async fn session(pool: &Arc<Fake>, work_bytes: usize) -> Session {
    let work = Some(WorkMemory::new(work_bytes));
    let session =
        Session::new(SessionOptions { target_partitions: Some(3), work, ..SessionOptions::default() });
    session.register_pool("farpool", Arc::clone(pool) as _).await.unwrap();
    session
}

async fn large() -> Arc<Fake> {
    let of = |from: i64| (0..30).map(|i| rows_of_t(from + i * 8_000, 8_000)).collect::<Vec<_>>();
    Arc::new(Fake::default().with("l", of(0)).await.with("r", of(120_000)).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_for_which_memory_does_not_suffice_are_made_on_sorted_rows() {
    let pool = large().await;
    let (tight, ample) = (session(&pool, 20 << 20).await, session(&pool, 1 << 30).await);
    let of = "count(*), count(l.id), count(r.id), sum(l.id), sum(r.d), max(l.s), sum(length(l.s || r.s))";
    let long = |table| format!("(SELECT id, f, d, day, b, repeat(s || id, 3) AS s FROM {table})");
    let (l, r) = (long("l"), long("r"));
    let mut merged = 0;
    for (join, on) in [
        ("JOIN", "l.id = r.id"),
        ("LEFT JOIN", "l.id = r.id AND l.f IS NOT DISTINCT FROM r.f"),
        ("FULL JOIN", "l.id = r.id AND l.day = r.day"),
        ("RIGHT JOIN", "l.id + 1 = r.id AND l.d < r.d"),
    ] {
        let sql = format!("SELECT {of} FROM {l} l {join} {r} r ON {on}");
        let query = tight.sql(sql.as_str()).await.unwrap();
        let found = shown(&query.collect().await.unwrap_or_else(|error| panic!("{sql}: {error}")));
        assert_eq!(found, rows(&ample, &sql).await.unwrap(), "{sql}");
        merged += usize::from(query.explain().contains("SortMergeJoinExec"));
        assert!(query.outcome().contains("join on"), "{sql}");
    }
    assert_eq!(merged, 4);
    // All rows are returned, and none twice.
    let sql = format!("SELECT l.s, r.s FROM {l} l JOIN {r} r ON l.id = r.id");
    let (mut found, mut expected) = (rows(&tight, &sql).await.unwrap(), rows(&ample, &sql).await.unwrap());
    found.sort();
    expected.sort();
    assert!(found == expected && !found.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_in_needs_its_values_in_memory() {
    let pool = large().await;
    let tight = session(&pool, 20 << 20).await;
    let sql = "SELECT count(*) FROM (SELECT repeat(s || id, 3) k FROM l) l WHERE k NOT IN (SELECT repeat(s || id, 3) FROM r)";
    let error = rows(&tight, sql).await.unwrap_err();
    assert!(error.advice.is_some_and(|advice| advice.contains("NOT EXISTS")), "{}", error.message);
    let sql = "SELECT count(*) FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE repeat(r.s || r.id, 3) = repeat(l.s || l.id, 3))";
    let ample = session(&pool, 1 << 30).await;
    assert_eq!(rows(&tight, sql).await, rows(&ample, sql).await);
}
