//! Checks the rules of the tree: dependencies between crates, which crates may name DataFusion, the contents of
//! `ARCHITECTURE.md` and `docs/internals`, and the header comment of every source file. The files in the folder `edges`
//! check where unsafe code and limits may be, that decoders are fuzzed, that dependencies are used and have the same
//! features for the program and the workspace, how doc comments begin, and that only protocols themselves name
//! protocols. `cargo xtask check` runs the same functions before anything is built.
//!
//! Invariant: [`EDGES`] is the only list of the edges between crates. A crate may use all crates that it reaches along
//! them, directly or indirectly.

#[path = "edges/comments.rs"]
mod comments;
#[path = "edges/decoders.rs"]
mod decoders;
#[path = "edges/dependencies.rs"]
mod dependencies;
#[path = "edges/features.rs"]
mod features;
#[path = "edges/limits.rs"]
mod limits;
#[path = "edges/protocols.rs"]
mod protocols;
#[path = "edges/source.rs"]
mod source;
#[path = "edges/unsafe_code.rs"]
pub mod unsafe_code;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use source::source_files;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Allowed dependencies between the workspace's crates: a crate's folder, and the crates that it may depend on
/// directly.
pub const EDGES: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("cipher", &["model"]),
    ("codec", &["model"]),
    ("disk", &["cipher", "codec"]),
    ("memory", &["model"]),
    ("columns", &["cipher", "memory"]),
    ("catalog", &["columns", "disk", "statistics"]),
    ("files", &["columns"]),
    ("keystore", &["disk", "kv"]),
    ("kv", &["memory", "statistics"]),
    ("statistics", &["model"]),
    ("operators", &["columns", "statistics"]),
    ("pipeline", &["operators"]),
    ("wire", &["cipher"]),
    ("node", &["catalog", "disk", "keystore", "pipeline", "wire"]),
    ("planner", &["statistics"]),
    ("transfer", &["wire", "columns"]),
    ("sql", &["memory", "planner", "postgres"]),
    ("datafusion", &["sql", "transfer"]),
    ("postgres", &["model"]),
    ("gateway", &["datafusion", "node", "postgres"]),
    ("farpool", &["files", "gateway"]),
    ("bench", &["farpool"]),
    ("python", &["farpool"]),
    ("sim", &["node", "transfer"]),
    (
        "fuzz",
        &["catalog", "cipher", "codec", "disk", "files", "kv", "pipeline", "postgres", "statistics", "wire"],
    ),
    ("xtask", &[]),
];

/// The only crates that may name DataFusion.
pub const NAME_DATAFUSION: &[&str] = &["datafusion", "farpool", "sql"];

/// Returns every violation of the rules of this module, one line each; no lines if there are none.
pub fn violations(root: &Path) -> Result<Vec<String>, String> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .exec()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    let mut wrong = edge_violations(&metadata);
    wrong.extend(datafusion_violations(&metadata)?);
    wrong.extend(architecture_violations(root, &metadata)?);
    wrong.extend(header_violations(root)?);
    wrong.extend(dependencies::violations(root, &metadata)?);
    wrong.extend(features::violations(root)?);
    wrong.extend(features::readers_in_the_node(root)?);
    wrong.extend(unsafe_code::violations(root, &metadata)?);
    wrong.extend(limits::violations(root)?);
    wrong.extend(decoders::violations(root)?);
    wrong.extend(comments::violations(root)?);
    wrong.extend(protocols::violations(root)?);
    Ok(wrong)
}

/// Returns dependencies between the workspace's crates that [`EDGES`] does not allow. Dependencies of tests
/// (`dev-dependencies`) are not restricted.
fn edge_violations(metadata: &Metadata) -> Vec<String> {
    let reach = reachable();
    let mut wrong = Vec::new();
    for package in metadata.workspace_packages() {
        let name = folder(package);
        let Some(allowed) = reach.get(name.as_str()) else {
            wrong.push(format!("crate {name} is not in the table of edges"));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development) {
            let Some(path) = &dependency.path else { continue };
            let to = path.file_name().unwrap_or_default();
            if !allowed.contains(to) {
                wrong.push(format!("{name} may not use {to}: it may use {allowed:?}"));
            }
        }
    }
    wrong
}

/// Returns, for each crate, the crates that it may depend on along [`EDGES`], directly or indirectly.
fn reachable() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let direct: BTreeMap<_, _> = EDGES.iter().copied().collect();
    let mut reach = BTreeMap::new();
    for (name, below) in EDGES {
        let mut found = BTreeSet::new();
        let mut open: Vec<&str> = below.to_vec();
        while let Some(next) = open.pop() {
            if found.insert(next) {
                open.extend(direct.get(next).copied().unwrap_or_default());
            }
        }
        reach.insert(*name, found);
    }
    reach
}

/// Returns crates that name DataFusion but are not in [`NAME_DATAFUSION`], and dependencies of the node on DataFusion.
fn datafusion_violations(metadata: &Metadata) -> Result<Vec<String>, String> {
    let names_it = |package: &&Package| package.dependencies.iter().any(|d| d.name.starts_with("datafusion"));
    let mut wrong: Vec<String> = metadata
        .workspace_packages()
        .into_iter()
        .filter(names_it)
        .map(folder)
        .filter(|name| !NAME_DATAFUSION.contains(&name.as_str()))
        .map(|name| format!("{name} names DataFusion: only {NAME_DATAFUSION:?} may"))
        .collect();
    let node = metadata.workspace_packages().into_iter().find(|p| folder(p) == "node");
    let node = node.ok_or("there is no crate `node`")?;
    let below = dependency_tree(metadata, &node.id)?;
    wrong.extend(
        metadata
            .packages
            .iter()
            .filter(|p| below.contains(&p.id) && p.name.starts_with("datafusion"))
            .map(|p| format!("the node depends on {}: it must run without an engine", p.name)),
    );
    Ok(wrong)
}

/// Returns every package that is needed to build `root`, including itself.
fn dependency_tree(metadata: &Metadata, root: &PackageId) -> Result<BTreeSet<PackageId>, String> {
    let resolve = metadata.resolve.as_ref().ok_or("cargo metadata gave no dependency graph")?;
    let nodes: BTreeMap<_, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let mut found = BTreeSet::new();
    let mut open = vec![root];
    while let Some(id) = open.pop() {
        if found.insert(id.clone()) {
            let needed = nodes.get(id).into_iter().flat_map(|node| &node.deps);
            let needed = needed.filter(|d| d.dep_kinds.iter().any(|k| k.kind != DependencyKind::Development));
            open.extend(needed.map(|d| &d.pkg));
        }
    }
    Ok(found)
}

/// Returns crates that `ARCHITECTURE.md` does not name, and paths that do not exist in it or in the pages of
/// `docs/internals`.
fn architecture_violations(root: &Path, metadata: &Metadata) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    let text = read_page(root, "ARCHITECTURE.md")?;
    let named = quoted(&text);
    for package in metadata.workspace_packages() {
        let directory = package.manifest_path.parent().unwrap_or(&package.manifest_path);
        let path = directory.strip_prefix(&metadata.workspace_root).unwrap_or(directory);
        if !named.contains(path.as_str()) {
            wrong.push(format!("ARCHITECTURE.md does not name `{path}`"));
        }
    }
    wrong.extend(missing_paths(root, "ARCHITECTURE.md", &named));
    let folder = root.join("docs/internals");
    let unreadable = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in std::fs::read_dir(&folder).map_err(unreadable)? {
        let page = format!("docs/internals/{}", entry.map_err(unreadable)?.file_name().to_string_lossy());
        let text = read_page(root, &page)?;
        wrong.extend(missing_paths(root, &page, &quoted(&text)));
    }
    Ok(wrong)
}

/// Returns the text of a page, whose path is relative to the root.
fn read_page(root: &Path, page: &str) -> Result<String, String> {
    std::fs::read_to_string(root.join(page)).map_err(|error| format!("{page}: {error}"))
}

/// Returns the texts between backticks, without a slash at their ends.
fn quoted(text: &str) -> BTreeSet<&str> {
    let quotes = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    quotes.map(|quote| quote.trim_end_matches('/')).collect()
}

/// Returns those of the texts in `quoted` that are paths but do not exist.
fn missing_paths(root: &Path, page: &str, quoted: &BTreeSet<&str>) -> Vec<String> {
    let is_path = |q: &&&str| q.contains('/') && !q.contains(|c: char| c.is_whitespace() || c == ':');
    let missing = quoted.iter().filter(is_path).filter(|path| !root.join(path).exists());
    missing.map(|path| format!("{page} mentions `{path}`, which does not exist")).collect()
}

/// Returns source files without a header comment.
fn header_violations(root: &Path) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    for folder in ["crates", "bench", "bindings", "fuzz", "sim", "xtask"] {
        for file in source_files(root, folder)? {
            if !file.text.starts_with("//! ") {
                wrong.push(format!("{}: the first line must say, after `//!`, what the file is", file.path));
            }
        }
    }
    Ok(wrong)
}

/// Returns the name of a crate's folder, by which the tables refer to it.
fn folder(package: &Package) -> String {
    package.manifest_path.parent().and_then(|p| p.file_name()).unwrap_or_default().to_string()
}

#[test]
fn the_tree_follows_its_rules() {
    // Two crates compile this file, so that the tree's root is at a different distance above each of their folders.
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let root = above.into_iter().find(|folder| folder.join("Cargo.lock").exists()).expect("there is a root");
    let wrong = violations(root).expect("the tree can be read");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
