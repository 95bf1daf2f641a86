//! Figures from recorded numbers: `bench/rivals/figures.py` draws them in the rivals' Python environment.

use crate::places;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Draws into `docs/figures/`, from `file` or the newest record of the suite `farview`.
pub fn draw(file: Option<&Path>) -> Result<()> {
    let python = places::rivals()?.join("python/bin/python");
    if !python.exists() {
        bail!("the figures are drawn with matplotlib, which is not installed: run `cargo xtask rivals`");
    }
    let numbers = match file {
        Some(file) => file.to_path_buf(),
        None => newest_record()?,
    };
    let status = Command::new(&python)
        .arg("-B")
        .arg(places::root().join("bench/rivals/figures.py"))
        .args([&numbers, &places::root().join("docs/figures")])
        .status()
        .with_context(|| format!("cannot start {}", python.display()))?;
    if !status.success() {
        bail!("the figures of {} could not be drawn", numbers.display());
    }
    Ok(())
}

/// Names of records begin with their date.
fn newest_record() -> Result<PathBuf> {
    let folder = places::root().join("bench/record");
    let names = std::fs::read_dir(&folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_farview = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.contains("-farview") && name.ends_with(".json")
    };
    let newest = names.filter(is_farview).max();
    newest.context("there is no record: `cargo xtask bench farview --record` makes one")
}
