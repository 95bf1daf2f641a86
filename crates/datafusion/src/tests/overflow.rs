//! Tests that arithmetic whose result does not fit its type is an error wherever it is computed, and only then.

use super::{Fake, filled, rows, session};
use crate::Session;

/// Returns sessions with push-down and without.
async fn sessions() -> [Session; 2] {
    let pool = filled(Fake::default()).await;
    [session(&pool, true).await, session(&pool, false).await]
}

/// Returns the rows or the error of a statement, which must be the same in all sessions.
async fn outcome(sql: &str) -> Result<Vec<String>, String> {
    let mut outcomes = Vec::new();
    for session in sessions().await {
        outcomes.push(rows(&session, sql).await.map_err(|error| error.to_string()));
    }
    let first = outcomes.swap_remove(0);
    for other in outcomes {
        assert_eq!(first.is_ok(), other.is_ok(), "{sql}: {first:?}, {other:?}");
        if first.is_ok() {
            assert_eq!(first, other, "{sql}");
        }
    }
    first
}

/// Asserts that the statement fails with the message `what`.
async fn out_of_range(sql: &str, what: &str) {
    let error = outcome(sql).await.expect_err(sql);
    let (message, advice) = error.split_once("\n  ").expect(sql);
    assert_eq!(message, what, "{sql}");
    assert!(advice.starts_with("cast "), "{sql}: {advice}");
}

#[tokio::test]
async fn constants_that_do_not_fit_are_errors() {
    for (sql, what) in [
        ("9223372036854775807 + 1", "bigint out of range: 9223372036854775807 + 1"),
        ("-9223372036854775808 - 1", "bigint out of range: -9223372036854775808 - 1"),
        ("9223372036854775807 * -2", "bigint out of range: 9223372036854775807 * (-2)"),
        ("-9223372036854775808 / -1", "bigint out of range: -9223372036854775808 / (-1)"),
        ("-(-9223372036854775808)", "bigint out of range: -(-9223372036854775808)"),
        ("abs(-9223372036854775808)", "bigint out of range: abs(-9223372036854775808)"),
        ("2147483647::int + 1::int", "integer out of range: 2147483647 + 1"),
        ("32767::smallint + 1::smallint", "smallint out of range: 32767 + 1"),
        ("127::tinyint + 1::tinyint", "tinyint out of range: 127 + 1"),
        ("0::int unsigned - 1::int unsigned", "integer unsigned out of range: 0 - 1"),
        ("1 + (2 + 9223372036854775807)", "bigint out of range: 2 + 9223372036854775807"),
        (
            "'99999999999999999999999999999999999999'::decimal(38,0) + 1::decimal(38,0)",
            "decimal(38,0) out of range: 99999999999999999999999999999999999999 + 1",
        ),
    ] {
        out_of_range(&format!("SELECT {sql}"), what).await;
        out_of_range(&format!("SELECT count(*) FROM t WHERE id < {sql}"), what).await;
        out_of_range(&format!("SELECT * FROM (VALUES ({sql})) v"), what).await;
    }
    // Constants whose arithmetic overflows only when plans are simplified (constant folding).
    out_of_range(
        "WITH c AS (SELECT 9223372036854775807 AS x) SELECT x + 1 FROM c",
        "bigint out of range: 9223372036854775807 + 1",
    )
    .await;
}

#[tokio::test]
async fn what_fits_is_as_before() {
    for (sql, expected) in [
        ("SELECT 2147483647::int + 1", "2147483648"),
        ("SELECT -9223372036854775808 % -1", "0"),
        ("SELECT 9223372036854775807 + NULL", "NULL"),
        ("SELECT 1.5 + 1e308", "1e308"),
        ("SELECT date '2020-01-31' + interval '1 month'", "2020-02-29"),
        ("SELECT 9223372036854775807::decimal(38,0) + 1", "9223372036854775808"),
        ("SELECT CASE WHEN 1 = 1 THEN 7 ELSE 9223372036854775807 + 1 END", "7"),
    ] {
        assert_eq!(outcome(sql).await.unwrap(), [expected], "{sql}");
    }
}

#[tokio::test]
async fn columns_that_do_not_fit_are_errors_wherever_they_are_computed() {
    let big = "9223372036854775000";
    for sql in [
        format!("SELECT id + {big} FROM t"),
        format!("SELECT max(id + {big}) FROM t"),
        "SELECT max(id * id * id * id * id * id) FROM t".to_string(),
        format!("SELECT id + {big}, count(*) FROM t GROUP BY 1"),
        format!("SELECT id FROM t ORDER BY id + {big}"),
        format!("SELECT sum(id) OVER (PARTITION BY id + {big}) FROM t"),
        format!("SELECT max(id + {big}) OVER (ORDER BY id) FROM t"),
        format!("SELECT count(*) FROM t WHERE id + {big} > 5"),
        format!("SELECT count(*) FROM t JOIN dim ON t.k = dim.k WHERE t.id + dim.k + {big} > 5"),
        format!("SELECT t.id + dim.k + {big} FROM t JOIN dim ON t.k = dim.k"),
        format!("SELECT count(*) FROM t JOIN dim ON t.id + {big} = dim.k"),
        format!("SELECT count(*) FROM t JOIN dim ON t.k = dim.k AND t.id + dim.k + {big} > 0"),
        format!("SELECT -(id - {big} - 10000) + {big} FROM t"),
        format!("SELECT (SELECT max(dim.k) FROM dim WHERE dim.k = t.k) + t.id + {big} FROM t"),
        "SELECT (u::smallint unsigned) - 299::smallint unsigned FROM t".to_string(),
        "SELECT k::tinyint * 100::tinyint FROM t".to_string(),
        "SELECT id::decimal(38,0) * '99999999999999999999999999999999999999'::decimal(38,0) FROM t"
            .to_string(),
    ] {
        let error = outcome(&sql).await.expect_err(&sql);
        assert!(error.contains(" out of range: ") && error.contains("\n  cast "), "{sql}: {error}");
    }
}

#[tokio::test]
async fn rows_that_are_not_asked_for_do_not_fail() {
    let big = "9223372036854775000";
    for (sql, expected) in [
        (format!("SELECT max(id + {big}) FROM t WHERE id < 808"), "9223372036854775807"),
        (format!("SELECT count(*) FROM t WHERE id < 10 AND id + {big} > 5"), "10"),
        (format!("SELECT count(*) FROM t WHERE id + {big} > 5 AND id < 10"), "10"),
        (format!("SELECT count(*) FROM t WHERE id >= 10 OR id + {big} > 5"), "2100"),
        ("SELECT count(*) FROM t WHERE id < 1500 AND 7 / (id - 1500) = 7".to_string(), "0"),
        (format!("SELECT max(CASE WHEN id < 10 THEN id + {big} ELSE 0 END) FROM t"), "9223372036854775009"),
        (format!("SELECT max(id + {big}) FILTER (WHERE id < 10) FROM t"), "9223372036854775009"),
        ("SELECT count(*) FROM t WHERE CASE WHEN id <> 5 THEN 10 / (id - 5) > 1 END".to_string(), "5"),
        (
            "SELECT count(*) FROM t WHERE CASE WHEN id = 5 THEN true WHEN 10 / (id - 5) > 1 THEN true ELSE false END"
                .to_string(),
            "6",
        ),
        (
            "SELECT count(*) FILTER (WHERE CASE WHEN id = 5 THEN NULL ELSE 10 / (id - 5) > 1 END) FROM t".to_string(),
            "5",
        ),
        (
            "SELECT sum(CASE WHEN CASE WHEN id <> 5 THEN 10 / (id - 5) > 1 END THEN id END) FROM t".to_string(),
            "40",
        ),
        (
            "SELECT count(*) FROM t WHERE coalesce(nullif(id <> 5, true), 10 / (id - 5) > 1)".to_string(),
            "5",
        ),
        (
            "SELECT count(*) FROM (VALUES ('1'), ('x'), ('3')) v(s) WHERE CASE WHEN s <> 'x' THEN s::int > 1 END"
                .to_string(),
            "1",
        ),
        (
            format!(
                "SELECT count(*) FROM t JOIN dim ON t.k = dim.k AND t.id < 10 AND t.id + dim.k + {big} > 0"
            ),
            "8",
        ),
    ] {
        match expected {
            "8" => assert!(outcome(&sql).await.is_ok(), "{sql}"),
            expected => assert_eq!(outcome(&sql).await.unwrap(), [expected], "{sql}"),
        }
    }
}

#[tokio::test]
async fn columns_are_named_as_before() {
    let [pushed, _] = sessions().await;
    let query = pushed.sql("SELECT id + 1, -id, id * id - 2, sum(id + id) FROM t GROUP BY id").await.unwrap();
    let names: Vec<&str> = query.schema().fields().iter().map(|field| field.name().as_str()).collect();
    let prefix = |name: &str| name.replace("t.", "");
    let names: Vec<String> = names.into_iter().map(prefix).collect();
    assert_eq!(names, ["id + 1", "-id", "id * id - 2", "sum(id + id)"]);
    let query = pushed.sql("SELECT id + id AS x, x.y FROM t, (SELECT id * id FROM t) x(y)").await.unwrap();
    assert_eq!(query.schema().field(0).name(), "x");
}

#[tokio::test]
async fn what_cannot_overflow_stays_an_operator() {
    let [pushed, not] = sessions().await;
    for sql in ["SELECT k + 1, u::bigint * 1000, d * (1 - d) FROM t", "SELECT id + 1 FROM t"] {
        assert!(!pushed.sql(sql).await.unwrap().explain().contains("checked"), "{sql}");
    }
    let plain = not.sql("SELECT k + 1, u::bigint * 1000, d * (1 - d), f * f, day + interval '1 day' FROM t");
    assert!(!plain.await.unwrap().explain().contains("checked"));
    assert!(not.sql("SELECT id + 1 FROM t").await.unwrap().explain().contains("checked_add(id@0, 1)"));
}
