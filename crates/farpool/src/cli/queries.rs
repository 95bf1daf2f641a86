//! `farpool queries`: lists the queries that are running at a node.

use super::output::TextFormat;
use super::output::grid::{Align, Grid};
use super::pool_args::PoolArgs;
use super::size;
use super::stop::Outcome;
use farpool::{Error, QueryInfo};
use std::time::Duration;

/// List the running queries of a memory node
///
/// Only queries of the token's tenant; with a token for the role admin, queries of all tenants.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  farpool queries\n  farpool queries --format json\n  farpool cancel 7")]
pub struct Args {
    /// Format of the output; `json` prints one object per query, one per line
    #[arg(long, value_enum, default_value = "table")]
    format: TextFormat,

    #[command(flatten)]
    pool: PoolArgs,
}

/// Requests the list and prints it.
pub fn run(args: Args) -> Outcome {
    super::run_until_interrupted(async move {
        let pool = args.pool.connect().await?;
        let queries = pool.queries().await?;
        if queries.is_empty() {
            eprintln!("nothing is under way");
        }
        let text = match args.format {
            TextFormat::Table => as_text(&queries),
            TextFormat::Json => as_json(&queries)?,
        };
        args.format.print(&text)
    })
}

fn as_json(queries: &[QueryInfo]) -> Outcome<String> {
    let lines = queries.iter().map(|query| serde_json::to_string(query).map(|line| line + "\n"));
    Ok(lines.collect::<Result<String, _>>().map_err(|error| Error::internal(error.to_string()))?)
}

fn as_text(queries: &[QueryInfo]) -> String {
    if queries.is_empty() {
        return String::new();
    }
    let mut grid = Grid::new(&[
        ("id", Align::Right),
        ("tenant", Align::Left),
        ("token", Align::Left),
        ("client", Align::Left),
        ("peer", Align::Left),
        ("table", Align::Left),
        ("state", Align::Left),
        ("since", Align::Right),
        ("CPU time", Align::Right),
        ("rows", Align::Right),
        ("bytes", Align::Right),
    ]);
    for query in queries {
        grid.row(vec![
            query.id.to_string(),
            query.tenant.clone(),
            query.token.clone(),
            query.client.clone(),
            query.peer.clone(),
            query.table.clone(),
            query.state.name().to_string(),
            size::duration(Duration::from_nanos(query.elapsed_ns)),
            size::duration(Duration::from_nanos(query.cpu_ns)),
            size::count(query.rows),
            size::bytes(query.bytes),
        ]);
    }
    grid.to_string()
}
