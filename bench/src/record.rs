//! Stores results as JSON and text, dated, in `bench/record/`.

use crate::places;
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;

/// Writes numbers and text to `DATE-NAME.json` and `.txt`.
pub fn keep<T: Serialize>(date: &str, name: &str, results: &T, text: &str) -> Result<()> {
    let folder = places::root().join("bench/record");
    std::fs::create_dir_all(&folder)?;
    let stem = format!("{date}-{name}");
    write(&folder.join(format!("{stem}.json")), &json(results)?)?;
    write(&folder.join(format!("{stem}.txt")), text)
}

/// Formats all numbers as JSON.
pub fn json<T: Serialize>(results: &T) -> Result<String> {
    Ok(serde_json::to_string_pretty(results)? + "\n")
}

/// Writes a file and reports its path on standard error.
pub fn write(file: &Path, content: &str) -> Result<()> {
    std::fs::write(file, content).with_context(|| format!("cannot write {}", file.display()))?;
    eprintln!("wrote {}", file.display());
    Ok(())
}
