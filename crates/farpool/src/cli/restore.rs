//! `farpool restore`: restores a data directory from a backup.

use super::key_args::KeyArgs;
use super::output::print_text;
use super::progress::{Progress, Unit};
use super::stop::{Outcome, Stop};
use super::{check, size};
use farpool::Error;
use farpool::backup::Count;
use farpool::model::cast::u64_from;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  farpool restore /backup/node7 --data-dir /var/lib/farpool
  farpool restore s3://bucket/node7 --data-dir d2 && farpool serve --data-dir d2

Everything is verified before the directory appears. It has its own identity: a node on it is not the node that was \
backed up, and its backups need their own target.";

/// Create a data directory from a backup
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Target that was given to 'farpool backup'
    source: String,

    /// Directory to create; must be empty or not exist
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,

    #[command(flatten)]
    key: KeyArgs,
}

/// Restores the backup and reports the contents of the directory.
pub fn run(args: Args) -> Outcome {
    let master = args.key.load()?;
    super::run_until_interrupted(async move {
        let done = Count::default();
        let bar = Progress::follow("restoring", Unit::Copied, 0, done.clone(), None);
        let restored = farpool::backup::restore(&args.source, &args.data_dir, master, done).await?;
        drop(bar);
        let found = &restored.found;
        print_text(&format!("{}: {}\n", args.data_dir.display(), check::summary(found)))?;
        if let Some(keys) = &restored.keys {
            print_text(&format!("{}\n", check::summary_of_keys(keys)))?;
        }
        match found.damaged.first() {
            None => Ok(()),
            Some(first) => {
                let places = size::counted(u64_from(found.damaged.len()), "place");
                let message = format!(
                    "{} is there, and damaged in {places} as it was when it was backed up: {}",
                    args.data_dir.display(),
                    first.message
                );
                Err(Stop::Failed(Error::corrupt(message).advise("'farpool check' lists all of them")))
            }
        }
    })
}
