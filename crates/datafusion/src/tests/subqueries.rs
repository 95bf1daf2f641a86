//! Tests of hand-written subqueries and joins with merged keys; `testdata/subqueries` has random ones.

use super::others::{are, sessions};
use super::rows;

const CASES: &[(&str, &[&str])] = &[
    ("x from a where 1 not in (select y from b)", &[]),
    ("x from a where 1 not in (select y from b where y > 2) order by x", &["1", "2", "3", "NULL"]),
    ("x from a where nullif(x, x) not in (select y from b where y > 2)", &[]),
    ("x from a where x not in (select y from b where b.s = a.s) order by x", &["1", "2", "3"]),
    ("x from a where exists (select count(*) from b where b.y = a.x) order by x", &["1", "2", "3", "NULL"]),
    ("x from a where 0 in (select count(*) from b where b.y = a.x) order by x", &["1", "NULL"]),
    ("x from a where exists (select 1 from b where b.y >= a.x offset 2) order by x", &["1", "2"]),
    (
        "x, (select max(n) from (select row_number() over (order by s) n from b where b.y >= a.x) q) from a order by x",
        &["1|3", "2|3", "3|2", "NULL|NULL"],
    ),
    (
        "x, (select s from b where b.y = a.x and b.s <> 'b') from a order by x",
        &["1|NULL", "2|a", "3|c", "NULL|NULL"],
    ),
    (
        "x, (select s from b where b.y >= a.x order by s desc limit 1) from a order by x",
        &["1|c", "2|c", "3|c", "NULL|NULL"],
    ),
    (
        "x, l.y from a, lateral (select y from b where b.s = a.s order by y limit 1) l order by x",
        &["1|2", "2|3", "3|2", "NULL|3"],
    ),
    (
        "x, l.n from a, lateral (select count(*) n from b where b.y > a.x having count(*) > 1) l order by x",
        &["1|3", "2|2"],
    ),
    (
        "x, l.s from a left join lateral (select s from b where b.y = a.x) l on true order by 1, 2",
        &["1|NULL", "2|a", "3|b", "3|c", "NULL|NULL"],
    ),
    ("x from a where (x, s) in (select y - 1, s from b) order by x", &["1", "2"]),
    ("x from a where (x, s) not in (select y, s from b) order by x", &["1", "2", "3"]),
    (
        "x, (select count(*) from b where exists (select 1 from a c where c.x = a.x and c.s = b.s)) from a order by x",
        &["1|1", "2|1", "3|1", "NULL|0"],
    ),
    ("y from b where exists (select 1 from a where a.x = b.y and a.s = 'b')", &["2"]),
    ("v from (select 1 x, [1, 2] l) t, unnest(t.l) u(v) order by v", &["1", "2"]),
    (
        "* from (with q as (select 1 z), r as (with q as (select z + 1 z from q) select z from q) select (select z from q) + (select z from r) as n) t",
        &["3"],
    ),
    ("s, x, y from a full join b using (s) where s > 'a' order by s", &["b|2|3", "c|NULL|3", "d|NULL|NULL"]),
    ("s, a.s, b.s from a right join b using (s) where s = 'd'", &["d|NULL|d"]),
    ("count(*) from a natural join b", &["4"]),
    // NULL equals NULL when the distinct outer values (the domain of a subquery) are joined back, but not in a
    // comparison that the query contains.
    (
        "x, x in (select max(y) from b where b.s > a.s) from a order by x",
        &["1|false", "2|false", "3|true", "NULL|NULL"],
    ),
    ("count(*) from (select a.x, b.y from a join b on a.s is not distinct from b.s) t where x = y", &["0"]),
    (
        "x from a where cast(null as int) not in (select max(y) from b having count(*) = 0) order by x",
        &["1", "2", "3", "NULL"],
    ),
    ("count(*) from a where exists (select 1 from b where b.y = a.x group by rollup(b.s))", &["4"]),
    ("count(*) from b having random() < 0", &[]),
    (
        "x, cast(null as bigint) not in (select min(y) from b) from a order by x",
        &["1|NULL", "2|NULL", "3|NULL", "NULL|NULL"],
    ),
    (
        "x, l.y from a, lateral (select y from b where exists (select 1 from a c where c.x = a.x and c.s = b.s) qualify row_number() over (order by y) = 1) l order by x",
        &["1|2", "2|3", "3|2"],
    ),
    (
        "x, (select max(s) from b where b.y::double = coalesce(a.x, 2)::double and b.y = a.x) from a order by x",
        &["1|NULL", "2|a", "3|c", "NULL|NULL"],
    ),
    ("x from a order by (select count(*) from b where b.s > a.s), x", &["NULL", "2", "1", "3"]),
    ("x, (select count(*) from b having count(*) > 9) from a where x = 1", &["1|NULL"]),
    ("a.* from a full join b using (s) where b.s is null", &[]),
    ("b.*, s from a full join b using (s) order by s, y", &["2|a|a", "2|a|a", "3|b|b", "3|c|c", "NULL|d|d"]),
    (
        "q.s, q.n from (select s, count(a.s) n from a right join b using (s) group by s) q order by s",
        &["a|2", "b|1", "c|1", "d|0"],
    ),
    ("x.* from (select b.* from a right join b using (s)) x where x.s = 'd'", &["NULL|d"]),
    ("y from b where exists (select 1 from a join (select 'a' s) q using (s) where s = b.s)", &["2"]),
    (
        "s, b.s from a full join b using (s) where exists (select 1 from b c where c.s = b.s and c.y = 2) order by b.s",
        &["a|a", "a|a"],
    ),
    (
        "s, row_number() over (order by s, x) from a left join b using (s) where b.s <> 'c' order by 2",
        &["a|1", "a|2", "b|3"],
    ),
    (
        "a.s, a.x from a left join b using (s) left join (select 'a' s, 1 x) c using (s, x) where c.x is not null",
        &["a|1"],
    ),
    (
        "s, count(*) from a full join b using (s) full join (select 'e' s) c using (s) group by s order by s",
        &["a|2", "b|1", "c|1", "d|1", "e|1"],
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subqueries_are_right_in_every_form() {
    are(CASES).await;
    for (name, session) in sessions().await {
        for (sql, why) in [
            (
                "select x, (select y from b where b.y >= a.x) from a",
                "more than one row returned by a subquery",
            ),
            (
                "select x from a where 1 in (select count(*) from b where b.y = a.x group by rollup(b.s))",
                "ROLLUP, CUBE and the empty grouping set",
            ),
            ("select count(*) from a join b", "has no condition"),
            ("select count(*) from a left join b", "has no condition"),
        ] {
            let error = rows(&session, sql).await.unwrap_err();
            assert!(error.message.contains(why), "{name}: {sql}: {error:?}");
        }
    }
}
