//! External programs: checks that they are installed, installs and runs them.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether a program can be started.
pub fn is_there(program: &str) -> bool {
    let tried = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    tried.is_ok()
}

/// Installs Debian's `packages` unless all `programs` can be started.
///
/// # Errors
/// When that fails; the message says what to install.
pub fn install(programs: &[&str], packages: &[&str]) -> Result<()> {
    if programs.iter().all(|program| is_there(program)) {
        return Ok(());
    }
    install_packages(packages)
}

/// Installs Debian's `packages`.
///
/// # Errors
/// When that fails; the message says what to install.
pub fn install_packages(packages: &[&str]) -> Result<()> {
    let advice = format!("install the packages {}", packages.join(", "));
    // A new machine has no lists of packages.
    run("apt-get", ["-q", "update"], &advice)?;
    let arguments = ["install", "-q", "-y", "--no-install-recommends"];
    run("apt-get", arguments.into_iter().chain(packages.iter().copied()), &advice)
}

/// Runs a program.
///
/// # Errors
/// When it cannot be started or fails; the message ends with the advice `otherwise`.
pub fn run<'a>(program: &str, arguments: impl IntoIterator<Item = &'a str>, otherwise: &str) -> Result<()> {
    run_in(Path::new("."), program, arguments, otherwise)
}

/// Runs a program in a folder.
///
/// # Errors
/// As those of [`run`].
pub fn run_in<'a>(
    folder: &Path,
    program: &str,
    arguments: impl IntoIterator<Item = &'a str>,
    otherwise: &str,
) -> Result<()> {
    let status = Command::new(program).args(arguments).current_dir(folder).status();
    if !status.with_context(|| format!("cannot start {program}: {otherwise}"))?.success() {
        bail!("{program} failed: {otherwise}");
    }
    Ok(())
}

/// Whether a folder was filled with what is wanted; others are removed.
pub fn is_installed(folder: &Path, wanted: &str) -> bool {
    let is_same = fs::read_to_string(folder.join("installed")).is_ok_and(|had| had == wanted);
    if !is_same {
        // It may not be there.
        let _ = fs::remove_dir_all(folder);
    }
    is_same
}

/// Notes what a folder was filled with.
///
/// # Errors
/// When the folder cannot be written to.
pub fn installed(folder: &Path, wanted: &str) -> Result<()> {
    fs::write(folder.join("installed"), wanted)
        .with_context(|| format!("cannot write to {}", folder.display()))
}
