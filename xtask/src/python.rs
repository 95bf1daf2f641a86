//! The Python package: `cargo xtask python-wheel`, `python-install` and `python-tests`.
//!
//! Invariant: the package contains the library that the workspace builds, see `bindings/python/cargo-workspace`.

use crate::cargo;
use crate::programs;
use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the package and returns the path of the wheel, in the folder `wheels` of cargo's target folder.
///
/// # Errors
/// Fails if the package does not build, or maturin cannot be installed.
pub fn wheel() -> Result<PathBuf> {
    wheel_by(&environment(&cargo::cache("python")?, &requirements()?)?)
}

/// Builds the package and installs it, with the requirements of its tests, into the virtual environment `folder`.
///
/// # Errors
/// The errors of [`wheel`].
pub fn install(folder: &Path) -> Result<()> {
    // The interpreter is started in other folders, too.
    let folder = std::path::absolute(folder).with_context(|| format!("no path: {}", folder.display()))?;
    let python = installed_into(&folder)?;
    println!("farpool is installed for {}", python.display());
    println!("to use it: . {}/bin/activate", folder.display());
    Ok(())
}

/// Builds the package for the environment of its tests, and returns the interpreter.
///
/// # Errors
/// The errors of [`wheel`].
pub fn for_tests() -> Result<PathBuf> {
    installed_into(&cargo::cache("python")?)
}

/// Runs the tests of the package and the examples in its documentation, in a separate environment.
///
/// # Errors
/// Fails if a test fails.
pub fn test(arguments: &[String]) -> Result<()> {
    let program = cargo::build_program("farpool", &[])?;
    let python = for_tests()?;
    let examples = ["--doctest-modules", "--pyargs", "farpool"].map(String::from);
    for arguments in [arguments, &examples] {
        let mut command = Command::new(&python);
        command.args(["-m", "pytest"]).args(arguments);
        command.current_dir(folder()).env("FARPOOL_PROGRAM", &program);
        let status = command.status().context("cannot start pytest")?;
        ensure!(status.success(), "the tests of the Python package failed");
    }
    Ok(())
}

/// Returns the interpreter of an environment at `folder`, which is created if it does not exist, with these packages.
///
/// # Errors
/// Fails if Python is missing and cannot be installed, or the package index cannot be reached.
pub fn environment(folder: &Path, packages: &[String]) -> Result<PathBuf> {
    let python = folder.join("bin/python");
    let wanted = packages.join("\n");
    if programs::is_installed(folder, &wanted) {
        return Ok(python);
    }
    // Debian's Python has no `ensurepip` without the package python3-venv.
    let tried = Command::new("python3").args(["-m", "ensurepip", "--version"]).output();
    if !tried.is_ok_and(|done| done.status.success()) {
        programs::install_packages(&["python3", "python3-venv"])?;
    }
    programs::run("python3", ["-m", "venv", &folder.to_string_lossy()], "is Python's module venv there?")?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    let packages = packages.iter().map(String::as_str);
    programs::run(
        &python.to_string_lossy(),
        pip.into_iter().chain(packages),
        "is the package index reachable?",
    )?;
    programs::installed(folder, &wanted)?;
    Ok(python)
}

fn installed_into(environment_folder: &Path) -> Result<PathBuf> {
    let python = environment(environment_folder, &requirements()?)?;
    let wheel = wheel_by(&python)?;
    let pip =
        ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--force-reinstall"];
    let wheel = wheel.to_string_lossy();
    programs::run(&python.to_string_lossy(), pip.into_iter().chain([&*wheel]), "does pip work?")?;
    Ok(python)
}

/// Builds the wheel with the maturin of an environment.
fn wheel_by(python: &Path) -> Result<PathBuf> {
    let wheels = cargo::target_folder()?.join("wheels");
    // Wheels of earlier versions would be mistaken for this one.
    let _ = fs::remove_dir_all(&wheels);
    let mut command = Command::new(python);
    command.args(["-m", "maturin", "build", "--quiet", "--release", "--locked", "--out"]).arg(&wheels);
    command.current_dir(folder()).env("CARGO", folder().join("cargo-workspace"));
    command.env("FARPOOL_CARGO", std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let status = command.status().context("cannot start maturin")?;
    ensure!(status.success(), "maturin could not build the Python package");
    let made =
        fs::read_dir(&wheels).with_context(|| format!("maturin left nothing in {}", wheels.display()))?;
    let mut made = made.filter_map(|entry| Some(entry.ok()?.path()));
    let wheel = made.find(|path| path.extension() == Some(OsStr::new("whl")));
    wheel.with_context(|| format!("maturin left no wheel in {}", wheels.display()))
}

fn folder() -> PathBuf {
    cargo::root().join("bindings/python")
}

/// Returns the packages needed to build and test the package, in the format of pip.
fn requirements() -> Result<Vec<String>> {
    let file = folder().join("requirements.txt");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    Ok(lines.map(str::to_string).collect())
}
