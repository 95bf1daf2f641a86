//! `cargo xtask sanitize`: the unit tests of the crates with `unsafe` code, under AddressSanitizer. Which these are, the
//! table of modules in `crates/farpool/tests/edges/unsafe_code.rs` says.
//!
//! The sanitizer is an unstable option of the compiler whose run-time library comes with the stable toolchain
//! too. Everything is built anew with it, in a folder of its own, which takes some minutes.

use crate::{cargo, edges::unsafe_code};
use anyhow::Result;

/// With a target named, the compiler's flags do not reach build scripts and macros.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds and runs the tests.
///
/// # Errors
/// When a test fails, which an invalid access makes it do, or the processor is another.
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

/// Cargo's arguments that run the unit tests of the crates with `unsafe` code for the processor `target`.
pub fn unit_tests(target: &str) -> Vec<String> {
    let packages = unsafe_code::crates()
        .into_iter()
        .flat_map(|folder| ["--package".into(), format!("farpool-{folder}")]);
    let start = ["test", "--release", "--locked", "--lib", "--target", target].map(str::to_string);
    start.into_iter().chain(packages).collect()
}
