//! Queries that DataFusion alone answers incorrectly or not at all, for which this project has rules. If a test fails
//! here, a rule may no longer be needed.

use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::prelude::SessionContext;

const TABLES: &[&str] = &[
    "create table o(id int, g int) as values (1, 10), (2, 20), (null, 30), (4, 40)",
    "create table i(id int, g int) as values (1, 5), (null, 50), (5, 10)",
    "create table n(id int not null) as values (1), (3)",
    "create table p(x int, y int) as values (1, null), (null, 2)",
    "create table q(x int, y int) as values (1, null), (null, 2)",
];

/// Cases: the project's rule, the upstream issue, the query, and its correct rows.
const CASES: &[(&str, &str, &str, &[&str])] = &[
    (
        "subqueries/attach.rs (NOT IN of constants)",
        "apache/datafusion#25473",
        "select count(*) from o where cast(null as int) not in (select id from n)",
        &["0"],
    ),
    (
        "subqueries/attach.rs (correlated NOT IN)",
        "apache/datafusion#25347",
        "select o.id from o where 3 not in (select i.id from i where i.g = o.g + 20) order by 1",
        &["1", "2", "4"],
    ),
    (
        "subqueries/attach.rs (NOT IN with an inequality)",
        "apache/datafusion#25336",
        "select id from o where id not in (select i.id from i where i.g < o.g) and id > 1 order by 1",
        &["2", "4"],
    ),
    (
        "subqueries/attach.rs (NOT IN correlated by its own column)",
        "apache/datafusion#25480",
        "select id from o where id not in (select i.id from i where i.id = o.id) order by id",
        &["2", "4", "NULL"],
    ),
    (
        "subqueries/exists.rs (EXISTS of an aggregate)",
        "apache/datafusion#24960",
        "select count(*) from o where exists (select count(*) from i where i.id = o.id)",
        &["4"],
    ),
    (
        "subqueries/push (LIMIT and OFFSET)",
        "apache/datafusion#25283",
        "select count(*) from o where exists (select 1 from i where i.id = o.id offset 1)",
        &["0"],
    ),
    (
        "subqueries/push (grouping sets)",
        "apache/datafusion#25519",
        "select count(*) from o where exists (select 1 from i where i.id = o.id group by rollup(i.id))",
        &["4"],
    ),
    (
        "subqueries/joins.rs (LATERAL with HAVING)",
        "apache/datafusion#21198",
        "select o.id, l.n from o, lateral (select count(*) n from i where i.id = o.id having count(*) > 0) l order by 1",
        &["1|1"],
    ),
    (
        "using.rs",
        "apache/datafusion#22881",
        "select id from o full join n using (id) order by id",
        &["1", "2", "3", "4", "NULL"],
    ),
    (
        "restricted.rs (extract_equijoin_predicate, eliminate_cross_join)",
        "apache/datafusion#12458",
        "select count(*) from (select p.y a, q.y b from p join q on p.x is not distinct from q.x) s where a = b",
        &["1"],
    ),
    (
        "types/exact.rs (places of round)",
        "not reported",
        "select case when x > 5 then null else round(x, 2) end from (select cast(1.236 as decimal(20, 10)) as x)",
        &["1.24"],
    ),
    ("restricted.rs (push_down_filter)", "not reported", "select count(*) from o having random() < 0", &[]),
];

/// Returns the rows that DataFusion returns without the project's rules; `None` if it fails.
async fn plain_rows(context: &SessionContext, sql: &str) -> Option<Vec<String>> {
    let batches = context.sql(sql).await.ok()?.collect().await.ok()?;
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in &batches {
        let columns: Vec<ArrayFormatter<'_>> =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
        for row in 0..batch.num_rows() {
            let cells: Vec<String> = columns.iter().map(|column| column.value(row).to_string()).collect();
            rows.push(cells.join("|"));
        }
    }
    Some(rows)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstream_is_still_wrong_where_rules_of_ours_are_right() {
    let (context, session) = (SessionContext::new(), crate::Session::new(crate::SessionOptions::default()));
    for table in TABLES {
        context.sql(table).await.unwrap().collect().await.unwrap();
        session.sql(*table).await.unwrap().collect().await.unwrap();
    }
    for (rule, issue, sql, right) in CASES {
        let right: Vec<String> = right.iter().map(ToString::to_string).collect();
        assert_eq!(super::rows(&session, sql).await.as_ref(), Ok(&right), "{rule}: {sql}");
        let plain = plain_rows(&context, sql).await;
        assert_ne!(
            plain,
            Some(right),
            "upstream answers this rightly now ({issue}): rule {rule} can go: {sql}"
        );
    }
}
