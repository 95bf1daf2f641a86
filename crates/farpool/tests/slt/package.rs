//! Locates the test files: in the source of the package `datafusion-sqllogictest`, which cargo downloads.
//!
//! Invariant: the package is downloaded but never built, and nothing of it is copied into the tree.

use std::path::{Path, PathBuf};

/// Returns the path of a file in `testdata/slt`, such as the lists of skipped and differing records.
pub fn list(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/slt").join(name)
}

/// Returns the folder with the test files.
pub fn test_files() -> PathBuf {
    let manifest = list("Cargo.toml");
    let metadata = cargo_metadata::MetadataCommand::new()
        .manifest_path(&manifest)
        .other_options(["--locked".to_string()])
        .exec()
        .unwrap_or_else(|error| {
            panic!(
                "the SQL logic tests of DataFusion could not be fetched: is the package registry reachable?\n{error}"
            )
        });
    let package = metadata.packages.iter().find(|package| package.name == "datafusion-sqllogictest");
    let package = package.expect("testdata/slt/Cargo.toml names the package");
    package.manifest_path.with_file_name("test_files").into_std_path_buf()
}

/// Returns every `.slt` file below `folder`, as sorted paths relative to it.
pub fn files(folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        let entries = std::fs::read_dir(&next).unwrap_or_else(|error| panic!("{}: {error}", next.display()));
        for path in entries.map(|entry| entry.expect("a folder that can be read").path()) {
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "slt") {
                let relative = path.strip_prefix(folder).expect("below the folder");
                files.push(relative.to_string_lossy().into_owned());
            }
        }
    }
    files.sort();
    files
}
