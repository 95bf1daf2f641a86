//! A PostgreSQL that has the tables of a node as foreign tables (`postgres_fdw`): `testdata/doors/plans.toml` has what it
//! hands over to the node for each statement, and each answer is that of the same rows in a table of its own.

use super::Servers;
use super::list::{self, List, Tally};
use super::node::{NAME, Node, execute};
use crate::postgres::Endpoint;
use anyhow::{Context, Result};
use serde::Deserialize;

/// The schema of the foreign tables.
pub const SCHEMA: &str = "pool";

/// The contents of `plans.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plans {
    plan: Vec<Plan>,
}

/// A statement over foreign tables, and the texts that PostgreSQL sends to the node for it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    statement: String,
    remote: Vec<String>,
    /// Whether PostgreSQL may not join itself: what pays with tables of this size is not asked here.
    #[serde(default)]
    joins_remotely: bool,
}

/// Makes PostgreSQL take every other plan first.
const JOINS_REMOTELY: &str =
    "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_nestloop = off;";

/// Statements that change foreign tables, and one that shows the rows then; PostgreSQL's tables are changed alike.
const CHANGES: [(&str, &str); 12] = [
    ("INSERT", "INSERT INTO {}.visits VALUES (1, 'new', 5), (NULL, NULL, NULL)"),
    ("INSERT of a query", "INSERT INTO {}.visits SELECT id, name, small FROM {}.things"),
    (
        "INSERT of columns",
        "INSERT INTO {}.things (id, price, moment) VALUES (7, 0.01, '2024-02-29 12:00:00+05')",
    ),
    (
        "INSERT of many rows",
        "INSERT INTO {}.visits SELECT n, 'many', n % 7 FROM generate_series(1, 3000) AS g(n)",
    ),
    ("COPY", "COPY {}.visits FROM STDIN;\n5\tcopied\t1\n6\t\\N\t\\N\n\\."),
    ("COPY of CSV", "COPY {}.visits FROM STDIN (FORMAT csv);\n5,\"a,\"\"b\",1\n\\."),
    (
        "a transaction",
        "BEGIN; INSERT INTO {}.visits VALUES (8, 'x', 1); INSERT INTO {}.visits VALUES (8, 'y', 2); COMMIT",
    ),
    ("a transaction that is rolled back", "BEGIN; INSERT INTO {}.visits VALUES (9, 'z', 1); ROLLBACK"),
    ("UPDATE", "UPDATE {}.visits SET minutes = minutes + 1, who = 'changed' WHERE thing = 8"),
    ("DELETE", "DELETE FROM {}.visits WHERE who = 'many' AND minutes > 2"),
    (
        "an UPDATE that is rolled back",
        "BEGIN; UPDATE {}.things SET price = 0; ROLLBACK; SELECT sum(price) FROM {}.things",
    ),
    ("TRUNCATE", "BEGIN; TRUNCATE {}.visits; INSERT INTO {}.visits VALUES (1, 'last', 1); COMMIT"),
];

/// Imports all tables of a node's schema `public` into the schema [`SCHEMA`].
pub fn import(postgres: &Endpoint, node: &Node) -> Result<()> {
    let port = &node.postgres.port;
    execute(
        postgres,
        &format!(
            "CREATE EXTENSION IF NOT EXISTS postgres_fdw;
             CREATE SERVER pool FOREIGN DATA WRAPPER postgres_fdw
                 OPTIONS (host '127.0.0.1', port '{port}', dbname '{NAME}', fetch_size '1000');
             CREATE USER MAPPING FOR CURRENT_USER SERVER pool OPTIONS (user '{NAME}', password_required 'false');
             CREATE SCHEMA {SCHEMA};
             IMPORT FOREIGN SCHEMA public FROM SERVER pool INTO {SCHEMA};"
        ),
    )
}

/// Checks what is handed over, answers, and changes.
pub fn run(servers: &Servers, list: &List) -> Result<Tally> {
    let plans: Plans =
        toml::from_str(&list::read("doors/plans.toml")?).context("testdata/doors/plans.toml")?;
    let node = Node::start(&servers.program)?;
    let postgres = servers.filled(&node)?;
    import(&postgres, &node)?;
    let (part, mut tally) = ("foreign", Tally::new("foreign"));
    let listed = list.checks(part);
    // Samples of rows, for the estimates of PostgreSQL's planner.
    let analyzed = asked(&postgres, SCHEMA, "ANALYZE pool.things, pool.visits")?;
    tally.check(&listed, "ANALYZE", (!analyzed.is_empty()).then_some(analyzed));
    for plan in &plans.plan {
        tally.check(&listed, &plan.statement, plan.problem(&postgres)?);
    }
    for (name, change) in CHANGES {
        tally.check(&listed, name, change_problem(&postgres, change)?);
    }
    for (statement, problem) in collation_problems(&postgres, &node)? {
        tally.check(&listed, statement, problem);
    }
    Ok(tally)
}

/// Asks what depends on the order of texts, from a database whose order is not that of bytes. The table of its own has
/// the collations that the import gave the foreign one.
fn collation_problems(postgres: &Endpoint, node: &Node) -> Result<Vec<(&'static str, Option<String>)>> {
    let name = "collated";
    execute(
        postgres,
        &format!(
            "CREATE DATABASE {name} LOCALE_PROVIDER icu ICU_LOCALE 'en' TEMPLATE template0 ENCODING 'UTF8'"
        ),
    )?;
    let postgres = Endpoint { database: name.into(), ..postgres.clone() };
    import(&postgres, node)?;
    execute(
        &postgres,
        &format!(
            "CREATE TABLE visits (LIKE {SCHEMA}.visits);
             INSERT INTO {SCHEMA}.visits VALUES (1, 'Zoe', 1), (2, 'anna', 2), (3, 'Bob', 3), (4, 'Ängström', 4);
             INSERT INTO visits SELECT * FROM {SCHEMA}.visits;"
        ),
    )?;
    let statements = [
        "SELECT who FROM visits ORDER BY who LIMIT 4",
        "SELECT max(who), min(who) FROM visits",
        "SELECT count(*) FROM visits WHERE who > 'b'",
    ];
    let problem = |statement: &'static str| -> Result<_> {
        let (own, foreign) = (asked(&postgres, "public", statement)?, asked(&postgres, SCHEMA, statement)?);
        Ok((statement, difference(&foreign, &own)))
    };
    statements.into_iter().map(problem).collect()
}

impl Plan {
    fn problem(&self, postgres: &Endpoint) -> Result<Option<String>> {
        let settings = if self.joins_remotely { JOINS_REMOTELY } else { "" };
        let explain = format!("{settings} EXPLAIN (VERBOSE, COSTS OFF) {}", self.statement);
        let explained = asked(postgres, SCHEMA, &explain)?;
        let sent = explained.lines().filter_map(|line| line.trim_start().strip_prefix("Remote SQL: "));
        let sent: Vec<&str> = sent.collect();
        if sent != self.remote {
            return Ok(Some(format!("  sent:     {sent:#?}\n  expected: {:#?}\n{explained}", self.remote)));
        }
        let statement = format!("{settings} {}", self.statement);
        let (there, here) = (asked(postgres, "public", &statement)?, asked(postgres, SCHEMA, &statement)?);
        Ok(difference(&here, &there))
    }
}

/// Makes a change on foreign tables and on PostgreSQL's; returns how they differ then.
fn change_problem(postgres: &Endpoint, change: &str) -> Result<Option<String>> {
    let mut after = Vec::new();
    for schema in ["public", SCHEMA] {
        let said = asked(postgres, schema, &change.replace("{}", schema))?;
        let shown =
            "SELECT * FROM things ORDER BY id, price; SELECT * FROM visits ORDER BY thing, who, minutes";
        after.push(said + &asked(postgres, schema, shown)?);
    }
    Ok(difference(&after[1], &after[0]))
}

/// Tells rows that only foreign tables have, and that only PostgreSQL's own have.
fn difference(foreign: &str, own: &str) -> Option<String> {
    let only = |these: &str, those: &str| {
        let lines = these.lines().filter(|line| !those.lines().any(|other| other == *line)).take(5);
        lines.map(|line| format!("    {line}\n")).collect::<String>()
    };
    (foreign != own)
        .then(|| format!("  foreign tables:\n{}  tables:\n{}", only(foreign, own), only(own, foreign)))
}

/// Asks with names of tables in a schema; returns rows, or the error.
fn asked(postgres: &Endpoint, schema: &str, statement: &str) -> Result<String> {
    let end = if statement.ends_with("\\.") { "\n" } else { ";\n" };
    // Whatever the tables are, the message names them the same way.
    let script = format!(
        "SET search_path = {schema};\n{statement}{end}\\if :ERROR\n\\echo :SQLSTATE :LAST_ERROR_MESSAGE\n\\endif\n"
    );
    postgres.psql(&script)
}
