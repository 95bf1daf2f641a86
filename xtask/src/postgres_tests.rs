//! `cargo xtask postgres-tests`: runs the queries of tests with recorded answers on PostgreSQL.
//!
//! The recorded answers are DuckDB's; two engines that agree are seldom wrong. `testdata/postgres.toml` records the
//! number of equal answers, the number of queries in a form that PostgreSQL lacks, and the answers that differ, with
//! reasons.
//!
//! Invariant: the list is accurate. An unlisted answer that differs is an error, and so is a listed one that is equal.

use crate::cargo;
use crate::postgres::Postgres;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::fmt::Write as _;
use std::fs;

/// Statements that define DuckDB's type names in PostgreSQL, and make values print as in DuckDB.
const PREPARED: &str = "
    SET client_min_messages = error; SET extra_float_digits = 3; SET datestyle = iso; SET timezone = 'UTC';
    DROP SCHEMA public CASCADE; CREATE SCHEMA public;
    CREATE DOMAIN double AS float8; CREATE DOMAIN hugeint AS numeric(39, 0);
    CREATE DOMAIN tinyint AS int2 CHECK (value BETWEEN -128 AND 127);
";

/// Marks the line that follows the rows of each query in psql's output; the line has the query's number and its
/// SQLSTATE.
const MARK: &str = "==";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    file: Vec<Listed>,
}

/// PostgreSQL's expected results for the queries of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    path: String,
    same: usize,
    lacking: usize,
    /// The reason why answers differ, for human readers only.
    #[serde(rename = "reason", default)]
    _reason: String,
    #[serde(default)]
    differs: Vec<String>,
}

/// A query and DuckDB's recorded answer.
struct Recorded<'a> {
    sql: &'a str,
    types: Vec<&'a str>,
    rows: Vec<&'a str>,
}

/// PostgreSQL's result of a query.
struct Said<'a> {
    sqlstate: &'a str,
    rows: Vec<&'a str>,
}

#[derive(PartialEq, Eq)]
enum Verdict {
    Same,
    /// PostgreSQL lacks a form that the query uses.
    Lacking,
    Differs(String),
}

/// Compares all recorded answers with those of a temporary PostgreSQL server.
///
/// # Errors
/// Fails if the list is not accurate, or PostgreSQL cannot be installed or started.
pub fn run() -> Result<()> {
    let testdata = cargo::root().join("testdata");
    let read = |path: &str| {
        let path = testdata.join(path);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let list: List = toml::from_str(&read("postgres.toml")?).context("testdata/postgres.toml")?;
    let postgres = Postgres::start()?;
    let mut wrong = 0;
    for listed in &list.file {
        let (folder, _) = listed.path.split_once('/').context("a path in postgres.toml has no folder")?;
        let (answers, tables) = (read(&listed.path)?, read(&format!("{folder}/tables.sql"))?);
        wrong += listed.check(&postgres, &tables, &answers)?;
    }
    ensure!(wrong == 0, "testdata/postgres.toml is not true (see above)");
    Ok(())
}

impl Listed {
    /// Runs the queries of the file; returns the number of deviations from the list, each of which is printed.
    fn check(&self, postgres: &Postgres, tables: &str, answers: &str) -> Result<usize> {
        let recorded: Vec<Recorded<'_>> =
            answers.trim_end().split("\n\n").map(Recorded::parse).collect::<Result<_>>()?;
        let mut script = format!("{PREPARED}{tables};\n");
        for (number, query) in recorded.iter().enumerate() {
            writeln!(script, "{}\n;\n\\echo {MARK}{number} :SQLSTATE", query.sql)?;
        }
        let output = postgres.endpoint().psql(&script)?;
        let said = parse_output(&output);
        ensure!(said.len() == recorded.len(), "{}: psql ended early:\n{output}", self.path);
        let (mut same, mut lacking, mut wrong, mut differing) = (0, 0, 0, Vec::new());
        for (query, said) in recorded.iter().zip(&said) {
            match query.compare(said) {
                Verdict::Same => same += 1,
                Verdict::Lacking => lacking += 1,
                Verdict::Differs(_) if self.differs.iter().any(|listed| listed == query.sql) => {
                    differing.push(query.sql);
                }
                Verdict::Differs(how) => {
                    wrong += 1;
                    eprintln!("{}: PostgreSQL's answer differs: {}\n{how}", self.path, query.sql);
                }
            }
        }
        for listed in self.differs.iter().filter(|listed| !differing.contains(&listed.as_str())) {
            wrong += 1;
            eprintln!("{}: the answer is the same, or the query is gone: {listed}", self.path);
        }
        println!("{}: {same} the same, {lacking} lacking, {} different", self.path, differing.len());
        if (same, lacking) != (self.same, self.lacking) {
            wrong += 1;
            eprintln!("{}: {} the same and {} lacking are listed", self.path, self.same, self.lacking);
        }
        Ok(wrong)
    }
}

impl<'a> Recorded<'a> {
    fn parse(block: &'a str) -> Result<Self> {
        let mut lines = block.lines();
        let (sql, types) = lines.next().zip(lines.next()).context("a query without types")?;
        Ok(Recorded { sql, types: types.split('\t').collect(), rows: lines.collect() })
    }

    fn compare(&self, said: &Said<'_>) -> Verdict {
        let is_refused = said.sqlstate != "00000";
        match (self.types.as_slice() == ["error"], is_refused) {
            (true, true) => return Verdict::Same,
            (true, false) => return Verdict::Differs("an answer in place of an error".to_string()),
            // SQLSTATE 42 is a syntax error or an unknown function; 0A is an unsupported feature.
            (false, true) if said.sqlstate.starts_with("42") || said.sqlstate.starts_with("0A") => {
                return Verdict::Lacking;
            }
            (false, true) => return Verdict::Differs(format!("error {}", said.sqlstate)),
            (false, false) => {}
        }
        let (recorded, rows) = (self.canonical(&self.rows), self.canonical(&said.rows));
        if recorded == rows {
            return Verdict::Same;
        }
        let only = |sign: &str, of: &[String], other: &[String]| {
            let lines = of.iter().filter(|row| !other.contains(row)).take(3);
            lines.map(|row| format!("{sign} {row}\n")).collect::<String>()
        };
        Verdict::Differs(only("-", &recorded, &rows) + &only("+", &rows, &recorded))
    }

    /// Returns the rows, sorted, in a form in which equal answers of both engines are the same text.
    fn canonical(&self, rows: &[&str]) -> Vec<String> {
        let row = |row: &&str| {
            let cells = row.split('\t').zip(&self.types).map(|(cell, of)| canonical(cell, of));
            cells.collect::<Vec<_>>().join("\t")
        };
        let mut rows: Vec<String> = rows.iter().map(row).collect();
        rows.sort_unstable();
        rows
    }
}

fn canonical(cell: &str, data_type: &str) -> String {
    match (data_type, cell) {
        (_, "\\N") => cell.to_string(),
        ("BOOLEAN", "t") => "true".to_string(),
        ("BOOLEAN", "f") => "false".to_string(),
        ("VARCHAR", "") => "(empty)".to_string(),
        ("DOUBLE", _) => match cell.parse::<f64>() {
            Ok(value) if value.is_nan() => "nan".to_string(),
            Ok(value) => format!("{:.6e}", value + 0.0),
            Err(_) => format!("{cell} is no double"),
        },
        (scaled, _) if cell.contains('.') && (scaled == "TIMESTAMP" || scaled.starts_with("DECIMAL")) => {
            cell.trim_end_matches('0').trim_end_matches('.').to_string()
        }
        _ => cell.to_string(),
    }
}

/// Splits psql's output at the lines that begin with [`MARK`].
fn parse_output(output: &str) -> Vec<Said<'_>> {
    let (mut all, mut rows) = (Vec::new(), Vec::new());
    for line in output.lines() {
        match line.strip_prefix(MARK).and_then(|mark| mark.split_once(' ')) {
            Some((_, sqlstate)) => all.push(Said { sqlstate, rows: std::mem::take(&mut rows) }),
            None => rows.push(line),
        }
    }
    all
}
