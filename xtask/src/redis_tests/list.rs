//! The lists in `testdata/redis/` (Redis' test units that run, and known failures), and the deviations of a unit's
//! results from them.

use super::output::Output;
use crate::cargo;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::iter::Sum;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The contents of `units.toml`, with what is recorded about each unit.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    pub units: Vec<Unit>,
    left_out: Vec<LeftOut>,
}

/// A unit of Redis' tests that runs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unit {
    pub name: String,
    #[serde(default)]
    pub known: Vec<Known>,
    #[serde(skip)]
    recorded: Recorded,
}

/// A test that fails for another reason than an absent command or setting.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    pub test: String,
    kind: Kind,
    #[expect(dead_code, reason = "for the reader of the list; must be there")]
    reason: String,
}

/// The reason why a test does not count, or that it counts as a failure.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    /// The test needs a type or command that farpool does not have.
    Absent,
    /// The test needs a setting that does not exist or cannot be set while the node runs.
    Setting,
    Debug,
    /// The test inspects how Redis encodes values, or how much memory they use.
    Encoding,
    Replication,
    /// Redis' harness runs the test only on a server that it starts itself, or with gigabytes of memory.
    OwnServer,
    /// The test uses only supported features and fails.
    Fails,
}

/// A unit of Redis' tests that does not run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeftOut {
    names: Vec<String>,
    #[expect(dead_code, reason = "for the reader of the list; must be there")]
    reason: String,
}

/// The entry of a unit in `recorded.toml`.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// Number of tests that pass.
    pub passed: usize,
    /// Tests that fail because something is absent, with the commands; CONFIG-SET stands for a setting.
    #[serde(default)]
    pub absent: BTreeMap<String, String>,
}

impl List {
    pub fn read() -> Result<List> {
        let text = fs::read_to_string(path("units.toml")).context("cannot read testdata/redis/units.toml")?;
        let mut list: List = toml::from_str(&text).context("testdata/redis/units.toml")?;
        let mut recorded = recorded()?;
        for unit in &mut list.units {
            unit.recorded = recorded.remove(&unit.name).unwrap_or_default();
        }
        Ok(list)
    }

    /// Returns the number of units that do not run.
    pub fn left_out(&self) -> usize {
        self.left_out.iter().map(|group| group.names.len()).sum()
    }

    /// Checks that every unit of Redis either runs or is left out.
    pub fn check_names(&self, harness: &Path) -> Result<()> {
        let mut command = Command::new("tclsh");
        let all = command.args(["tests/test_helper.tcl", "--list-tests"]).current_dir(harness).output()?;
        let all = String::from_utf8_lossy(&all.stdout).into_owned();
        let all: BTreeSet<&str> = all.lines().collect();
        let run = self.units.iter().map(|unit| unit.name.as_str());
        let left_out = self.left_out.iter().flat_map(|group| group.names.iter().map(String::as_str));
        let listed: BTreeSet<&str> = run.chain(left_out).collect();
        let differences: Vec<&&str> = all.symmetric_difference(&listed).collect();
        if !differences.is_empty() {
            bail!("not the same in Redis' list of units and in testdata/redis/units.toml: {differences:?}");
        }
        Ok(())
    }
}

impl Unit {
    /// Returns the deviations from the lists. With `record`, only those that concern `units.toml`.
    pub fn compare(&self, output: &Output, record: bool) -> Vec<String> {
        let name = &self.name;
        let mut wrong = Vec::new();
        let failed: BTreeSet<&str> = output.failed.iter().map(|failure| failure.test.as_str()).collect();
        for failure in &output.failed {
            let absent = failure.absent_as_text();
            let is_recorded = self.recorded.absent.get(&failure.test).is_some_and(|listed| *listed == absent);
            if self.known(&failure.test).is_none() && !(is_recorded || record && !absent.is_empty()) {
                let used = if absent.is_empty() { String::new() } else { format!(" (absent: {absent})") };
                wrong.push(format!("{name}: `{}` fails{used}: {}", failure.test, failure.message.trim()));
            }
        }
        let known = self.known.iter().map(|known| &known.test);
        let recorded = self.recorded.absent.keys().filter(|_| !record);
        let passing = known.chain(recorded).filter(|test| !failed.contains(test.as_str()));
        wrong.extend(passing.map(|test| format!("{name}: `{test}` is listed and does not fail")));
        // A different number of passing tests shows a block of tests that ends early, or a test that the harness skips.
        if !record && output.passed.len() != self.recorded.passed {
            let (got, listed) = (output.passed.len(), self.recorded.passed);
            wrong.push(format!("{name}: {got} tests pass, {listed} are recorded: see --record"));
        }
        wrong
    }

    pub fn count(&self, output: &Output) -> Count {
        let mut count = Count { passed: output.passed.len(), ..Count::default() };
        let failed = output.failed.iter().map(|failure| match self.known(&failure.test) {
            Some(known) => known.kind,
            None if failure.absent.contains("CONFIG-SET") => Kind::Setting,
            None if failure.absent.contains("DEBUG") => Kind::Debug,
            None if failure.absent.is_empty() => Kind::Fails,
            None => Kind::Absent,
        });
        let left_out = output.left_out.iter().map(|(test, reason)| match self.known(test) {
            Some(known) => known.kind,
            None if reason.contains("needs:debug") => Kind::Debug,
            None if reason.contains("needs:repl") => Kind::Replication,
            None => Kind::OwnServer,
        });
        failed.chain(left_out).for_each(|kind| count.add(kind));
        count
    }

    fn known(&self, test: &str) -> Option<&Known> {
        self.known.iter().find(|known| known.test == test)
    }
}

/// Numbers of tests. A block that the harness skips counts as one.
#[derive(Default)]
pub struct Count {
    pub passed: usize,
    pub failed: usize,
    absent: usize,
    setting: usize,
    debug: usize,
    encoding: usize,
    replication: usize,
    own_server: usize,
}

impl Count {
    pub const HEAD: &str =
        "unit                   passed failed  share | absent setting DEBUG encoding replication own server";

    fn add(&mut self, kind: Kind) {
        *match kind {
            Kind::Absent => &mut self.absent,
            Kind::Setting => &mut self.setting,
            Kind::Debug => &mut self.debug,
            Kind::Encoding => &mut self.encoding,
            Kind::Replication => &mut self.replication,
            Kind::OwnServer => &mut self.own_server,
            Kind::Fails => &mut self.failed,
        } += 1;
    }

    pub fn skipped(&self) -> usize {
        self.absent + self.setting + self.debug + self.encoding + self.replication + self.own_server
    }

    /// Returns the share of passing tests among those that are not skipped; 1 if there are none.
    pub fn share(&self) -> f64 {
        match self.passed + self.failed {
            0 => 1.0,
            all => self.passed as f64 / all as f64,
        }
    }

    pub fn line(&self, name: &str) -> String {
        let share = match self.passed + self.failed {
            0 => "-".to_string(),
            _ => format!("{:.1}%", 100.0 * self.share()),
        };
        format!(
            "{name:<23}{:>6}{:>7}{share:>7} |{:>7}{:>8}{:>6}{:>9}{:>12}{:>11}",
            self.passed,
            self.failed,
            self.absent,
            self.setting,
            self.debug,
            self.encoding,
            self.replication,
            self.own_server
        )
    }
}

impl Sum for Count {
    fn sum<I: Iterator<Item = Count>>(counts: I) -> Count {
        counts.fold(Count::default(), |all, count| Count {
            passed: all.passed + count.passed,
            failed: all.failed + count.failed,
            absent: all.absent + count.absent,
            setting: all.setting + count.setting,
            debug: all.debug + count.debug,
            encoding: all.encoding + count.encoding,
            replication: all.replication + count.replication,
            own_server: all.own_server + count.own_server,
        })
    }
}

/// Reads `recorded.toml`, by unit.
pub fn recorded() -> Result<BTreeMap<String, Recorded>> {
    let text =
        fs::read_to_string(path("recorded.toml")).context("cannot read testdata/redis/recorded.toml")?;
    toml::from_str(&text).context("testdata/redis/recorded.toml")
}

/// Writes `recorded.toml`.
pub fn write(recorded: &BTreeMap<String, Recorded>) -> Result<()> {
    // JSON strings are valid TOML strings.
    let quoted = |text: &str| serde_json::to_string(text);
    let mut text = "# Recorded by `cargo xtask redis-tests --record`: by unit of Redis' tests, how many tests pass,\n\
                    # and which fail because the node replied that it does not have a command, subcommand or\n\
                    # setting (CONFIG-SET).\n"
        .to_string();
    for (name, unit) in recorded {
        write!(text, "\n[{}]\npassed = {}\n", quoted(name)?, unit.passed)?;
        if !unit.absent.is_empty() {
            writeln!(text, "[{}.absent]", quoted(name)?)?;
        }
        for (test, commands) in &unit.absent {
            writeln!(text, "{} = {}", quoted(test)?, quoted(commands)?)?;
        }
    }
    fs::write(path("recorded.toml"), text).context("cannot write testdata/redis/recorded.toml")
}

fn path(name: &str) -> PathBuf {
    cargo::root().join("testdata/redis").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit() -> Unit {
        let text = "name = 'unit/x'\n[[known]]\ntest = 'odd'\nkind = 'fails'\nreason = 'r'\n";
        let recorded = "passed = 1\n[absent]\nlcs = 'LCS'\n";
        let unit: Unit = toml::from_str(text).expect("a unit");
        Unit { recorded: toml::from_str(recorded).expect("a record"), ..unit }
    }

    fn compare(text: &str) -> Vec<String> {
        unit().compare(&Output::parse(&format!("{text}[1/1 done]: unit/x (1 seconds)\n")), false)
    }

    const ABSENT: &str = "[absent]: LCS\n[err]: lcs in tests/unit/x.tcl\n";
    const ODD: &str = "[err]: odd in tests/unit/x.tcl\n";
    const GOOD: &str = "[ok]: good (0 ms)\n";

    #[test]
    fn results_as_listed_are_right_and_count_by_reason() {
        let text = format!("{GOOD}{ABSENT}{ODD}");
        assert_eq!(compare(&text), Vec::<String>::new());
        let count = unit().count(&Output::parse(&format!("{text}[ignore]: d: Tag: needs:debug denied\n")));
        assert_eq!((count.passed, count.failed, count.absent, count.debug), (1, 1, 1, 1));
        assert_eq!(count.share(), 0.5);
    }

    #[test]
    fn what_is_not_as_listed_is_told() {
        let new = "[err]: new in tests/unit/x.tcl\n";
        assert_eq!(compare(&format!("{GOOD}{ABSENT}{ODD}{new}")), ["unit/x: `new` fails: "]);
        let passes = "unit/x: `odd` is listed and does not fail";
        assert_eq!(compare(&format!("{GOOD}{ABSENT}")), [passes]);
        // The test is listed for an absent command, but fails with another error, because the command exists now.
        let wrong = compare(&format!("{GOOD}{ODD}[err]: lcs in tests/unit/x.tcl\n"));
        assert_eq!(wrong, ["unit/x: `lcs` fails: "]);
        let fewer = ["unit/x: 0 tests pass, 1 are recorded: see --record"];
        assert_eq!(compare(&format!("{ABSENT}{ODD}")), fewer);
    }
}
