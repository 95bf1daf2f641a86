//! Rivals (systems that benchmarks compare farpool with) that are libraries: their drivers are programs of this tree,
//! outside its workspace, built in a folder next to the other rivals.
//!
//! Invariant: the file `built-from` next to a program contains the sources from which the program was built, and is
//! written last. A program whose sources have not changed is not built again.

use crate::cargo;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// A rival's program that `bench/definitions/rivals.toml` names, with `program = true`.
pub struct Program {
    /// Name of the program's folder, both below `bench/rivals/` and among the installed rivals.
    pub name: &'static str,
    pub purpose: &'static str,
    /// Note about the build's costs, printed before a build.
    effort: &'static str,
    /// Files outside the program's folder from which it is built, relative to the root of the tree.
    shared: &'static [&'static str],
}

pub const PROGRAMS: [Program; 2] = [
    Program {
        name: "libraries",
        purpose: "OpenSSL, zlib, zlib-ng and libdeflate",
        effort: "links the system's libcrypto.so.3 (Debian's libssl3) and builds the others, with cmake: a minute",
        shared: &["bench/src/iopath/packing.rs", "bench/src/iopath/rounds.rs"],
    },
    Program {
        name: "liquidcache",
        purpose: "LiquidCache",
        effort: "430 crates, among them another DataFusion: a quarter to half an hour on two cores, once",
        shared: &["bench/src/digest.rs"],
    },
];

impl Program {
    /// Builds the program, unless it is installed from the same sources.
    pub fn install(&self, folder: &Path) -> Result<()> {
        let sources = self.sources()?;
        let program = folder.join("bin").join(format!("{}_driver", self.name));
        let built_from = folder.join("built-from");
        if program.exists() && fs::read_to_string(&built_from).is_ok_and(|built| built == sources) {
            println!("{} is built", self.purpose);
            return Ok(());
        }
        println!("building {} ({})", self.purpose, self.effort);
        let target = folder.join("target");
        self.build(&target)?;
        fs::create_dir_all(folder.join("bin"))?;
        // A running program can be replaced by renaming, but cannot be overwritten.
        fs::rename(target.join("release").join(format!("farpool-rival-{}", self.name)), &program)
            .with_context(|| format!("cannot put {} in its place", program.display()))?;
        fs::remove_dir_all(&target).with_context(|| format!("cannot remove {}", target.display()))?;
        fs::write(&built_from, sources).with_context(|| format!("cannot write {}", built_from.display()))
    }

    /// Builds into `target`, which is kept if the build fails and reused by the next one.
    fn build(&self, target: &Path) -> Result<()> {
        let manifest = format!("bench/rivals/{}/Cargo.toml", self.name);
        let target = target.to_string_lossy();
        let options = ["--release", "--locked", "--manifest-path", &manifest, "--target-dir", &target];
        cargo::run(["build"].into_iter().chain(options)).with_context(|| {
            format!("cargo could not build {}: is the registry of crates reachable from here?", self.purpose)
        })
    }

    /// Concatenates all source files of the program.
    fn sources(&self) -> Result<String> {
        let root = cargo::root();
        let folder = root.join("bench/rivals").join(self.name);
        let mut files = vec![folder.join("Cargo.toml"), folder.join("Cargo.lock")];
        files.extend(self.shared.iter().map(|file| root.join(file)));
        let mut own = fs::read_dir(folder.join("src"))
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>, _>>())
            .with_context(|| format!("cannot list {}", folder.display()))?;
        own.sort();
        files.append(&mut own);
        let read = |file: &PathBuf| {
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
        };
        files.iter().map(read).collect()
    }
}
