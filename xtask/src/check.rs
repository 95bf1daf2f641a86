//! `cargo xtask check`: the checks that must pass before a change is merged, cheapest first.
//!
//! Warnings are fatal in CI (when the variable CI is set) and only printed otherwise.

use crate::cargo::{self, WORKSPACE};
use crate::{dist, redis_tests};
use anyhow::Result;

/// Runs every step; stops at the first that fails.
pub fn run() -> Result<()> {
    step("format", || cargo::run(["fmt", "--all", "--check"]))?;
    step("rules of the tree", crate::rules_of_the_tree)?;
    step("build", || cargo::run(["build"].into_iter().chain(WORKSPACE).chain(["--all-targets"])))?;
    // The doc tests follow the other tests in the same command, so that nothing is built twice.
    step("tests", || cargo::run(["test"].into_iter().chain(WORKSPACE)))?;
    step("SQLite's logic tests", crate::logic_tests::run)?;
    step("PostgreSQL's answers", crate::postgres_tests::run)?;
    step("Redis' tests", || crate::redis_tests::run(&redis_tests::Options::default()))?;
    step("packages", || dist::run(&dist::Options::of_check()))?;
    step("tests of the Python package", || crate::python::test(&[]))?;
    step("simulation", simulation)?;
    step("lints", lints)?;
    step("documentation", documentation)?;
    println!("everything checked");
    Ok(())
}

/// Simulates a minute of seeds, always the same ones, so that a failure is due to the change under test. Run `cargo
/// xtask simulate --first` for others.
fn simulation() -> Result<()> {
    let arguments = ["--first", "1", "--seeds", "5000", "--seconds", "60"].map(String::from);
    cargo::run_program("farpool-sim", &[], &arguments)
}

fn lints() -> Result<()> {
    let fatal = if in_ci() { ["--", "-D", "warnings"].as_slice() } else { &[] };
    let targets = ["clippy"].into_iter().chain(WORKSPACE).chain(["--all-targets"]);
    cargo::run(targets.chain(fatal.iter().copied()))
}

fn documentation() -> Result<()> {
    let environment = if in_ci() { [("RUSTDOCFLAGS", "-D warnings")].as_slice() } else { &[] };
    // Naming the examples keeps the features equal to those of the lints, so that nothing is checked twice.
    let targets = ["doc"].into_iter().chain(WORKSPACE).chain(["--no-deps", "--lib", "--bins", "--examples"]);
    cargo::run_with(targets, environment)
}

fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

fn step(name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("== {name}");
    run()
}
