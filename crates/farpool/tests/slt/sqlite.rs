//! A fixed part of SQLite's SQL logic tests, by category, with the tables in a pool, with and without push-down.
//!
//! The files come from the package that `cargo xtask logic-tests` downloads. They use the older format: a
//! query states the types of its columns, and results with more than a few values are given as a hash.
//! `testdata/slt/sqlite.toml` names the files of each category and the records that are known to differ, with
//! reasons.

use super::engine::{Engine, Setting};
use super::format::Kind;
use super::package;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use md5::{Digest, Md5};
use serde::Deserialize;
use sqllogictest::parser::{Condition, QueryExpect, SortMode, StatementExpect};
use sqllogictest::{AsyncDB, Record};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

/// Maximal number of failures of a category that are printed.
const SHOWN_MAX: usize = 20;

/// The contents of `testdata/slt/sqlite.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    categories: Vec<Category>,
    #[serde(default)]
    differences: Vec<Difference>,
}

/// Test files about one subject, such as joins.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Category {
    name: String,
    files: Vec<String>,
    /// Number of queries that are run from the beginning of each file.
    queries: usize,
}

/// Records of a test file that are known to differ from SQLite's result: those at `lines`, or all that are refused with
/// an error that contains `refused`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    file: String,
    #[serde(default)]
    lines: BTreeSet<u32>,
    refused: Option<String>,
    #[expect(dead_code, reason = "for the reader of the list; must be there")]
    reason: String,
}

/// Results of a category.
#[derive(Default)]
struct Counts {
    passed: usize,
    known: usize,
    failures: Vec<String>,
    stale: Vec<String>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs SQLite's files: cargo xtask logic-tests"]
async fn the_logic_tests_of_sqlite_pass_with_and_without_pushdown() {
    let folder = std::env::var("FARPOOL_SQLITE_TESTS").expect("`cargo xtask logic-tests` names the folder");
    let text = std::fs::read_to_string(package::list("sqlite.toml")).expect("the list is there");
    let list: List = toml::from_str(&text).expect("the list is well formed");
    let mut wrong = String::new();
    for category in &list.categories {
        let (pushed, plain) = futures::future::join(
            category.run(&list, Path::new(&folder), true),
            category.run(&list, Path::new(&folder), false),
        )
        .await;
        println!(
            "{}: {} queries agree twice, {} are known to differ",
            category.name,
            pushed.passed.min(plain.passed),
            pushed.known.max(plain.known)
        );
        for (counts, how) in [(pushed, "with"), (plain, "without")] {
            assert!(counts.passed > 0, "no query of {} ran {how} push-down", category.name);
            let shown = counts.failures.iter().take(SHOWN_MAX).chain(&counts.stale);
            shown.for_each(|line| writeln!(wrong, "({how} push-down) {line}").expect("a text takes all"));
            wrong += &"…\n".repeat(usize::from(counts.failures.len() > SHOWN_MAX));
        }
    }
    assert!(wrong.is_empty(), "queries differ from SQLite's answers, or are listed and do not:\n{wrong}");
}

impl Category {
    async fn run(&self, list: &List, folder: &Path, pushdown: bool) -> Counts {
        let mut counts = Counts::default();
        for file in &self.files {
            let known: Vec<&Difference> =
                list.differences.iter().filter(|difference| difference.file == *file).collect();
            self.run_file(folder, file, &known, pushdown, &mut counts).await;
        }
        counts
    }

    async fn run_file(
        &self,
        folder: &Path,
        file: &str,
        known: &[&Difference],
        pushdown: bool,
        counts: &mut Counts,
    ) {
        let path = folder.join("test").join(file);
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let records = sqllogictest::parse::<Kind>(&without_remarks(&text));
        let records = records.unwrap_or_else(|error| panic!("{file} cannot be parsed: {error}"));
        let mut engine = Engine::new(if pushdown { Setting::Pushed } else { Setting::Plain });
        // SQLite orders NULL before all values.
        let order = engine.run("SET datafusion.sql_parser.default_null_ordering = 'nulls_min'").await;
        order.expect("the engine has this setting");
        let mut queries = 0;
        for record in records {
            match record {
                Record::Statement { conditions, sql, expected, .. } if applies(&conditions) => {
                    let Some(sql) = adapted(&sql) else { continue };
                    let ended = engine.run(&sql).await;
                    if let (Err(error), StatementExpect::Ok | StatementExpect::Count(_)) = (ended, expected) {
                        counts.failures.push(format!("{file}: {sql}: {error}"));
                    }
                }
                Record::Query { conditions, sql, expected, loc, .. } if applies(&conditions) => {
                    queries += 1;
                    if queries > self.queries {
                        break;
                    }
                    let at = format!("{file}:{}", loc.line());
                    let is_listed = known.iter().any(|known| known.lines.contains(&loc.line()));
                    let is_known = |error: &str| {
                        let refused = known.iter().filter_map(|known| known.refused.as_ref());
                        is_listed || refused.into_iter().any(|text| error.contains(text))
                    };
                    match query(&engine, &sql, &expected).await {
                        Ok(()) if is_listed => {
                            counts.stale.push(format!("{at} agrees: take it off the list"))
                        }
                        Ok(()) => counts.passed += 1,
                        Err(error) if is_known(&error) => counts.known += 1,
                        Err(error) => counts.failures.push(format!("{at}: {sql}: {error}")),
                    }
                }
                _ => {}
            }
        }
    }
}

/// Removes comments after conditions, which the parser does not accept.
fn without_remarks(text: &str) -> String {
    let line = |line: &str| match line.starts_with("skipif") || line.starts_with("onlyif") {
        true => line.split('#').next().unwrap_or_default().trim_end().to_string(),
        false => line.to_string(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n") + "\n"
}

/// Returns a statement without primary keys, from which the engine would derive constraints and which a pool does not
/// support, and with 64-bit integers, as in SQLite; `None` for a statement that only creates an index.
fn adapted(sql: &str) -> Option<String> {
    let is_index = sql.starts_with("CREATE INDEX") || sql.starts_with("CREATE UNIQUE INDEX");
    let is_table = sql.starts_with("CREATE TABLE");
    let adapted = || {
        if is_table {
            sql.replace(" PRIMARY KEY", "").replace(" INTEGER", " BIGINT")
        } else {
            sql.to_string()
        }
    };
    (!is_index).then(adapted)
}

/// Returns whether a record with these conditions (`onlyif`, `skipif`) applies: records for other database systems are
/// skipped.
fn applies(conditions: &[Condition]) -> bool {
    conditions.iter().all(|condition| match condition {
        Condition::OnlyIf { label } => label == "farpool",
        Condition::SkipIf { label } => label != "farpool",
    })
}

async fn query(engine: &Engine, sql: &str, expected: &QueryExpect<Kind>) -> Result<(), String> {
    let batches = engine.batches(sql).await.map_err(|error| error.to_string());
    let QueryExpect::Results { types, sort_mode, results, .. } = expected else {
        return batches.map_or(Ok(()), |_| Err("an error is expected".to_string()));
    };
    let mut rows = Vec::new();
    for batch in &batches? {
        rows.extend(rows_of(batch, types)?);
    }
    let mut values = match sort_mode {
        Some(SortMode::RowSort) => {
            rows.sort();
            rows.concat()
        }
        Some(SortMode::NoSort | SortMode::ValueSort) | None => rows.concat(),
    };
    if matches!(sort_mode, Some(SortMode::ValueSort)) {
        values.sort();
    }
    let is_hashed = results.first().is_some_and(|line| line.contains(" values hashing to "));
    let found = if is_hashed { vec![hashed(&values)] } else { values };
    if found == *results { Ok(()) } else { Err(format!("{found:?} and not {results:?}")) }
}

fn hashed(values: &[String]) -> String {
    let mut hash = Md5::new();
    for value in values {
        hash.update(value);
        hash.update("\n");
    }
    let digits: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{} values hashing to {digits}", values.len())
}

/// Formats the rows of a batch as the files do: integers truncated, doubles with three decimal places, and
/// unprintable characters as `@`.
fn rows_of(batch: &RecordBatch, types: &[Kind]) -> Result<Vec<Vec<String>>, String> {
    if batch.num_columns() != types.len() {
        return Err(format!("{} columns and not {}", batch.num_columns(), types.len()));
    }
    let column = |(column, kind): (&std::sync::Arc<dyn Array>, &Kind)| -> Result<Vec<String>, String> {
        let integer = |text: &str| text.split('.').next().unwrap_or_default().to_string();
        let text = cast(column, &DataType::Utf8).map_err(|error| error.to_string())?;
        let text = text.as_string::<i32>();
        let number = cast(column, &DataType::Float64).ok();
        let number = number.as_ref().map(|number| number.as_primitive::<Float64Type>());
        let value = |row| match (kind, number) {
            _ if text.is_null(row) => "NULL".to_string(),
            (Kind::Integer, Some(number)) if column.data_type().is_floating() => {
                format!("{:.0}", number.value(row).trunc())
            }
            (Kind::Integer, _) if *column.data_type() == DataType::Boolean => {
                u8::from(text.value(row) == "true").to_string()
            }
            (Kind::Integer, _) => integer(text.value(row)),
            (Kind::Real, Some(number)) => format!("{:.3}", number.value(row)),
            _ if text.value(row).is_empty() => "(empty)".to_string(),
            _ => text.value(row).replace(|c: char| !(' '..='~').contains(&c), "@"),
        };
        Ok((0..batch.num_rows()).map(value).collect())
    };
    let columns = batch.columns().iter().zip(types).map(column).collect::<Result<Vec<_>, _>>()?;
    Ok((0..batch.num_rows()).map(|row| columns.iter().map(|column| column[row].clone()).collect()).collect())
}
