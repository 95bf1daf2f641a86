//! TPC-H at a small scale: its queries through the door of a gateway, over foreign tables, and over the same rows in
//! tables of PostgreSQL.

use super::list::{List, Tally};
use super::node::{Demo, Node, execute};
use super::random::answers::{self, Said, Verdict};
use super::{Servers, foreign};
use crate::cargo;
use crate::postgres::Endpoint;
use anyhow::{Context, Result, ensure};
use std::fmt::Write;
use std::fs;

/// PostgreSQL takes seconds for query 20 even so: it has no index of the tables.
const SCALE: &str = "0.005";

const TABLES: [&str; 8] =
    ["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"];

/// Compares the answers of all queries.
pub fn run(servers: &Servers, list: &List) -> Result<Vec<Tally>> {
    let demo = Demo::start(&servers.program, SCALE)?;
    let gateway = Node::gateway(&servers.program, &demo.url)?;
    let postgres = servers.empty()?;
    foreign::import(&postgres, &gateway)?;
    let mut copied = String::new();
    for table in TABLES {
        let foreign = format!("{}.{table}", foreign::SCHEMA);
        writeln!(copied, "CREATE TABLE {table} AS SELECT * FROM {foreign}; ANALYZE {table}, {foreign};")?;
    }
    execute(&postgres, &copied)?;
    let queries = queries()?;
    let expected = answers(&postgres, "public", &queries)?;
    let mut tallies = Vec::new();
    for (part, endpoint, path) in
        [("tpch", &gateway.postgres, "public"), ("tpch, fdw", &postgres, foreign::SCHEMA)]
    {
        let (listed, mut tally) = (list.checks(part), Tally::new(part));
        let got = answers(endpoint, path, &queries)?;
        for (((name, _), expected), got) in queries.iter().zip(&expected).zip(&got) {
            let problem = match answers::compare_loosely(expected, got) {
                Verdict::Same => None,
                Verdict::Refused(how) | Verdict::Differs(how) => Some(how),
            };
            tally.check(&listed, name, problem);
        }
        tallies.push(tally);
    }
    Ok(tallies)
}

/// Returns the names and texts of the queries.
fn queries() -> Result<Vec<(String, String)>> {
    let folder = cargo::root().join("testdata/tpch/queries");
    let files = fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut queries = Vec::new();
    for file in files {
        let file = file?.path();
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        queries.push((name, text));
    }
    queries.sort();
    Ok(queries)
}

fn answers(endpoint: &Endpoint, path: &str, queries: &[(String, String)]) -> Result<Vec<Said>> {
    let mut script = format!("SET search_path = {path};\n");
    for (number, (_, text)) in queries.iter().enumerate() {
        writeln!(script, "{}\n;\n{}", text.trim_end().trim_end_matches(';'), answers::marked(number))?;
    }
    let said = Said::all(&endpoint.psql(&script)?);
    ensure!(said.len() == queries.len(), "psql ended after {} queries of TPC-H", said.len());
    Ok(said)
}
