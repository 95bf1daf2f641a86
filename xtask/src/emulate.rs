//! `cargo xtask emulate`: runs the unit tests of the crates with `unsafe` code, built for 64-bit ARM, under QEMU. On
//! ARM only the portable code paths exist; the compiler vectorizes them with NEON, which every such processor supports.

use crate::{cargo, programs, sanitize};
use anyhow::Result;

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Programs of Debian's packages `gcc-aarch64-linux-gnu` and `qemu-user`.
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";
const PACKAGES: [&str; 3] = ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user"];

/// Installs missing tools, then builds and runs the tests.
///
/// # Errors
/// Fails if a test fails, or a missing tool cannot be installed.
pub fn run() -> Result<()> {
    programs::install(&[LINKER, EMULATOR], &PACKAGES)?;
    programs::run("rustup", ["target", "add", TARGET], &format!("add the target {TARGET} to Rust"))?;
    let folder = cargo::root().join("target/emulate");
    let emulator = format!("{EMULATOR} -L /usr/aarch64-linux-gnu");
    let environment = [
        ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER),
        ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", &emulator),
        ("CARGO_TARGET_DIR", &folder.to_string_lossy()),
    ];
    cargo::run_with(sanitize::unit_tests(TARGET).iter().map(String::as_str), &environment)
}
