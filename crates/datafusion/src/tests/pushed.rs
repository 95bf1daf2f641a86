//! Tests which programs reach the pool for each shape of query.

use super::{Fake, filled, session, session_at};
use crate::Rates;
use std::sync::Arc;

/// Plans and runs `sql` and returns the programs that ran, in the order in which they started.
async fn programs(pool: &Arc<Fake>, sql: &str) -> Vec<String> {
    let session = session(pool, true).await;
    pool.ran.lock().clear();
    session.sql(sql).await.unwrap().collect().await.unwrap();
    let mut ran = pool.ran.lock().clone();
    ran.sort();
    ran
}

/// Checks that the query `sql` runs the programs `expected` at the pool.
async fn check(pool: &Arc<Fake>, sql: &str, expected: &[&str]) {
    assert_eq!(programs(pool, sql).await, expected, "{sql}");
}

#[tokio::test]
async fn filters_go_whole_or_in_part() {
    let pool = filled(Fake::default()).await;
    check(
        &pool,
        "SELECT id FROM t WHERE k > 1 AND d < 10.5",
        &["table=t, filter=(k > 1 AND d < 10.50), rows=[id]"],
    )
    .await;
    check(&pool, "SELECT id FROM t WHERE k > 1 AND upper(s) = 'A'", &["table=t, filter=k > 1, rows=[id, s]"])
        .await;
    check(&pool, "SELECT id FROM t WHERE k > 1 OR upper(s) = 'A'", &["table=t, rows=[id, k, s]"]).await;
    check(
        &pool,
        "SELECT id FROM t WHERE day BETWEEN DATE '1995-01-01' AND DATE '1995-12-31'",
        &["table=t, filter=(day >= 1995-01-01 AND day <= 1995-12-31), rows=[id]"],
    )
    .await;
    check(
        &pool,
        "SELECT id FROM t WHERE s LIKE '%an%na%' AND k IN (1, 3, 5, 6)",
        &["table=t, filter=(k IN (1, 3, 5, 6) AND s LIKE '%an%na%'), rows=[id]"],
    )
    .await;
}

#[tokio::test]
async fn what_the_bounds_of_columns_keep_from_failing_goes() {
    let pool = filled(Fake::default()).await;
    // The values of `k` are from -3 to 6, as the statistics say.
    check(
        &pool,
        "SELECT id FROM t WHERE k <> -3 AND 10 / (k + 3) > 2",
        &["table=t, filter=k <> -3, rows=[id, k]"],
    )
    .await;
    check(
        &pool,
        "SELECT id FROM t WHERE 10 / (k + 4) > 2",
        &["table=t, filter=(10 / (CAST(k AS Int64) + 4)) > 2, rows=[id]"],
    )
    .await;
    // The cast of a day to text is pushed down only because the statistics bound the days: not every 32-bit number of
    // days is a valid date.
    check(
        &pool,
        "SELECT id FROM t WHERE CAST(day AS VARCHAR) LIKE '199%'",
        &["table=t, filter=CAST(day AS Utf8View) LIKE '199%', rows=[id]"],
    )
    .await;
}

#[tokio::test]
async fn parts_of_times_go_along() {
    let pool = filled(Fake::default()).await;
    let sql = "SELECT extract(year FROM day), date_part('week', ts), count(*) FROM t \
               WHERE extract(quarter FROM ts) = 3 GROUP BY 1, 2";
    let ran = programs(&pool, sql).await;
    for part in ["EXTRACT(year FROM day)", "EXTRACT(week FROM ts)", "EXTRACT(quarter FROM ts) AS Int32) = 3"]
    {
        assert!(ran.len() == 1 && ran[0].contains(part) && ran[0].contains("count"), "{ran:?}");
    }
    // The fraction of a second is not among the parts that the pool knows.
    check(&pool, "SELECT date_part('millisecond', ts) FROM t", &["table=t, rows=[ts]"]).await;
}

#[tokio::test]
async fn beginnings_of_strings_become_patterns() {
    let pool = filled(Fake::default()).await;
    check(
        &pool,
        "SELECT id FROM t WHERE substr(s, 1, 2) IN ('ap', 'a%', 'b', '') AND left(s, 1) <> 'x'",
        &["table=t, filter=((s LIKE 'ap%' OR s LIKE 'a\\%%' OR s = 'b' OR s = '') AND NOT (s LIKE 'x%')), rows=[id]"],
    )
    .await;
}

#[tokio::test]
async fn aggregations_go_whole() {
    let pool = filled(Fake::default()).await;
    check(
        &pool,
        "SELECT s, b, sum(d), sum(d * (1 - d)), avg(k), count(*) FROM t WHERE day <= DATE '1998-09-02' \
         GROUP BY s, b ORDER BY s, b",
        &["table=t, filter=day <= 1998-09-02, keys=[s, b], \
           aggregates=[sum(d), sum((d * (1 - d))), avg(k), count(*)]"],
    )
    .await;
    check(
        &pool,
        "SELECT s, bit_and(k), bit_or(k), bit_xor(k), bool_and(b), bool_or(b), any_value(id) FROM t GROUP BY s",
        &["table=t, keys=[s], aggregates=[bit_and(k), bit_or(k), bit_xor(k), bool_and(b), bool_or(b), any_value(id)]"],
    )
    .await;
    check(
        &pool,
        "SELECT sum(d * 2) FROM t WHERE k < 3",
        &["table=t, filter=k < 3, keys=[], aggregates=[sum((d * 2))]"],
    )
    .await;
    check(
        &pool,
        "SELECT k, count(*) FILTER (WHERE b) FROM t GROUP BY k HAVING count(*) > 2",
        &["table=t, keys=[k], aggregates=[count(*) FILTER (WHERE b), count(*)]"],
    )
    .await;
    check(&pool, "SELECT DISTINCT s FROM t", &["table=t, keys=[s]"]).await;
    check(&pool, "SELECT count(DISTINCT s) FROM t", &["table=t, keys=[s]"]).await;
    check(
        &pool,
        "SELECT x.k, sum(x.d) FROM (SELECT k, d FROM t WHERE b) x GROUP BY x.k",
        &["table=t, filter=b, keys=[k], aggregates=[sum(d)]"],
    )
    .await;
}

#[tokio::test]
async fn what_the_pool_cannot_do_stays() {
    let pool = filled(Fake::default()).await;
    check(&pool, "SELECT k, median(d) FROM t GROUP BY k", &["table=t, rows=[k, d]"]).await;
    check(&pool, "SELECT count(*) FROM t WHERE k <> 0 AND 10 / k > 2", &["table=t, filter=k <> 0, rows=[k]"])
        .await;
    check(&pool, "SELECT length(s), count(*) FROM t GROUP BY 1", &["table=t, rows=[s]"]).await;
    let refusing = filled(Fake { refuses_aggregation: true, ..Fake::default() }).await;
    check(&refusing, "SELECT k, sum(d) FROM t WHERE b GROUP BY k", &["table=t, filter=b, rows=[k, d]"]).await;
}

#[tokio::test]
async fn limits_and_computed_columns_go_along() {
    let pool = filled(Fake::default()).await;
    check(&pool, "SELECT id FROM t WHERE k > 1 LIMIT 5", &["table=t, filter=k > 1, rows=[id], limit=5"])
        .await;
    check(
        &pool,
        "SELECT k, count(*) FROM t GROUP BY k LIMIT 3",
        &["table=t, keys=[k], aggregates=[count(*)], limit=3"],
    )
    .await;
    check(&pool, "SELECT id * 2 + k AS x FROM t", &["table=t, rows=[((id * 2) + CAST(k AS Int64))]"]).await;
    check(&pool, "SELECT id, k + 1, k + 2 FROM t", &["table=t, rows=[id, k]"]).await;
}

#[tokio::test]
async fn what_costs_more_at_the_pool_stays() {
    let pool = filled(Fake::default()).await;
    let sql = "SELECT k, sum(d) FROM t WHERE b GROUP BY k";
    for (pool_group_rows, expected) in
        [(1e9, "table=t, filter=b, keys=[k], aggregates=[sum(d)]"), (1e3, "table=t, filter=b, rows=[k, d]")]
    {
        let session = session_at(&pool, true, Rates { pool_group_rows, ..Rates::default() }).await;
        pool.ran.lock().clear();
        let query = session.sql(sql).await.unwrap();
        assert!(query.outcome().is_empty(), "nothing has run");
        query.collect().await.unwrap();
        assert_eq!(*pool.ran.lock(), [expected]);
        let text = query.explain();
        let chosen = if pool_group_rows > 1e6 { ": push" } else { ": plain" };
        assert!(text.contains("push ") && text.contains(chosen), "{text}");
    }
}

#[tokio::test]
async fn the_first_rows_of_an_order_go_along() {
    let pool = filled(Fake::default()).await;
    for (sql, expected) in [
        (
            "SELECT id FROM t WHERE k > 1 ORDER BY d DESC LIMIT 5 OFFSET 2",
            "table=t, filter=k > 1, rows=[id, d], order=[d DESC], limit=7",
        ),
        (
            "SELECT id FROM t ORDER BY id % 7 NULLS FIRST, s LIMIT 3",
            "table=t, rows=[id, s, (id % 7)], order=[(id % 7) NULLS FIRST, s], limit=3",
        ),
        ("SELECT upper(s) FROM t ORDER BY id LIMIT 3", "table=t, rows=[id, s], order=[id], limit=3"),
        (
            "SELECT k, sum(d) AS total FROM t GROUP BY k ORDER BY total DESC, k LIMIT 3",
            "table=t, keys=[k], aggregates=[sum(d)], order=[sum(d) DESC, k], limit=3",
        ),
        // Sorts that are not pushed down: by an expression that only the engine can compute, and above another limit.
        ("SELECT id FROM t ORDER BY upper(s) LIMIT 3", "table=t, rows=[id, s]"),
        ("SELECT id FROM (SELECT id FROM t LIMIT 9) x ORDER BY id LIMIT 3", "table=t, rows=[id], limit=9"),
        ("SELECT k FROM t GROUP BY k ORDER BY k + 1 LIMIT 3", "table=t, keys=[k]"),
    ] {
        check(&pool, sql, &[expected]).await;
    }
}

#[tokio::test]
async fn parts_of_larger_queries_go() {
    let pool = filled(Fake::default()).await;
    check(
        &pool,
        "SELECT id FROM t WHERE d > (SELECT avg(d) FROM t WHERE b)",
        &["table=t, filter=b, keys=[], aggregates=[avg(d)]", "table=t, rows=[id, d]"],
    )
    .await;
    let ran =
        programs(&pool, "SELECT name, avg(d) FROM t JOIN dim USING (k) WHERE u > 100 GROUP BY name").await;
    assert_eq!(ran[0], "table=dim, rows=[k, name]");
    // The join keys of the build side are known before the program of the probe side starts.
    assert!(ran[1].starts_with("table=t, filter=(u > 100 AND k >= -3 AND k <= 7"), "{}", ran[1]);
    // Sums are made of the rows of each key before the join.
    let ran =
        programs(&pool, "SELECT name, sum(d) FROM t JOIN dim USING (k) WHERE u > 100 GROUP BY name").await;
    assert!(ran[0].starts_with("table=dim, filter=(k >= -3 AND k <= 6"), "{}", ran[0]);
    assert!(ran[1].starts_with("table=t, ") && ran[1].contains("keys=[k], "), "{}", ran[1]);
}

/// The keys of `x` belong to `b.name`; if a schema on the path has two columns `name`, they could be taken for
/// `a.name`, which has other values, and no row would remain.
#[tokio::test]
async fn filters_found_at_run_time_keep_to_their_columns() {
    let batch = |columns: Vec<(&str, Vec<i32>)>| {
        let columns = columns.into_iter().map(|(name, values)| {
            (name, Arc::new(arrow_array::Int32Array::from(values)) as arrow_array::ArrayRef)
        });
        vec![arrow_array::RecordBatch::try_from_iter(columns).unwrap()]
    };
    let many = |from: i32| (0..3000).map(|i| from + i % 50).collect::<Vec<_>>();
    let pool = Fake::default()
        .with("a", batch(vec![("id", (0..3000).collect()), ("name", many(1000))]))
        .await
        .with("b", batch(vec![("id", (0..3000).collect()), ("name", many(0))]))
        .await
        .with("x", batch(vec![("name", vec![3, 4]), ("id", vec![1, 2])]))
        .await;
    let session = session(&Arc::new(pool), true).await;
    for (sql, expected) in [
        (
            "SELECT count(*), min(a.name), min(b.name) FROM \
             (a JOIN b ON a.id = b.id) RIGHT JOIN x ON x.name = b.name",
            "120|1003|3",
        ),
        ("SELECT count(*), min(a.name) FROM a JOIN b ON a.id = b.id JOIN x ON x.name = b.name", "120|1003"),
        ("SELECT count(*) FROM b WHERE name IN (SELECT id FROM x) AND id IN (SELECT b2.name FROM b b2)", "2"),
    ] {
        assert_eq!(super::rows(&session, sql).await.unwrap(), [expected], "{sql}");
    }
}

#[tokio::test]
async fn joins_start_with_what_is_small() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    // In the order in which the statement is written, the two large tables would be joined first.
    let sql =
        "SELECT count(*) FROM t a JOIN t b ON a.k = b.k JOIN dim ON dim.k = b.k WHERE dim.name = 'name 1'";
    let text = session.sql(sql).await.unwrap().explain();
    let joins = text.split("HashJoinExec").collect::<Vec<_>>();
    assert_eq!(joins.len(), 3, "{text}");
    assert!(joins[2].contains("table=dim") && joins[2].contains("table=t"), "{text}");
}

#[tokio::test]
async fn nothing_but_columns_is_asked_without_pushdown() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, false).await;
    let sql = "SELECT k, sum(d) FROM t JOIN dim USING (k) WHERE u > 100 GROUP BY k LIMIT 3";
    session.sql(sql).await.unwrap().collect().await.unwrap();
    let mut ran = pool.ran.lock().clone();
    ran.sort();
    assert_eq!(ran, ["table=dim, rows=[k]", "table=t, rows=[k, u, d]"]);
}
