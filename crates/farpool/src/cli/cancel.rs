//! `farpool cancel`: cancels queries at a node.

use super::output::print_text;
use super::pool_args::PoolArgs;
use super::stop::Outcome;

/// Cancel running queries of a memory node
///
/// Only queries of the token's tenant; with a token for the role admin, queries of all tenants. The client of a
/// cancelled query gets an error that names who cancelled it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  farpool cancel 7")]
pub struct Args {
    /// Numbers of the queries, as listed by `farpool queries`
    #[arg(value_name = "ID", required = true)]
    ids: Vec<u64>,

    #[command(flatten)]
    pool: PoolArgs,
}

/// Cancels the queries in the given order; stops at the first that is not running.
pub fn run(args: Args) -> Outcome {
    super::run_until_interrupted(async move {
        let pool = args.pool.connect().await?;
        for id in args.ids {
            pool.cancel_query(id).await?;
            print_text(&format!("cancelled {id}\n"))?;
        }
        Ok(())
    })
}
