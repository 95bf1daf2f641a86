//! Tests of SQL as users see it: names, errors, explanations, execution statistics, and statements that change something.

use super::{Fake, filled, rows, rows_of_t, session};
use crate::{FileAccess, FileOpener, PoolTable, split_statements};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use farpool_model::{Answer, Error, ErrorKind, FileSpec, LoadMode, Result, TableName};
use farpool_transfer::Pool;
use futures::StreamExt;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[test]
fn semicolons_cut_only_between_statements() {
    let text = "SELECT ';' -- one;\n;\n\n/* ; */ SELECT \"a;b\", $$ ; $$, 'it''s;' ;; \nSELECT 3";
    let statements = split_statements(text).unwrap();
    let cut: Vec<(&str, u64)> = statements.iter().map(|s| (s.text.as_str(), s.line)).collect();
    assert_eq!(cut, [("SELECT ';' -- one;", 1), ("SELECT \"a;b\", $$ ; $$, 'it''s;'", 4), ("SELECT 3", 5)]);
    assert_eq!(split_statements(" -- nothing\n ; ").unwrap(), []);
    assert_eq!(split_statements("SELECT 'ä' ; SELECT 'ö'").unwrap()[1].text, "SELECT 'ö'");
    let error = split_statements("SELECT 1;\nSELECT 'open").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.message.contains("line 2"), "{error}");
}

async fn error(sql: &str) -> Error {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    match session.sql(sql).await {
        Ok(query) => query.collect().await.unwrap_err(),
        Err(error) => error,
    }
}

#[tokio::test]
async fn errors_show_the_place_and_what_to_do() {
    let syntax = error("SELECT id\nFROM t WHER k = 1 1").await;
    assert_eq!(syntax.kind, ErrorKind::Invalid);
    assert!(syntax.message.starts_with("syntax error: "), "{syntax}");
    assert!(syntax.message.contains("(line 2, column "), "{syntax}");
    assert!(syntax.message.contains("\n  FROM t WHER k = 1 1\n"), "{syntax}");
    assert!(syntax.message.trim_end().ends_with('^'), "{syntax}");

    let column = error("SELECT dayy FROM t").await;
    assert_eq!(column.kind, ErrorKind::NotFound);
    assert!(column.message.starts_with("there is no column dayy (line 1, column 8)"), "{column}");
    assert_eq!(column.advice.as_deref(), Some("did you mean day?"));

    let table = error("SELECT 1 FROM dims").await;
    assert_eq!(table.kind, ErrorKind::NotFound);
    assert!(table.message.starts_with("there is no table dims (line 1, column 15)"), "{table}");
    assert_eq!(table.advice.as_deref(), Some("did you mean dim?"));

    let function = error("SELECT sumx(k) FROM t").await;
    assert_eq!(function.message.lines().next(), Some("there is no function sumx (line 1, column 8)"));
    assert_eq!(function.advice.as_deref(), Some("did you mean sum?"));
    let qualified = error("SELECT a.k FROM dim b").await;
    assert_eq!(qualified.advice.as_deref(), Some("did you mean b.k?"));
    let missing = error("SELECT 1 FROM elsewhere.public.t").await;
    assert!(missing.message.starts_with("there is no table elsewhere.public.t (line 1"), "{missing}");
    let grouped = error("SELECT k, sum(d) FROM t GROUP BY s").await;
    assert!(!grouped.message.contains("wildcard"), "{grouped}");
    let early = error("SELECT sum(k)\nFROM t GROUP BY ").await;
    assert!(early.message.contains("found the end (line 2, column 16)"), "{early}");
    let division = error("SELECT id / (k - k) FROM t WHERE k IS NOT NULL").await;
    assert_eq!((division.kind, division.message.as_str()), (ErrorKind::Invalid, "division by zero"));
    for error in [syntax, column, table, function, qualified, missing, grouped, early, division] {
        assert!(!error.to_string().contains("DataFusion"), "{error}");
    }
}

#[tokio::test]
async fn tables_are_found_with_and_without_a_qualifier_and_when_they_change() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    assert_eq!(rows(&session, "SELECT count(*) FROM farpool.public.t").await.unwrap(), ["2100"]);
    assert_eq!(rows(&session, "SELECT count(*) FROM t").await.unwrap(), ["2100"]);
    let name = TableName::new("late").unwrap();
    let batch = rows_of_t(0, 5);
    let load = |mode: LoadMode| {
        let stream = futures::stream::iter([Ok(batch.clone())]).boxed();
        pool.load(&name, mode.into(), batch.schema(), None, stream)
    };
    load(LoadMode::Create).await.unwrap();
    assert_eq!(rows(&session, "SELECT count(*) FROM late").await.unwrap(), ["5"]);
    load(LoadMode::Append).await.unwrap();
    assert_eq!(rows(&session, "SELECT count(*) FROM late").await.unwrap(), ["10"]);
    let listed = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1";
    assert_eq!(rows(&session, listed).await.unwrap(), ["dim", "late", "t"]);
    let columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'dim' ORDER BY 1";
    assert_eq!(rows(&session, columns).await.unwrap(), ["k", "name"]);
    assert!(rows(&session, "SHOW TABLES").await.unwrap().iter().any(|row| row.contains("|late|")));
    rows(&session, "DROP TABLE late").await.unwrap();
    assert_eq!(rows(&session, listed).await.unwrap(), ["dim", "t"]);
    assert!(session.register_pool("farpool", pool as _).await.is_err());
}

#[tokio::test]
async fn statements_that_change_something_work() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    rows(&session, "CREATE TABLE mine AS SELECT k, count(*) AS n FROM t GROUP BY k").await.unwrap();
    rows(&session, "CREATE VIEW big AS SELECT * FROM t WHERE k > 4").await.unwrap();
    let halves = "CREATE VIEW halves AS SELECT d * 0.5 AS h FROM t WHERE f < 1.5 EXCEPT ALL SELECT 0.25";
    rows(&session, halves).await.unwrap();
    assert!(!rows(&session, "SELECT h FROM halves").await.unwrap().is_empty());
    let sql = "SELECT sum(n) = (SELECT count(*) FROM t) FROM mine";
    assert_eq!(rows(&session, sql).await.unwrap(), ["true"]);
    pool.ran.lock().clear();
    rows(&session, "SELECT count(*) FROM big").await.unwrap();
    assert_eq!(*pool.ran.lock(), ["table=t, filter=k > 4, keys=[], aggregates=[count(*)]"]);
    rows(&session, "SET datafusion.execution.batch_size = 100").await.unwrap();
    assert!(rows(&session, "SHOW datafusion.execution.batch_size").await.unwrap()[0].ends_with("|100"));
    assert_eq!(rows(&session, "INSERT INTO dim VALUES (100, 'new')").await.unwrap(), ["1"]);
    assert_eq!(rows(&session, "SELECT name FROM dim WHERE k = 100").await.unwrap(), ["new"]);
    let plan = rows(&session, "EXPLAIN SELECT sum(d) FROM t WHERE k = 1").await.unwrap().join("\n");
    assert!(plan.contains("PoolExec: table=t, filter=k = 1, keys=[], aggregates=[sum(d)]"), "{plan}");
    rows(&session, "PREPARE one AS SELECT count(*) FROM t WHERE k = $1").await.unwrap();
    pool.ran.lock().clear();
    rows(&session, "EXECUTE one(3)").await.unwrap();
    assert_eq!(*pool.ran.lock(), ["table=t, filter=k = 3, keys=[], aggregates=[count(*)]"]);
}

#[tokio::test]
async fn an_explanation_shows_answers_reasons_and_the_remainder() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    let sql = "SELECT k, median(d) FROM t WHERE u > 5 AND upper(s) = 'APPLE' GROUP BY k";
    let query = session.sql(sql).await.unwrap();
    let text = query.explain();
    for part in [
        "At the pool:\n  t v1 at embedded: 2100 rows",
        "filter     exact     u > 5",
        "filter     refused   ",
        "the function upper has no operator in the pool",
        "Here:\n  AggregateExec",
        "PoolExec: table=t, filter=u > 5",
    ] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    query.collect().await.unwrap();
    let receipt = query.receipt();
    assert_eq!(receipt.rows_scanned, 2100);
    let answers: Vec<Answer> = receipt.operators.iter().map(|o| o.answer).collect();
    assert_eq!(answers, [Answer::Exact, Answer::Refused]);

    let sql = "SELECT k, median(d) FROM t WHERE u > 5 GROUP BY k";
    let text = session.sql(sql).await.unwrap().explain();
    assert!(text.contains("group      refused   median(t.d) (the aggregate median"), "{text}");
}

#[tokio::test]
async fn dropping_the_result_ends_the_programs() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    let query = session.sql("SELECT a.id FROM t a, t b LIMIT 100000").await.unwrap();
    let mut stream = query.execute().await.unwrap();
    stream.next().await.unwrap().unwrap();
    drop(stream);
    for _ in 0..1000 {
        if pool.streams_open.load(Ordering::SeqCst) == 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("streams are still open");
}

/// A file opener for tests: `five.rows` has five rows of the table `t`, in memory.
struct Files {
    pool: Arc<Fake>,
    asked: Mutex<Vec<Vec<usize>>>,
    access: Mutex<Option<FileAccess>>,
}

#[async_trait]
impl FileOpener for Files {
    async fn schema(&self, files: &FileSpec) -> Result<SchemaRef> {
        match files.paths[0].as_str() {
            "five.rows" => Ok(rows_of_t(0, 5).schema()),
            path => Err(Error::not_found(format!("there is no file {path}"))),
        }
    }

    async fn open(
        &self,
        files: &FileSpec,
        columns: &[usize],
        access: FileAccess,
    ) -> Result<Arc<dyn TableProvider>> {
        *self.access.lock() = Some(access);
        self.asked.lock().push(columns.to_vec());
        let columns = if columns.is_empty() { &[0] } else { columns };
        let batch: RecordBatch = rows_of_t(0, 5).project(columns).unwrap();
        let (name, schema) = (TableName::new(files.paths[0].clone()).unwrap(), batch.schema());
        let stream = futures::stream::iter([Ok(batch)]).boxed();
        let info = self.pool.load(&name, LoadMode::Replace.into(), schema, None, stream).await?;
        Ok(Arc::new(PoolTable::new(Arc::clone(&self.pool) as _, info)))
    }
}

#[tokio::test]
async fn files_are_opened_with_the_columns_that_are_needed() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    let files = Arc::new(Files {
        pool: Arc::new(Fake::default()),
        asked: Mutex::default(),
        access: Mutex::default(),
    });
    session.set_file_opener(Arc::clone(&files) as _);
    let asked = || std::mem::take(&mut *files.asked.lock());
    let ran = || std::mem::take(&mut *files.pool.ran.lock());

    let sql = "SELECT sum(d) FROM (SELECT * FROM 'five.rows') WHERE id > 2 AND length(s) >= 0";
    rows(&session, sql).await.unwrap();
    assert_eq!(asked(), [[0, 3, 6]]);
    assert_eq!(ran(), ["table=five.rows, filter=id > 2, rows=[d, s]"]);

    assert_eq!(rows(&session, "SELECT count(*) FROM 'five.rows'").await.unwrap(), ["5"]);
    assert_eq!(asked(), [Vec::<usize>::new()]);
    assert_eq!(ran(), ["table=five.rows, keys=[], aggregates=[count(*)]"]);

    rows(&session, "SELECT u, min(k) FROM 'five.rows' WHERE k > 0 GROUP BY u").await.unwrap();
    assert_eq!(asked(), [[1, 2]]);
    assert_eq!(ran(), ["table=five.rows, filter=k > 0, keys=[u], aggregates=[min(k)]"]);

    let joined = "SELECT a.id FROM 'five.rows' a JOIN t ON a.id = t.id WHERE a.k IS NOT NULL ORDER BY 1";
    let expected = "SELECT id FROM t WHERE id < 5 AND k IS NOT NULL ORDER BY 1";
    assert_eq!(rows(&session, joined).await.unwrap(), rows(&session, expected).await.unwrap());

    for (sql, expected) in [
        ("SELECT k + 1 FROM 'five.rows' WHERE k > 0 LIMIT 2", FileAccess::Look),
        ("SELECT k FROM (SELECT * FROM read_csv('five.rows', nullstr = 'NA')) LIMIT 2", FileAccess::Look),
        ("SELECT k FROM 'five.rows' ORDER BY k LIMIT 2", FileAccess::Read),
        ("SELECT k FROM 'five.rows'", FileAccess::Read),
        ("SELECT count(*) FROM (SELECT k FROM 'five.rows' LIMIT 2)", FileAccess::Read),
    ] {
        rows(&session, sql).await.unwrap();
        assert_eq!(*files.access.lock(), Some(expected), "{sql}");
    }

    let missing = session.sql("SELECT * FROM 'six.rows'").await.unwrap_err();
    assert_eq!((missing.kind, missing.message.as_str()), (ErrorKind::NotFound, "there is no file six.rows"));
}

#[tokio::test]
async fn a_remote_pool_describes_a_table_once_for_each_version() {
    let pool = filled(Fake { remote: true, ..Fake::default() }).await;
    let session = session(&pool, true).await;
    let described = || pool.described.load(Ordering::Relaxed);
    let dim = TableName::new("dim").unwrap();
    let load = async |sql: &str, mode: LoadMode| {
        let query = session.sql(sql).await.unwrap();
        let (schema, rows) = (query.schema().clone(), query.execute().await.unwrap());
        pool.load(&dim, mode.into(), schema, None, rows).await.unwrap();
    };
    let answer = async |sql: &str| rows(&session, sql).await.unwrap();

    let before = answer("SELECT count(*) FROM dim WHERE k >= 0").await;
    assert_eq!((answer("SELECT count(*) FROM dim WHERE k >= 0").await, described()), (before.clone(), 1));
    load("SELECT * FROM (VALUES (5, 6)) AS v(k, extra)", LoadMode::Replace).await;
    let described_before = described();
    assert_eq!(answer("SELECT extra FROM dim WHERE k >= 0").await, ["6"]);
    assert!(described() > described_before);
    assert_ne!(before, answer("SELECT count(*) FROM dim WHERE k >= 0").await);
    // An INSERT is planned once, with a table description that is fetched for it.
    let described_before = described();
    assert_eq!(answer("INSERT INTO dim VALUES (7, 8)").await, ["1"]);
    assert_eq!(described(), described_before + 1);
    assert_eq!(answer("SELECT extra FROM dim WHERE k = 7").await, ["8"]);
    pool.drop_table(&dim).await.unwrap();
    let error = session.sql("SELECT extra FROM dim WHERE k >= 0").await.unwrap_err();
    assert!(error.message.starts_with("there is no table dim"), "{error}");
    // No program is prepared for this statement, so that the session learns only from a fetched description that the
    // table is gone.
    assert!(session.sql("SELECT extra FROM dim WHERE false").await.is_err());
}
