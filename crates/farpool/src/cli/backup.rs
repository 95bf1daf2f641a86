//! `farpool backup`: copies the data directory of a running node.

use super::output::print_text;
use super::pool_args::PoolArgs;
use super::progress::{Progress, Unit};
use super::size;
use super::stop::Outcome;
use farpool::backup::{Count, Taken};
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  farpool backup --pool farpool://node7:9797 --token-file admin.token /backup/node7
  farpool backup s3://bucket/node7

The node makes a checkpoint and keeps its files while they are read; clients may change and drop tables meanwhile. \
The backup is incremental: files that the target has are not sent again. An interrupted backup leaves the previous one \
intact. It requires the role admin, and contains the tables and keys of all tenants. 'farpool restore' creates a data \
directory from it.";

/// Back up the data directory of a memory node while it runs
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Target: a directory, or a prefix of an object store such as s3://bucket/node7, used by one backup only
    target: String,

    #[command(flatten)]
    pool: PoolArgs,
}

/// Takes the backup and reports its size.
pub fn run(args: Args) -> Outcome {
    super::run_until_interrupted(async move {
        let start = Instant::now();
        let pool = args.pool.connect_remote().await?;
        let done = Count::default();
        let bar = Progress::follow("backing up", Unit::Copied, 0, done.clone(), None);
        let taken = farpool::backup::take(&pool, &args.target, done).await?;
        drop(bar);
        print_text(&summary(&args.target, &taken, start.elapsed()))
    })
}

fn summary(target: &str, taken: &Taken, time: Duration) -> String {
    format!(
        "{target}: {}, {}; {} sent, {}, in {}\n",
        size::counted(taken.files, "file"),
        size::bytes(taken.bytes),
        size::counted(taken.files_sent, "file"),
        size::bytes(taken.bytes_sent),
        size::duration(time),
    )
}
