//! The list of what is known to differ from PostgreSQL, `testdata/doors.toml`, and the results of a part of the checks.

use crate::cargo;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;

/// The list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// Checks whose results differ.
    #[serde(default)]
    known: Vec<Known>,
    /// Statements whose answers differ.
    #[serde(default)]
    pub differs: Vec<Form>,
    /// Statements that PostgreSQL answers, and a node refuses.
    #[serde(default)]
    pub refused: Vec<Form>,
}

/// Checks of a part that differ for one reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    part: String,
    checks: Vec<String>,
    #[expect(dead_code, reason = "for the reader of the list; must be there")]
    reason: String,
}

/// A difference with a statement that shows it. Random statements that contain one of its forms may differ, too.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// Statements over no table, or over the tables of `testdata/doors/tables.sql`, each of which differs.
    pub statements: Vec<String>,
    /// Whether the statements differ over foreign tables, not through the door itself.
    #[serde(default)]
    pub foreign: bool,
    /// Forms of `testdata/doors/forms.toml`, or names of what else random statements are made of.
    #[serde(default)]
    pub forms: Vec<String>,
    #[expect(dead_code, reason = "for the reader of the list; must be there")]
    reason: String,
}

impl List {
    pub fn read() -> Result<List> {
        let text = read("doors.toml")?;
        toml::from_str(&text).context("testdata/doors.toml")
    }

    /// Returns the checks of a part that are listed.
    pub fn checks<'a>(&'a self, part: &'a str) -> BTreeSet<&'a str> {
        let of_part = self.known.iter().filter(|known| known.part == part);
        of_part.flat_map(|known| known.checks.iter().map(String::as_str)).collect()
    }
}

/// Returns the text of a file in `testdata`.
pub fn read(path: &str) -> Result<String> {
    let path = cargo::root().join("testdata").join(path);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The results of a part.
pub struct Tally {
    pub part: String,
    passed: usize,
    /// Number of checks that differ and are listed.
    listed: usize,
    /// Deviations from the list.
    wrong: Vec<String>,
}

impl Tally {
    pub const HEAD: &'static str = "part          checks  passed  listed  failed";

    pub fn new(part: &str) -> Tally {
        Tally { part: part.to_string(), passed: 0, listed: 0, wrong: Vec::new() }
    }

    pub fn pass(&mut self) {
        self.passed += 1;
    }

    pub fn list(&mut self) {
        self.listed += 1;
    }

    pub fn fail(&mut self, how: impl Into<String>) {
        self.wrong.push(how.into());
    }

    /// Counts a check that may be in the list: `problem` says what is wrong, if anything is.
    pub fn check(&mut self, listed: &BTreeSet<&str>, name: &str, problem: Option<String>) {
        match (problem, listed.contains(name)) {
            (None, false) => self.pass(),
            (Some(_), true) => self.list(),
            (Some(problem), false) => self.fail(format!("{}: {name}\n{problem}", self.part)),
            (None, true) => self.fail(format!("{}: {name}: is listed and passes", self.part)),
        }
    }

    /// Prints what is wrong.
    pub fn report(&self) {
        self.wrong.iter().for_each(|line| eprintln!("{}", line.trim_end()));
    }

    pub fn failed(&self) -> usize {
        self.wrong.len()
    }

    pub fn line(&self) -> String {
        let checks = self.passed + self.listed + self.failed();
        format!("{:<14}{checks:>6}{:>8}{:>8}{:>8}", self.part, self.passed, self.listed, self.failed())
    }
}
