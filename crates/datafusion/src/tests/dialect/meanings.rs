//! Tests the meaning of statements that DataFusion alone evaluates differently. Some tests fail when DataFusion is
//! fixed. Expected values are those of PostgreSQL and DuckDB.

use super::run;
use crate::{Session, SessionOptions};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;

#[tokio::test]
async fn set_operations_count_rows() {
    for (sql, expected) in [
        ("VALUES (1), (1), (2), (NULL), (NULL) INTERSECT ALL VALUES (1), (1), (1), (NULL)", "1|1|NULL"),
        ("VALUES (1), (1), (2), (NULL), (NULL) EXCEPT ALL VALUES (1), (NULL), (3)", "1|2|NULL"),
        ("VALUES (1), (1), (2) EXCEPT ALL VALUES (1) EXCEPT ALL VALUES (2)", "1"),
        ("VALUES (1), (2) UNION ALL VALUES (1) INTERSECT ALL VALUES (1.0), (1.0)", "1.0|1.0|2.0"),
        ("SELECT 1, 'a' EXCEPT ALL SELECT 1, 'b'", "1 a"),
    ] {
        let mut rows = run(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        rows.sort();
        assert_eq!(rows.join("|"), expected, "{sql}");
    }
}

/// Fails once the engine counts rows itself, so that `set_all` can be removed (apache/datafusion#12955).
#[tokio::test]
async fn the_engine_does_not_count_rows_of_intersect_all() {
    let context = datafusion::prelude::SessionContext::new();
    let sql = "VALUES (1), (1), (2) INTERSECT ALL VALUES (1)";
    let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
    let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
    assert_eq!(rows, 2, "SQL has 1: upstream is right, remove the rule");
}

/// Fails once the engine keeps TRY_CAST, so that `types::try_casts` can be removed (apache/datafusion#14303).
#[tokio::test]
async fn the_engine_unwraps_try_cast() {
    let context = datafusion::prelude::SessionContext::new();
    let sql = "SELECT i FROM (VALUES (9999999999), (1)) t(i) WHERE try_cast(i AS INT) > 1";
    let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
    let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
    assert_eq!(rows, 1, "SQL has 0: upstream is right, remove the rule");
}

/// Fails once the engine refuses to compare dates with numbers, so that `types::numbers` can be removed
/// (apache/datafusion#12291).
#[tokio::test]
async fn the_engine_compares_dates_with_numbers() {
    let context = datafusion::prelude::SessionContext::new();
    let frame = context.sql("SELECT DATE '2024-01-01' > 5").await;
    let rows = match frame {
        Ok(frame) => frame.collect().await.map(|batches| batches.len()),
        Err(error) => Err(error),
    };
    assert!(rows.is_ok(), "upstream is right, remove the rule");
}

/// Fails once the engine's LEAD counts correctly across NULLs, so that `shifts` can be removed
/// (apache/datafusion#25471).
#[tokio::test]
async fn the_engine_loses_rows_over_gaps_of_nulls() {
    let context = datafusion::prelude::SessionContext::new();
    let sql = "SELECT id FROM (SELECT id, lead(v, 2) IGNORE NULLS OVER (ORDER BY id) AS x FROM (VALUES (1, 10), (2, 20), \
               (3, 30), (4, 40), (5, NULL), (6, NULL), (7, 70), (8, 80)) t(id, v)) WHERE id = 3 AND x = 70";
    let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
    let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
    assert_eq!(rows, 0, "SQL has 1: upstream is right, remove the rule");
}

#[tokio::test]
async fn names_of_columns_do_not_decide_what_they_are() {
    let from = "FROM (VALUES (1, 2.5), (2, 3.5)) t(id, v)";
    for (columns, expected) in [
        ("sum(id), sum(id::double), sum(id::smallint)", "3 3.0 3"),
        ("sum(id) a, sum(id::double) b", "3 3.0"),
        ("sum(id), sum(t.id)", "3 3"),
        ("count(*) + 1, (count(*)) + 1", "3 3"),
        ("array_agg(DISTINCT id ORDER BY id DESC), array_agg(DISTINCT id ORDER BY id)", "[2, 1] [1, 2]"),
    ] {
        let sql = format!("SELECT {columns} {from}");
        assert_eq!(run(&sql).await, Ok(vec![expected.to_string()]), "{sql}");
    }
    for (sql, expected) in [
        ("SELECT v::int FROM (VALUES (2.5), (1.5)) t(v) ORDER BY v", "1|2"),
        ("SELECT v::int, v::bigint FROM (VALUES (2.5)) t(v)", "2 2"),
        ("SELECT sum(x::int) OVER (), sum(x) OVER () FROM (VALUES (2.5)) t(x)", "2 2.5"),
        ("SELECT \"max(id)\" FROM (SELECT max(id) FROM (VALUES (1)) t(id))", "1"),
        ("WITH c AS (SELECT MAX(id) FROM (VALUES (1)) t(id)) SELECT c.\"max(id)\" FROM c", "1"),
    ] {
        assert_eq!(run(sql).await.map(|rows| rows.join("|")), Ok(expected.to_string()), "{sql}");
    }
}

#[tokio::test]
async fn windows_build_on_others() {
    let from = "FROM (VALUES (1, 1), (2, 1), (3, 2)) t(id, g)";
    for (columns, windows, expected) in [
        ("sum(id) OVER (w ORDER BY id)", "w AS (PARTITION BY g)", "1|3|3"),
        ("sum(id) OVER v", "w AS (PARTITION BY g), v AS (w ORDER BY id)", "1|3|3"),
        ("sum(id) OVER V", "w AS (ORDER BY id), v AS w", "1|3|6"),
        ("sum(id) OVER (w ROWS 1 PRECEDING)", "w AS (ORDER BY id)", "1|3|5"),
        ("sum(id) OVER w", "w AS (ORDER BY id ROWS 1 PRECEDING)", "1|3|5"),
    ] {
        let sql = format!("SELECT {columns} {from} WINDOW {windows} ORDER BY id");
        assert_eq!(run(&sql).await.map(|rows| rows.join("|")), Ok(expected.to_string()), "{sql}");
    }
    let ordered = format!("SELECT id {from} WINDOW w AS (ORDER BY id DESC) ORDER BY row_number() OVER w");
    assert_eq!(run(&ordered).await.map(|rows| rows.join("|")), Ok("3|2|1".to_string()));
    for (window, windows, error) in [
        ("(w PARTITION BY id)", "w AS (ORDER BY id)", "cannot have a PARTITION BY of its own"),
        ("(w ORDER BY g)", "w AS (ORDER BY id)", "cannot have another ORDER BY"),
        ("(w)", "w AS (ORDER BY id ROWS 1 PRECEDING)", "cannot take over its frame"),
        ("v", "v AS (w), w AS (ORDER BY id)", "there is no window w before this place"),
        ("u", "w AS (ORDER BY id)", "there is no window u"),
        ("w", "w AS (ORDER BY id), W AS (ORDER BY g)", "the window w is defined twice"),
    ] {
        let told = run(&format!("SELECT sum(id) OVER {window} {from} WINDOW {windows}")).await.unwrap_err();
        assert!(told.contains(error), "{window}, {windows}: {told}");
    }
}

#[tokio::test]
async fn types_mean_what_they_mean_elsewhere() {
    for (sql, expected) in [
        ("TRY_CAST(9999999999 AS INT) > 1", "NULL"),
        ("date '2024-01-01' + interval '5 hours'", "2024-01-01T05:00:00"),
        ("date '2024-01-01' + interval '1 day'", "2024-01-02"),
        ("interval '1 hour' + date '2024-01-01'", "2024-01-01T01:00:00"),
        ("interval '1 day' = interval '24 hours'", "true"),
        ("interval '1 month' > interval '29 days 23 hours'", "true"),
        ("interval '1 month' IN (interval '30 days')", "true"),
        ("CASE interval '1 day' WHEN interval '24 hours' THEN 1 ELSE 0 END", "1"),
        ("extract(hour FROM timestamp '2024-01-02 05:00' - timestamp '2024-01-01 00:00')", "5"),
        ("extract(day FROM timestamp '2024-01-02 05:00' - timestamp '2024-01-01 00:00')", "1"),
        ("interval '1 day 04:05:06' = interval '28 hours 5 minutes 6 seconds'", "true"),
        ("interval '-04:05' = interval '-245 minutes'", "true"),
        ("interval '1 month' / 2 = interval '15 days'", "true"),
        ("interval '1 day' * 1.5 = interval '36 hours'", "true"),
        ("timestamp '2024-01-01 00:00:00' < '9999-12-31'", "true"),
        ("timestamp '2024-03-10 13:00:00' > '2024-03-10 12:00'", "true"),
        ("'0001-01-01'::timestamp", "0001-01-01T00:00:00"),
        ("now() < '9999-12-31'", "true"),
        ("arrow_cast(timestamp '2024-01-01', 'Timestamp(Nanosecond, None)') < '9999-12-31'", "true"),
        (
            "arrow_cast(timestamp '2024-01-01', 'Timestamp(Nanosecond, None)') IN ('9999-12-31', '2024-01-01')",
            "true",
        ),
        ("len([1, 2, 3])", "3"),
        ("length([1, 2])", "2"),
        ("length('äb')", "2"),
        ("123456789012345678.12::decimal(20,2)", "123456789012345678.12"),
        ("'0.1'::decimal(38,20) = 0.1", "true"),
        ("'123456789012345678.12'::decimal(20,2) = 123456789012345678.13", "false"),
        ("'123456789012345678.12'::decimal(20,2) + 0.01", "123456789012345678.13"),
        (
            "'123456789012345678.12'::decimal(20,2) BETWEEN 123456789012345678.11 AND 123456789012345678.12",
            "true",
        ),
        ("coalesce(NULL::decimal(20,2), 123456789012345678.12)", "123456789012345678.12"),
        ("typeof(1.5)", "DOUBLE"),
        ("0.1 + 0.2 = 0.3", "false"),
        ("1::uinteger + 1::utinyint", "2"),
        ("typeof(1::ubigint)", "UBIGINT"),
        ("'A0EEBC999C0B4EF8BB6D6BB9BD380A11'::uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("7 // 2", "3"),
        ("'100%' LIKE '1' || '00!%' ESCAPE '!'", "true"),
        ("'1000' LIKE '1' || '00!%' ESCAPE '!'", "false"),
        ("list_transform([1, 2, 3], x -> x + 1)", "[2, 3, 4]"),
        ("list_filter([1, 2, 3], x -> x > 1 AND x < 3)", "[2]"),
        ("'{\"a\":1}'#>>'{a}'", "1"),
    ] {
        let found = run(&format!("SELECT {sql}")).await;
        assert_eq!(found, Ok(vec![expected.to_string()]), "{sql}");
    }
}

#[tokio::test]
async fn numbers_are_no_times() {
    let from = "FROM (VALUES (DATE '2024-01-01', 5)) t(day, i)";
    for condition in [
        "day > 20240101",
        "20240101 < day",
        "day = i",
        "day IN (1, 2)",
        "day BETWEEN 1 AND 2",
        "day IN (SELECT 5)",
        "coalesce(day, i) IS NULL",
        "CASE WHEN i = 5 THEN day ELSE i END IS NULL",
        "day::int = 1",
        "i::date = day",
        "day IS DISTINCT FROM 5",
        "nullif(day, 5) IS NULL",
    ] {
        let error = run(&format!("SELECT 1 {from} WHERE {condition}")).await.unwrap_err();
        assert!(error.contains("DATE") && error.contains("cannot"), "{condition}: {error}");
    }
    let sets = ["SELECT DATE '2024-01-01' UNION ALL SELECT 1", "SELECT 1 UNION SELECT DATE '2024-01-01'"];
    for sql in sets {
        assert!(run(sql).await.unwrap_err().contains("become one column"), "{sql}");
    }
}

#[tokio::test]
async fn intervals_are_grouped_and_sorted_by_their_length() {
    let from = "FROM (VALUES (1, interval '1 month'), (2, interval '30 days'), (3, interval '720 hours'), \
                (4, interval '29 days'), (5, interval '1 month 1 second')) t(n, i)";
    for (sql, expected) in [
        (format!("SELECT count(*) {from} GROUP BY i ORDER BY i"), "1|3|1"),
        (format!("SELECT count(DISTINCT i) {from}"), "3"),
        (format!("SELECT count(*) FROM (SELECT DISTINCT i {from})"), "3"),
        (format!("SELECT n {from} ORDER BY i, n"), "4|1|2|3|5"),
        (format!("SELECT rank() OVER (ORDER BY i) {from} ORDER BY n"), "2|2|2|1|5"),
        (
            format!("SELECT max(i) = interval '1 month 1 second', min(i) = interval '29 days' {from}"),
            "true true",
        ),
        (
            format!("SELECT count(*) FROM (SELECT i AS x {from}) a JOIN (SELECT i AS y {from}) b ON x = y"),
            "11",
        ),
    ] {
        assert_eq!(run(&sql).await.map(|rows| rows.join("|")), Ok(expected.to_string()), "{sql}");
    }
}

#[tokio::test]
async fn rows_that_a_part_of_a_condition_rules_out_fail_nothing() {
    let from = "FROM (VALUES (1, '0'), (2, 'x'), (3, '7'), (4, '')) t(id, s)";
    for (condition, expected) in [
        ("s ~ '^[0-9]+$' AND s::int = 0", "1"),
        ("s::int = 0 AND s ~ '^[0-9]+$'", "1"),
        ("s::int >= 0 AND 10 / s::int = 1 AND s = '7'", "3"),
        ("length(s) < 2 AND s <> 'x' AND s <> '' AND s::int = 7", "3"),
        ("NOT s ~ '^[0-9]+$' OR s::int = 7", "2|3|4"),
        ("(s::int = 0 OR id = 2) AND s <> ''", "1|2"),
    ] {
        let sql = format!("SELECT id {from} WHERE {condition} ORDER BY id");
        assert_eq!(run(&sql).await.map(|rows| rows.join("|")), Ok(expected.to_string()), "{sql}");
    }
    assert!(run(&format!("SELECT id {from} WHERE s::int = 0 AND id < 3")).await.is_err());
}

#[tokio::test]
async fn other_forms_are_read_or_refused() {
    for (sql, expected) in [
        (
            "WITH c AS MATERIALIZED (SELECT 1 x), d AS NOT MATERIALIZED (SELECT 2 y) SELECT x, y FROM c, d",
            "1 2",
        ),
        ("SELECT count(*) FROM (VALUES (1), (2)) t(a) GROUP BY ()", "2"),
        ("SELECT 1 FROM (VALUES (1), (2)) t(a) WHERE a > 5 GROUP BY ()", "1"),
        ("SELECT a, count(*) FROM (VALUES (1)) t(a) GROUP BY a, ()", "1 1"),
        ("SELECT a FROM (VALUES ('b'), ('A')) t(a) ORDER BY a COLLATE \"C\"", "A|b"),
        ("SELECT a FROM (VALUES ('B'), ('a')) t(a) ORDER BY a COLLATE NOCASE", "a|B"),
        (
            "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY a) FROM (VALUES (1), (2), (9), (NULL)) t(a)",
            "2",
        ),
        ("SELECT percentile_disc(0.3) WITHIN GROUP (ORDER BY a DESC) FROM (VALUES (1), (2), (9)) t(a)", "9"),
    ] {
        assert_eq!(run(sql).await.map(|rows| rows.join("|")), Ok(expected.to_string()), "{sql}");
    }
    for (sql, expected) in [
        ("UPDATE t SET a = 1, a = 2", "sets the column a twice"),
        (
            "SELECT count(*) OVER (ORDER BY a RANGE BETWEEN 'x' PRECEDING AND CURRENT ROW) FROM (VALUES ('b')) t(a)",
            "RANGE with an offset takes numbers or times in ORDER BY, not VARCHAR",
        ),
        ("INSERT INTO t VALUES (1) RETURNING a", "RETURNING is not done"),
        ("DELETE FROM t RETURNING *", "RETURNING is not done"),
        ("ALTER TABLE t ALTER COLUMN a SET DATA TYPE BIGINT", "a change of a column's type is not done"),
        ("CREATE INDEX i ON t (a)", "CREATE INDEX is not done"),
        ("SELECT 1 FROM t ASOF JOIN u ON t.a >= u.a", "ASOF JOIN is not done"),
        (
            "SELECT a FROM (VALUES (1)) t(a) WHERE row_number() OVER () = 1",
            "a window function is not done in this place",
        ),
        ("SELECT sum(count(*)) FROM (VALUES (1)) t(a)", "an aggregate cannot be an argument of another one"),
        ("SELECT 'x'::uuid", "is no UUID"),
        ("SELECT a FROM (VALUES ('a')) t(a) ORDER BY a COLLATE \"de_DE\"", "there is no collation"),
        ("SELECT json_each('{}')", "json_each"),
    ] {
        let error = run(sql).await.unwrap_err();
        assert!(error.contains(expected), "{sql}: {error}");
    }
}

#[tokio::test]
async fn frames_leave_out_rows_near_the_current_one() {
    let from = "FROM (VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 2, 'c'), (4, NULL, 'd')) t(id, g, s)";
    // The expected values are from DuckDB 2.0.1.
    for (call, expected) in [
        (
            "sum(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW)",
            "2|4|6|3",
        ),
        ("sum(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE NO OTHERS)", "3|6|9|7"),
        ("sum(id) OVER (ORDER BY g RANGE UNBOUNDED PRECEDING EXCLUDE GROUP)", "NULL|NULL|3|6"),
        ("sum(id) OVER (ORDER BY g RANGE UNBOUNDED PRECEDING EXCLUDE TIES)", "1|2|6|10"),
        ("count(*) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE GROUP)", "0|0|0|0"),
        (
            "count(*) FILTER (WHERE g = 1) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)",
            "1|1|2|2",
        ),
        (
            "first_value(s) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)",
            "b|a|NULL|NULL",
        ),
        (
            "string_agg(s, '+') OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW)",
            "NULL|a|a+b|b+c",
        ),
        (
            "row_number() OVER (ORDER BY id DESC ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES)",
            "4|3|2|1",
        ),
        ("max(id) OVER (w ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW)", "2|3|4|3"),
    ] {
        let sql =
            format!("SELECT v FROM (SELECT id, {call} v {from} WINDOW w AS (ORDER BY id)) q ORDER BY id");
        assert_eq!(run(&sql).await.map(|rows| rows.join("|")), Ok(expected.to_string()), "{sql}");
    }
    let all = format!("SELECT * EXCLUDE (g) {from} WHERE id = 1");
    assert_eq!(run(&all).await, Ok(vec!["1 a".to_string()]));
}

/// Expected values are from PostgreSQL 15.
#[tokio::test]
async fn rows_are_compared_by_their_parts() {
    let from =
        "(VALUES (1, 1, 1), (2, 2, 2), (3, 3, NULL), (4, NULL, 4), (5, NULL, NULL), (6, 2, 5)) t(id, a, b)";
    for (condition, expected) in [
        ("(a, b) < (2, 3)", "true|true|false|NULL|NULL|false"),
        ("(a, b) <= (2, 2)", "true|true|false|NULL|NULL|false"),
        ("(a, b) > (2, NULL)", "false|NULL|true|NULL|NULL|NULL"),
        ("NOT ((a, b) = (2, 2))", "true|false|true|true|NULL|true"),
        ("ROW(a, b) <> ROW(2, 2)", "true|false|true|true|NULL|true"),
        ("(a, b) BETWEEN (1, 1) AND (2, 2)", "true|true|false|NULL|NULL|false"),
        ("(a, b) IN ((1, 1), (2, NULL))", "true|NULL|false|NULL|NULL|NULL"),
        ("(a, b) NOT IN ((1, 1), (2, 5))", "false|true|true|true|NULL|false"),
        ("(a, b) IS DISTINCT FROM (3, NULL)", "true|true|false|true|true|true"),
        ("2 = ANY(ARRAY[a, b])", "false|true|NULL|NULL|NULL|true"),
        ("NOT (2 = ANY(ARRAY[a, b]))", "true|false|NULL|NULL|NULL|false"),
        ("2 < ANY(ARRAY[a, b])", "false|false|true|true|NULL|true"),
        ("2 <> ALL(ARRAY[a, b])", "true|false|NULL|NULL|NULL|false"),
        ("a = ANY(string_to_array('1,2', ',')::int[])", "true|true|false|NULL|NULL|true"),
    ] {
        let sql = format!("SELECT c FROM (SELECT id, {condition} c FROM {from}) q ORDER BY id");
        assert_eq!(run(&sql).await.map(|rows| rows.join("|")), Ok(expected.to_string()), "{sql}");
    }
    let error = run("SELECT (1, 2, 3) = (1, 2)").await.unwrap_err();
    assert!(error.contains("a row of 3 columns is compared with one of 2"), "{error}");
}

#[tokio::test]
async fn lists_of_a_row_stand_in_from() {
    let from = "(VALUES (1, 2), (NULL, 4)) l(a, b)";
    for (sql, expected) in [
        (format!("SELECT v FROM {from}, unnest(ARRAY[l.a, l.b]) u(v) WHERE v > 1"), "2|4"),
        (format!("SELECT (SELECT max(v) FROM unnest(ARRAY[l.a, l.b, 3]) u(v)) m FROM {from}"), "3|4"),
        (format!("SELECT b FROM {from} WHERE 4 IN (SELECT v FROM unnest([l.a, l.b]) u(v))"), "4"),
        (format!("SELECT x FROM {from}, LATERAL unnest(CASE WHEN l.b > 2 THEN ARRAY[l.b] END) g(x)"), "4"),
        (format!("SELECT (SELECT sum(x) FROM generate_series(1, l.b) g(x)) s FROM {from}"), "10|3"),
        (format!("SELECT g.value FROM {from}, range(0, l.b) g WHERE l.a = 1"), "0|1"),
        ("SELECT count(*) FROM range(5), generate_series(1, 2)".to_string(), "10"),
    ] {
        let mut rows = run(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        rows.sort();
        assert_eq!(rows.join("|"), expected, "{sql}");
    }
}

#[tokio::test]
async fn lambdas_see_the_columns_of_their_row() {
    let from = "(VALUES (1, [1, 2, NULL], 1), (2, NULL, 2), (3, [], 3), (4, [7], 4)) t(id, l, i)";
    for (call, expected) in [
        ("list_transform(l, x -> x + i)", "[2, 3, NULL]|NULL|[]|[11]"),
        ("list_filter(l, x -> x > i)", "[2]|NULL|[]|[7]"),
        ("list_transform(l, x -> 0)", "[0, 0, 0]|NULL|[]|[0]"),
        ("list_filter(l, x -> NULL::BOOLEAN)", "[]|NULL|[]|[]"),
        ("len(list_transform(l, x -> list_filter(l, y -> y > x)))", "3|NULL|0|1"),
        ("list_transform(l, x -> len(list_filter(l, y -> y > x + i - id)))", "[1, 0, 0]|NULL|[]|[0]"),
        ("list_transform([1, 2], x -> x + i)", "[2, 3]|[3, 4]|[4, 5]|[5, 6]"),
        ("list_transform([1, 2], x -> len(list_filter([i, 3], y -> y > x)))", "[1, 1]|[2, 1]|[2, 2]|[2, 2]"),
    ] {
        let sql = format!("SELECT v FROM (SELECT id, {call} v FROM {from}) q ORDER BY id");
        assert_eq!(run(&sql).await.map(|rows| rows.join("|")), Ok(expected.to_string()), "{sql}");
    }
    // A single list that is compared with all rows, and has more elements than are evaluated at a time.
    for (call, expected) in [
        ("list_transform([10, 20], x -> x + i)", "[11, 21]|[12, 22]"),
        ("(list_transform(range(0, 10000), x -> x * i))[10000]", "9999|19998"),
        ("len(list_filter(range(0, 10000), x -> x % 5 < i))", "2000|4000"),
    ] {
        let sql = format!("SELECT {call} v FROM (VALUES (1), (2)) t(i)");
        assert_eq!(run(&sql).await.map(|rows| rows.join("|")), Ok(expected.to_string()), "{sql}");
    }
}

#[tokio::test]
async fn names_of_other_schemas_are_not_those_of_inner_tables() {
    for sql in [
        "SELECT 1 FROM s1.t WHERE EXISTS (SELECT 1 FROM t WHERE t.a = s1.t.a + 1)",
        "SELECT 1 FROM s1.t, LATERAL (SELECT count(*) c FROM t WHERE t.a > s1.t.a) x",
    ] {
        let error = run(sql).await.unwrap_err();
        assert!(error.contains("s1.t is named where t is another table"), "{sql}: {error}");
    }
    for sql in ["SELECT s1.t.a FROM s1.t", "SELECT (SELECT max(s1.t.a) FROM s1.t) FROM t"] {
        let error = run(sql).await.unwrap_err();
        assert!(!error.contains("another table"), "{sql}: {error}");
    }
    let error = run("CREATE TABLE g (a INT, b INT GENERATED ALWAYS AS (a * 2) STORED)").await.unwrap_err();
    assert!(error.contains("a generated column is not done"), "{error}");
}

#[tokio::test]
async fn texts_are_joined_in_two_orders() {
    let from = "(VALUES (1, 'a'), (2, 'b'), (3, 'a'), (4, NULL)) e(id, s)";
    let sql = format!(
        "SELECT string_agg(s, '-' ORDER BY id DESC), string_agg(DISTINCT s, '-' ORDER BY s DESC), string_agg(DISTINCT s, '+' ORDER BY s) FILTER (WHERE id > 3) FROM {from}"
    );
    assert_eq!(run(&sql).await, Ok(vec!["a-b-a b-a NULL".to_string()]));
    let frame = "SELECT sum(v) OVER (ORDER BY v RANGE BETWEEN 0.5 PRECEDING AND CURRENT ROW) FROM (VALUES (1.0::DOUBLE), (1.25), (2.0)) t(v)";
    assert_eq!(run(frame).await, Ok(vec!["1.0".into(), "2.25".into(), "2.0".into()]));
}

#[tokio::test]
async fn conditions_above_outer_joins_are_about_their_own_side() {
    for (sql, expected) in [
        (
            "SELECT t.a, u.a, u.k FROM (VALUES (1, 1), (2, 5)) t(a, k) RIGHT JOIN (VALUES (2, 5), (7, 6)) u(a, k) \
             ON t.a = u.a WHERE t.k IS NULL AND u.k > 3",
            "NULL 7 6",
        ),
        (
            "SELECT t.a, u.a FROM (VALUES (1), (2)) t(a) RIGHT JOIN (VALUES (2), (7)) u(a) ON t.a = u.a \
             WHERE coalesce(t.a, 99) IN (3, t.a)",
            "2 2",
        ),
        (
            "SELECT u.a, u.k FROM (VALUES (1, 1), (2, 5)) t(a, k) FULL JOIN (VALUES (2, 5), (7, 6)) u(a, k) \
             ON t.a = u.a WHERE t.k IS NULL AND u.k > 3",
            "7 6",
        ),
        (
            "SELECT t.k, u.k FROM (VALUES (1, 1), (2, 5)) t(a, k) LEFT JOIN (VALUES (2, 7), (7, 6)) u(a, k) \
             ON t.a = u.a WHERE u.k IS NULL OR u.k + t.k = 12 ORDER BY t.k",
            "1 NULL|5 7",
        ),
    ] {
        assert_eq!(run(sql).await.map(|rows| rows.join("|")), Ok(expected.to_string()), "{sql}");
    }
}

#[tokio::test]
async fn members_of_lists_are_those_of_their_row() {
    for (sql, expected) in [
        (
            "SELECT i FROM range(3, 8) t(i) WHERE i + 0 NOT IN (1, 2, 3, CASE WHEN i > 100 THEN 6 ELSE i END)",
            "",
        ),
        ("SELECT i FROM range(3, 8) t(i) WHERE i + 0 IN (1, CASE WHEN i > 100 THEN 6 ELSE i * 100 END)", ""),
        ("SELECT i FROM range(3, 8) t(i) WHERE i IN (4, if(i > 5, 7, i - 1)) ORDER BY i", "4|7"),
        ("SELECT i IN (4, if(i > 5, 7, NULL)) FROM range(4, 8) t(i) ORDER BY i", "true|NULL|false|true"),
        (
            "SELECT list_filter([1, 2, 7], x -> x IN (2, CASE WHEN x > 100 THEN 1 ELSE x * 10 END, i)) FROM range(7, 8) t(i)",
            "[2, 7]",
        ),
        (
            "SELECT count(*) FILTER (WHERE i IN (4, CASE WHEN i > 100 THEN 6 ELSE 5 END)) FROM range(3, 8) t(i)",
            "2",
        ),
    ] {
        assert_eq!(run(sql).await.map(|rows| rows.join("|")), Ok(expected.to_string()), "{sql}");
    }
}

#[tokio::test]
async fn rows_are_sorted_by_expressions_over_computed_columns() {
    let session = Session::new(SessionOptions { target_partitions: Some(2), ..SessionOptions::default() });
    let text = "SELECT i, i - 1 k FROM range(20000) t(i) WHERE i % 3 < 2 \
                ORDER BY CASE WHEN i * i > 100 THEN i ELSE 2 END + k LIMIT 3";
    let batches = session.sql(text).await.unwrap().collect().await.unwrap();
    let first: Vec<i64> = batches
        .iter()
        .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec())
        .collect();
    assert_eq!(first, [0, 1, 3]);
}
