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
  farpool node-key --new node7.key                # makes a key, and prints its public half
  farpool serve --node-key-file node7.key &
  farpool sql --pool farpool://node7:9797 --encrypt-results --node-key 1f0c… -c \"select …\"

The file is for the node alone. Clients are given what is printed, over a way that they trust; with it, they know that
results are from that node, and nobody between them can read or change these. A node with --data-dir has a key without
this command, and says its public half when it starts.";

/// Print the public half of a node's key, or make a key
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file with the key: 32 bytes or 64 hexadecimal digits, which only its owner may read
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Make the file, with a new key
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
