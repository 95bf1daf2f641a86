//! Runs one sqllogictest file record by record.

use super::engine::{Engine, Setting};
use super::format::Kind;
use super::skip::Skip;
use futures::FutureExt;
use sqllogictest::parser::{ExpectedError, QueryExpect, StatementExpect};
use sqllogictest::{Normalizer, Record, Runner, strict_column_validator};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::time::Duration;

/// Time after which a record is considered to hang.
const RECORD_TIME_MAX: Duration = Duration::from_secs(60);

/// Maximal number of characters of a failure that are printed.
const SHOWN_MAX: usize = 1500;

/// The parsed records (statements and queries with expected results) of one test file.
pub struct Script {
    path: String,
    records: Vec<Record<Kind>>,
}

/// Results of one run of a file.
#[derive(Default)]
pub struct Ran {
    passed: usize,
    left_out: usize,
    /// Failures by line, of records that are not listed in `testdata/slt/skip.toml`.
    failures: BTreeMap<u32, String>,
    known: BTreeSet<u32>,
    passed_though_listed: BTreeSet<u32>,
}

/// Results of all files.
#[derive(Default)]
pub struct Outcome {
    pub files: usize,
    pub passed: usize,
    pub left_out: usize,
    pub failures: Vec<String>,
    /// Listed records (path and line) that failed in at least one of the runs.
    pub known: BTreeSet<(String, u32)>,
    /// Listed records (path and line) that passed in at least one of the runs.
    pub passed_though_listed: BTreeSet<(String, u32)>,
}

impl Outcome {
    /// Adds the results of a test file, by the setting in which it was run.
    pub fn add(&mut self, path: &str, runs: Vec<(Setting, Ran)>) {
        self.files += 1;
        self.passed += runs.iter().map(|(_, ran)| ran.passed).min().unwrap_or(0);
        self.left_out += runs.first().map_or(0, |(_, ran)| ran.left_out);
        for (setting, ran) in runs {
            let describe = |(line, text)| format!("{path}:{line} ({setting:?}): {text}");
            self.failures.extend(ran.failures.into_iter().map(describe));
            let named = |lines: BTreeSet<u32>| lines.into_iter().map(|line| (path.to_string(), line));
            self.known.extend(named(ran.known));
            self.passed_though_listed.extend(named(ran.passed_though_listed));
        }
    }

    /// Adds the results of another worker.
    pub fn merge(&mut self, other: Outcome) {
        self.files += other.files;
        self.passed += other.passed;
        self.left_out += other.left_out;
        self.failures.extend(other.failures);
        self.known.extend(other.known);
        self.passed_though_listed.extend(other.passed_though_listed);
    }
}

impl Script {
    /// Parses the file at `path` below `folder`.
    pub fn read(folder: &Path, path: &str) -> Script {
        let records = sqllogictest::parse_file(folder.join(path));
        let records = records.unwrap_or_else(|error| panic!("{path} cannot be parsed: {error}"));
        Script { path: path.to_string(), records }
    }

    /// Runs the records on an empty pool.
    pub async fn run(&self, skip: &Skip, setting: Setting) -> Ran {
        let mut runner = Runner::new(|| async { Ok(Engine::new(setting)) });
        runner.add_label("Datafusion");
        runner.with_normalizer(trim_end);
        runner.with_column_validator(strict_column_validator);
        let mut ran = Ran::default();
        let mut absent = Absent::new(skip);
        for record in &self.records {
            if matches!(record, Record::Halt { .. }) {
                break;
            }
            let Some((line, sql)) = statement(record) else {
                // Records that are conditions, comments or sort modes change how the later records are run.
                let _ = runner.run_async(record.clone()).await;
                continue;
            };
            if absent.leaves_out(sql) {
                ran.left_out += 1;
                if sql.trim_start().to_ascii_lowercase().starts_with("drop") {
                    // An existing table is dropped, as the test expects; that a table is missing is no failure.
                    let _ = runner.run_async(record.clone()).await;
                }
                continue;
            }
            runner.with_validator(if has_order(sql) { same_rows } else { same_rows_in_any_order });
            let run = AssertUnwindSafe(runner.run_async(any_error(record.clone()))).catch_unwind();
            let result = match tokio::time::timeout(RECORD_TIME_MAX, run).await {
                Ok(Ok(Ok(_))) => None,
                Ok(Ok(Err(error))) => Some(error.to_string()),
                Ok(Err(panic)) => Some(format!("panicked: {}", panic_text(&*panic))),
                Err(_) => Some(format!("did not end within {RECORD_TIME_MAX:?}: {sql}")),
            };
            match (result, skip.record(&self.path, line)) {
                (None, None) => ran.passed += 1,
                (Some(text), None) => drop(ran.failures.insert(line, shown(text))),
                (None, Some(entry)) if !entry.may_pass => drop(ran.passed_though_listed.insert(line)),
                (None, Some(_)) => {}
                (Some(_), Some(_)) => drop(ran.known.insert(line)),
            }
        }
        ran
    }
}

/// Returns the line and the text of a record that runs SQL.
fn statement(record: &Record<Kind>) -> Option<(u32, &str)> {
    match record {
        Record::Statement { loc, sql, .. } | Record::Query { loc, sql, .. } => Some((loc.line(), sql)),
        _ => None,
    }
}

/// Changes a record that expects an error with a certain text so that it accepts any error: error texts differ between
/// engines.
fn any_error(mut record: Record<Kind>) -> Record<Kind> {
    match &mut record {
        Record::Statement { expected: StatementExpect::Error(error), .. } => *error = ExpectedError::Empty,
        Record::Query { expected: QueryExpect::Error(error), .. } => *error = ExpectedError::Empty,
        _ => {}
    }
    record
}

/// Names of tables that the tests expect but that do not exist here, or lack rows, because a statement was skipped.
struct Absent {
    always: HashSet<String>,
    now: HashSet<String>,
}

impl Absent {
    fn new(skip: &Skip) -> Absent {
        let always = skip.tables.iter().flat_map(|tables| tables.names.iter().cloned());
        Absent { always: always.collect(), now: HashSet::new() }
    }

    /// Returns whether a statement is skipped because it never applies here. Records the names of tables that are
    /// missing because of it.
    fn leaves_out(&mut self, sql: &str) -> bool {
        let lower = sql.to_lowercase();
        let words: Vec<&str> =
            lower.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|w| !w.is_empty()).collect();
        let external = words.first() == Some(&"copy") || words.starts_with(&["create", "external"]) || {
            words.starts_with(&["create", "unbounded", "external"])
        };
        let explain = words.first() == Some(&"explain");
        let missing = words.iter().any(|word| self.always.contains(*word) || self.now.contains(*word));
        let left_out = external || explain || missing;
        let makes = ["create", "insert"].contains(words.first().unwrap_or(&""))
            || words.first() == Some(&"select") && words.contains(&"into");
        if left_out && makes {
            self.now.extend(changed(&words));
        }
        if words.first() == Some(&"drop") {
            words.last().map(|name| self.now.remove(*name));
        }
        left_out
    }
}

/// Returns the name of the table or view that a CREATE or INSERT statement changes.
fn changed(words: &[&str]) -> Option<String> {
    let at = words.iter().position(|word| ["table", "view", "into"].contains(word))?;
    let name = words[at + 1..].iter().find(|word| !["if", "not", "exists"].contains(word))?;
    Some((*name).to_string())
}

fn has_order(sql: &str) -> bool {
    sql.to_ascii_lowercase().contains("order by")
}

#[expect(clippy::ptr_arg, reason = "the type of the runner's hook")]
fn trim_end(text: &String) -> String {
    text.trim_end().to_string()
}

fn joined(actual: &[Vec<String>]) -> Vec<String> {
    actual.iter().map(|row| row.join(" ").trim_end().to_string()).collect()
}

fn same_rows(normalize: Normalizer, actual: &[Vec<String>], expected: &[String]) -> bool {
    let expected: Vec<String> = expected.iter().map(normalize).collect();
    let actual = joined(actual);
    match expected.iter().any(|line| line.contains("<slt:ignore>")) {
        true => matches_fragments(&expected.join("\n"), &actual.join("\n")),
        false => actual == expected,
    }
}

fn same_rows_in_any_order(normalize: Normalizer, actual: &[Vec<String>], expected: &[String]) -> bool {
    let (mut left, mut right) = (joined(actual), expected.iter().map(normalize).collect::<Vec<_>>());
    left.sort();
    right.sort();
    left == right || same_rows(normalize, actual, expected)
}

/// Returns whether `actual` contains the parts of `expected` between its `<slt:ignore>` marks, in order.
fn matches_fragments(expected: &str, actual: &str) -> bool {
    let mut rest = actual;
    expected.split("<slt:ignore>").enumerate().all(|(index, part)| match rest.find(part) {
        Some(at) if index > 0 || at == 0 => {
            rest = &rest[at + part.len()..];
            true
        }
        _ => false,
    })
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

fn shown(text: String) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((at, _)) => format!("{} …", &text[..at]),
        None => text,
    }
}
