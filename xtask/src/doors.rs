//! `cargo xtask doors`: clients of the protocols that a node speaks beside its own, each for real. PostgreSQL 15 runs the
//! same statements over the same tables, and is right except where `testdata/doors.toml` gives a reason.
//!
//! A door is a protocol (`--postgres`, `--flight`) with its drivers, tools and examples. Drivers come from PyPI, Maven Central, Go's
//! and Node's registries, at the versions in `testdata/doors/clients/`.
//!
//! Invariant: the lists are accurate. An unlisted difference is an error, and so is a listed one that is gone.

mod catalog;
mod drivers;
mod foreign;
mod list;
mod node;
mod random;
mod regress;
mod snippets;
mod tpch;

use crate::clients::Clients;
use crate::postgres::{Endpoint, Postgres};
use crate::{cargo, programs};
use anyhow::{Context, Result, ensure};
use list::{List, Tally};
use node::{NAME, Node, execute};
use std::fs;
use std::path::PathBuf;

const CLIENTS: Clients = Clients { cache: "doors-clients", scripts: "doors/clients" };

/// The option with which Arrow's libraries run on Java 17.
const OPENED: &str = "--add-opens=java.base/java.nio=org.apache.arrow.memory.core,ALL-UNNAMED";

/// The tables of all parts, for a node and for PostgreSQL.
const TABLES: &str = "doors/tables.sql";

/// Options of the command.
#[derive(clap::Args, Default)]
pub struct Options {
    /// Only these parts, as the table names them: psql, jdbc, foreign, random, snippets, …
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// This program in place of the one that is built from the tree.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Print each query of PostgreSQL's regression tests that is refused or differs.
    #[arg(long)]
    tell: bool,
    #[command(flatten)]
    random: random::Options,
}

/// The servers that the parts start or share.
struct Servers {
    program: PathBuf,
    postgres: Postgres,
}

impl Servers {
    /// Fills a node and an empty database of PostgreSQL with the same tables, and returns the way to the latter. Its user
    /// and database have the names that those of a node have.
    fn filled(&self, node: &Node) -> Result<Endpoint> {
        let endpoint = self.empty()?;
        let tables = list::read(TABLES)?;
        execute(&endpoint, &tables)?;
        node.execute(&tables)?;
        Ok(endpoint)
    }

    /// Makes an empty database of PostgreSQL, in place of the one before.
    fn empty(&self) -> Result<Endpoint> {
        let administrator = self.postgres.endpoint();
        administrator.psql(&format!("CREATE ROLE {NAME} SUPERUSER LOGIN"))?;
        execute(&administrator, &format!("DROP DATABASE IF EXISTS {NAME} WITH (FORCE)"))?;
        execute(&administrator, &format!("CREATE DATABASE {NAME} OWNER {NAME}"))?;
        Ok(Endpoint { user: NAME.into(), database: NAME.into(), ..administrator })
    }
}

/// Runs all parts and prints a table of their results.
///
/// # Errors
/// Fails if a part differs from the lists, or a client cannot be installed.
pub fn run(options: &Options) -> Result<()> {
    let program = match &options.program {
        Some(program) => program.canonicalize().with_context(|| format!("no {}", program.display()))?,
        None => cargo::build_program("farpool", &[])?,
    };
    programs::install(&["psql"], &["postgresql-client"])?;
    let list = List::read()?;
    let servers = Servers { program, postgres: Postgres::start()? };
    let mut tallies = Vec::new();
    let wants = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    for driver in drivers::ALL.iter().filter(|driver| wants(driver.name)) {
        done(driver.name, driver.run(&servers, &list).map(|tally| vec![tally]), &mut tallies);
    }
    type Part = fn(&Servers, &List, &Options) -> Result<Vec<Tally>>;
    let parts: [(&str, Part); 6] = [
        ("catalog", |servers, list, _| catalog::run(servers, list)),
        ("snippets", |servers, list, _| Ok(vec![snippets::run(servers, list)?])),
        ("foreign", |servers, list, _| Ok(vec![foreign::run(servers, list)?])),
        ("tpch", |servers, list, _| tpch::run(servers, list)),
        ("regress", |servers, _, options| Ok(vec![regress::run(servers, options.tell)?])),
        ("random", |servers, list, options| random::run(servers, list, &options.random)),
    ];
    for (name, part) in parts.into_iter().filter(|(name, _)| wants(name)) {
        done(name, part(&servers, &list, options), &mut tallies);
    }
    ensure!(!tallies.is_empty(), "there is no part {}", options.only.join(", "));
    println!("{}", Tally::HEAD);
    tallies.iter().for_each(|tally| println!("{}", tally.line()));
    let failed: usize = tallies.iter().map(Tally::failed).sum();
    ensure!(failed == 0, "{failed} checks failed (see above)");
    Ok(())
}

/// Adds the results of a part. A part that cannot be run is a failed check, and the others go on.
fn done(name: &str, results: Result<Vec<Tally>>, tallies: &mut Vec<Tally>) {
    let results = results.unwrap_or_else(|error| {
        let mut tally = Tally::new(name);
        tally.fail(format!("{name} could not be run: {error:#}"));
        vec![tally]
    });
    results.iter().for_each(Tally::report);
    tallies.extend(results);
}

/// Returns the interpreter that has all Python clients.
fn python() -> Result<PathBuf> {
    let file = CLIENTS.scripts().join("requirements.txt");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let packages = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    CLIENTS.python(&packages.map(str::to_string).collect::<Vec<_>>())
}
