//! `cargo xtask emulate`: the unit tests of the crates with `unsafe` code, built for 64-bit ARM and run by QEMU. There
//! the portable paths are all there is; the compiler makes them NEON, which every such processor has.

use crate::{cargo, sanitize};
use anyhow::{Context, Result, bail};
use std::process::{Command, Stdio};

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Programs of Debian's packages `gcc-aarch64-linux-gnu` and `qemu-user`.
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";
const PACKAGES: [&str; 3] = ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user"];

/// Installs what is missing, builds and runs the tests.
///
/// # Errors
/// When a test fails, or something is missing that cannot be installed.
pub fn run() -> Result<()> {
    if !is_there(LINKER) || !is_there(EMULATOR) {
        let install = ["install", "-q", "-y", "--no-install-recommends"].into_iter().chain(PACKAGES);
        install_by("apt-get", install, &format!("install the packages {}", PACKAGES.join(", ")))?;
    }
    install_by("rustup", ["target", "add", TARGET], &format!("add the target {TARGET} to Rust"))?;
    let folder = cargo::root().join("target/emulate");
    let emulator = format!("{EMULATOR} -L /usr/aarch64-linux-gnu");
    let environment = [
        ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER),
        ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", &emulator),
        ("CARGO_TARGET_DIR", &folder.to_string_lossy()),
    ];
    cargo::run_with(sanitize::unit_tests(TARGET).iter().map(String::as_str), &environment)
}

fn is_there(program: &str) -> bool {
    let tried = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

fn install_by<'a>(
    program: &str,
    arguments: impl IntoIterator<Item = &'a str>,
    otherwise: &str,
) -> Result<()> {
    let status = Command::new(program).args(arguments).status();
    if !status.with_context(|| format!("cannot start {program}: {otherwise}"))?.success() {
        bail!("{program} failed: {otherwise}");
    }
    Ok(())
}
