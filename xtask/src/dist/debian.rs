//! The package for Debian and its relatives, made by `dpkg-deb`.

use super::contents::{Contents, DOCUMENTATION, ZSH, set_modes};
use super::program::Program;
use super::{Release, copy, read, write};
use crate::{cargo, programs};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's folder for completions of zsh.
const ZSH_DEBIAN: &str = "share/zsh/vendor-completions";

/// Scripts that dpkg runs.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Builds the package and returns its path.
pub fn make(release: &Release, program: &Program, contents: &Contents) -> Result<PathBuf> {
    let root = release.scratch.join("debian");
    let usr = root.join("usr");
    copy_tree(&contents.prefix, &usr)?;
    rename(&usr.join(ZSH), &usr.join(ZSH_DEBIAN))?;
    let documentation = usr.join(DOCUMENTATION);
    // Debian provides the text of the licence, and requires a note in a file of another name.
    fs::remove_file(documentation.join("LICENSE")).context("the contents have no LICENSE")?;
    let packaging = cargo::root().join("packaging/debian");
    copy(&packaging.join("copyright"), &documentation.join("copyright"))?;
    rename(&documentation.join("farpool.default"), &root.join("etc/default/farpool"))?;
    fs::create_dir_all(root.join("etc/farpool"))?;
    control(release, program, &packaging, &root)?;
    set_modes(&root)?;
    for script in SCRIPTS {
        programs::run(
            "chmod",
            ["755", &root.join("DEBIAN").join(script).to_string_lossy()],
            "is the folder yours?",
        )?;
    }
    set_times(release, &root)?;
    let name = format!("farpool_{}_{}.deb", release.version, program.architecture.debian());
    let package = release.folder.join(name);
    build(release, &root, &package)?;
    Ok(package)
}

/// Writes the control files of the package.
fn control(release: &Release, program: &Program, packaging: &Path, root: &Path) -> Result<()> {
    let folder = root.join("DEBIAN");
    let control = read(&packaging.join("control"))?
        .replace("@VERSION@", &release.version)
        .replace("@ARCHITECTURE@", program.architecture.debian())
        .replace("@INSTALLED_SIZE@", &kibibytes(root)?.to_string());
    write(&folder.join("control"), control)?;
    for file in SCRIPTS.into_iter().chain(["conffiles"]) {
        copy(&packaging.join(file), &folder.join(file))?;
    }
    Ok(())
}

fn build(release: &Release, root: &Path, package: &Path) -> Result<()> {
    let compression = if release.is_check { ["-Zgzip", "-z1"] } else { ["-Zxz", "-z6"] };
    let mut command = Command::new("dpkg-deb");
    command.env("SOURCE_DATE_EPOCH", &release.time).arg("--root-owner-group").args(compression);
    let status = command.arg("--build").arg(root).arg(package).status();
    let status = status.context("cannot start dpkg-deb: install the package dpkg")?;
    anyhow::ensure!(status.success(), "dpkg-deb could not make {} ({status})", package.display());
    Ok(())
}

/// Returns the sum of the sizes of all files, as Debian computes it.
fn kibibytes(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += if metadata.is_dir() { 1 + kibibytes(&entry.path())? } else { metadata.len().div_ceil(1024) };
    }
    Ok(sum)
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let (from, to) = (from.join("."), to.to_string_lossy());
    programs::run("cp", ["-R", &from.to_string_lossy(), &to], "is the disk full?")
}

/// Sets the times of all files: dpkg-deb keeps times that are older than the release.
fn set_times(release: &Release, root: &Path) -> Result<()> {
    let time = format!("@{}", release.time);
    let arguments =
        [&*root.to_string_lossy(), "-exec", "touch", "--no-dereference", "--date", &time, "{}", "+"]
            .map(String::from);
    programs::run("find", arguments.iter().map(String::as_str), "install the package findutils")
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    super::create_parent(to)?;
    fs::rename(from, to).with_context(|| format!("cannot move {} to {}", from.display(), to.display()))
}
