//! Results of the functions as in DuckDB 1.4, except that a date plus an interval of days is a date here, and
//! that 1.5 is a double.

use super::{FUNCTIONS, Means, all, listed};
use crate::dialect::tests::run;
use crate::{Session, SessionOptions};
use std::collections::HashSet;

/// Scalar expressions and their expected values.
const SCALARS: &[(&str, &str)] = &[
    ("mod(-7, 3)", "-1"),
    ("mod(7, -3)", "1"),
    ("mod(7.5, 2)", "1.5"),
    ("mod(NULL, 3)", "NULL"),
    ("sign(-2.5)", "-1"),
    ("sign(0)", "0"),
    ("sign(NULL)", "NULL"),
    ("sign('nan'::double)", "0"),
    ("sign(-9223372036854775807)", "-1"),
    ("xor(5, 3)", "6"),
    ("xor(-1, 1)", "-2"),
    ("ceiling(-1.5)", "-1.0"),
    ("isinf('inf'::double)", "true"),
    ("isinf('nan'::double)", "false"),
    ("isinf(NULL::double)", "NULL"),
    ("isfinite('-inf'::double)", "false"),
    ("isfinite('nan'::double)", "false"),
    ("isfinite(1.5)", "true"),
    ("if(1 < 2, 'a', 'b')", "a"),
    ("if(NULL, 'a', 'b')", "b"),
    ("if(false, 1, NULL)", "NULL"),
    ("year(DATE '2024-02-29')", "2024"),
    ("year(TIMESTAMP '1969-12-31 23:59:59.999999')", "1969"),
    ("year(NULL::DATE)", "NULL"),
    ("isoyear(DATE '2024-12-30')", "2025"),
    ("quarter(DATE '2024-04-01')", "2"),
    ("month(DATE '2024-12-31')", "12"),
    ("week(DATE '2024-12-30')", "1"),
    ("weekofyear(DATE '2021-01-01')", "53"),
    ("yearweek(DATE '2024-12-30')", "202501"),
    ("day(DATE '2024-02-29')", "29"),
    ("dayofmonth(DATE '2024-02-29')", "29"),
    ("dayofweek(DATE '2024-01-07')", "0"),
    ("weekday(DATE '2024-01-06')", "6"),
    ("isodow(DATE '2024-01-07')", "7"),
    ("isodow(DATE '2024-01-01')", "1"),
    ("dayofyear(DATE '2024-12-31')", "366"),
    ("hour(TIMESTAMP '2024-01-01 23:05:06')", "23"),
    ("minute(TIMESTAMP '2024-01-01 23:05:06')", "5"),
    ("second(TIMESTAMP '2024-01-01 23:05:06.75')", "6"),
    ("millisecond(TIMESTAMP '2024-01-01 23:05:06.75')", "6750"),
    ("microsecond(TIMESTAMP '2024-01-01 23:05:06.75')", "6750000"),
    ("epoch(TIMESTAMP '2024-01-01 00:00:01.75')", "1704067201.75"),
    ("epoch(DATE '1969-12-31')", "-86400.0"),
    ("epoch_ms(TIMESTAMP '2024-01-01 00:00:01.75')", "1704067201750"),
    ("epoch_ms(TIMESTAMP '1969-12-31 23:59:59.999')", "-1"),
    ("epoch_us(TIMESTAMP '2024-01-01 00:00:01.75')", "1704067201750000"),
    ("dayname(DATE '2024-01-05')", "Friday"),
    ("monthname(DATE '2024-01-05')", "January"),
    ("dayname(NULL::DATE)", "NULL"),
    ("strftime(TIMESTAMP '2024-01-05 03:04:05.25', '%d.%m.%Y %H:%M:%S.%f')", "05.01.2024 03:04:05.250000"),
    ("strftime(DATE '2024-01-05', '%A %-d %B %y %j')", "Friday 5 January 24 005"),
    ("strftime(NULL::DATE, '%Y')", "NULL"),
    ("strptime('05/01/2024 13:04', '%d/%m/%Y %H:%M')", "2024-01-05T13:04:00"),
    ("strptime('2024-01-05', '%Y-%m-%d')", "2024-01-05T00:00:00"),
    ("strptime(NULL, '%Y-%m-%d')", "NULL"),
    ("date_add(DATE '2024-01-31', INTERVAL '1 month')", "2024-02-29"),
    ("date_diff('day', DATE '2024-02-28', DATE '2024-03-01')", "2"),
    ("date_diff('day', TIMESTAMP '2024-01-01 23:59:59', TIMESTAMP '2024-01-02 00:00:00')", "1"),
    ("date_diff('month', DATE '2024-01-31', DATE '2024-02-01')", "1"),
    ("date_diff('month', DATE '2024-02-01', DATE '2023-11-30')", "-3"),
    ("date_diff('year', DATE '1969-12-31', DATE '2024-01-01')", "55"),
    ("date_diff('quarter', DATE '2023-12-31', DATE '2024-04-01')", "2"),
    ("date_diff('week', DATE '2024-01-07', DATE '2024-01-08')", "0"),
    ("date_diff('week', DATE '2024-01-08', DATE '2023-12-31')", "-1"),
    ("date_diff('hour', TIMESTAMP '2024-01-01 00:59:59', TIMESTAMP '2024-01-01 01:00:00')", "1"),
    ("date_diff('hour', TIMESTAMP '1969-12-31 23:30:00', TIMESTAMP '1970-01-01 00:30:00')", "1"),
    ("date_diff('minute', TIMESTAMP '2024-01-01 00:59:59', TIMESTAMP '2024-01-01 02:00:00')", "61"),
    ("date_diff('second', TIMESTAMP '2024-01-01 00:00:00.9', TIMESTAMP '2024-01-01 00:00:02.1')", "2"),
    ("date_diff('day', NULL::DATE, DATE '2024-03-01')", "NULL"),
    ("last_day(DATE '2024-02-10')", "2024-02-29"),
    ("last_day(TIMESTAMP '2023-12-31 12:00:00')", "2023-12-31"),
    ("last_day(NULL::DATE)", "NULL"),
    ("DATE '2024-01-01' + to_days(3)", "2024-01-04"),
    ("TIMESTAMP '2024-01-01 00:00:00' + to_hours(-25)", "2023-12-30T23:00:00"),
    ("DATE '2024-01-31' + to_months(1)", "2024-02-29"),
    ("DATE '2024-02-29' + to_years(-1)", "2023-02-28"),
    ("TIMESTAMP '2024-01-01 00:00:00' + to_minutes(90)", "2024-01-01T01:30:00"),
    ("TIMESTAMP '2024-01-01 00:00:00' + to_seconds(61)", "2024-01-01T00:01:01"),
    ("DATE '2024-01-01' + to_weeks(2)", "2024-01-15"),
    ("DATE '2024-01-01' + INTERVAL '1 day' * 3", "2024-01-04"),
    ("DATE '2024-01-01' + 3 * INTERVAL '2 month'", "2024-07-01"),
    ("TIMESTAMP '2024-01-01 12:00'", "2024-01-01T12:00:00"),
    ("'2024-01-01 12:30'::timestamp", "2024-01-01T12:30:00"),
    ("TIMESTAMP '3000-01-01 12:00:00.123456'", "3000-01-01T12:00:00.123456"),
    ("TIMESTAMP '1500-06-01 12:00'", "1500-06-01T12:00:00"),
    ("len('grün')", "4"),
    ("len('')", "0"),
    ("len(NULL::varchar)", "NULL"),
    ("strlen('grün')", "5"),
    ("ucase('grün')", "GRÜN"),
    ("lcase('ÄB')", "äb"),
    ("prefix('grün', 'gr')", "true"),
    ("suffix('grün', 'n')", "true"),
    ("prefix('a', '')", "true"),
    ("split('a,b,,c', ',')", "[a, b, , c]"),
    ("str_split('', ',')", "[]"),
    ("string_split('añb', 'ñ')", "[a, b]"),
    ("split(NULL, ',')", "NULL"),
    ("regexp_matches('abc', 'b.')", "true"),
    ("regexp_matches('ABC', 'b', 'i')", "true"),
    ("regexp_matches(NULL, 'b')", "NULL"),
    ("regexp_full_match('abc', 'b')", "false"),
    ("regexp_full_match('abc', 'a|abc')", "true"),
    ("regexp_extract('abc123', '\\d+')", "123"),
    ("regexp_extract('abc', '\\d+')", ""),
    ("regexp_extract(NULL, '\\d+')", "NULL"),
    ("regexp_extract('abc', NULL)", "NULL"),
    ("regexp_extract('grün', 'ü.')", "ün"),
    ("regexp_extract('2024-05-06', '(\\d+)-(\\d+)', 2)", "05"),
    ("regexp_extract('abc', '(x)?b', 1)", ""),
    ("regexp_extract('abc', 'z(.)', 1)", ""),
    ("regexp_extract('abc', 'b', 0)", "b"),
    ("json_extract('{\"a\":{\"b\":[1,2,3]}}', '$.a.b[1]')", "2"),
    ("json_extract('{\"a\":\"x\"}', '$.a')", "\"x\""),
    ("json_extract('{\"a\":\"x\"}', 'a')", "\"x\""),
    ("json_extract('{\"a\":null}', '$.a')", "null"),
    ("json_extract('{\"a\":[{\"b\":1},{\"b\":2}]}', '$.a[#-1].b')", "2"),
    ("json_extract('{\"a\":[1]}', '/a/0')", "1"),
    ("json_extract('{\"a\":[1]', '$.b')", "NULL"),
    ("json_extract(NULL::text, '$.b')", "NULL"),
    ("json_extract_string('{\"a\":\"x\"}', '$.a')", "x"),
    ("json_extract_string('{\"a\":null}', '$.a')", "NULL"),
    ("json_extract_path('{\"a\":{\"b\":\"x\"}}', 'a', 'b')", "\"x\""),
    ("json_extract_path_text('{\"a\":{\"b\":\"x\"}}', 'a', 'b')", "x"),
    ("'{\"a\":\"x\"}' -> 'a'", "\"x\""),
    ("'{\"a\":\"x\"}' ->> 'a'", "x"),
    ("'[1,2,3]' -> 1", "2"),
    ("'[1,2,3]' ->> -1", "3"),
    ("'{\"a\":{\"b\":7}}' -> 'a' ->> 'b'", "7"),
    ("'{\"a\":{\"b\":7}}' ->> 'a' IS NULL", "false"),
    ("'{\"a\":\"x\"}' ->> 'a' = 'x' AND true", "true"),
    ("'{\"a\":[1,{\"b\":2}]}' #>> '{a,1,b}'", "2"),
    ("('{\"a\":7}' ->> 'a')::int + 1", "8"),
    ("json_exists('{\"a\":null}', '$.a')", "true"),
    ("json_exists('{\"a\":null}', '$.b')", "false"),
    ("json_type('{\"a\":1}')", "OBJECT"),
    ("json_type(' [1]')", "ARRAY"),
    ("json_type('-1')", "BIGINT"),
    ("json_type('1')", "UBIGINT"),
    ("json_type('1.5')", "DOUBLE"),
    ("json_type('\"x\"')", "VARCHAR"),
    ("json_type('true')", "BOOLEAN"),
    ("json_type('null')", "NULL"),
    ("json_type('{a')", "NULL"),
    ("json_typeof('1.5')", "number"),
    ("json_typeof('[]')", "array"),
    ("json_valid('{a')", "false"),
    ("json_valid('{\"a\":1}')", "true"),
    ("json_array_length('[1,2,3]')", "3"),
    ("json_array_length('{\"a\":1}')", "0"),
    ("json_array_length('{\"a\":[1,2]}', '$.a')", "2"),
    ("json_array_length('{')", "NULL"),
    ("json_keys('{\"a\":1,\"b\":2}')", "[a, b]"),
    ("json_keys('{\"c\":{\"a\":1}}', '$.c')", "[a]"),
    ("to_json('x\"')", "\"x\\\"\""),
    ("to_json(1.5::double)", "1.5"),
    ("to_json([1, NULL])", "[1,null]"),
    ("to_json(NULL::int)", "NULL"),
    ("to_json({'a': 1, 'b': NULL})", "{\"a\":1,\"b\":null}"),
    ("to_json(DATE '2024-01-01')", "\"2024-01-01\""),
    ("row_to_json({'a': true})", "{\"a\":true}"),
    ("json_array(1, 'a', NULL, true)", "[1,\"a\",null,true]"),
    ("json_array()", "[]"),
    ("json_object('a', 1, 'b', 'x', 'c', NULL)", "{\"a\":1,\"b\":\"x\",\"c\":null}"),
    ("json_object('a', json_array(1, 2), 'b', '[1]')", "{\"a\":[1,2],\"b\":\"[1]\"}"),
    ("json_build_array(1)", "[1]"),
    ("json_build_object('a', 1)", "{\"a\":1}"),
    ("format('{} of {}, {{{0}}}', 1, 'x')", "1 of x, {1}"),
    ("format('{1} {0}', 'a', 'b')", "b a"),
    ("format('{}', NULL)", "NULL"),
    ("format('%s is %s %%', 1, NULL)", "1 is  %"),
    ("format('%2$s %1$s', 1, 2)", "2 1"),
    ("printf('%s-%d', 'a', 1)", "a-1"),
    ("~5", "-6"),
    ("~(-1) + 1", "1"),
    ("age(TIMESTAMP '2001-04-10', TIMESTAMP '1957-06-13')", "525 mons 27 days"),
    ("age(DATE '2024-03-01', DATE '2024-01-31')", "1 mons 1 days"),
    ("age(NULL::DATE, DATE '2024-01-31')", "NULL"),
    ("age(current_date)", "0 secs"),
    ("time_bucket(INTERVAL '15 minutes', TIMESTAMP '2024-01-01 12:34:56')", "2024-01-01T12:30:00"),
    ("time_bucket(INTERVAL '1 week', DATE '2024-01-10')", "2024-01-08"),
    ("time_bucket(INTERVAL '1 month', DATE '2024-02-29')", "2024-02-01"),
    ("time_bucket(INTERVAL '3 months', TIMESTAMP '2024-02-29 10:00:00')", "2024-01-01T00:00:00"),
    ("time_bucket(INTERVAL '1 day', TIMESTAMP '1969-12-31 10:00:00')", "1969-12-31T00:00:00"),
    (
        "time_bucket(INTERVAL '1 hour', TIMESTAMP '2024-01-01 12:34:56', TIMESTAMP '2024-01-01 00:30:00')",
        "2024-01-01T12:30:00",
    ),
    ("list_value(1, 2, NULL)", "[1, 2, NULL]"),
    ("list_last([3, 1])", "1"),
    ("list_reverse_sort([1, 3, 2])", "[3, 2, 1]"),
    ("list_reverse_sort([1, NULL, 2])", "[2, 1, NULL]"),
    ("1 = all (select 1)", "true"),
    ("2 > all (select 1 union select 3)", "false"),
    ("4 > all (select 1 union select 3)", "true"),
    ("4 > all (select 1 union select NULL)", "NULL"),
    ("0 > all (select 1 union select NULL)", "false"),
    ("0 > all (select 1 where false)", "true"),
    ("0 > any (select 1 where false)", "false"),
    ("2 > any (select 1 union select 3)", "true"),
    ("0 >= some (select 1 union select NULL)", "NULL"),
    ("2 <> any (select 2 union select 3)", "true"),
    ("2 <> any (select 2)", "false"),
    ("2 <> all (select 2 union select 3)", "false"),
    ("2 = all (select 2 union select NULL)", "NULL"),
    ("NULL = all (select 2)", "NULL"),
    ("2 in (select 2 union select 3)", "true"),
    ("2 not in (select 2 union select 3)", "false"),
    ("1 in (select 2 union select NULL)", "NULL"),
    ("NULL in (select 2)", "NULL"),
    ("NULL in (select 2 where false)", "false"),
    ("count(*) from (values (1), (2)) t(x) semi join (values (2), (2)) u(x) using (x)", "1"),
    ("max(t.x) from (values (1), (2)) t(x) anti join (values (2)) u(x) on t.x = u.x", "1"),
    ("exists(select 1)", "true"),
    ("not exists(select 1 where false)", "true"),
    ("exists(select count(*) where false)", "true"),
];

/// Input rows of the aggregates.
const ROWS: &str =
    "(VALUES (1, 'a', NULL, NULL), (2, 'b', 5, NULL), (4, 'd', 7, NULL), (3, NULL, 9, NULL)) t(x, s, y, n)";
const AGGREGATES: &[(&str, &str)] = &[
    ("first(x)", "1"),
    ("last(x)", "3"),
    ("arg_max(s, x)", "d"),
    ("arg_min(s, x)", "a"),
    ("max_by(s, y)", "d"),
    ("min_by(s, y)", "b"),
    ("arg_max(s, x) FILTER (WHERE x < 3)", "b"),
    ("list(x ORDER BY x DESC)", "[4, 3, 2, 1]"),
    ("variance(x)", "1.6666666666666667"),
    ("count_if(x > 1)", "3"),
    ("countif(y > 1)", "3"),
    ("count_star()", "4"),
    ("count_if(x > 1) FILTER (WHERE s <> 'd')", "1"),
    ("bool_and(x > 0)", "true"),
    ("approx_count_distinct(s)", "3"),
    ("group_concat(s)", "a,b,d"),
    ("group_concat(s, '-')", "a-b-d"),
    ("listagg(s, '/')", "a/b/d"),
    ("arg_max(s, n)", "NULL"),
    ("mode(s)", "a"),
    ("mode(x % 2)", "0"),
    ("mode(x = 1)", "false"),
    ("mode(n)", "NULL"),
    ("mode() WITHIN GROUP (ORDER BY y)", "5"),
    ("json_group_array(x)", "[1,2,4,3]"),
    ("json_agg(s)", "[\"a\",\"b\",\"d\",null]"),
];

#[tokio::test]
async fn functions_give_what_they_give_in_duckdb() {
    let aggregates = AGGREGATES.iter().map(|(call, value)| (format!("SELECT {call} FROM {ROWS}"), *value));
    let scalars = SCALARS.iter().map(|(call, value)| (format!("SELECT {call}"), *value));
    let mut wrong = Vec::new();
    for (sql, expected) in scalars.chain(aggregates) {
        let outcome = run(&sql).await;
        if outcome != Ok(vec![expected.to_string()]) {
            wrong.push(format!("{sql}: {outcome:?}, not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn every_function_is_tried() {
    let tried: String = SCALARS.iter().chain(AGGREGATES).map(|(call, _)| format!(" {call}")).collect();
    let is_tried = |name: &str| tried.contains(&format!(" {name}(")) || tried.contains(&format!("({name}("));
    let same = ["iff", "datediff", "arbitrary", "every", "gen_random_uuid", "struct_extract"];
    let missing: Vec<&str> =
        all().map(|f| f.name).filter(|name| !is_tried(name) && !same.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    for (call, value) in [
        ("iff(true, 1, 2)", "1"),
        ("datediff('days', DATE '2024-01-01', DATE '2024-01-03')", "2"),
        ("length(gen_random_uuid())", "36"),
        ("arbitrary(x) FROM (VALUES (1)) t(x)", "1"),
        ("every(x > 0) FROM (VALUES (1), (2)) t(x)", "true"),
        ("struct_extract({a: 1}, 'a')", "1"),
    ] {
        assert_eq!(run(&format!("SELECT {call}")).await, Ok(vec![value.to_string()]), "{call}");
    }
}

#[test]
fn no_function_hides_one_of_the_engine() {
    let session = Session::new(SessionOptions::default());
    let state = session.context().state();
    let is_known = |name: &str| {
        state.scalar_functions().contains_key(name)
            || state.aggregate_functions().contains_key(name)
            || state.window_functions().contains_key(name)
    };
    let both: Vec<&str> = all().map(|f| f.name).filter(|name| is_known(name)).collect();
    assert!(both.is_empty(), "the engine has {both:?}");
    let renamed = all().filter_map(|function| match function.means {
        Means::Same(name) => Some(name),
        Means::Sql(_) | Means::ByUnit(_) => None,
    });
    let unknown: Vec<&str> = renamed.filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty(), "the engine does not have {unknown:?}");
}

#[test]
fn the_page_lists_the_functions() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sql.md")).unwrap();
    let listed = listed();
    assert!(page.contains(&listed), "docs/sql.md does not have:\n{listed}");
    let names: HashSet<&str> = all().map(|function| function.name).collect();
    assert!(names.len() >= 60 && FUNCTIONS.iter().all(|(group, _)| page.contains(group)));
}

#[tokio::test]
async fn calls_that_are_wrong_say_how_they_are_written() {
    for (sql, expected) in [
        ("SELECT (random() IN (SELECT 1))", "changes from call to call"),
        ("SELECT json_extract('{}', '$.*')", "is no path into JSON"),
        ("SELECT format('{:d}', 1)", "has more than values to put in"),
        ("SELECT format('{} {}', 1)", "wants more than 1 values"),
        ("SELECT json_object('a')", "keys and values in turns"),
        ("SELECT time_bucket(x, now()) FROM (VALUES (INTERVAL '1 day')) t(x)", "must be a constant"),
        ("SELECT mod(1)", "mod does not take 1 arguments\n  write mod(x, y)"),
        ("SELECT date_diff('fortnight', now(), now())", "'quarter', 'month'"),
        ("SELECT year(now()) FILTER (WHERE true)", "year is no aggregate"),
        (
            "SELECT arg_max(DISTINCT x, 1) FROM (VALUES (1)) t(x)",
            "DISTINCT, ORDER BY or NULLS within arg_max",
        ),
        ("SELECT regexp_extract(CAST(random() AS VARCHAR), '.')", "more than once"),
    ] {
        let error = run(sql).await.unwrap_err();
        assert!(error.contains(expected), "{sql}: {error}");
    }
    // A short text must not become a huge expression.
    let mut call = "'a'".to_string();
    for _ in 0..14 {
        call = format!("regexp_extract({call}, 'a')");
    }
    let error = run(&format!("SELECT {call}")).await.unwrap_err();
    assert!(error.contains("too large an expression"), "{error}");
}
