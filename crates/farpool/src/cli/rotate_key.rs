//! `farpool rotate-key`: replaces the master key of an encrypted data directory.

use super::key_args::KeyArgs;
use super::stop::{Outcome, Stop};
use farpool::node::{KeySource, LocalDirectory, MasterKey, rotate_master_key};
use std::io::Write;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Example:
  openssl rand -out new.key 32 ; chmod 600 new.key
  farpool rotate-key --data-dir /var/lib/farpool --master-key-file old.key --new-master-key-file new.key

The keys of the directory are wrapped again, which takes no time; its data stay as they are. Whoever has a copy of the
directory from before and the old key can still read that. After a crash, either the old key opens the directory or the
new one: keep both until 'farpool check' accepts the new one.";

/// Give an encrypted data directory another master key
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The directory, which no node has open
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,

    #[command(flatten)]
    old: KeyArgs,

    /// The new master key, as for --master-key-file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["new_master_key_env", "new_master_key_command"])]
    new_master_key_file: Option<PathBuf>,

    /// The new master key, as for --master-key-env
    #[arg(long, value_name = "VARIABLE", conflicts_with = "new_master_key_command")]
    new_master_key_env: Option<String>,

    /// The new master key, as for --master-key-command
    #[arg(long, value_name = "COMMAND")]
    new_master_key_command: Option<String>,
}

/// Wraps the keys of the directory with the new master key.
pub fn run(args: Args) -> Outcome {
    let file = args.new_master_key_file.clone().map(KeySource::File);
    let variable = || args.new_master_key_env.clone().map(KeySource::Variable);
    let command = || args.new_master_key_command.clone().map(KeySource::Command);
    let Some(new) = file.or_else(variable).or_else(command) else {
        return Err(Stop::usage(
            "there is no new master key".to_string(),
            "name it: --new-master-key-file FILE",
        ));
    };
    let directory = LocalDirectory::open_existing(&args.data_dir)?;
    let Some(old) = args.old.load()? else {
        return Err(Stop::usage(
            "there is no master key that the directory is encrypted under".to_string(),
            "name it: --master-key-file FILE",
        ));
    };
    let new = MasterKey::load(&new)?;
    rotate_master_key(&*directory, &old, &new)?;
    let (shown, fingerprint) = (args.data_dir.display(), new.fingerprint());
    let text = format!("{shown}: the master key is {fingerprint} now, and no longer {}\n", old.fingerprint());
    std::io::stdout().lock().write_all(text.as_bytes()).map_err(Stop::output)
}
