//! External programs: checks that they are installed, installs and runs them.

use anyhow::{Context, Result, bail};
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
    let arguments =
        ["install", "-q", "-y", "--no-install-recommends"].into_iter().chain(packages.iter().copied());
    run("apt-get", arguments, &format!("install the packages {}", packages.join(", ")))
}

/// Runs a program.
///
/// # Errors
/// When it cannot be started or fails; the message ends with the advice `otherwise`.
pub fn run<'a>(program: &str, arguments: impl IntoIterator<Item = &'a str>, otherwise: &str) -> Result<()> {
    let status = Command::new(program).args(arguments).status();
    if !status.with_context(|| format!("cannot start {program}: {otherwise}"))?.success() {
        bail!("{program} failed: {otherwise}");
    }
    Ok(())
}
