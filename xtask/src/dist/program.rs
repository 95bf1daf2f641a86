//! The program that is packaged: built so that it needs no library of the system, and checked for that.
//!
//! Only the last crate is compiled for a static program, the rest is shared by all builds: `-C
//! target-feature=+crt-static` changes only the linking of the last crate (rust-lang/rfcs, 1721). Since version 2.34,
//! GNU's C library looks up names by files and DNS itself, so that look-ups work without its plug-ins.

use super::read_bytes;
use crate::{cargo, programs};
use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Message;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A static program without symbols.
pub struct Program {
    pub path: PathBuf,
    pub architecture: Architecture,
}

/// A processor architecture for which farpool is packaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    X86,
    Arm,
}

/// Type of the entry in an ELF file's program header table (`PT_INTERP`) that names the dynamic loader.
const INTERPRETER: u64 = 3;

/// Builds the program from the tree and returns its path.
pub fn build() -> Result<PathBuf> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    // `cargo rustc` takes one package, and therefore the features of this package alone, which are those of the
    // workspace.
    command.args(["rustc", "--release", "--locked", "--package", "farpool", "--bin", "farpool"]);
    command.args(["--message-format", "json-render-diagnostics", "--", "-C", "target-feature=+crt-static"]);
    let mut child =
        command.current_dir(cargo::root()).stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let mut built = None;
    for message in Message::parse_stream(std::io::BufReader::new(output)) {
        if let Message::CompilerArtifact(artifact) = message?
            && artifact.target.name == "farpool"
        {
            built = artifact.executable.or(built);
        }
    }
    ensure!(
        child.wait()?.success(),
        "the static program could not be built: the C library's static form has to be there (libc6-dev, \
         glibc-static, or the one of your system)"
    );
    Ok(built.context("cargo did not say where the program is")?.into())
}

impl Program {
    /// Copies a program without its symbols and checks its header.
    ///
    /// # Errors
    /// Fails if the program needs an interpreter, and therefore libraries of the system, or is for an architecture
    /// without packages.
    pub fn strip(program: &Path, to: &Path) -> Result<Program> {
        let architecture = architecture_of_static(&read_bytes(program)?)
            .with_context(|| format!("{} cannot be packaged", program.display()))?;
        let paths = [program, to].map(|path| path.to_string_lossy().into_owned());
        programs::run("strip", ["-o", &paths[1], &paths[0]], "install the package binutils")?;
        Ok(Program { path: to.to_path_buf(), architecture })
    }
}

impl Architecture {
    /// Returns the architecture's name in file names, which is that of Rust and the kernel.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::X86 => "x86_64",
            Architecture::Arm => "aarch64",
        }
    }

    /// Returns Debian's name of the architecture.
    pub fn debian(self) -> &'static str {
        match self {
            Architecture::X86 => "amd64",
            Architecture::Arm => "arm64",
        }
    }
}

/// Reads the header of an ELF file with 64 bits (`elf(5)`).
fn architecture_of_static(file: &[u8]) -> Result<Architecture> {
    ensure!(file.starts_with(b"\x7fELF\x02\x01"), "it is no program for 64-bit Linux");
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let bytes = file.get(at..at.checked_add(bytes)?)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let architecture = match number(18, 2) {
        Some(62) => Architecture::X86,
        Some(183) => Architecture::Arm,
        other => {
            bail!("it is for processor {other:?} of ELF; there are packages for x86-64 and 64-bit ARM only")
        }
    };
    let header = || Some((number(32, 8)?, number(54, 2)?, number(56, 2)?));
    let (table, size, count) = header().context("its header is cut off")?;
    for entry in 0..count {
        let at = usize::try_from(table + entry * size).context("its header is damaged")?;
        ensure!(
            number(at, 4).context("its header is cut off")? != INTERPRETER,
            "it is linked with libraries of the system: build it with -C target-feature=+crt-static, as \
             `cargo xtask dist` does without --program"
        );
    }
    Ok(architecture)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an ELF header with one entry of the given type.
    fn elf(machine: u8, kind: u8) -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18] = machine;
        (file[32], file[54], file[56], file[64]) = (64, 56, 1, kind);
        file
    }

    #[test]
    fn static_programs_are_told_from_others() {
        assert_eq!(architecture_of_static(&elf(62, 1)).unwrap(), Architecture::X86);
        assert_eq!(architecture_of_static(&elf(183, 1)).unwrap(), Architecture::Arm);
        for (file, part) in [
            (elf(62, 3), "libraries of the system"),
            (elf(243, 1), "packages for x86-64"),
            (elf(62, 1)[..60].to_vec(), "cut off"),
            (elf(62, 1)[..40].to_vec(), "cut off"),
            (b"#!/bin/sh".to_vec(), "no program"),
            (Vec::new(), "no program"),
        ] {
            let error = format!("{:#}", architecture_of_static(&file).unwrap_err());
            assert!(error.contains(part), "{error}");
        }
    }
}
