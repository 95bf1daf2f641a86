//! Statements over the catalog as tools send them that cannot be run here: each file in `testdata/doors/catalog/` has
//! those of one, all of which a node answers.

use super::Servers;
use super::list::{List, Tally};
use super::node::Node;
use crate::cargo;
use anyhow::{Context, Result};
use std::fs;

/// Marks the line behind each statement's rows.
const MARK: &str = "==";

/// Runs the statements of all files.
pub fn run(servers: &Servers, list: &List) -> Result<Vec<Tally>> {
    let node = Node::start(&servers.program)?;
    // The statements are also run by PostgreSQL, so that none of them is wrong itself.
    let postgres = servers.filled(&node)?;
    let folder = cargo::root().join("testdata/doors/catalog");
    let files = fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut files: Vec<_> = files.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    let mut tallies = Vec::new();
    for file in files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let (listed, mut tally) = (list.checks(&name), Tally::new(&name));
        let statements: Vec<&str> = text.split(";\n").map(str::trim).filter(|one| !one.is_empty()).collect();
        let mut script =
            "SELECT 'things'::regclass::oid AS things, 'public'::regnamespace::oid AS public \\gset\n"
                .to_string();
        for statement in &statements {
            script.push_str(&format!("{statement};\n\\echo {MARK} :SQLSTATE :LAST_ERROR_MESSAGE\n"));
        }
        let (here, there) = (node.postgres.psql(&script)?, postgres.psql(&script)?);
        let (here, there) = (errors(&here), errors(&there));
        for (number, statement) in statements.iter().enumerate() {
            let statement = statement.lines().last().unwrap_or_default();
            let problem = match (there.get(number), here.get(number)) {
                (Some(None), Some(None)) => None,
                (Some(Some(error)), _) => Some(format!("  PostgreSQL: {error}")),
                (_, Some(Some(error))) => Some(format!("  {error}")),
                (None, _) | (_, None) => Some("  psql ended early".to_string()),
            };
            tally.check(&listed, statement, problem);
        }
        tallies.push(tally);
    }
    Ok(tallies)
}

/// Returns the error of each statement, if it has one.
fn errors(output: &str) -> Vec<Option<&str>> {
    let marks = output.lines().filter_map(|line| line.strip_prefix(MARK)).map(str::trim_start);
    marks.map(|said| (!said.starts_with("00000")).then_some(said)).collect()
}
