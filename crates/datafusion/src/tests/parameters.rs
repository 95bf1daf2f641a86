//! Tests of inputs of a statement besides its text: values of parameters, and tables of rows by name.

use super::{Fake, filled, rows, rows_of_dim, session, shown};
use crate::{Parameters, Session, Statement};
use arrow_array::{
    ArrayRef, Int64Array, IntervalMonthDayNanoArray, NullArray, StringArray, TimestampMicrosecondArray,
};
use arrow_buffer::IntervalMonthDayNano;
use farpool_model::{Error, Result};
use std::sync::Arc;

async fn given(session: &Session, sql: &str, parameters: Parameters) -> Result<Vec<String>> {
    let query = session.sql(Statement::from(sql).with_parameters(parameters)).await?;
    Ok(shown(&query.collect().await?))
}

fn number(value: i64) -> ArrayRef {
    Arc::new(Int64Array::from(vec![value]))
}

fn text(value: &str) -> ArrayRef {
    Arc::new(StringArray::from(vec![value]))
}

/// Checks that a statement with values for its parameters gives the same as one with these values in its text, with
/// push-down and without.
async fn same(sql: &str, values: Vec<ArrayRef>, written_out: &str) {
    let pool = filled(Fake::default()).await;
    for pushdown in [true, false] {
        let session = session(&pool, pushdown).await;
        let ours = given(&session, sql, Parameters::Numbered(values.clone())).await;
        assert_eq!(ours.unwrap(), rows(&session, written_out).await.unwrap(), "{sql}, {pushdown}");
    }
}

#[tokio::test]
async fn values_stand_for_parameters() {
    same(
        "SELECT id, s FROM t WHERE k > ? AND s = ? ORDER BY id LIMIT ?",
        vec![number(2), text("cherry"), number(7)],
        "SELECT id, s FROM t WHERE k > 2 AND s = 'cherry' ORDER BY id LIMIT 7",
    )
    .await;
    same(
        "SELECT k, count(*), sum(id * $2) FROM t WHERE id IN ($1, $2, $1 + 1) GROUP BY k ORDER BY k",
        vec![number(20), number(3)],
        "SELECT k, count(*), sum(id * 3) FROM t WHERE id IN (20, 3, 20 + 1) GROUP BY k ORDER BY k",
    )
    .await;
    same(
        "SELECT upper(?), '?', ? FROM (SELECT 1 AS \"?\" WHERE 2 = ?) AS u",
        vec![text("a"), Arc::new(NullArray::new(1)), number(2)],
        "SELECT upper('a'), '?', NULL FROM (SELECT 1) AS u",
    )
    .await;
}

/// Without a type, the value of a parameter that is compared with a date would be read as a date.
#[tokio::test]
async fn parameters_have_the_types_of_their_values() {
    let days: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(0, 3, 0)]));
    same(
        "SELECT date '2024-02-28' + $1, timestamp '2024-03-01' - $2, $1 + date '2024-01-01'",
        vec![Arc::clone(&days), days],
        "SELECT timestamp '2024-03-02', timestamp '2024-02-27', timestamp '2024-01-04'",
    )
    .await;
    same(
        "SELECT id, date '2024-01-01' + ? FROM t WHERE k > ? ORDER BY id LIMIT ?",
        vec![number(2), number(3), number(4)],
        "SELECT id, date '2024-01-01' + 2 FROM t WHERE k > 3 ORDER BY id LIMIT 4",
    )
    .await;
}

#[tokio::test]
async fn functions_in_from_have_parameters() {
    same(
        "SELECT n + ? FROM generate_series(?, ?) AS g(n) WHERE n <> ? ORDER BY n",
        vec![number(1), number(-2), number(3), number(0)],
        "SELECT n + 1 FROM generate_series(-2, 3) AS g(n) WHERE n <> 0 ORDER BY n",
    )
    .await;
}

#[tokio::test]
async fn written_values_get_the_types_of_columns() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    rows(&session, "CREATE TABLE m AS SELECT timestamp '2024-01-01' AS t, 1::smallint AS k").await.unwrap();
    let moment: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![86_400_000_000]));
    let values = Parameters::Numbered(vec![moment, number(7)]);
    given(&session, "INSERT INTO m VALUES (?, ?)", values.clone()).await.unwrap();
    given(&session, "INSERT INTO m (t, k) SELECT ?, ?", values).await.unwrap();
    let day = "1970-01-02T00:00:00|7";
    assert_eq!(rows(&session, "SELECT * FROM m WHERE k = 7").await.unwrap(), [day, day]);
    // The value of a parameter is pushed down just like a constant.
    let update = "EXPLAIN UPDATE dim SET name = ? WHERE k = ?";
    let values = Parameters::Numbered(vec![text("x"), number(3)]);
    let told = given(&session, update, values).await.unwrap();
    assert_eq!(told, rows(&session, "EXPLAIN UPDATE dim SET name = 'x' WHERE k = 3").await.unwrap());
}

#[tokio::test]
async fn a_value_is_never_sql() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    let named = Parameters::Named(vec![("s".to_string(), text("x' OR '1' = '1"))]);
    assert_eq!(given(&session, "SELECT count(*) FROM t WHERE s = $s", named).await.unwrap(), ["0"]);
}

#[tokio::test]
async fn each_parameter_has_a_value_and_each_value_a_parameter() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    let refused =
        async |sql: &str, parameters| -> Error { given(&session, sql, parameters).await.unwrap_err() };
    let missing = refused("SELECT $1, $2", Parameters::Numbered(vec![number(1)])).await;
    assert_eq!(missing.message, "the parameter $2 has no value (given: $1)");
    let none = refused("SELECT $1", Parameters::None).await;
    assert_eq!(none.message, "the parameter $1 has no value (none is given)");
    let extra = refused("SELECT 1", Parameters::Numbered(vec![number(1)])).await;
    assert_eq!(extra.message, "there is a value for $1, and no such parameter");
    let other = Parameters::Named(vec![("b".to_string(), number(1))]);
    assert_eq!(refused("SELECT $a", other).await.message, "the parameter $a has no value (given: $b)");
    let mixed = refused("SELECT $1 + ?", Parameters::Numbered(vec![number(1)])).await;
    assert_eq!(mixed.message, "the statement has parameters of two kinds: ? and $1");
}

#[tokio::test]
async fn a_statement_names_rows_that_it_is_given() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    let mine = rows_of_dim();
    let sql = "SELECT count(*), sum(t.id) FROM mine JOIN t ON mine.k = t.k";
    let statement = Statement::from(sql);
    assert_eq!(session.unknown_names(&statement).await.unwrap(), ["mine"]);
    let statement = statement.with_table("mine", mine.schema(), vec![mine.slice(0, 4), mine.slice(4, 7)]);
    let query = session.sql(statement).await.unwrap();
    let expected = rows(&session, "SELECT count(*), sum(t.id) FROM dim JOIN t ON dim.k = t.k").await.unwrap();
    assert_eq!(shown(&query.collect().await.unwrap()), expected);
    // A table passed to one statement does not exist for the next one.
    let error = session.sql("SELECT * FROM mine").await.unwrap_err();
    assert!(error.message.starts_with("there is no table mine"), "{error}");
}

#[tokio::test]
async fn names_that_are_known_are_not_asked_for() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    session.sql("CREATE TEMPORARY VIEW v AS SELECT 1 AS n").await.unwrap().collect().await.unwrap();
    let unknown = async |sql: &str| session.unknown_names(&Statement::from(sql)).await.unwrap();
    assert!(unknown("SELECT * FROM t, v, farpool.public.nosuch").await.is_empty());
    assert!(unknown("WITH c AS (SELECT * FROM t) SELECT * FROM c").await.is_empty());
    // A statement that cannot be parsed has no unknown names.
    assert!(unknown("SELECT (").await.is_empty());
    assert_eq!(unknown("SUMMARIZE mine").await, ["mine"]);
    assert_eq!(unknown("SELECT 1 WHERE EXISTS (SELECT * FROM \"Mine\")").await, ["Mine"]);
}

#[tokio::test]
async fn what_changes_something_is_a_command() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    for (sql, is_command) in [
        ("SELECT 1", false),
        ("FROM t", false),
        ("EXPLAIN SELECT 1", false),
        ("CREATE TABLE u AS SELECT 1 AS n", true),
        ("INSERT INTO dim SELECT 1, 'x'", true),
        ("UPDATE dim SET k = 1 WHERE k = 2", true),
        ("DELETE FROM dim", true),
        ("DROP TABLE dim", true),
    ] {
        assert_eq!(session.sql(sql).await.unwrap().is_command(), is_command, "{sql}");
    }
}
