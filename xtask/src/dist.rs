//! `cargo xtask dist`: the program as packages for machines without Rust, and the proof that they work.
//!
//! | file | what |
//! | --- | --- |
//! | `farpool-VERSION-ARCH-linux.tar.gz` | the program, manual pages, completions, the service, documentation |
//! | `farpool_VERSION_ARCH.deb` | the same for Debian and Ubuntu |
//! | `farpool-VERSION-ARCH-container.tar.gz`, `Containerfile` | the root of a container, and how to build its image |
//! | `farpool-VERSION-cp310-abi3-PLATFORM.whl` | the Python package |
//! | `SHA256SUMS` | the digests of all |
//!
//! Invariant: the program is linked statically, so that a package is the same for all distributions and needs nothing
//! of the system but its kernel, `/dev/random` and `/dev/urandom` and, for some features, files in `/proc`, `/sys` and
//! `/etc`. The same tree, compiler and time (`SOURCE_DATE_EPOCH`, or that of the last commit) yield the same packages.

mod archives;
mod contents;
mod debian;
mod licences;
mod program;
mod proof;
mod root;
mod version;
mod wheel;

use crate::{cargo, programs, python};
use anyhow::{Context, Result, ensure};
use program::Program;
use std::fs;
use std::path::{Path, PathBuf};

/// Options of the command.
#[derive(clap::Args)]
pub struct Options {
    /// Package this program, which must be linked statically, in place of one that is built from the tree.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Only see that packages can be made and work: they are hardly compressed, without wheels, and lie in
    /// target/dist-check.
    #[arg(long)]
    check: bool,
}

/// The data that all parts of the command share.
struct Release {
    /// The version without a `v`, such as 0.1.0.
    version: String,
    /// The folder that the packages are put into.
    folder: PathBuf,
    /// A folder for intermediate files.
    scratch: PathBuf,
    /// The modification time of all files, in seconds since 1970.
    time: String,
    /// Whether to compress little.
    is_check: bool,
}

/// Builds the packages, installs each into an empty root and runs it there.
///
/// # Errors
/// Fails if a tool is missing, the versions of program, crate and changelog differ, or a package does not work.
pub fn run(options: &Options) -> Result<()> {
    ensure!(cfg!(target_os = "linux"), "packages are made on Linux, for Linux");
    programs::install(&["tar", "gzip", "strip", "sha256sum"], &["tar", "gzip", "binutils", "coreutils"])?;
    programs::install(&["dpkg-deb"], &["dpkg"])?;
    let release = Release::prepare(options.check)?;
    let built = match &options.program {
        Some(program) => program.clone(),
        None => program::build()?,
    };
    let program = Program::strip(&built, &release.scratch.join("farpool"))?;
    let contents = contents::gather(&release, &program)?;
    let packages = archives::make(&release, &program, &contents)?;
    let package = debian::make(&release, &program, &contents)?;
    let wheel = if options.check { None } else { Some(wheel_in(&release.folder)?) };
    archives::write_sums(&release.folder)?;
    println!("made in {}:", release.folder.display());
    archives::list(&release.folder)?;
    proof::run(&release, &packages, &package)?;
    wheel.map(|wheel| wheel::works(&release, &wheel)).transpose()?;
    println!("every package runs in an empty root");
    fs::remove_dir_all(&release.scratch)
        .with_context(|| format!("cannot remove {}", release.scratch.display()))
}

impl Options {
    /// Returns the options used by `cargo xtask check`.
    pub fn of_check() -> Options {
        Options { program: None, check: true }
    }
}

impl Release {
    fn prepare(is_check: bool) -> Result<Release> {
        let root = cargo::root();
        let version = version::agreed(&root)?;
        let target = cargo::target_folder()?;
        let folder = if is_check { target.join("dist-check") } else { root.join("dist") };
        let scratch = target.join("dist-scratch");
        for folder in [&folder, &scratch] {
            if folder.exists() {
                fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
            }
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        Ok(Release { version, folder, scratch, time: version::time(&root)?, is_check })
    }
}

/// Builds the wheel into `folder`.
fn wheel_in(folder: &Path) -> Result<PathBuf> {
    let built = python::wheel()?;
    let wheel = folder.join(built.file_name().unwrap_or_default());
    copy(&built, &wheel)?;
    Ok(wheel)
}

/// Copies a file, and creates the folder of the copy.
fn copy(from: &Path, to: &Path) -> Result<()> {
    create_parent(to)?;
    fs::copy(from, to)
        .map(drop)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

/// Reads a file.
fn read_bytes(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Reads a file of text.
fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Writes a file, and creates its folder.
fn write(to: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    create_parent(to)?;
    fs::write(to, bytes).with_context(|| format!("cannot write {}", to.display()))
}

fn create_parent(file: &Path) -> Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}
