//! What the rules make of statements, by what these give. The expected values are PostgreSQL's.

use crate::{Session, SessionOptions};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};

/// The rows of `sql`, their values separated by blanks; or the error with its advice.
async fn run(sql: &str) -> Result<Vec<String>, String> {
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
        ("DROP TABLE IF EXISTS 'weather.csv'".to_string(), "DROP of a file is not done"),
        (format!("SELECT * FROM {t} FOR UPDATE"), "FOR UPDATE"),
        (format!("SELECT x FROM {t} FETCH FIRST 10 PERCENT ROWS ONLY"), "percent_rank()"),
        (format!("SELECT x FROM {t} ORDER BY x FETCH FIRST 1 ROW WITH TIES"), "WITH TIES"),
        ("SELECT 'a' LIKE x ESCAPE '!' FROM (VALUES ('a')) t(x)".to_string(), "a pattern that is a constant"),
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
