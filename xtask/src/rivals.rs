//! `cargo xtask rivals`: the programs that benchmarks compare with, at pinned versions, in a Python virtual
//! environment outside the tree.
//!
//! The folder is `~/.cache/farpool/rivals`, or what the variable FARPOOL_RIVALS names.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is installed: DuckDB is the rival of the suite `tpch`, and records the answers in `testdata`.
const PACKAGES: [&str; 3] = ["duckdb==2.0.0", "pyarrow==26.0.1", "tpchgen-cli==4.0.0"];

/// Makes the virtual environment if there is none, and installs the packages into it.
pub fn install() -> Result<()> {
    let folder = folder()?;
    let python = folder.join("bin/python");
    if !python.exists() {
        println!("making a Python virtual environment in {}", folder.display());
        run(Path::new("python3"), &["-m", "venv", &folder.to_string_lossy()]).context(
            "a virtual environment needs Python 3 with its venv module: on Debian, the package python3-venv",
        )?;
    }
    println!("installing {}", PACKAGES.join(", "));
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run(&python, &[&pip[..], &PACKAGES[..]].concat()).context(
        "pip could not install the rivals: is the package index reachable from here?\n\
         Benchmarks run without them (--quick compares with the recorded answers instead)",
    )?;
    println!("done: {}", python.display());
    Ok(())
}

fn folder() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("FARPOOL_RIVALS") {
        return Ok(folder.into());
    }
    let home = std::env::var_os("HOME").context("neither FARPOOL_RIVALS nor HOME is set")?;
    Ok(Path::new(&home).join(".cache/farpool/rivals"))
}

fn run(program: &Path, arguments: &[&str]) -> Result<()> {
    let shown = program.display();
    let status =
        Command::new(program).args(arguments).status().with_context(|| format!("cannot start {shown}"))?;
    if !status.success() {
        bail!("{shown} {} failed ({status})", arguments.join(" "));
    }
    Ok(())
}
