//! Tests of random queries, in-process and over TCP, with and without push-down, compared with DuckDB's results: over
//! two small tables with extremes of every type, and with subqueries and joins by USING over tables with NULLs.

use crate::support::pools::{self, Pools, Way};
use arrow::array::*;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use farpool::{Session, SessionOptions};
use std::path::{Path, PathBuf};

/// A query, and the result that DuckDB gave.
struct Recorded<'a> {
    sql: &'a str,
    /// DuckDB's types of the columns; the single text `error` if DuckDB failed because a value is out of range.
    types: Vec<&'a str>,
    /// The rows, sorted.
    rows: Vec<String>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_setting_answers_as_duckdb_does() {
    answers_are_those_of("queries", "answers.txt", 400).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forms_that_the_engine_lacks_are_answered_as_duckdb_does() {
    answers_are_those_of("queries", "forms.txt", 300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subqueries_and_merged_keys_answer_as_in_duckdb() {
    answers_are_those_of("subqueries", "answers.txt", 600).await;
}

/// Checks the recorded answers in `file` of `folder` in all settings. The file must have at least `least` answers.
async fn answers_are_those_of(folder: &str, file: &str, least: usize) {
    let text = read(folder, file);
    let recorded: Vec<Recorded<'_>> = text
        .split(
            "

",
        )
        .map(Recorded::parse)
        .collect();
    assert!(recorded.len() > least, "{} queries", recorded.len());
    let pools = loaded(folder).await;
    let mut wrong = Vec::new();
    for (way, pushdown) in [
        (Way::Embedded, true),
        (Way::Embedded, false),
        (Way::Remote, true),
        (Way::Remote, false),
        (Way::Near, true),
    ] {
        let session = pools.session(way, pushdown).await;
        for query in &recorded {
            if let Err(why) = query.check(&session).await {
                wrong.push(format!("{way:?}, push-down {pushdown}: {}\n{why}", query.sql));
            }
        }
    }
    assert!(wrong.is_empty(), "{} answers differ:\n\n{}", wrong.len(), wrong.join("\n\n"));
}

impl<'a> Recorded<'a> {
    fn parse(block: &'a str) -> Self {
        let mut lines = block.lines();
        let (sql, types) = lines.next().zip(lines.next()).expect("a query and its types");
        let types: Vec<&str> = types.split('\t').collect();
        let row = |line: &str| {
            let cells = line.split('\t').zip(&types).map(|(cell, of)| canonical(cell, of));
            cells.collect::<Vec<_>>().join("\t")
        };
        let mut rows: Vec<String> = lines.map(row).collect();
        rows.sort_unstable();
        Recorded { sql, types, rows }
    }

    /// Runs the query on `session`. The error describes how the result differs from DuckDB's.
    async fn check(&self, session: &Session) -> Result<(), String> {
        let batches = match session.sql(self.sql).await {
            Ok(query) => query.collect().await,
            Err(error) => Err(error),
        };
        match (batches, self.types.as_slice()) {
            (Err(_), ["error"]) => Ok(()),
            (Err(error), _) => Err(format!("  {error}")),
            (Ok(_), ["error"]) => Err("  an answer where a value is out of range".to_string()),
            (Ok(batches), types) => {
                let rows = shown(&batches, types);
                let missing =
                    self.rows.iter().filter(|row| !rows.contains(row)).map(|row| format!("- {row}"));
                let extra = rows.iter().filter(|row| !self.rows.contains(row)).map(|row| format!("+ {row}"));
                let differences: Vec<String> = missing.chain(extra).take(6).collect();
                match rows == self.rows {
                    true => Ok(()),
                    false => Err(format!(
                        "{} for {} rows\n{}",
                        rows.len(),
                        self.rows.len(),
                        differences.join("\n")
                    )),
                }
            }
        }
    }
}

/// Returns the rows as sorted texts, in the form of the recorded results.
fn shown(batches: &[RecordBatch], types: &[&str]) -> Vec<String> {
    let options = FormatOptions::default().with_null("\\N");
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
        let columns: Vec<ArrayFormatter<'_>> = columns.map(|column| column.expect("a plain type")).collect();
        for row in 0..batch.num_rows() {
            let cells =
                columns.iter().zip(types).map(|(column, of)| canonical(&column.value(row).to_string(), of));
            rows.push(cells.collect::<Vec<_>>().join("\t"));
        }
    }
    rows.sort_unstable();
    rows
}

/// Converts a value to a form that is the same for both engines: DuckDB's means of decimals are doubles, and
/// its decimals have other scales.
fn canonical(cell: &str, data_type: &str) -> String {
    match data_type {
        _ if cell == "\\N" => cell.to_string(),
        "VARCHAR" if cell.is_empty() => "(empty)".to_string(),
        "DOUBLE" => match cell.to_lowercase().parse::<f64>() {
            Ok(value) if value.is_nan() => "nan".to_string(),
            Ok(value) => format!("{:.6e}", value + 0.0),
            Err(_) => format!("{cell} is no double"),
        },
        decimal if decimal.starts_with("DECIMAL") && cell.contains('.') => {
            cell.trim_end_matches('0').trim_end_matches('.').to_string()
        }
        "TIMESTAMP" => match cell.replace('T', " ") {
            fraction if fraction.contains('.') => fraction.trim_end_matches('0').to_string(),
            whole => whole,
        },
        _ => cell.to_string(),
    }
}

fn read(folder: &str, name: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(folder).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns pools with the tables of `tables.sql` in `folder`; the statements of that file run in a session without a
/// pool.
async fn loaded(folder: &str) -> Pools {
    let pools = Pools::start(1 << 30).await;
    let session = Session::new(SessionOptions::default());
    for statement in read(folder, "tables.sql").split(';').filter(|statement| !statement.trim().is_empty()) {
        let (create, query) = statement.split_once(" AS SELECT").expect("CREATE TABLE name AS SELECT …");
        let name = create.trim().rsplit(' ').next().expect("a name");
        let query = session.sql(format!("SELECT{query}").as_str()).await.expect("plans");
        let schema = query.schema().clone();
        let batches = query.collect().await.expect("runs");
        pools::load(&*pools.embedded, name, schema, batches).await;
    }
    pools
}
