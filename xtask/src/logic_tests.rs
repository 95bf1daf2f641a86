//! `cargo xtask logic-tests`: runs a fixed part of SQLite's SQL logic tests.
//!
//! The tests are in a Java package of 110 MB: Maven downloads it once into the folder `sqlite-tests` of the cache, and
//! the required files are unpacked next to it. `testdata/slt/sqlite.toml` lists the files that run.

use crate::cargo::{self, WORKSPACE};
use crate::programs;
use anyhow::{Context, Result};
use std::path::Path;

/// The Maven package; its version is part of the folder's name, so that another version is downloaded separately.
const PACKAGE: &str = "net.hydromatic:sql-logic-test:0.3";
const FILE: &str = "sql-logic-test-0.3.jar";

/// The files that are unpacked: only the first one of each large folder.
const FILES: [&str; 4] = [
    "test/select*.test",
    "test/evidence/*.test",
    "test/random/*/slt_good_0.test",
    "test/index/*/*/slt_good_0.test",
];

/// Downloads the files and runs the test.
///
/// # Errors
/// Fails if results differ from SQLite's, or the package cannot be downloaded.
pub fn run() -> Result<()> {
    let folder = cargo::cache("sqlite-tests")?;
    fetch(&folder)?;
    let test = ["--test", "integration", "--", "--ignored", "--exact", "--nocapture"];
    let name = "slt::sqlite::the_logic_tests_of_sqlite_pass_with_and_without_pushdown";
    let arguments = ["test"].into_iter().chain(WORKSPACE).chain(test).chain([name]);
    cargo::run_with(arguments, &[("FARPOOL_SQLITE_TESTS", &folder.to_string_lossy())])
}

fn fetch(folder: &Path) -> Result<()> {
    let package = folder.join(FILE);
    if package.exists() && folder.join("test").exists() {
        return Ok(());
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    programs::install(&["mvn", "unzip"], &["maven", "unzip"])?;
    println!("fetching {PACKAGE} (110 MB)");
    let into = folder.display().to_string();
    let artifact = format!("-Dartifact={PACKAGE}");
    let copy = ["-q", "-B", "dependency:copy", &artifact, &format!("-DoutputDirectory={into}")];
    programs::run("mvn", copy, "is the package registry reachable?")?;
    let archive = package.display().to_string();
    let files = FILES.into_iter().chain(["-d", &into]);
    programs::run("unzip", ["-q", "-o", &archive].into_iter().chain(files), "remove the folder and try again")
}
