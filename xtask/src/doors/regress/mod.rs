//! Queries of PostgreSQL's own regression tests, over the tables of these tests, asked of PostgreSQL and of a node.
//!
//! The files come from Debian's source package, in the folder `regress` of the cache. `testdata/doors/regress.toml` has, by
//! file, how many queries have the same answer, how many are refused, and how many differ. Other statements of a file
//! are run as well, and plans are not compared.
//!
//! Invariant: the list is accurate.

mod split;

use super::Servers;
use super::list::{self, Tally};
use super::node::{NAME, Node, execute};
use super::random::answers::{self, Said, Verdict};
use super::random::statements::Statement;
use crate::postgres::Endpoint;
use crate::{cargo, debian, programs};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};

const PACKAGE: &str = "postgresql-15";

/// The contents of `regress.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Files {
    file: Vec<Listed>,
}

/// The expected results of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    name: String,
    #[serde(flatten)]
    counts: Counts,
    #[expect(dead_code, reason = "for the reader of the list; must be there")]
    reason: String,
}

/// Numbers of queries.
#[derive(Default, Deserialize, PartialEq, Eq)]
struct Counts {
    same: usize,
    refused: usize,
    differs: usize,
}

/// Settings of both servers.
const SETTINGS: &str = "SET statement_timeout = '20s'; SET TIME ZONE 'UTC'; SET extra_float_digits = 0;\n";

/// The tables of PostgreSQL that a node can have, with its names of their types.
const TABLES: &str = "
    SELECT c.relname, string_agg(quote_ident(a.attname) || ' ' || CASE
        WHEN a.atttypid IN (19, 1042, 1043) THEN 'text' ELSE format_type(a.atttypid, a.atttypmod) END,
        ', ' ORDER BY a.attnum)
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND NOT c.relhassubclass
        AND c.oid NOT IN (SELECT inhrelid FROM pg_inherits)
    GROUP BY c.relname HAVING bool_and(a.atttypid IN (16, 17, 19, 20, 21, 23, 25, 700, 701, 1042, 1043, 1082, 1114, 1184, 1700))
    ORDER BY 1;
";

/// Runs all files of the list. With `tells`, also prints each query that is refused or differs.
pub fn run(servers: &Servers, tells: bool) -> Result<Tally> {
    let files: Files =
        toml::from_str(&list::read("doors/regress.toml")?).context("testdata/doors/regress.toml")?;
    let folder = install()?;
    let mut tally = Tally::new("regress");
    for listed in &files.file {
        let counts = check(servers, &folder, &listed.name, tells)?;
        let Counts { same, refused, differs } = counts;
        println!("{}.sql: {same} the same, {refused} refused, {differs} different", listed.name);
        match counts == listed.counts {
            true => tally.pass(),
            false => tally.fail(format!("regress: {}.sql has other numbers in the list", listed.name)),
        }
    }
    Ok(tally)
}

fn check(servers: &Servers, folder: &Path, name: &str, tells: bool) -> Result<Counts> {
    let node = Node::start(&servers.program)?;
    let postgres = servers.empty()?;
    set_up(folder, &postgres, &node.postgres)?;
    let file = folder.join("sql").join(format!("{name}.sql"));
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let statements: Vec<Statement> =
        split::statements(&text).iter().map(|sql| Statement::of_list(sql)).collect();
    let (expected, got) = (answers(&postgres, &statements)?, answers(&node.postgres, &statements)?);
    let mut counts = Counts::default();
    for ((statement, expected), got) in statements.iter().zip(&expected).zip(&got) {
        if !split::is_query(&statement.sql) {
            continue;
        }
        let (count, how) = match answers::compare_loosely(expected, got) {
            Verdict::Same => (&mut counts.same, None),
            Verdict::Refused(how) => (&mut counts.refused, Some(how)),
            Verdict::Differs(how) => (&mut counts.differs, Some(how)),
        };
        *count += 1;
        if let (Some(how), true) = (how, tells) {
            println!("{name}: {}\n{how}", statement.sql);
        }
    }
    Ok(counts)
}

fn answers(endpoint: &Endpoint, statements: &[Statement]) -> Result<Vec<Said>> {
    let mut script = SETTINGS.to_string();
    for (number, statement) in statements.iter().enumerate() {
        let end = if statement.sql.ends_with("\\.") { "" } else { ";" };
        script.push_str(&format!("{}{end}\n{}\n", statement.sql, answers::marked(number)));
    }
    let said = Said::all(&endpoint.psql(&script)?);
    let next = statements.get(said.len()).map_or("", |statement| statement.sql.as_str());
    ensure!(said.len() == statements.len(), "psql ended before it had the answer of: {next}");
    Ok(said)
}

/// Makes the tables of the tests in PostgreSQL, and copies those to a node that it can have.
fn set_up(folder: &Path, postgres: &Endpoint, door: &Endpoint) -> Result<()> {
    let file = folder.join("sql/test_setup.sql");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    // The server may not read this user's files; psql may.
    let text =
        text.replace("COPY ", "\\copy ").replace(" FROM :'filename';", " FROM PROGRAM 'cat \"$DATA\"'");
    let text = text.lines().map(|line| match line.strip_prefix("\\set filename :abs_srcdir '") {
        Some(data) => format!("\\setenv DATA '{}{}", folder.display(), data),
        None => line.to_string(),
    });
    postgres.psql(&text.collect::<Vec<_>>().join("\n"))?;
    for table in postgres.psql(TABLES)?.lines() {
        let (name, columns) = table.split_once('\t').context("a table without columns")?;
        let rows = postgres.psql(&format!("COPY {name} TO STDOUT;"))?;
        execute(door, &format!("CREATE TABLE {name} ({columns});\nCOPY {name} FROM STDIN;\n{rows}\\.\n"))?;
    }
    Ok(())
}

/// Returns the folder with the tests.
fn install() -> Result<PathBuf> {
    let folder = cargo::cache("doors-clients")?.join("regress");
    if !folder.join("sql").exists() {
        println!("fetching the sources of {PACKAGE} (23 MB, and 10 MB of lists)");
        fs::create_dir_all(&folder)?;
        debian::download_source(&folder, PACKAGE)?;
        let unpack = format!(
            "tar -xjf {PACKAGE}_*.orig.tar.bz2 --strip-components=4 --wildcards '*/src/test/regress/sql/*' '*/src/test/regress/data/*'"
        );
        programs::run_in(&folder, "sh", ["-c", &unpack], "install bzip2, remove the folder and try again")?;
    }
    ensure!(folder.join("sql/test_setup.sql").exists(), "no tests of {NAME}'s doors in {}", folder.display());
    Ok(folder)
}
