//! Tests the rewriting rules by the results of rewritten statements. Expected values are PostgreSQL's.

mod meanings;

use crate::{Session, SessionOptions};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};

/// Runs `sql` and returns its rows, with values separated by blanks, or the error with its advice.
pub(super) async fn run(sql: &str) -> Result<Vec<String>, String> {
    let session = Session::new(SessionOptions { target_partitions: Some(1), ..SessionOptions::default() });
    let batches = async { session.sql(sql).await?.collect().await };
    let batches = batches.await.map_err(|error| format!("{error}"))?;
    let mut rows = Vec::new();
    for batch in batches {
        let options = FormatOptions::default().with_null("NULL");
        let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap());
        let columns: Vec<_> = columns.collect();
        let row = |row| columns.iter().map(|c| c.value(row).to_string()).collect::<Vec<_>>().join(" ");
        rows.extend((0..batch.num_rows()).map(row));
    }
    Ok(rows)
}

#[tokio::test]
async fn expressions_mean_what_they_mean_elsewhere() {
    for (sql, expected) in [
        ("true IS DISTINCT FROM true AND false", "false"),
        ("1 IS DISTINCT FROM 2 OR NULL", "true"),
        ("1 IS NOT DISTINCT FROM 1 AND false", "false"),
        ("NOT 1 IS DISTINCT FROM 1 AND true", "true"),
        ("false AND 1 IS DISTINCT FROM 2 OR true", "true"),
        ("true IS DISTINCT FROM 1 = 2", "true"),
        ("2 ^ 10", "1024.0"),
        ("ceil(99.99::decimal(4,2))", "100.00"),
        ("floor(-99.99::decimal(4,2))", "-100.00"),
        ("extract(century FROM DATE '2000-12-31')", "20"),
        ("extract(century FROM TIMESTAMP '2001-01-01')", "21"),
        ("extract(decade FROM DATE '2024-05-01')", "202"),
        ("date_part('millennium', DATE '2001-01-01')", "3"),
        ("extract(century FROM DATE '0001-01-01')", "1"),
        ("extract(decade FROM INTERVAL '123 years')", "12"),
        ("extract(millisecond FROM INTERVAL '1 minute 6.789 seconds')", "6789"),
        ("extract(microsecond FROM TIMESTAMP '2024-01-01 00:00:06.789' - TIMESTAMP '2024-01-01')", "6789000"),
        ("extract(epoch FROM INTERVAL '1 year 3 months')", "39333600.0"),
        ("extract(epoch FROM TIMESTAMP '2024-01-03' - TIMESTAMP '2024-01-01 12:00:00')", "129600.0"),
        ("extract(hour FROM INTERVAL '25 hours')", "25"),
        ("2 ^ -1", "0.5"),
        ("-2 ^ 2", "4.0"),
        ("2 * 3 ^ 2", "18.0"),
        ("2 ^ 3 ^ 2", "64.0"),
        ("-3 * 2 - -1", "-5"),
        ("5 # 3", "6"),
        ("2 + 1 # 1", "2"),
        ("1_000_000 + 0x1F", "1000031"),
        ("0xfFFF_ffff", "4294967295"),
        ("X'1F'", "1f"),
        ("'xabcx' SIMILAR TO 'abc'", "false"),
        ("'abc' SIMILAR TO '(a|x)b%'", "true"),
        ("'abc' SIMILAR TO 'a|b'", "false"),
        ("'a.c' SIMILAR TO 'a.c'", "true"),
        ("'abc' SIMILAR TO 'a.c'", "false"),
        ("'abc' SIMILAR TO 'a_c'", "true"),
        ("'a%c' SIMILAR TO 'a\\%c'", "true"),
        ("'abc' SIMILAR TO 'a\\%c'", "false"),
        ("'a%c' SIMILAR TO 'a!%c' ESCAPE '!'", "true"),
        ("'abbb' SIMILAR TO 'ab{2,3}'", "true"),
        ("'abc' SIMILAR TO 'a[^x-z]c'", "true"),
        ("'ayc' SIMILAR TO 'a[^x-z]c'", "false"),
        ("'a^$' SIMILAR TO 'a^$'", "true"),
        ("'a<b>&&~' SIMILAR TO 'a<b>[&x][&-~]~'", "true"),
        ("'abc' NOT SIMILAR TO 'abc'", "false"),
        ("'abc' NOT SIMILAR TO 'b'", "true"),
        ("'abc' SIMILAR TO NULL", "NULL"),
        ("'a%b' LIKE 'a!%b' ESCAPE '!'", "true"),
        ("'axb' LIKE 'a!%b' ESCAPE '!'", "false"),
        ("'a!b' LIKE 'a!!_' ESCAPE '!'", "true"),
        ("'A_B' ILIKE 'a#_b' ESCAPE '#'", "true"),
        ("'a\\b' LIKE 'a\\b' ESCAPE ''", "true"),
        ("'a\\b' LIKE 'a\\b' ESCAPE '!'", "true"),
        ("'a%' LIKE 'a\\%' ESCAPE '\\'", "true"),
    ] {
        assert_eq!(run(&format!("SELECT {sql}")).await, Ok(vec![expected.to_string()]), "{sql}");
    }
}

#[tokio::test]
async fn a_dialect_that_is_asked_for_keeps_its_grammar() {
    let session = Session::new(SessionOptions::default());
    session.sql("SET datafusion.sql_parser.dialect = 'mysql'").await.unwrap().collect().await.unwrap();
    let rows = session.sql("SELECT 6 ^ 3 AS x").await.unwrap().collect().await.unwrap();
    assert_eq!(rows[0].schema().field(0).data_type(), &datafusion::arrow::datatypes::DataType::Int64);
}

#[tokio::test]
async fn statements_have_the_forms_of_others() {
    let t = "(VALUES (1, 'a'), (2, 'b'), (3, 'c')) t(x, y)";
    let rows = |rows: &[&str]| Ok(rows.iter().map(|row| row.to_string()).collect::<Vec<_>>());
    assert_eq!(run(&format!("FROM {t}")).await, rows(&["1 a", "2 b", "3 c"]));
    assert_eq!(run(&format!("FROM {t} ORDER BY x DESC LIMIT 1")).await, rows(&["3 c"]));
    assert_eq!(run(&format!("FROM {t} SELECT y")).await, rows(&["a", "b", "c"]));
    assert_eq!(run(&format!("WITH u AS (FROM {t}) SELECT sum(x) FROM u")).await, rows(&["6"]));
    assert_eq!(run(&format!("SELECT x FROM {t} WHERE x IN (FROM (VALUES (3)) u)")).await, rows(&["3"]));
    for fetch in ["FETCH FIRST 2 ROWS ONLY", "FETCH NEXT 2 ROWS ONLY"] {
        assert_eq!(run(&format!("SELECT x FROM {t} ORDER BY x {fetch}")).await, rows(&["1", "2"]));
    }
    assert_eq!(run(&format!("SELECT x FROM {t} ORDER BY x FETCH FIRST ROW ONLY")).await, rows(&["1"]));
    let last = format!("SELECT x FROM {t} ORDER BY x OFFSET 2 ROWS FETCH FIRST 2 ROWS ONLY");
    assert_eq!(run(&last).await, rows(&["3"]));
}

/// Returns the column names of `sql`, or the error with its advice.
async fn headers(sql: &str) -> Result<Vec<String>, String> {
    let session = Session::new(SessionOptions { target_partitions: Some(1), ..SessionOptions::default() });
    let query = session.sql(sql).await.map_err(|error| error.to_string())?;
    let batches = query.collect().await.map_err(|error| error.to_string())?;
    assert!(batches.iter().all(|batch| batch.schema() == *query.schema()), "{sql}");
    Ok(query.schema().fields().iter().map(|field| field.name().clone()).collect())
}

const T: &str = "(VALUES (1, 'a'), (2, 'b'), (3, 'c')) t(x, y)";

#[tokio::test]
async fn columns_are_called_what_was_written() {
    for (list, expected) in [
        ("1", vec!["1"]),
        ("1, 1", vec!["1", "1"]),
        ("'abc', -x, X + 1", vec!["'abc'", "-x", "X + 1"]),
        ("x, X, t.x", vec!["x", "x", "x"]),
        ("x, x::VARCHAR, CAST(x AS DOUBLE)", vec!["x", "x::VARCHAR", "CAST(x AS DOUBLE)"]),
        ("y AS a, x AS a", vec!["a", "a"]),
        ("*, x", vec!["x", "y", "x"]),
        ("x, *", vec!["x", "x", "y"]),
        ("*, upper(y) AS y", vec!["x", "y", "y"]),
        ("2 ^ x, year(DATE '2024-01-01')", vec!["2 ^ x", "year(DATE '2024-01-01')"]),
        ("EXISTS (SELECT 1)", vec!["EXISTS (SELECT 1)"]),
        ("unnest([1, 2])", vec!["unnest([1, 2])"]),
    ] {
        let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
        assert_eq!(headers(&format!("SELECT {list} FROM {T}")).await, Ok(expected), "{list}");
    }
    let counted = headers(&format!("SELECT count(*), count(*), avg(t.x) FROM {T}")).await;
    assert_eq!(counted, Ok(vec!["count(*)".into(), "count(*)".into(), "avg(t.x)".into()]));
    let united = headers(&format!("SELECT x + 1 FROM {T} UNION ALL SELECT 2")).await;
    assert_eq!(united, Ok(vec!["x + 1".into()]));
}

#[tokio::test]
async fn names_are_used_again() {
    let rows = |rows: &[&str]| Ok(rows.iter().map(|row| row.to_string()).collect::<Vec<_>>());
    for (sql, expected) in [
        ("SELECT x + 1 AS b, b * 2 AS c, b + c FROM t ORDER BY b", ["2 4 6", "3 6 9", "4 8 12"].as_slice()),
        ("SELECT x + 1 AS b, y FROM t WHERE b > 3", &["4 c"]),
        ("SELECT x % 2 AS odd, count(*) FROM t GROUP BY odd HAVING odd = 1", &["1 2"]),
        // If the table has a column with the name of an alias, the column takes precedence.
        ("SELECT x + 1 AS x, x * 10 FROM t ORDER BY 2 LIMIT 1", &["2 10"]),
        ("SELECT s.c FROM (SELECT x AS b, b + 1 AS c FROM t) s WHERE s.c > 3", &["4"]),
        ("SELECT y, y, x, x FROM t ORDER BY y DESC LIMIT 1", &["c c 3 3"]),
        ("SELECT s.x_1 FROM (SELECT x, x FROM t) s LIMIT 1", &["1"]),
        ("SELECT *, upper(y) AS y FROM t ORDER BY y DESC LIMIT 1", &["3 c C"]),
        ("SELECT y, -x AS z FROM t ORDER BY ALL", &["a -1", "b -2", "c -3"]),
        ("SELECT * FROM t ORDER BY ALL DESC LIMIT 1", &["3 c"]),
        (
            "SELECT upper(y), count(*) FROM t GROUP BY ROLLUP(1) ORDER BY ALL",
            &["A 1", "B 1", "C 1", "NULL 3"],
        ),
        (
            "SELECT x, EXISTS (SELECT 1 FROM t u WHERE u.x = t.x + 1) FROM t ORDER BY x",
            &["1 true", "2 true", "3 false"],
        ),
        ("SELECT x, NOT EXISTS (SELECT * FROM t WHERE false) AS e FROM t LIMIT 1", &["1 true"]),
        (
            "SELECT to_char(DATE '2024-03-05', 'YYYY-MM'), to_char(DATE '2024-03-05', 'FMMonth FMDD, yyyy')",
            &["2024-03 March 5, 2024"],
        ),
    ] {
        assert_eq!(run(&format!("WITH t AS (SELECT * FROM {T}) {sql}")).await, rows(expected), "{sql}");
    }
    for (sql, expected) in [
        ("SELECT c + 1 AS b, x AS c FROM t", "there is no column c"),
        ("SELECT b + 1 AS b FROM t", "there is no column b"),
        ("SELECT random() AS r, r + 1 FROM t", "r would be computed anew"),
        ("SELECT to_char(DATE '2024-03-05', 'Month')", "the pattern Month"),
    ] {
        let error = run(&format!("WITH t AS (SELECT * FROM {T}) {sql}")).await.unwrap_err();
        assert!(error.contains(expected), "{sql}: {error}");
    }
    let doubled: Vec<String> = (1..40).map(|n| format!("a{} + a{} AS a{n}", n - 1, n - 1)).collect();
    let error = run(&format!("SELECT x AS a0, {} FROM {T}", doubled.join(", "))).await.unwrap_err();
    assert!(error.contains("more than 100000 parts"), "{error}");
}

#[tokio::test]
async fn tables_are_turned() {
    let t = "(VALUES ('a', 2023, 1), ('a', 2024, 2), ('b', 2024, 3), ('a', 2024, 4)) t(k, year, n)";
    let rows = |rows: &[&str]| Ok(rows.iter().map(|row| row.to_string()).collect::<Vec<_>>());
    let pivot = format!("SELECT * FROM {t} PIVOT (sum(n) FOR year IN (2023, 2024 AS now)) ORDER BY k");
    assert_eq!(run(&pivot).await, rows(&["a 1 6", "b NULL 3"]));
    assert_eq!(headers(&pivot).await, Ok(vec!["k".into(), "2023".into(), "now".into()]));
    let two =
        format!("SELECT * FROM {t} PIVOT (sum(n) AS s, count(*) AS c FOR year IN (2024)) p ORDER BY p.k");
    assert_eq!(run(&two).await, rows(&["a 6 2", "b 3 1"]));
    let u = "(VALUES ('a', 1, 2), ('b', NULL, 3)) t(k, x, y)";
    let unpivot = format!("SELECT * FROM {u} UNPIVOT (v FOR name IN (x, y)) ORDER BY k, name");
    assert_eq!(run(&unpivot).await, rows(&["a x 1", "a y 2", "b y 3"]));
    let with_nulls =
        format!("SELECT * FROM {u} UNPIVOT INCLUDE NULLS (v FOR name IN (x, y)) ORDER BY k, name");
    assert_eq!(run(&with_nulls).await, rows(&["a x 1", "a y 2", "b x NULL", "b y 3"]));
}

#[tokio::test]
async fn tables_are_described() {
    let described = run("DESCRIBE SELECT 1 AS a, 'x' AS b, [1.5] AS c, DATE '2024-01-01' AS d").await;
    assert_eq!(
        run("DESCRIBE SELECT 1, count(*)").await,
        Ok(vec!["1 BIGINT NO".into(), "count(*) BIGINT NO".into()])
    );
    assert_eq!(
        described,
        Ok(vec!["a BIGINT NO".into(), "b VARCHAR NO".into(), "c DOUBLE[] YES".into(), "d DATE NO".into()])
    );
    let summary = run(&format!("SUMMARIZE SELECT x, y FROM {T}")).await;
    let x = "x BIGINT 1 3 3 2.0 1.0 1 2 3 3 0.0";
    assert_eq!(summary, Ok(vec![x.to_string(), "y VARCHAR a c 3 NULL NULL NULL NULL NULL 3 0.0".into()]));
    assert_eq!(run("SHOW TABLES").await, Ok(Vec::new()));
    assert_eq!(
        run("SELECT typeof([1]), typeof(1.5), typeof(now())").await,
        Ok(vec!["BIGINT[] DOUBLE TIMESTAMP".into()])
    );
}

#[tokio::test]
async fn what_is_too_deep_is_refused() {
    let repeated = |part: &str, times: usize| format!("SELECT 1 {}", format!("{part} ").repeat(times));
    for part in
        ["+ 1", "OR true", "::INT", "UNION ALL SELECT 1", "+ case when true then 1 end", "[1]", "+ where"]
    {
        let error = run(&repeated(part, 100_000)).await.unwrap_err();
        assert!(error.contains("levels deep"), "{part}: {error}");
    }
    // CASE within a chain of operators adds a nesting level.
    let depth = farpool_model::limits::SQL_DEPTH_MAX - 2;
    for (part, times) in
        [("+ 1", depth), ("+ case when true then 1 end", depth / 2), ("UNION ALL SELECT 1", depth)]
    {
        let outcome = run(&repeated(part, times)).await;
        assert!(outcome.is_ok(), "{part}: {outcome:?}");
    }
    let negated = format!("SELECT {} 1", "- ".repeat(100_000));
    assert!(run(&negated).await.is_err());
    // A list of many values is not nested, and is accepted.
    let values: Vec<String> = (0..20_000).map(|n| format!("{n} + 1")).collect();
    assert_eq!(run(&format!("SELECT 5 IN ({})", values.join(", "))).await, Ok(vec!["true".into()]));
}

#[tokio::test]
async fn errors_are_one_sentence() {
    for (sql, expected) in [
        ("SELECT avg(y) FROM t", "avg does not take VARCHAR"),
        ("SELECT y + DATE '2024-01-01' FROM t", "+ does not take VARCHAR and DATE"),
        ("SELECT upper(1, 2)", "upper takes 1 argument, not (BIGINT, BIGINT)"),
        ("SELECT * FROM t WHERE y = \"Seattle\"", "a text stands in single quotes: 'Seattle'"),
        ("SELECT Date FROM (SELECT 1 AS \"Date\") u", "write \"Date\" in double quotes"),
        ("SELECT hash(x) FROM t", "there is no function hash"),
        ("SELECT hash(x) FROM t", "use md5 or sha256"),
        ("SELECT uper(y) FROM t", "did you mean upper?"),
        ("SELECT 1 = ALL (SELECT x FROM t)", ""),
        ("SELECT 'a' = 1", "BIGINT"),
    ] {
        let Err(error) = run(&format!("WITH t AS (SELECT * FROM {T}) {sql}")).await else {
            assert!(expected.is_empty(), "{sql}");
            continue;
        };
        assert!(error.contains(expected), "{sql}: {error}");
        let insides =
            ["Utf8", "Int64", "DataFusion", " { ", "bug report", "Span", "DFSchema", "Internal error"];
        let shown: Vec<&&str> = insides.iter().filter(|inside| error.contains(**inside)).collect();
        assert!(shown.is_empty(), "{sql}: {error} shows {shown:?}");
    }
}

#[tokio::test]
async fn what_would_be_left_undone_is_refused() {
    let t = "(VALUES (1), (2)) t(x)";
    for (sql, expected) in [
        ("SELECT * FROM t TABLESAMPLE BERNOULLI (1)".to_string(), "TABLESAMPLE is not done"),
        (format!("SELECT * FROM {t} TABLESAMPLE (1 PERCENT)"), "TABLESAMPLE is not done"),
        (format!("SELECT (SELECT x FROM {t} TABLESAMPLE (1 ROWS))"), "random()"),
        ("BEGIN".to_string(), "a transaction of several statements"),
        ("COMMIT".to_string(), "a transaction of several statements"),
        ("ROLLBACK".to_string(), "a transaction of several statements"),
        ("CREATE DATABASE d".to_string(), "CREATE DATABASE is not done"),
        (
            "CREATE EXTERNAL TABLE t STORED AS csv LOCATION 'x.csv'".to_string(),
            "CREATE EXTERNAL TABLE is not done",
        ),
        ("DROP TABLE IF EXISTS 'weather.csv'".to_string(), "DROP of a file is not done"),
        (format!("SELECT * FROM {t} FOR UPDATE"), "FOR UPDATE"),
        (format!("SELECT x FROM {t} FETCH FIRST 10 PERCENT ROWS ONLY"), "percent_rank()"),
        (format!("SELECT x FROM {t} ORDER BY x FETCH FIRST 1 ROW WITH TIES"), "WITH TIES"),
        ("SELECT 'a' SIMILAR TO x FROM (VALUES ('a')) t(x)".to_string(), "a pattern that is a constant"),
        ("SELECT 'a' LIKE 'a!' ESCAPE '!'".to_string(), "nothing follows the escape character"),
        ("SELECT 'a' LIKE 'a' ESCAPE 'ab'".to_string(), "more than one character"),
        ("SELECT 0x1FFFFFFFFFFFFFFFF".to_string(), "no integer of 64 bits"),
        ("EXPLAIN SELECT * FROM t TABLESAMPLE BERNOULLI (1)".to_string(), "TABLESAMPLE is not done"),
        ("SELECT 1; SELECT 2".to_string(), "several statements"),
        ("".to_string(), "there is no SQL statement"),
    ] {
        let error = run(&sql).await.expect_err(&sql);
        assert!(error.contains(expected), "{sql}: {error}");
    }
}
