//! Dependencies must have the same features for every selection: the program alone, as `cargo xtask dist` and `cargo
//! install` build it, the workspace, or the workspace with its tests, which have further dependencies. Features that
//! one of them needs are listed in `[workspace.dependencies]`; otherwise cargo builds DataFusion once for each
//! selection.
//!
//! A node is built without libraries that read files of tables, since it opens none.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Text between a package and its features in the output of `cargo tree`.
const WITH: &str = " with ";

/// Libraries that read files with tables, which a node must not contain.
const READERS: &[&str] = &["arrow-csv", "arrow-json", "brotli", "csv", "csv-core", "parquet"];

/// Returns those of [`READERS`] that a node is built with, one line each.
pub fn readers_in_the_node(root: &Path) -> Result<Vec<String>, String> {
    let all = dependencies(root, &["--package", "farpool-node", "--edges", "no-dev"])?;
    let names = all.iter().filter_map(|dependency| dependency.split(' ').next());
    let readers = names.filter(|name| READERS.contains(name));
    Ok(readers
        .map(|name| format!("farpool-node is built with {name}, and reads no files of tables"))
        .collect())
}

/// Returns dependencies of the program that are built with other features in the workspace with its tests, one line
/// each.
pub fn violations(root: &Path) -> Result<Vec<String>, String> {
    let alone = dependencies(root, &["--package", "farpool", "--edges", "no-dev"])?;
    let all = dependencies(root, &["--workspace"])?;
    let told = |dependency: &String| {
        let (package, features) = dependency.split_once(WITH)?;
        let others = all.iter().filter_map(|other| other.split_once(WITH));
        let others: Vec<&str> = others.filter(|(other, _)| *other == package).map(|(_, f)| f).collect();
        Some(format!(
            "{package} has the features {features} in the program alone and {} in the workspace: list all in \
             [workspace.dependencies]",
            others.join(" or ")
        ))
    };
    Ok(alone.difference(&all).filter_map(told).collect())
}

/// Returns names, versions and features of the packages that cargo builds for `selection` (arguments that select
/// packages).
fn dependencies(root: &Path, selection: &[&str]) -> Result<BTreeSet<String>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["tree", "--locked", "--prefix", "none", "--format", &format!("{{p}}{WITH}{{f}}")]);
    let output =
        command.args(selection).current_dir(root).output().map_err(|e| format!("cargo tree: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    // In the output, a star marks a package that was listed before. Packages with a folder are this workspace's own,
    // whose dependencies another rule checks.
    let lines = lines.lines().map(|line| line.trim_end_matches(" (*)"));
    Ok(lines.filter(|line| !line.contains(" (/")).map(str::to_string).collect())
}
