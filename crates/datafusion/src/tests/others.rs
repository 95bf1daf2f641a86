//! Tests of statements that DataFusion refuses or answers differently, with results as in DuckDB.

use super::{Fake, rows, session};
use crate::Session;
use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringViewArray};
use std::sync::Arc;

/// Returns sessions with the test tables `a` (numbers, strings and booleans) and `b` (numbers and strings).
pub(super) async fn sessions() -> Vec<(&'static str, Session)> {
    let numbers = |numbers: &[Option<i64>]| Arc::new(Int64Array::from(numbers.to_vec())) as ArrayRef;
    let texts = |texts: &[&str]| Arc::new(StringViewArray::from_iter_values(texts)) as ArrayRef;
    let conditions = BooleanArray::from(vec![Some(true), Some(false), Some(true), None]);
    let a = [
        ("x", numbers(&[Some(1), Some(2), Some(3), None])),
        ("s", texts(&["a", "b", "a", "c"])),
        ("b", Arc::new(conditions) as ArrayRef),
    ];
    let b = [("y", numbers(&[Some(2), Some(3), Some(3), None])), ("s", texts(&["a", "b", "c", "d"]))];
    let table = |columns: Vec<(&str, ArrayRef)>| {
        let columns = columns.into_iter().map(|(name, column)| (name, column, true));
        vec![RecordBatch::try_from_iter_with_nullable(columns).unwrap()]
    };
    let (a, b) = (table(a.to_vec()), table(b.to_vec()));
    let mut sessions = Vec::new();
    for (name, pushdown) in [("pushed", true), ("not pushed", false)] {
        let pool = Fake::default().with("a", a.clone()).await.with("b", b.clone()).await;
        sessions.push((name, session(&Arc::new(pool), pushdown).await));
    }
    sessions
}

pub(super) async fn are(cases: &[(&str, &[&str])]) {
    for (name, session) in sessions().await {
        for (sql, expected) in cases {
            let sql = format!("select {sql}");
            let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
            assert_eq!(rows(&session, &sql).await.as_ref(), Ok(&expected), "{name}: {sql}");
        }
    }
}

const EXISTS: &[(&str, &[&str])] = &[
    (
        "x, exists (select 1 from b where b.y > a.x) from a order by x",
        &["1|true", "2|true", "3|false", "NULL|false"],
    ),
    (
        "x, not exists (select * from b where b.y < a.x) as none from a order by x",
        &["1|true", "2|true", "3|false", "NULL|true"],
    ),
    (
        "x, exists (select y from b where b.y > a.x and b.s = a.s) from a order by x",
        &["1|true", "2|true", "3|false", "NULL|false"],
    ),
    (
        "x, exists (select 1 from b where b.y > a.x and b.s <> 'b') from a order by x",
        &["1|true", "2|true", "3|false", "NULL|false"],
    ),
    (
        "x, exists (select 1 from b where b.y is not distinct from a.x) from a order by x",
        &["1|false", "2|true", "3|true", "NULL|true"],
    ),
    (
        "x, exists (select 1 from b where b.y > a.x or b.s = 'd') from a order by x",
        &["1|true", "2|true", "3|true", "NULL|true"],
    ),
    (
        "x, exists (select 1 from b where b.y between a.x and a.x + 1 order by y) from a order by x",
        &["1|true", "2|true", "3|true", "NULL|false"],
    ),
    (
        "x, exists (select 1 from b where b.y > 2), exists (select 1 from b where b.y > 5) from a order by x",
        &["1|true|false", "2|true|false", "3|true|false", "NULL|true|false"],
    ),
    (
        "x, case when exists (select 1 from b where b.y <= a.x) then 'some' else 'none' end from a order by x",
        &["1|none", "2|some", "3|some", "NULL|none"],
    ),
    ("sum(case when exists (select 1 from b where b.y > a.x) then 1 else 0 end) from a", &["2"]),
    (
        "s, count(*), exists (select 1 from b where b.s > a.s) from a group by s order by s",
        &["a|2|true", "b|1|true", "c|1|true"],
    ),
    (
        "x, exists (select 1 from b where b.y > a.x) as e, exists (select 1 from a as q where q.x > a.x) as f from a order by x",
        &["1|true|true", "2|true|true", "3|false|false", "NULL|false|false"],
    ),
    (
        "x, exists (select 1 from (select y + 1 as z from b) q where q.z > a.x + 1) from a order by x",
        &["1|true", "2|true", "3|false", "NULL|false"],
    ),
    (
        "x, exists (select 1 from b join b as d on b.s = d.s where b.y > a.x and d.y >= a.x) from a order by x",
        &["1|true", "2|true", "3|false", "NULL|false"],
    ),
    (
        "x, sum(case when exists (select 1 from b where b.y > a.x) then 1 else 0 end) over (order by x) from a order by x",
        &["1|1", "2|2", "3|2", "NULL|2"],
    ),
    (
        "x, exists (select 1 from b where b.y > a.x limit 1) from a order by x",
        &["1|true", "2|true", "3|false", "NULL|false"],
    ),
    (
        "x, exists (select y from b group by y having count(*) > 1) from a order by x",
        &["1|true", "2|true", "3|true", "NULL|true"],
    ),
    ("exists (select 1 from b where b.y > 2)", &["true"]),
    (
        "exists (select 1 from b where b.y > a.x) as e, count(*) from a group by e order by e",
        &["false|2", "true|2"],
    ),
    (
        "x, exists (select 1 from b join b as c on b.y > a.x and c.y = b.y) from a order by x",
        &["1|true", "2|true", "3|false", "NULL|false"],
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exists_is_a_value() {
    are(EXISTS).await;
}

/// Scalar subqueries with outer references other than by equality, or at positions where the engine supports none.
const SCALARS: &[(&str, &[&str])] = &[
    ("x, (select count(*) from b where b.y > a.x) from a order by x", &["1|3", "2|2", "3|0", "NULL|0"]),
    (
        "x, (select count(*) from b where b.y > a.x) as n, (select sum(b.y) from b where b.y < a.x) as m from a order by x",
        &["1|3|NULL", "2|2|NULL", "3|0|2", "NULL|0|NULL"],
    ),
    (
        "x, (select sum(b.y) from b where b.y >= a.x) + x from a order by x",
        &["1|9", "2|10", "3|9", "NULL|NULL"],
    ),
    (
        "x, (select max(s) from b where b.y > a.x and b.s <> a.s) from a order by x",
        &["1|c", "2|c", "3|NULL", "NULL|NULL"],
    ),
    (
        "x, (select count(*) from b where b.y > a.x and b.s = a.s) from a order by x",
        &["1|1", "2|1", "3|0", "NULL|0"],
    ),
    (
        "x, (select count(*) + coalesce(sum(y), -1) from b where b.y > a.x) from a order by x",
        &["1|11", "2|8", "3|-1", "NULL|-1"],
    ),
    (
        "x, (select sum(b.y * a.x) from b where b.s = a.s) from a order by x",
        &["1|2", "2|6", "3|6", "NULL|NULL"],
    ),
    ("x, (select sum(y) + a.x from b) from a order by x", &["1|9", "2|10", "3|11", "NULL|NULL"]),
    (
        "x, (select count(*) from b where b.y > a.x having count(*) > 1) from a order by x",
        &["1|3", "2|2", "3|NULL", "NULL|NULL"],
    ),
    (
        "x, (select count(distinct y) from b where b.y >= a.x) from a order by x",
        &["1|2", "2|2", "3|1", "NULL|0"],
    ),
    (
        "x, (select count(*) filter (where s <> 'c') from b where b.y >= a.x) from a order by x",
        &["1|2", "2|2", "3|1", "NULL|0"],
    ),
    (
        "x, (select string_agg(s, '+' order by s desc) from b where b.y >= a.x) from a order by x",
        &["1|c+b+a", "2|c+b+a", "3|c+b", "NULL|NULL"],
    ),
    ("x from a where (select count(*) from b where b.y > a.x) = 3 order by x", &["1"]),
    ("x from a where (select count(*) from b where b.y > a.x) < 1 and x is not null", &["3"]),
    (
        "x, (select min(z) from (select y + 1 as z from b) q where q.z > a.x) from a order by x",
        &["1|3", "2|3", "3|4", "NULL|NULL"],
    ),
    (
        "x, (select count(*) from (select y from b order by y) q where q.y > a.x) from a order by x",
        &["1|3", "2|2", "3|0", "NULL|0"],
    ),
    (
        "x, (select count(*) from b join b as d on b.s = d.s where b.y > a.x) from a order by x",
        &["1|3", "2|2", "3|0", "NULL|0"],
    ),
    ("sum((select count(*) from b where b.y > a.x)) from a", &["5"]),
    ("s, sum((select count(*) from b where b.y > a.x)) from a group by s order by s", &["a|3", "b|2", "c|0"]),
    (
        "(select count(*) from b where b.y > a.x) as n, count(*) from a group by n order by n",
        &["0|2", "2|1", "3|1"],
    ),
    (
        "x, sum((select count(*) from b where b.y > a.x)) over (order by x) from a order by x",
        &["1|3", "2|5", "3|5", "NULL|5"],
    ),
    ("x from a order by (select count(*) from b where b.y > a.x) desc, x", &["1", "2", "3", "NULL"]),
    ("x, (select count(*) from a as o where o.x < a.x) from a order by x", &["1|0", "2|1", "3|2", "NULL|0"]),
    (
        "x, (select count(*) from b where b.y > a.x) from (select * from a order by x limit 2) a order by x",
        &["1|3", "2|2"],
    ),
    (
        "x, (select avg(y) from b where b.y is not distinct from a.x or b.s = 'a') from a order by x",
        &["1|2.0", "2|2.0", "3|2.6666666666666665", "NULL|2.0"],
    ),
    (
        "x, case when (select count(*) from b where b.y > a.x) > 1 then 'many' else 'few' end from a order by x",
        &["1|many", "2|many", "3|few", "NULL|few"],
    ),
    (
        "x, (select count(*) from b where b.y > a.x) from a union all select 7, 8 order by 1",
        &["1|3", "2|2", "3|0", "7|8", "NULL|0"],
    ),
    (
        "x, (select count(*) from b where b.y > a.x and exists (select 1 from a as o where o.x = y)) from a order by x",
        &["1|3", "2|2", "3|0", "NULL|0"],
    ),
    (
        "n, count(*) from (select (select count(*) from b where b.y > a.x) as n from a) q group by n order by n",
        &["0|2", "2|1", "3|1"],
    ),
    (
        "a.x, d.y, (select count(*) from b where b.y between a.x and d.y) from a join b as d on a.s = d.s order by 1, 2",
        &["1|2|1", "2|3|3", "3|2|0", "NULL|3|0"],
    ),
    (
        "x, (select count(*) from b where b.y > a.x and a.s = 'a') from a order by x",
        &["1|3", "2|0", "3|0", "NULL|0"],
    ),
    (
        "x, (select count(*) from b where b.y > a.x), (select count(*) from b where b.y < a.x) from a order by 3, 2, 1",
        &["NULL|0|0", "2|2|0", "1|3|0", "3|0|1"],
    ),
    ("count(x in (select y from b where y = 2)) from a", &["3"]),
    // For an outer row without matching rows the subquery is not evaluated (so that its division cannot fail), and the
    // row keeps its own values.
    (
        "x, (select sum(b.y / (a.x - 3)) from b where b.y > a.x and b.y < 3) from a order by x",
        &["1|-1", "2|NULL", "3|NULL", "NULL|NULL"],
    ),
    (
        "x, (select sum(1 / coalesce(b.y, 0)) from b where b.y > a.x + 1 and b.y > 2) from a order by x",
        &["1|0", "2|NULL", "3|NULL", "NULL|NULL"],
    ),
    (
        "x, (select count(*) filter (where 1 / (a.x - 3) > b.y) from b where b.y > a.x) from a order by x",
        &["1|0", "2|0", "3|0", "NULL|0"],
    ),
    (
        "z, (select count(*) from b where b.y > z) from (values (-0.0::double), (0.0::double)) q(z) order by 1, 2",
        &["-0.0|3", "0.0|3"],
    ),
    (
        "l, i, (select count(*) from b where b.y > x) from (select x, [x] as l, interval '1 day' * x as i from a where x < 3) q order by l",
        &["[1]|1 days|3", "[2]|2 days|2"],
    ),
    (
        "x, x > all (select y from b where b.s = a.s) from a order by x",
        &["1|false", "2|false", "3|true", "NULL|NULL"],
    ),
    (
        "x, x in (select y from b where b.y >= a.x) from a order by x",
        &["1|false", "2|true", "3|true", "NULL|false"],
    ),
    (
        "x, x <> any (select y from b where b.s > a.s) from a order by x",
        &["1|true", "2|true", "3|NULL", "NULL|NULL"],
    ),
    (
        "x, (select count(*) from (select y from b where b.s = a.s) r) from a order by x",
        &["1|1", "2|1", "3|1", "NULL|1"],
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aggregates_of_the_rows_that_belong_to_a_row() {
    are(SCALARS).await;
    let (_, session) = sessions().await.swap_remove(0);
    for sql in [
        "select (select sum(a.x) from b) from a",
        "select (select max(a.x + 1) from b where b.y > a.x) from a",
    ] {
        let error = rows(&session, sql).await.unwrap_err();
        assert!(error.message.contains("belongs to that query"), "{sql}: {error:?}");
    }
}

/// Grouping sets over a filter by which a group key has one value: the key is constant in the input rows, but not in
/// the result.
const SETS: &[(&str, &[&str])] = &[
    (
        "x, s, count(*) from a where x = 1 group by rollup (x, s) order by x, s",
        &["1|a|1", "1|NULL|1", "NULL|NULL|1"],
    ),
    (
        "x, s, count(*) from a where x = 1 group by rollup (x, s) order by x desc nulls last, s nulls first",
        &["1|NULL|1", "1|a|1", "NULL|NULL|1"],
    ),
    ("x, count(*) from a where x = 3 group by cube (x) order by x nulls first", &["NULL|1", "3|1"]),
    (
        "s, x, count(*) from a where s = 'a' group by grouping sets ((s, x), (x), ()) order by s, x",
        &["a|1|1", "a|3|1", "NULL|1|1", "NULL|3|1", "NULL|NULL|2"],
    ),
    (
        "s, n from (select s, count(*) as n from a where s = 'a' group by rollup (s)) q order by s nulls first limit 1",
        &["NULL|2"],
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_sets_are_sorted_whatever_a_filter_says() {
    are(SETS).await;
}

const FRAMES: &[(&str, &[&str])] = &[
    (
        "x, bool_and(b) over (order by x rows between 1 preceding and current row) from a order by x",
        &["1|true", "2|false", "3|false", "NULL|true"],
    ),
    (
        "x, bool_or(b) over (order by x desc nulls last rows between 1 preceding and current row) from a order by x",
        &["1|true", "2|true", "3|true", "NULL|true"],
    ),
    (
        "x, bool_and(b) over (order by x range between 1 preceding and 1 following) from a order by x",
        &["1|false", "2|false", "3|false", "NULL|NULL"],
    ),
    (
        "x, bool_or(b) filter (where x > 1) over (order by x rows between 1 preceding and 1 following) from a order by x",
        &["1|false", "2|true", "3|true", "NULL|true"],
    ),
    ("bool_and(b), bool_or(b), bool_and(b) filter (where x > 5) from a", &["false|true|NULL"]),
    (
        "s, bool_and(b), bool_or(b) from a group by s order by s",
        &["a|true|true", "b|false|false", "c|NULL|NULL"],
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_are_folded_in_frames_that_move() {
    are(FRAMES).await;
}
