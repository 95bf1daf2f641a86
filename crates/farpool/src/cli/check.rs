//! `farpool check`: reads all data in a data directory that no node has open.

use super::key_args::KeyArgs;
use super::output::TextFormat;
use super::size;
use super::stop::{Outcome, Stop};
use farpool::Error;
use farpool::model::cast::u64_from;
use farpool::node::{KeysFound, LocalDirectory, Recovery, TornEnd, check_data, check_keys};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  farpool check --data-dir /var/lib/farpool
  farpool check --data-dir /var/lib/farpool --format json
  farpool check --data-dir /var/lib/farpool --master-key-file farpool.key

Reads everything that a start would read, and verifies its checksums and, in an encrypted directory, its authentication
tags. Changes nothing. The exit status is 1 if anything is damaged.";

/// Maximum number of corrupted places that are listed; the others are only counted.
const SHOWN: usize = 100;

/// Verify a data directory that no memory node has open
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Data directory, as given to 'farpool serve'
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,

    #[command(flatten)]
    key: KeyArgs,

    /// Format of the output; `json` prints one object
    #[arg(long, value_enum, default_value = "table")]
    format: TextFormat,
}

/// Checks the directory and prints the result.
pub fn run(args: Args) -> Outcome {
    let directory = args.key.unlock_existing(LocalDirectory::open_existing(&args.data_dir)?)?;
    let found = check_data(&*directory)?;
    // Corrupted keys are an error, because a node does not start with them.
    let keys = check_keys(directory)?;
    args.format.print(&match args.format {
        TextFormat::Table => as_text(&args.data_dir, &found, keys.as_ref()),
        TextFormat::Json => as_json(&found, keys.as_ref())?,
    })?;
    if found.damaged.is_empty() {
        return Ok(());
    }
    let places = size::counted(u64_from(found.damaged.len()), "place");
    let error = Error::corrupt(format!("{} is damaged in {places}", args.data_dir.display()));
    Err(Stop::Failed(error.advise(
        "a node serves everything else; restore these tables from a backup, or drop and load them again",
    )))
}

fn as_text(path: &Path, found: &Recovery, keys: Option<&KeysFound>) -> String {
    let mut text = format!("{}: {}\n", path.display(), summary(found));
    if let Some(keys) = keys {
        text.push_str(&format!("{}\n", summary_of_keys(keys)));
    }
    for damage in found.damaged.iter().take(SHOWN) {
        text.push_str(&format!("damaged: {}\n", damage.message));
    }
    if found.damaged.len() > SHOWN {
        text.push_str(&format!("and {} more\n", found.damaged.len() - SHOWN));
    }
    text
}

/// Summarizes the tables of a data directory in a line.
pub(super) fn summary(found: &Recovery) -> String {
    let text = format!(
        "{}, {}{}; {} read from the log",
        size::counted(u64_from(found.tables), "table"),
        size::bytes(found.bytes),
        stored(found),
        size::counted(found.records, "change")
    );
    text + &torn(found.dropped.as_ref())
}

/// Summarizes the key-value entries of a data directory in a line.
pub(super) fn summary_of_keys(found: &KeysFound) -> String {
    let keys = if found.keys > 0 { size::counted(found.keys, "key") + ", " } else { String::new() };
    let text = format!(
        "keys and values: {keys}a snapshot of {}; {} read from the log of keys",
        size::bytes(found.snapshot_bytes),
        size::counted(found.changes, "change")
    );
    text + &torn(found.dropped.as_ref())
}

/// Describes the torn last write of the log, if there was one.
fn torn(dropped: Option<&TornEnd>) -> String {
    dropped.map_or_else(String::new, |dropped| {
        format!(
            "; {} at the end of the log are not whole, as when power was lost while they were written, and are dropped \
             ({} at byte {})",
            size::bytes(dropped.bytes),
            dropped.file,
            dropped.offset
        )
    })
}

/// Formats the bytes of tables on disk, if they differ from the encoded bytes because of compression.
fn stored(found: &Recovery) -> String {
    match found.bytes_stored {
        stored if stored < found.bytes / 100 * 99 => format!(" compressed to {}", size::bytes(stored)),
        _ => String::new(),
    }
}

fn as_json(found: &Recovery, keys: Option<&KeysFound>) -> Outcome<String> {
    let json = serde_json::json!({
        "tables": found.tables,
        "bytes": found.bytes,
        "bytes_stored": found.bytes_stored,
        "records": found.records,
        "dropped_bytes": found.dropped.as_ref().map_or(0, |dropped| dropped.bytes),
        "keys": keys.map(|keys| serde_json::json!({
            "snapshot_bytes": keys.snapshot_bytes,
            "records": keys.changes,
            "dropped_bytes": keys.dropped.as_ref().map_or(0, |dropped| dropped.bytes),
        })),
        "damaged": found.damaged.iter().map(|damage| &damage.message).collect::<Vec<_>>(),
    });
    let text = serde_json::to_string_pretty(&json).map_err(|error| Error::internal(error.to_string()))?;
    Ok(text + "\n")
}
