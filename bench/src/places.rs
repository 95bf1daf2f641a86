//! Locations of files: in the tree, and in the cache outside it.

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// Returns the root of the tree.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Returns the cache: FARPOOL_CACHE, or `~/.cache/farpool`.
pub fn cache() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("FARPOOL_CACHE") {
        return Ok(folder.into());
    }
    let home = std::env::var_os("HOME").context("neither FARPOOL_CACHE nor HOME is set")?;
    Ok(Path::new(&home).join(".cache/farpool"))
}

/// Returns the folder in which `cargo xtask rivals` installs: FARPOOL_RIVALS, or `~/.cache/farpool/rivals`.
pub fn rivals() -> Result<PathBuf> {
    match std::env::var_os("FARPOOL_RIVALS") {
        Some(folder) => Ok(folder.into()),
        None => Ok(cache()?.join("rivals")),
    }
}

/// Formats a scale factor as in names of folders: `1`, `0.01`.
pub fn scale_name(scale: f64) -> String {
    format!("{scale}")
}

/// Returns the text of a TPC-H query.
pub fn query(number: usize) -> Result<String> {
    read(&root().join(format!("testdata/tpch/queries/q{number:02}.sql")))
}

/// Returns DuckDB's recorded answer to a query, if there is one for the scale.
pub fn recorded_answer(scale: f64, number: usize) -> Option<String> {
    let folder = root().join("testdata/tpch/answers").join(format!("sf{}", scale_name(scale)));
    std::fs::read_to_string(folder.join(format!("q{number:02}.tsv"))).ok()
}

/// Reads `bench/definitions/NAME.toml`.
pub fn definition<T: DeserializeOwned>(name: &str) -> Result<T> {
    let path = root().join(format!("bench/definitions/{name}.toml"));
    toml::from_str(&read(&path)?).with_context(|| path.display().to_string())
}

/// Returns the text of a file; an error contains its path.
pub fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
