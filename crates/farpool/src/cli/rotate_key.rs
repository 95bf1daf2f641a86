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

Only the directory's key is wrapped again; no data is rewritten. An older copy of the directory can still be read with
the old key. After a crash, either the old or the new key opens the directory: keep both until 'farpool check' accepts
the new one.";

/// Replace the master key of an encrypted data directory
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Data directory, which no node may have open
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,

    #[command(flatten)]
    old: KeyArgs,

    /// File with the new master key, as for --master-key-file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["new_master_key_env", "new_master_key_command"])]
    new_master_key_file: Option<PathBuf>,

    /// Environment variable with the new master key, as for --master-key-env
    #[arg(long, value_name = "VARIABLE", conflicts_with = "new_master_key_command")]
    new_master_key_env: Option<String>,

    /// Shell command that writes the new master key, as for --master-key-command
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
