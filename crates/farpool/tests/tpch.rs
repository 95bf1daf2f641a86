//! Tests of all TPC-H queries, in-process and over TCP, with and without push-down, compared with DuckDB's answers.
//!
//! At scale 0.01 the largest table has less than one row group; at 0.1 it has ten, so that zone maps and the merging of
//! partial states are covered.

use crate::support::answers::{self, Answer};
use crate::support::pools::{self, Pools, Way};
use crate::support::tpch;
use farpool::model::{Answer as NodeAnswer, Operator};
use farpool::{LoadMode, LoadOptions, Session, Tier};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_setting_gives_duckdbs_answers_at_scale_0_01() {
    let pools = loaded(0.01).await;
    for way in [Way::Embedded, Way::Remote, Way::Plain, Way::Near] {
        for pushdown in [true, false] {
            check(&pools, "0.01", way, pushdown).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_row_groups_give_duckdbs_answers_at_scale_0_1() {
    let pools = loaded(0.1).await;
    check(&pools, "0.1", Way::Embedded, true).await;
    check(&pools, "0.1", Way::Remote, true).await;
    check(&pools, "0.1", Way::Embedded, false).await;
    check(&pools, "0.1", Way::Near, true).await;
    check(&pools, "0.1", Way::Near, false).await;
    assert!(pools.near.bytes_fetched() > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_larger_than_memory_give_duckdbs_answers_at_scale_0_1() {
    let folder = tempfile::tempdir().expect("a folder");
    let pools = filled(Pools::start_durable(16 << 20, folder.path()).await, 0.1, None).await;
    check(&pools, "0.1", Way::Embedded, true).await;
    check(&pools, "0.1", Way::Remote, true).await;
    check(&pools, "0.1", Way::Near, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encrypted_tables_give_duckdbs_answers_at_scale_0_1() {
    let pools = filled(Pools::start(1 << 30).await, 0.1, Some(Tier::Standard)).await;
    check(&pools, "0.1", Way::Embedded, true).await;
    check(&pools, "0.1", Way::Remote, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_beyond_the_memory_for_work_give_duckdbs_answers_at_scale_0_1() {
    let pools = loaded(0.1).await;
    // With so little memory, hash tables of some queries do not fit, whereas sort-merge joins do, where the engine joins.
    // The sizes are not critical: one MiB more or less gives the same.
    for (pushdown, mib) in [(true, 7), (false, 9)] {
        let session = pools.session_within(Way::Remote, pushdown, mib << 20).await;
        let mut merged = Vec::new();
        for number in tpch::QUERIES {
            let plan = check_query(&session, "0.1", number).await;
            let plan = plan.unwrap_or_else(|error| panic!("push-down {pushdown}: q{number:02}: {error}"));
            merged.extend(plan.contains("SortMergeJoinExec").then_some(number));
        }
        assert!(pushdown || merged.contains(&9), "push-down {pushdown}: joins were sorted in {merged:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scan_queries_run_wholly_at_the_node() {
    let pools = loaded(0.01).await;
    let session = pools.session(Way::Remote, true).await;
    for number in [1, 6] {
        let query = session.sql(tpch::query(number).as_str()).await.expect("plans");
        query.collect().await.expect("runs");
        let receipt = query.receipt();
        let refused = receipt.operators.iter().find(|o| o.answer != NodeAnswer::Exact);
        assert_eq!(refused, None, "q{number:02} is not exact in every operator");
        assert!(
            receipt.operators.iter().any(|o| o.operator.folds_rows()),
            "q{number:02} does not aggregate at the node: {:?}",
            receipt.operators
        );
        assert!(receipt.rows_returned <= 8, "q{number:02} returned {} rows", receipt.rows_returned);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_run_at_the_node() {
    let pools = loaded(0.01).await;
    for way in [Way::Embedded, Way::Remote] {
        let session = pools.session(way, true).await;
        // The numbers of lookups: of q05, four tables are joined to orders, and those to lineitem.
        // The orders of q13 are grouped by customer before they are looked up for the 1,500 customers.
        for (number, lookups, rows_most) in [(3, 2, 10), (5, 5, 5), (10, 3, 20), (12, 1, 2), (13, 1, 1500)] {
            let query = session.sql(tpch::query(number).as_str()).await.expect("plans");
            query.collect().await.expect("runs");
            let shown = query.explain();
            assert_eq!(shown.matches("  lookup  ").count(), lookups, "q{number:02}, {way:?}: {shown}");
            let returned = query.receipt().rows_returned;
            assert!(returned <= rows_most, "q{number:02}, {way:?} returned {returned} rows: {shown}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_that_stay_in_the_engine_say_why() {
    let pools = loaded(0.01).await;
    let session = pools.session(Way::Remote, true).await;
    for (join, reason) in [
        ("FULL JOIN nation ON s_nationkey = n_nationkey", "a pool has no join of this kind"),
        (
            "LEFT JOIN nation ON s_nationkey + 1 = n_nationkey",
            "the join key checked_add(supplier.s_nationkey, Int64(1)) is computed",
        ),
        (
            "RIGHT JOIN (SELECT DISTINCT n_nationkey FROM nation) n ON s_nationkey = n_nationkey",
            "its sides have groups or limits of their own",
        ),
    ] {
        let query = session.sql(format!("SELECT * FROM supplier {join}").as_str()).await.expect("plans");
        query.collect().await.expect("runs");
        let shown = query.explain();
        assert!(shown.contains(reason), "{join}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_pushdown_only_columns_are_asked_for() {
    let pools = loaded(0.01).await;
    let session = pools.session(Way::Embedded, false).await;
    let query = session.sql(tpch::query(6).as_str()).await.expect("plans");
    query.collect().await.expect("runs");
    let receipt = query.receipt();
    assert!(receipt.operators.iter().all(|o| o.operator == Operator::Scan), "{:?}", receipt.operators);
    assert_eq!(receipt.rows_returned, 60_175, "every row of lineitem");
}

async fn loaded(scale: f64) -> Pools {
    filled(Pools::start(1 << 30).await, scale, None).await
}

async fn filled(pools: Pools, scale: f64, encryption: Option<Tier>) -> Pools {
    for (name, schema, batches) in tpch::tables(scale) {
        let options = LoadOptions { encryption, ..LoadMode::Replace.into() };
        pools::load_with(&*pools.embedded, name, schema, batches, options).await;
    }
    pools
}

/// Runs all queries in one way and reports all wrong results.
async fn check(pools: &Pools, scale: &str, way: Way, pushdown: bool) {
    let session = pools.session(way, pushdown).await;
    let mut wrong = Vec::new();
    for number in tpch::QUERIES {
        if let Err(reason) = check_query(&session, scale, number).await {
            wrong.push(format!("q{number:02}: {reason}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{way:?}, push-down {pushdown}, scale {scale}: {} of 22 queries are wrong\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Runs a query. Returns the plan that ran last; the error describes how the result is wrong.
async fn check_query(session: &Session, scale: &str, number: usize) -> Result<String, String> {
    let sql = tpch::query(number);
    let query = session.sql(sql.as_str()).await.map_err(|error| error.to_string())?;
    let batches = query.collect().await.map_err(|error| error.to_string())?;
    let columns = query.schema().fields().iter().map(|field| field.name().clone()).collect();
    let actual = Answer::from_batches(columns, &batches)?;
    let expected = Answer::from_recorded(&tpch::recorded(scale, number))?;
    let keys = answers::order_keys(&sql);
    let wrong = answers::difference(&expected, &actual)
        .or_else(|| answers::order_difference(&keys, &expected, &actual));
    wrong.map_or_else(|| Ok(query.explain()), Err)
}
