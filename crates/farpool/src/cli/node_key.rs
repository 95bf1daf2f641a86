//! `farpool node-key`: creates the key with which a node proves its identity to clients, and prints its public half.

use super::output::print_text;
use super::stop::{Outcome, file_error};
use farpool::node::PrivateKey;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  farpool node-key --new node7.key                # creates a key, and prints the public key
  farpool serve --node-key-file node7.key &
  farpool sql --pool farpool://node7:9797 --encrypt-results --node-key 1f0c… -c \"select …\"

The file is for the node only. Give the printed public key to clients over a trusted channel: they verify with it that
results come from that node, and nobody in between can read or change these. A node with --data-dir has a key without
this command, and prints the public key when it starts.";

/// Print the public key of a node, or create a key pair
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// File with the private key: 32 bytes or 64 hexadecimal digits; must be readable by its owner only
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Create the file, with a new key
    #[arg(long)]
    new: bool,
}

/// Prints the public half of the key.
pub fn run(args: Args) -> Outcome {
    if args.new {
        make(&args.file)?;
    }
    let key = PrivateKey::read_file(&args.file)?;
    print_text(&format!("{}\n", key.public()))
}

/// Creates a file, which must not exist yet.
fn make(path: &Path) -> Outcome {
    let key = PrivateKey::random()?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| {
        file.write_all(key.bytes())?;
        file.sync_all()
    });
    written.map_err(|error| file_error("make the key", path, &error).into())
}
