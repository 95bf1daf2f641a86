//! `farpool cancel`: cancels queries at a node.

use super::output::print_text;
use super::pool_args::PoolArgs;
use super::stop::Outcome;

/// End queries that are under way at a memory node
///
/// Those of the token's tenant; of all tenants with a token for the role admin. Their clients get an error that says
/// who did it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  farpool cancel 7")]
pub struct Args {
    /// Their numbers, as `farpool queries` lists them
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
