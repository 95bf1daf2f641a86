//! Runs cargo, always with the same profile and features.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Arguments that select the whole tree in the one profile. Another selection could resolve to other features
/// of the dependencies, and cargo would build them a second time.
pub const WORKSPACE: [&str; 3] = ["--release", "--locked", "--workspace"];

/// Returns the root of the tree.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Returns a folder outside the tree for downloads: in `~/.cache/farpool`, or in the folder that
/// FARPOOL_CACHE names.
///
/// # Errors
/// Fails if neither FARPOOL_CACHE nor HOME is set.
pub fn cache(name: &str) -> Result<PathBuf> {
    if let Some(cache) = std::env::var_os("FARPOOL_CACHE") {
        return Ok(Path::new(&cache).join(name));
    }
    let home = std::env::var_os("HOME").context("neither FARPOOL_CACHE nor HOME is set")?;
    Ok(Path::new(&home).join(".cache/farpool").join(name))
}

/// Runs cargo with `arguments`; an error contains the command.
pub fn run<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<()> {
    run_with(arguments, &[])
}

/// Builds a program of the tree and runs it with `arguments`. The programs in `beside`, which it starts, are built as
/// well.
pub fn run_program(name: &str, beside: &[&str], arguments: &[String]) -> Result<()> {
    run_program_with(name, beside, arguments, &[])
}

/// Builds and runs a program as [`run_program`] does, with additional environment variables.
pub fn run_program_with(
    name: &str,
    beside: &[&str],
    arguments: &[String],
    environment: &[(&str, &Path)],
) -> Result<()> {
    let program = build_program(name, beside)?;
    let mut command = Command::new(&program);
    command.args(arguments).current_dir(root()).envs(environment.iter().copied());
    let status = command.status();
    let status = status.with_context(|| format!("cannot start {}", program.display()))?;
    if !status.success() {
        bail!("`{name} {}` failed ({status})", arguments.join(" "));
    }
    Ok(())
}

/// Builds a program of the tree, with the programs in `beside`, and returns its path. `cargo run` would select its
/// package alone, and therefore other features of the dependencies.
pub fn build_program(name: &str, beside: &[&str]) -> Result<PathBuf> {
    let programs = [name].into_iter().chain(beside.iter().copied());
    let selected: Vec<&str> = programs.flat_map(|program| ["--bin", program]).collect();
    run(["build", "--quiet"].into_iter().chain(WORKSPACE).chain(selected))?;
    Ok(target_folder()?.join("release").join(name))
}

/// Returns the folder that cargo builds into.
pub fn target_folder() -> Result<PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(root()).no_deps().exec();
    Ok(metadata.context("cannot find cargo's target folder")?.target_directory.into())
}

/// Runs cargo with `arguments` and additional environment variables.
pub fn run_with<'a>(
    arguments: impl IntoIterator<Item = &'a str>,
    environment: &[(&str, &str)],
) -> Result<()> {
    let arguments: Vec<&str> = arguments.into_iter().collect();
    let shown = format!("cargo {}", arguments.join(" "));
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(&arguments).current_dir(root()).envs(environment.iter().copied());
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}
