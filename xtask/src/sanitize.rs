//! `cargo xtask sanitize`: the unit tests of the crates with `unsafe` code, under AddressSanitizer. The
//! crates are those in the table of modules in `crates/farpool/tests/edges/unsafe_code.rs`.
//!
//! The sanitizer is an unstable option of the compiler, whose run-time library is part of the stable toolchain as well.
//! Everything is rebuilt with it, in a separate folder, which takes some minutes.

use crate::{cargo, edges::unsafe_code};
use anyhow::Result;

/// With an explicit target, the compiler's flags do not apply to build scripts and macros.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds and runs the tests.
///
/// # Errors
/// Fails if a test fails, for example because of an invalid access, or the processor is not x86-64.
pub fn run() -> Result<()> {
    anyhow::ensure!(cfg!(target_arch = "x86_64"), "the sanitizer is set up for x86-64 only");
    let folder = cargo::root().join("target/sanitize");
    let environment = [
        ("RUSTC_BOOTSTRAP", "1"),
        ("RUSTFLAGS", "-Zsanitizer=address -Cforce-frame-pointers=yes"),
        ("CARGO_TARGET_DIR", &folder.to_string_lossy()),
    ];
    cargo::run_with(unit_tests(TARGET).iter().map(String::as_str), &environment)
}

/// A test that is skipped, because it checks that keys are in locked memory: the sanitizer omits locking, and QEMU
/// shows other memory maps.
const SKIPPED: &str = "slots_are_locked_and_in_no_dump";

/// Returns cargo's arguments that run the unit tests of the crates with `unsafe` code for `target`.
pub fn unit_tests(target: &str) -> Vec<String> {
    // The Python package has no tests in Rust.
    let names = unsafe_code::crates().into_iter().filter_map(|folder| folder.strip_prefix("crates").ok());
    let packages = names.flat_map(|name| ["--package".into(), format!("farpool-{}", name.display())]);
    let start = ["test", "--release", "--locked", "--lib", "--target", target].map(str::to_string);
    let end = ["--", "--skip", SKIPPED].map(str::to_string);
    start.into_iter().chain(packages).chain(end).collect()
}
