//! Tests that joins give the same result in any order that the estimates produce, and that the order follows from the
//! statistics.

use super::{Fake, rows, session, shown};
use crate::Session;
use arrow_array::builder::{Int32Builder, Int64Builder, StringViewBuilder};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A generator of random numbers, which are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

/// Returns a few rows of small numbers. Some are NULL, and one number is frequent. All tables have the same columns.
fn table(random: &mut Random) -> RecordBatch {
    let (mut a, mut b) = (Int32Builder::new(), Int32Builder::new());
    let (mut c, mut s) = (Int64Builder::new(), StringViewBuilder::new());
    for _ in 0..4 + random.below(14) {
        let mut number = |most: usize| match random.below(8) {
            0 => None,
            1 | 2 => Some(3),
            _ => Some(random.below(most) as i32),
        };
        a.append_option(number(9));
        b.append_option(number(14));
        c.append_option(number(20).map(i64::from));
        s.append_option(number(5).map(|v| format!("name {v}")));
    }
    let columns: [(&str, ArrayRef); 4] = [
        ("a", Arc::new(a.finish())),
        ("b", Arc::new(b.finish())),
        ("c", Arc::new(c.finish())),
        ("s", Arc::new(s.finish())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

/// Creates a query that joins three to six relations, each with an earlier one, some in a cycle, with some other
/// conditions.
fn query(random: &mut Random) -> String {
    let (mut relations, mut conditions) = (Vec::new(), Vec::new());
    let count = 3 + random.below(4);
    for i in 0..count {
        let table = random.below(4);
        relations.push(match random.below(7) {
            0 => format!("(SELECT a, b, min(c) AS c, max(s) AS s FROM r{table} GROUP BY a, b) x{i}"),
            1 => format!("(SELECT DISTINCT a, b, c, s FROM r{table} WHERE b < 9) x{i}"),
            _ => format!("r{table} x{i}"),
        });
        let others = if i == 0 { 0 } else { 1 + random.below(4) / 3 };
        for _ in 0..others {
            let keys = random.pick(&["a = a", "a = b", "b = b", "b = a", "c = c", "s = s", "a = c"]);
            let (left, right) = keys.split_once(" = ").unwrap();
            conditions.push(format!("x{i}.{left} = x{}.{right}", random.below(i)));
        }
    }
    for _ in 0..random.below(4) {
        let (i, j, n) = (random.below(count), random.below(count), random.below(9));
        conditions.push(match random.below(7) {
            0 => format!("x{i}.b < x{j}.b + {n}"),
            1 => format!("(x{i}.a = {n} OR x{j}.s > 'name 1')"),
            2 => format!("x{i}.b = x{j}.b"),
            3 => format!("EXISTS (SELECT 1 FROM r1 z WHERE z.a = x{i}.a AND z.b <> x{i}.b)"),
            4 => format!("x{i}.a NOT IN (SELECT b FROM r2 WHERE b > {n})"),
            _ => format!("x{i}.a <> {n}"),
        });
    }
    let last = count - 1;
    let (from, conditions) = (relations.join(", "), conditions.join(" AND "));
    let inner = format!(
        "SELECT x0.a AS a, x0.s AS s, x1.b AS b, x2.c AS c, x{last}.a + x1.a AS d FROM {from} WHERE {conditions}"
    );
    match random.below(4) {
        0 => format!(
            "SELECT j.s, count(*), sum(j.d), max(y.b) FROM ({inner}) j LEFT JOIN r3 y ON y.a = j.b GROUP BY j.s"
        ),
        1 => format!("SELECT count(*), sum(j.c) FROM ({inner}) j JOIN r0 y ON y.b = j.a WHERE y.a < 8"),
        _ => format!("SELECT count(*), count(a), sum(b), min(c), sum(d), max(s) FROM ({inner}) j"),
    }
}

async fn sides(random: &mut Random) -> (SessionContext, Vec<(String, Session)>) {
    let tables: Vec<RecordBatch> = (0..4).map(|_| table(random)).collect();
    let alone = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
    for (i, batch) in tables.iter().enumerate() {
        let table = MemTable::try_new(batch.schema(), vec![vec![batch.clone()]]).unwrap();
        alone.register_table(format!("r{i}"), Arc::new(table)).unwrap();
    }
    let mut sessions = Vec::new();
    for (remote, misleads) in [(false, None), (true, Some(random.below(1000) as u64)), (false, Some(7))] {
        let mut fake = Fake { remote, misleads, gathers: true, ..Fake::default() };
        for (i, batch) in tables.iter().enumerate() {
            fake = fake.with(&format!("r{i}"), vec![batch.clone()]).await;
        }
        let name = format!("remote: {remote}, misled by {misleads:?}");
        sessions.push((name, session(&Arc::new(fake), true).await));
    }
    (alone, sessions)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_joins_agree_whatever_is_estimated() {
    let mut random = Random(20);
    for _ in 0..4 {
        let (alone, sessions) = sides(&mut random).await;
        for _ in 0..12 {
            let sql = query(&mut random);
            let mut expected = shown(&alone.sql(&sql).await.unwrap().collect().await.unwrap());
            expected.sort();
            for (name, session) in &sessions {
                let mut found = rows(session, &sql).await.unwrap_or_else(|e| panic!("{name}: {sql}: {e}"));
                found.sort();
                assert_eq!(found, expected, "{name}: {sql}");
            }
        }
    }
}

fn numbers(columns: &[(&str, Vec<i64>)]) -> Vec<RecordBatch> {
    let columns = columns.iter().map(|(name, v)| (*name, Arc::new(Int64Array::from(v.clone())) as ArrayRef));
    vec![RecordBatch::try_from_iter(columns).unwrap()]
}

/// Creates a pool with two tables. Each of 2000 join keys occurs four times; with `frequent`, every second row has the
/// same key.
async fn events(frequent: bool) -> Arc<Fake> {
    let of = |salt: i64| {
        (0..8000).map(move |i| if frequent && i % 2 == 0 { 7 } else { i * salt % 2000 }).collect()
    };
    let fake = Fake { gathers: true, ..Fake::default() }
        .with("clicks", numbers(&[("who", of(3)), ("page", (0..8000).collect())]))
        .await
        .with("views", numbers(&[("who", of(7))]))
        .await
        .with("pages", numbers(&[("page", (0..80000).map(|i| i % 8000).collect())]))
        .await;
    Arc::new(fake)
}

#[tokio::test]
async fn what_many_rows_have_in_common_is_joined_last() {
    let sql = "SELECT count(*) FROM clicks, views, pages \
               WHERE clicks.who = views.who AND clicks.page = pages.page";
    for (frequent, first) in [(false, "views"), (true, "pages")] {
        let pool = events(frequent).await;
        let session = session(&pool, true).await;
        let explained = session.sql(sql).await.unwrap().explain();
        let last = explained.rsplit("HashJoinExec").next().unwrap();
        assert!(last.contains("clicks") && last.contains(first), "{explained}");
        session.sql(sql).await.unwrap();
        let asked = pool.asked.load(Ordering::Relaxed);
        assert_eq!(asked, 2, "once for a version of a table, and only where both sides repeat keys");
    }
}

#[tokio::test]
async fn what_was_expected_of_joins_is_told_beside_what_came() {
    let pool = events(false).await;
    let session = session(&pool, true).await;
    let query = session
        // What is counted is of both sides, so that neither is grouped before.
        .sql(
            "SELECT count(CASE WHEN clicks.who = views.who THEN 1 END) \
             FROM clicks JOIN views ON clicks.who = views.who WHERE clicks.page < 4000",
        )
        .await
        .unwrap();
    assert!(!query.outcome().contains("join"), "nothing has run");
    assert_eq!(shown(&query.collect().await.unwrap()), ["16000"]);
    let outcome = query.outcome();
    let line = outcome.lines().find(|line| line.starts_with("join on who = who: ")).expect(&outcome);
    assert!(line.ends_with("; 16000 rows seen"), "{line}");
    let expected = line.split([':', ' ']).filter_map(|word| word.parse::<f64>().ok()).next().unwrap();
    assert!((expected / 16000.0 - 1.0).abs() < 0.2, "{line}");
}

#[tokio::test]
async fn a_smaller_side_that_one_thread_can_build_is_not_divided() {
    // The build side has more rows than DataFusion would build a hash table of with one thread, and too few to be worth
    // partitioning among three threads.
    let pool = Fake::default()
        .with("small", numbers(&[("k", (0..150_000).collect())]))
        .await
        .with("large", numbers(&[("k", (0..400_000).collect())]))
        .await;
    let session = session(&Arc::new(pool), true).await;
    for (kind, mode, rows) in [("JOIN", "CollectLeft", 150_000), ("RIGHT JOIN", "Partitioned", 400_000)] {
        let sql = format!("SELECT count(*) FROM small {kind} large ON small.k = large.k");
        let query = session.sql(sql.as_str()).await.unwrap();
        assert!(query.explain().contains(&format!("mode={mode}")), "{}", query.explain());
        assert_eq!(shown(&query.collect().await.unwrap()), [rows.to_string()]);
    }
}
