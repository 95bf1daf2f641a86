//! Figures from recorded numbers: `bench/rivals/figures.py` draws them in the rivals' Python environment.

use crate::places;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Suites that have figures.
const SUITES: [&str; 5] = ["farview", "sketches", "sketch-accuracy", "correlation", "caribou"];

/// Number of characters of the date at the beginning of a record's name, with the hyphen after it.
const DATE_LENGTH: usize = "2026-01-31-".len();

/// Draws figures into `docs/figures/`, from `file` or from the newest record of each suite.
pub fn draw(file: Option<&Path>) -> Result<()> {
    let python = places::rivals()?.join("python/bin/python");
    if !python.exists() {
        bail!("the figures are drawn with matplotlib, which is not installed: run `cargo xtask rivals`");
    }
    let numbers = match file {
        Some(file) => vec![file.to_path_buf()],
        None => newest_records()?,
    };
    let status = Command::new(&python)
        .arg("-B")
        .arg(places::root().join("bench/rivals/figures.py"))
        .arg(places::root().join("docs/figures"))
        .args(&numbers)
        .status()
        .with_context(|| format!("cannot start {}", python.display()))?;
    if !status.success() {
        bail!("the figures could not be drawn");
    }
    Ok(())
}

/// Returns the newest record of each suite. Names of records are the date followed by the suite's name.
fn newest_records() -> Result<Vec<PathBuf>> {
    let folder = places::root().join("bench/record");
    let records: Vec<PathBuf> =
        std::fs::read_dir(&folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let is_called = |path: &Path, suite: &str| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.get(DATE_LENGTH..) == Some(&format!("{suite}.json"))
    };
    let newest = |suite: &&str| records.iter().filter(|path| is_called(path, suite)).max().cloned();
    let found: Vec<PathBuf> = SUITES.iter().filter_map(newest).collect();
    if found.is_empty() {
        bail!("there is no record: `cargo xtask bench farview --record` makes one");
    }
    Ok(found)
}
