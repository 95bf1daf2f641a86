//! Drivers and tools of PostgreSQL, and drivers of Flight SQL: each runs the same checks against a node and against
//! PostgreSQL, over the same tables. What they print is compared: PostgreSQL is right, except where `testdata/doors.toml`
//! gives a reason. To PostgreSQL, the checks of Flight SQL go by a driver of the same interface (ADBC, JDBC).
//!
//! A script in `testdata/doors/clients/` prints a line `== NAME` for each check, then the result or the error.

use super::list::{List, Tally};
use super::node::Node;
use super::{CLIENTS, OPENED, Servers, python};
use crate::postgres::Endpoint;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

/// A driver or tool.
pub struct Driver {
    pub name: &'static str,
    way: Way,
}

/// The way in which checks of a driver are run.
enum Way {
    /// Each line of `psql.txt` is a command for psql.
    Psql,
    /// A Python script, with arguments.
    Python(&'static [&'static str]),
    /// A Java program.
    Java(&'static str),
    /// A program in a folder of the Go module.
    Go(&'static str),
    NodeJs,
}

pub const ALL: [Driver; 13] = [
    Driver { name: "psql", way: Way::Psql },
    Driver { name: "psycopg", way: Way::Python(&["psycopg_checks.py"]) },
    Driver { name: "asyncpg", way: Way::Python(&["asyncpg_checks.py"]) },
    Driver { name: "sqlalchemy", way: Way::Python(&["sqlalchemy_checks.py", "psycopg"]) },
    Driver { name: "psycopg2", way: Way::Python(&["sqlalchemy_checks.py", "psycopg2"]) },
    Driver { name: "pandas", way: Way::Python(&["pandas_checks.py"]) },
    Driver { name: "django", way: Way::Python(&["django_checks.py"]) },
    Driver { name: "jdbc", way: Way::Java("Checks.java") },
    Driver { name: "pgx", way: Way::Go("checks") },
    Driver { name: "node", way: Way::NodeJs },
    Driver { name: "adbc", way: Way::Python(&["adbc_checks.py"]) },
    Driver { name: "flight-go", way: Way::Go("flight") },
    Driver { name: "flight-jdbc", way: Way::Java("FlightChecks.java") },
];

impl Driver {
    /// Runs the checks, against a node of their own.
    pub fn run(&self, servers: &Servers, list: &List) -> Result<Tally> {
        let node = Node::start(&servers.program)?;
        let postgres = servers.filled(&node)?;
        let here = self.output(&node.postgres, Some(&node.flight))?;
        let there = self.output(&postgres, None)?;
        Ok(compared(self.name, &list.checks(self.name), &here, &there))
    }

    /// Returns what the checks print. `flight` is the port of Flight SQL, where there is one.
    fn output(&self, endpoint: &Endpoint, flight: Option<&str>) -> Result<String> {
        let scripts = CLIENTS.scripts();
        let mut command = match self.way {
            Way::Psql => return commands_of_psql(endpoint),
            Way::Python(arguments) => {
                let mut command = Command::new(python()?);
                // Python would leave compiled modules in the tree.
                command.args(arguments).current_dir(scripts).env("PYTHONDONTWRITEBYTECODE", "1");
                command
            }
            Way::Java(program) => {
                let mut command = Command::new("java");
                command.arg(OPENED).arg("-cp").arg(CLIENTS.java()?.join("*")).arg(scripts.join(program));
                command
            }
            Way::Go(program) => Command::new(CLIENTS.go(program)?),
            Way::NodeJs => {
                let mut command = Command::new("node");
                command.current_dir(CLIENTS.node_js(&["checks.mjs"])?).arg("checks.mjs");
                command
            }
        };
        command.envs(endpoint.environment()).envs(flight.map(|port| ("FLIGHT_PORT", port)));
        let done = command.output();
        let done = done.with_context(|| format!("cannot start {command:?}"))?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "{} ended with {}: {said}", self.name, done.status);
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }
}

/// Runs each command in a process of its own, since psql writes results and errors to two streams.
fn commands_of_psql(endpoint: &Endpoint) -> Result<String> {
    let file = CLIENTS.scripts().join("psql.txt");
    let commands = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut all = String::new();
    for command in commands.lines() {
        let done = Command::new("psql").args(["-X", "-c", command]).envs(endpoint.environment()).output()?;
        let (said, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        all.push_str(&format!("== {command}\n{said}{errors}"));
    }
    Ok(all)
}

/// Compares the results of all checks.
fn compared(name: &str, listed: &BTreeSet<&str>, here: &str, there: &str) -> Tally {
    let mut tally = Tally::new(name);
    let (here, there) = (blocks(here), blocks(there));
    let names: BTreeSet<&str> = there.iter().map(|(name, _)| *name).collect();
    for (check, expected) in &there {
        let got = here.iter().find(|(name, _)| name == check).map(|(_, result)| *result);
        let problem = match got {
            Some(got) if got == *expected => None,
            got => Some(format!(
                "  here:\n{}  PostgreSQL:\n{}",
                shown(got.unwrap_or("(nothing)")),
                shown(expected)
            )),
        };
        tally.check(listed, check, problem);
    }
    for gone in listed.difference(&names) {
        tally.fail(format!("{name}: {gone}: is listed, and there is no such check"));
    }
    tally
}

fn shown(result: &str) -> String {
    result.trim_end().lines().map(|line| format!("    {line}\n")).collect()
}

/// Splits the output of checks at their names.
fn blocks(output: &str) -> Vec<(&str, &str)> {
    let all = output.strip_prefix("== ").map(|all| all.split("\n== ")).into_iter().flatten();
    all.map(|block| block.split_once('\n').map_or((block, ""), |(name, result)| (name, result.trim_end())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_that_differ_and_are_not_listed_fail() {
        let there = "== a\n1\n2\n== b\nx\n== c\n";
        let tally = |here, listed: &[&str]| {
            let tally = compared("d", &listed.iter().copied().collect(), here, there);
            (tally.line(), tally.failed())
        };
        assert_eq!(tally(there, &[]).0, "d                  3       3       0       0");
        assert_eq!(tally("== a\n1\n== b\nx\n== c\n", &["a"]).1, 0);
        assert_eq!(tally("== a\n1\n== b\nx\n== c\n", &[]).1, 1);
        assert_eq!(tally("== a\n1\n2\n", &[]).1, 2, "two checks that are missing");
        assert_eq!(tally(there, &["b", "z"]).1, 2);
    }
}
