//! External programs: checks that they are installed, installs and runs them.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Returns whether a program can be started.
pub fn is_there(program: &str) -> bool {
    let tried = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    tried.is_ok()
}

/// Installs Debian's `packages` unless all `programs` can be started.
///
/// # Errors
/// Fails if that fails; the message tells what to install.
pub fn install(programs: &[&str], packages: &[&str]) -> Result<()> {
    if programs.iter().all(|program| is_there(program)) {
        return Ok(());
    }
    install_packages(packages)
}

/// Installs Debian's `packages`.
///
/// # Errors
/// Fails if that fails; the message tells what to install.
pub fn install_packages(packages: &[&str]) -> Result<()> {
    let advice = format!("install the packages {}", packages.join(", "));
    // A new machine has no package lists.
    run("apt-get", ["-q", "update"], &advice)?;
    let arguments = ["install", "-q", "-y", "--no-install-recommends"];
    run("apt-get", arguments.into_iter().chain(packages.iter().copied()), &advice)
}

/// Runs a program.
///
/// # Errors
/// Fails if the program cannot be started or fails; the message ends with the advice `otherwise`.
pub fn run<'a>(program: &str, arguments: impl IntoIterator<Item = &'a str>, otherwise: &str) -> Result<()> {
    run_in(Path::new("."), program, arguments, otherwise)
}

/// Runs a program in a folder.
///
/// # Errors
/// The errors of [`run`].
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

/// Returns whether a folder contains the wanted installation; any other is removed.
pub fn is_installed(folder: &Path, wanted: &str) -> bool {
    let is_same = fs::read_to_string(folder.join("installed")).is_ok_and(|had| had == wanted);
    if !is_same {
        // The folder may not exist.
        let _ = fs::remove_dir_all(folder);
    }
    is_same
}

/// Records the installation that a folder contains.
///
/// # Errors
/// Fails if the folder cannot be written to.
pub fn installed(folder: &Path, wanted: &str) -> Result<()> {
    fs::write(folder.join("installed"), wanted)
        .with_context(|| format!("cannot write to {}", folder.display()))
}
