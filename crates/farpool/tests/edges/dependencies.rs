//! Every dependency must be used, and the core crates may not depend on libraries that wait or open sockets.

use super::source::{has_word, source_files};
use cargo_metadata::{Metadata, Package};
use std::path::Path;

/// The core crates: they get clocks, threads and sockets as arguments. `clippy.toml` bans those of the standard
/// library, and this rule the libraries that provide them.
pub const CORE: &[&str] =
    &["model", "memory", "columns", "statistics", "operators", "pipeline", "planner", "wire"];

/// Libraries with sockets, timers and threads of their own.
const RUNTIMES: &[&str] = &["socket2", "tokio"];

/// Files of core crates that may name a library of [`RUNTIMES`] as an exception, with the reason.
const RUNTIMES_NAMED: &[(&str, &str)] =
    &[("crates/wire/src/socket/tcp.rs", "makes a socket of tokio's that was opened elsewhere one of ours")];

/// Returns the violations, one line each.
pub fn violations(root: &Path, metadata: &Metadata) -> Result<Vec<String>, String> {
    let mut wrong = unused(root, metadata)?;
    wrong.extend(unused_by_all(root, metadata)?);
    for folder in CORE {
        for file in source_files(root, &format!("crates/{folder}/src"))? {
            let named = |runtime: &&&str| file.code_without_tests().any(|line| has_word(line, runtime));
            let allowed = RUNTIMES_NAMED.iter().any(|(path, _)| *path == file.path);
            let named = RUNTIMES.iter().filter(named).filter(|_| !allowed);
            wrong.extend(
                named.map(|runtime| format!("{} names {runtime}, which the core may not", file.path)),
            );
        }
    }
    Ok(wrong)
}

/// Returns the dependencies of a package that no file of the package names.
fn unused(root: &Path, metadata: &Metadata) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    for package in metadata.workspace_packages() {
        let files = source_files(root, &directory(package, metadata))?;
        for dependency in &package.dependencies {
            let name = dependency.rename.clone().unwrap_or_else(|| library(&dependency.name, metadata));
            if !files.iter().any(|file| file.code().any(|line| has_word(line, &name))) {
                wrong.push(format!("{} depends on {} and does not use it", package.name, dependency.name));
            }
        }
    }
    Ok(wrong)
}

/// Returns the folder of a package, relative to the root.
fn directory(package: &Package, metadata: &Metadata) -> String {
    let folder = package.manifest_path.parent().unwrap_or(&package.manifest_path);
    folder.strip_prefix(&metadata.workspace_root).unwrap_or(folder).to_string()
}

/// Returns the name by which code refers to a package's library.
fn library(package: &str, metadata: &Metadata) -> String {
    let packages = metadata.packages.iter().filter(|p| *p.name == package);
    let mut libraries = packages.flat_map(|p| &p.targets).filter(|t| t.is_lib() || t.is_proc_macro());
    libraries.next().map_or(package, |target| &target.name).replace('-', "_")
}

/// Returns dependencies that the workspace lists but no package uses.
fn unused_by_all(root: &Path, metadata: &Metadata) -> Result<Vec<String>, String> {
    let manifest = root.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).map_err(|e| format!("{}: {e}", manifest.display()))?;
    let listed = text.lines().skip_while(|line| *line != "[workspace.dependencies]").skip(1);
    let listed = listed.take_while(|line| !line.starts_with('['));
    let listed = listed.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
    let is_used = |name: &str| {
        metadata.workspace_packages().iter().flat_map(|p| &p.dependencies).any(|d| d.name == name)
    };
    Ok(listed
        .filter(|name| !name.starts_with('#') && !is_used(name))
        .map(|name| format!("the workspace lists {name}, which no package uses"))
        .collect())
}
