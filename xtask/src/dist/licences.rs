//! The licences of everything that is linked into the program: every package below `farpool`, with the licence texts in
//! it.
//!
//! Invariant: a package whose licence requires its text to be passed on has one. If it ships none, the text of another
//! package of the same repository is used; a package without any is listed with the name of its licence, if that is one
//! of [`COMMON`], whose texts are in other packages, and an error otherwise.

use super::program::Architecture;
use anyhow::{Context, Result, ensure};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Prefixes of the names of licence files, in lower case.
const NAMES: [&str; 6] = ["license", "licence", "copying", "copyright", "notice", "unlicense"];

/// Licences whose text is in some package; a package without a text names its licence in `Cargo.toml` only.
const COMMON: [&str; 3] = ["MIT", "Apache-2.0", "BSD-3-Clause"];

/// Linked components that are not packages of cargo.
const OTHERS: &str = "\
The program also contains:
- Rust's standard library (https://github.com/rust-lang/rust), Apache-2.0 OR MIT
- the GNU C Library (https://www.gnu.org/software/libc), LGPL-2.1-or-later, linked statically. farpool is free
  software with all of its source, from which it can be linked with any other version of that library
  (`cargo xtask dist`).
- GCC's run-time library (https://gcc.gnu.org), GPL-3.0-or-later WITH GCC-exception-3.1
";

/// A package, and the licence texts in it.
struct Licensed<'a> {
    package: &'a Package,
    texts: BTreeSet<String>,
}

/// Returns a list of all packages below `farpool`, with their licences, and then the texts, each once.
///
/// # Errors
/// Fails if a package has no known licence.
pub fn of_dependencies(root: &Path, architecture: Architecture) -> Result<String> {
    let platform = format!("{}-unknown-linux-gnu", architecture.name());
    let options = ["--locked".to_string(), "--filter-platform".to_string(), platform];
    let metadata = MetadataCommand::new().current_dir(root).other_options(options).exec()?;
    let mut licensed = Vec::new();
    for package in linked(&metadata)? {
        let folder = package.manifest_path.parent().context("a manifest without a folder")?;
        let mut texts = BTreeSet::new();
        find_texts(folder.as_std_path(), &mut texts)?;
        licensed.push(Licensed { package, texts });
    }
    add_texts_of_neighbours(&mut licensed);
    for Licensed { package, texts } in &licensed {
        let names = package.license.clone().unwrap_or_default();
        let is_common = || COMMON.iter().any(|common| names.contains(common));
        ensure!(!texts.is_empty() || is_common(), "{} has no text of its licence {names:?}", package.name);
    }
    Ok(written(&licensed))
}

/// Returns the third-party packages that are linked into the program, by their names and versions.
fn linked(metadata: &Metadata) -> Result<Vec<&Package>> {
    let resolve = metadata.resolve.as_ref().context("cargo metadata gave no dependency graph")?;
    let nodes: BTreeMap<_, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let program = metadata.packages.iter().find(|package| *package.name == "farpool");
    let mut open: Vec<&PackageId> = vec![&program.context("no package farpool")?.id];
    let mut found = BTreeSet::new();
    while let Some(id) = open.pop() {
        if found.insert(id) {
            let needed = nodes.get(id).into_iter().flat_map(|node| &node.deps);
            let is_linked = |kind: &DependencyKind| *kind == DependencyKind::Normal;
            open.extend(needed.filter(|d| d.dep_kinds.iter().any(|k| is_linked(&k.kind))).map(|d| &d.pkg));
        }
    }
    let mut packages: Vec<&Package> = metadata.packages.iter().filter(|p| found.contains(&p.id)).collect();
    packages.retain(|package| package.source.is_some());
    packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(packages)
}

/// Adds the texts of a package's licences, including those of sources in another language that the package bundles.
fn find_texts(folder: &Path, texts: &mut BTreeSet<String>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let path: PathBuf = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_dir() {
            find_texts(&path, texts)?;
        } else if NAMES.iter().any(|start| name.starts_with(start)) && is_text(&name) {
            let bytes = super::read_bytes(&path)?;
            let text = String::from_utf8_lossy(&bytes).replace('\r', "");
            texts.insert(text.trim_end().to_string());
        }
    }
    Ok(())
}

/// Returns whether a file name is that of a text, and not of a source file such as `license_test.go`.
fn is_text(name: &str) -> bool {
    [".c", ".go", ".h", ".py", ".rs", ".sh"].iter().all(|extension| !name.ends_with(extension))
}

/// Gives packages without a text the texts of the first package from the same repository that has some.
fn add_texts_of_neighbours(licensed: &mut [Licensed]) {
    let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for Licensed { package, texts } in licensed.iter().filter(|licensed| !licensed.texts.is_empty()) {
        if let Some(repository) = &package.repository {
            known.entry(repository.clone()).or_insert_with(|| texts.clone());
        }
    }
    for Licensed { package, texts } in licensed.iter_mut().filter(|licensed| licensed.texts.is_empty()) {
        let neighbour = package.repository.as_ref().and_then(|repository| known.get(repository));
        *texts = neighbour.cloned().unwrap_or_default();
    }
}

fn written(licensed: &[Licensed]) -> String {
    let texts: BTreeSet<&String> = licensed.iter().flat_map(|licensed| &licensed.texts).collect();
    let number: BTreeMap<&String, usize> = texts.into_iter().zip(1..).collect();
    let mut page =
        format!("Software of others in farpool\n\n{OTHERS}\nPackages, and numbers of the texts below:\n");
    for Licensed { package, texts } in licensed {
        let numbers: Vec<String> = texts.iter().map(|text| format!("[{}]", number[text])).collect();
        let place = package.repository.as_deref().unwrap_or("https://crates.io");
        let licence = package.license.as_deref().unwrap_or("see the text");
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "- {} {} ({place}), {licence} {}",
            package.name,
            package.version,
            numbers.join(" ")
        );
    }
    for (text, number) in number {
        let _ = write!(page, "\n{}\n[{number}]\n\n{text}\n", "-".repeat(80));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_below_the_program_is_named_with_its_texts() {
        let page = of_dependencies(&crate::cargo::root(), Architecture::X86).unwrap();
        for part in ["- datafusion ", "- mimalloc ", "- zstd-sys ", "- aws-lc-sys ", "GNU C Library"] {
            assert!(page.contains(part), "{part} is missing");
        }
        // Texts of bundled sources: zstd, mimalloc.
        for part in
            ["Copyright (c) Meta Platforms", "Copyright (c) 2018-20", "Apache License", "Permission is"]
        {
            assert!(page.contains(part), "{part} is missing");
        }
        // Dependencies of builds and tests only are not linked.
        assert!(!page.contains("- proptest ") && !page.contains("- farpool") && !page.contains("- windows-"));
    }
}
