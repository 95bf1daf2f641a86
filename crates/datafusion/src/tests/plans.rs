//! Tests of cached plans: which queries are cached, and that cached plans are valid for the current tables, functions
//! and options.

use super::{Fake, filled, rows, rows_of_dim, rows_of_t, session, shown};
use crate::{Parameters, Session, Statement};
use arrow_array::{ArrayRef, Int64Array, NullArray, RecordBatch, StringArray};
use arrow_schema::DataType;
use datafusion::logical_expr::{ColumnarValue, Volatility};
use datafusion::prelude::create_udf;
use datafusion::scalar::ScalarValue;
use farpool_model::{LoadMode, TableName, limits};
use farpool_transfer::Pool;
use futures::StreamExt;
use std::sync::Arc;

/// Returns whether the session has a cached plan that the next statement with this text would use.
async fn is_kept(session: &Session, text: &str) -> bool {
    session.plans.find(&session.context().state(), text).await.unwrap().is_some()
}

async fn replace(pool: &Fake, name: &str, batch: RecordBatch) {
    let (name, schema) = (TableName::new(name).unwrap(), batch.schema());
    let stream = futures::stream::iter([Ok(batch)]).boxed();
    pool.load(&name, LoadMode::Replace.into(), schema, None, stream).await.unwrap();
}

#[tokio::test]
async fn queries_over_tables_are_kept() {
    let texts = [
        "SELECT 1 + 2 AS three",
        "SELECT count(*) FROM t WHERE k > 3",
        "SELECT count(*) FROM farpool.public.t AS x WHERE x.k > 3",
        "SELECT name, sum(d) FROM t JOIN dim USING (k) GROUP BY ALL ORDER BY ALL",
        "SELECT id FROM t WHERE k IN (SELECT k FROM dim) AND id < (SELECT max(id) / 2 FROM t) ORDER BY id LIMIT 3",
        "WITH some AS (SELECT * FROM dim) SELECT a.k FROM some AS a, some AS b WHERE a.k = b.k ORDER BY 1",
        "SELECT id, row_number() OVER (ORDER BY id DESC) AS n FROM t WHERE id < 5 ORDER BY id",
        "SELECT DISTINCT k FROM t UNION ALL SELECT k FROM dim ORDER BY 1",
        "FROM dim SELECT name WHERE EXISTS (SELECT 1 FROM t WHERE t.k = dim.k) ORDER BY 1",
    ];
    for pushdown in [true, false] {
        let pool = filled(Fake::default()).await;
        let session = session(&pool, pushdown).await;
        for text in texts {
            let first = rows(&session, text).await.unwrap();
            assert!(is_kept(&session, text).await, "{text}");
            assert_eq!(rows(&session, text).await.unwrap(), first, "{text}");
        }
    }
}

#[tokio::test]
async fn what_names_something_else_is_not_kept() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    rows(&session, "CREATE VIEW v AS SELECT * FROM t").await.unwrap();
    rows(&session, "CREATE TEMPORARY VIEW mine AS SELECT * FROM dim").await.unwrap();
    let long = format!("SELECT 1 -- {}", "-".repeat(limits::PLAN_KEPT_TEXT_BYTES_MAX));
    let large = format!("SELECT 1{}", "+1".repeat(limits::PLAN_KEPT_EXPRS_MAX / 2));
    for text in [
        "SELECT count(*) FROM v",
        "SELECT count(*) FROM v, t WHERE v.id = t.id",
        "SELECT count(*) FROM mine",
        "SELECT count(*) FROM generate_series(1, 3)",
        "SELECT count(*) FROM information_schema.tables",
        "SELECT array_transform([1, 2], x -> x + 1)",
        "EXPLAIN SELECT count(*) FROM t",
        "SELECT k INTO copied FROM dim",
        "SUMMARIZE dim",
        "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT i FROM n",
        &long,
        &large,
    ] {
        let _ = rows(&session, text).await;
        assert!(!is_kept(&session, text).await, "{text}");
    }
    // A shorter text is cached, which shows that the limit for cached plans keeps out the longer one.
    let less = format!("SELECT 1{}", "+1".repeat(limits::PLAN_KEPT_EXPRS_MAX / 4));
    rows(&session, &less).await.unwrap();
    assert!(is_kept(&session, &less).await);
}

#[tokio::test]
async fn tables_are_looked_up_each_time() {
    for remote in [false, true] {
        let pool = filled(Fake { remote, ..Fake::default() }).await;
        let session = session(&pool, true).await;
        let (all, count) = ("SELECT * FROM dim ORDER BY 1 DESC LIMIT 1", "SELECT count(*) FROM dim");
        assert_eq!(rows(&session, all).await.unwrap(), ["7|name 3"]);
        assert_eq!(rows(&session, count).await.unwrap(), ["11"]);
        rows(&session, "INSERT INTO dim VALUES (100, 'new')").await.unwrap();
        assert!(is_kept(&session, all).await);
        assert_eq!(rows(&session, all).await.unwrap(), ["100|new"]);
        assert_eq!(rows(&session, count).await.unwrap(), ["12"]);

        // Another client replaces the table by one with other columns.
        replace(&pool, "dim", rows_of_t(0, 5)).await;
        assert_eq!(rows(&session, count).await.unwrap(), ["5"]);
        assert_eq!(session.sql(all).await.unwrap().schema().fields().len(), 10);
        replace(&pool, "dim", rows_of_dim()).await;
        assert_eq!(rows(&session, all).await.unwrap(), ["7|name 3"]);

        rows(&session, "DROP TABLE dim").await.unwrap();
        assert!(rows(&session, count).await.unwrap_err().message.starts_with("there is no table dim"));
        rows(&session, "CREATE VIEW dim AS SELECT k FROM t WHERE id < 3").await.unwrap();
        assert_eq!(rows(&session, count).await.unwrap(), ["3"]);
        rows(&session, "DROP VIEW dim").await.unwrap();
        rows(&session, "CREATE TABLE dim AS SELECT 1 AS k").await.unwrap();
        assert_eq!(rows(&session, all).await.unwrap(), ["1"]);
        assert_eq!(rows(&session, count).await.unwrap(), ["1"]);
        assert!(is_kept(&session, count).await);

        // Tables of the session, and tables passed with a statement, take precedence over those of the pool.
        session.context().register_batch("dim", rows_of_t(0, 2)).unwrap();
        assert_eq!(rows(&session, count).await.unwrap(), ["2"]);
        session.context().deregister_table("dim").unwrap();
        assert_eq!(rows(&session, count).await.unwrap(), ["1"]);
        let given = rows_of_t(0, 4);
        let statement = Statement::from(count).with_table("dim", given.schema(), vec![given]);
        assert_eq!(shown(&session.sql(statement).await.unwrap().collect().await.unwrap()), ["4"]);
        assert_eq!(rows(&session, count).await.unwrap(), ["1"]);
    }
}

#[tokio::test]
async fn options_and_functions_are_compared() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    let text = "SELECT count(*) FROM T";
    assert_eq!(rows(&session, text).await.unwrap(), ["2100"]);
    rows(&session, "SET datafusion.sql_parser.enable_ident_normalization = false").await.unwrap();
    assert!(rows(&session, text).await.is_err());
    rows(&session, "SET datafusion.sql_parser.enable_ident_normalization = true").await.unwrap();
    assert_eq!(rows(&session, text).await.unwrap(), ["2100"]);

    let constant = |value: i64| {
        let result = move |_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(ScalarValue::Int64(Some(value))));
        create_udf("own", Vec::new(), DataType::Int64, Volatility::Immutable, Arc::new(result))
    };
    session.context().register_udf(constant(1));
    assert_eq!(rows(&session, "SELECT own()").await.unwrap(), ["1"]);
    assert!(is_kept(&session, "SELECT own()").await);
    session.context().register_udf(constant(2));
    assert_eq!(rows(&session, "SELECT own()").await.unwrap(), ["2"]);
}

async fn given(
    session: &Session,
    text: &str,
    values: Vec<ArrayRef>,
) -> farpool_model::Result<(DataType, Vec<String>)> {
    let statement = Statement::from(text).with_parameters(Parameters::Numbered(values));
    let query = session.sql(statement).await?;
    let rows = shown(&query.collect().await?);
    Ok((query.schema().field(0).data_type().clone(), rows))
}

#[tokio::test]
async fn parameters_get_their_values_each_time() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    let number = |value: i64| Arc::new(Int64Array::from(vec![value])) as ArrayRef;
    let text = |value: &str| Arc::new(StringArray::from(vec![value])) as ArrayRef;

    let one = |data_type, value: &str| (data_type, vec![value.to_string()]);
    let count = "SELECT count(*) FROM t WHERE id < ?";
    for limit in [10, 20, 0] {
        let counted = one(DataType::Int64, &limit.to_string());
        assert_eq!(given(&session, count, vec![number(limit)]).await.unwrap(), counted);
    }
    assert_eq!(
        given(&session, count, vec![Arc::new(NullArray::new(1))]).await.unwrap(),
        one(DataType::Int64, "0")
    );
    assert!(is_kept(&session, count).await);
    assert!(given(&session, count, vec![]).await.unwrap_err().message.contains("$1 has no value"));
    assert!(
        given(&session, count, vec![number(1), number(2)])
            .await
            .unwrap_err()
            .message
            .contains("no such parameter")
    );

    assert_eq!(given(&session, "SELECT ?", vec![number(1)]).await.unwrap(), one(DataType::Int64, "1"));
    assert_eq!(given(&session, "SELECT ?", vec![text("a")]).await.unwrap(), one(DataType::Utf8, "a"));
    let limited = "SELECT id FROM t ORDER BY id LIMIT ?";
    assert_eq!(given(&session, limited, vec![number(2)]).await.unwrap().1, ["0", "1"]);
    assert_eq!(given(&session, limited, vec![number(1)]).await.unwrap().1, ["0"]);
    let series = "SELECT count(*) FROM generate_series(1, ?)";
    assert_eq!(given(&session, series, vec![number(2)]).await.unwrap(), one(DataType::Int64, "2"));
    assert_eq!(given(&session, series, vec![number(3)]).await.unwrap(), one(DataType::Int64, "3"));
}

#[tokio::test]
async fn the_plans_used_last_are_kept() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    let text = |number: usize| format!("SELECT {number}");
    for number in 0..limits::PLANS_KEPT_MAX + 5 {
        rows(&session, &text(number)).await.unwrap();
        rows(&session, &text(0)).await.unwrap();
    }
    assert!(is_kept(&session, &text(0)).await);
    assert!(!is_kept(&session, &text(5)).await);
    assert!(is_kept(&session, &text(limits::PLANS_KEPT_MAX)).await);
}

#[tokio::test]
async fn statements_of_a_batch_read_the_same_versions() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    let text = "SELECT count(*) FROM dim";
    assert_eq!(rows(&session, text).await.unwrap(), ["11"]);
    let mut batch = session.batch([text, "INSERT INTO dim VALUES (100, 'new')", text, text]);
    let mut counted = Vec::new();
    while let Some(query) = batch.next().await {
        counted.extend(shown(&query.unwrap().collect().await.unwrap()));
    }
    assert_eq!(counted, ["11", "1", "12", "12"]);
}
