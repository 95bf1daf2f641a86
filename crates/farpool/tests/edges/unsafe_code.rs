//! Unsafe code may only be in the modules that are listed here.
//!
//! The compiler enforces the rest: the workspace denies `unsafe_code`, the modules here allow it with a
//! reason, and a crate without such modules forbids it.

use super::source::{SourceFile, has_word, source_files};
use cargo_metadata::{Metadata, Package};
use std::collections::BTreeSet;
use std::path::Path;

/// The modules (files or folders) that may contain unsafe code, with the reason.
pub const MODULES: &[(&str, &str)] = &[
    ("bindings/python/src/arrow_stream.rs", "the C interface of Arrow passes a pointer"),
    ("crates/cipher/src/lc.rs", "functions of a C library are called"),
    ("crates/cipher/src/locked.rs", "locked memory is handed out in slots"),
    ("crates/cipher/src/sys.rs", "memory is locked, and commands are ended, by system calls"),
    ("crates/cipher/src/wiping.rs", "an allocator is wrapped"),
    ("crates/columns/src/arch", "instructions that not every processor has"),
    ("crates/columns/src/bytes.rs", "string views are made without checking the strings again"),
    ("crates/columns/src/decode.rs", "string views are made without checking the strings again"),
    ("crates/columns/src/fsst_text.rs", "the decoder writes into memory that is not initialised"),
    ("crates/columns/src/gather.rs", "string views are made without checking the strings again"),
    ("crates/columns/src/lanes.rs", "the packing library leaves a check of lengths to its caller"),
    ("crates/columns/src/packed.rs", "values are unpacked into memory that is not initialised"),
    ("crates/columns/src/parcel/coded.rs", "string views are made without checking the strings again"),
    ("crates/columns/src/parcel/read.rs", "string views are made without checking the strings again"),
    ("crates/columns/src/strings.rs", "string views are made without checking the strings again"),
    ("crates/columns/src/views.rs", "string views are made without checking the strings again"),
    ("crates/memory/src/extent.rs", "bytes of the mapping are handed out as slices"),
    ("crates/memory/src/mapping.rs", "memory is mapped and given back by system calls"),
    ("crates/memory/src/pool.rs", "pages go back when nobody reads or writes them any more"),
    ("crates/memory/src/prefetch.rs", "the instruction takes an address"),
    ("crates/memory/src/working.rs", "huge pages are asked for by a system call"),
    ("crates/node/src/clock.rs", "the CPU clock of a thread is a system call"),
    ("crates/node/src/cpu_placement.rs", "the CPUs of a thread are set by system calls"),
    ("crates/node/src/precedence.rs", "the slices and the weight of a thread are set by system calls"),
    ("crates/statistics/src/arch", "instructions that not every processor has"),
    ("crates/statistics/src/moments/arch", "instructions that not every processor has"),
];

/// Returns the folders of the crates that have unsafe code, relative to the root.
pub fn crates() -> BTreeSet<&'static Path> {
    let of_crate = |path: &&Path| path.components().count() == 2;
    MODULES.iter().filter_map(|(module, _)| Path::new(module).ancestors().find(of_crate)).collect()
}

/// Returns the violations, one line each.
pub fn violations(root: &Path, metadata: &Metadata) -> Result<Vec<String>, String> {
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    for folder in ["bench/src", "bindings", "crates", "fuzz", "sim", "xtask"] {
        for file in source_files(root, folder)?.iter().filter(|file| has_unsafe(file)) {
            match MODULES.iter().find(|(module, _)| Path::new(&file.path).starts_with(module)) {
                Some((module, _)) => drop(used.insert(*module)),
                None => {
                    wrong.push(format!("{} has unsafe code and is not among the modules that may", file.path))
                }
            }
        }
    }
    let unused = MODULES.iter().filter(|(module, _)| !used.contains(module));
    wrong.extend(unused.map(|(module, _)| format!("{module} may have unsafe code and has none")));
    for package in metadata.workspace_packages() {
        wrong.extend(unforbidden(package, metadata)?);
    }
    Ok(wrong)
}

fn has_unsafe(file: &SourceFile) -> bool {
    file.code().any(|line| has_word(line, "unsafe") && !line.contains('"'))
}

/// Returns the libraries and programs of a package without unsafe code that do not forbid it.
fn unforbidden(package: &Package, metadata: &Metadata) -> Result<Vec<String>, String> {
    let folder = package.manifest_path.parent().unwrap_or(&package.manifest_path);
    let folder = folder.strip_prefix(&metadata.workspace_root).unwrap_or(folder);
    if crates().contains(Path::new(folder)) {
        return Ok(Vec::new());
    }
    let mut wrong = Vec::new();
    for target in package.targets.iter().filter(|t| t.is_lib() || t.is_bin()) {
        let text =
            std::fs::read_to_string(&target.src_path).map_err(|e| format!("{}: {e}", target.src_path))?;
        if !text.contains("#![forbid(unsafe_code)]") {
            let path = target.src_path.strip_prefix(&metadata.workspace_root).unwrap_or(&target.src_path);
            wrong.push(format!("{path} does not forbid unsafe code, of which its crate has none"));
        }
    }
    Ok(wrong)
}
