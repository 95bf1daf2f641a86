//! The archives: files sorted by name, with the time of the release and without names of owners.

use super::Release;
use super::contents::{Contents, DOCUMENTATION, set_modes};
use super::program::Program;
use super::{copy, read, write};
use crate::{cargo, programs};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file with the SHA-256 digests of all packages.
pub const SUMS: &str = "SHA256SUMS";

/// User and group of a node in a container: `USER` in the Containerfile.
pub const CONTAINER_USER: &str = "9797";

/// The archives that `make` has built.
pub struct Archives {
    /// The archive of all installed files, in a folder named like the archive.
    pub tar: PathBuf,
    /// The archive of a container's root file system.
    pub container: PathBuf,
    /// The Containerfile, from which the container's image is built.
    pub containerfile: PathBuf,
}

/// Builds the archive of all installed files, that of a container, and its Containerfile.
pub fn make(release: &Release, program: &Program, contents: &Contents) -> Result<Archives> {
    let name = contents.prefix.file_name().unwrap_or_default().to_string_lossy();
    let tar = release.folder.join(format!("{name}.tar.gz"));
    pack(release, &release.scratch, &[&name], &tar)?;

    let container = format!("farpool-{}-{}-container.tar.gz", release.version, program.architecture.name());
    let root = container_root(release, contents)?;
    let archive = release.folder.join(&container);
    pack_container(release, &root, &archive)?;

    let containerfile = release.folder.join("Containerfile");
    let template = read(&cargo::root().join("packaging/container/Containerfile"))?;
    write(&containerfile, template.replace("@ROOT_ARCHIVE@", &container))?;
    Ok(Archives { tar, container: archive, containerfile })
}

/// Writes the digests of all files in a folder, sorted by name.
pub fn write_sums(folder: &Path) -> Result<()> {
    let names = names(folder)?;
    let output = Command::new("sha256sum").current_dir(folder).arg("--").args(&names).output();
    let output = output.context("cannot start sha256sum: install the package coreutils")?;
    write(&folder.join(SUMS), output.stdout)
}

/// Prints names and sizes of the packages.
pub fn list(folder: &Path) -> Result<()> {
    for name in names(folder)? {
        let bytes = fs::metadata(folder.join(&name))?.len();
        println!("{:>10.1} MB  {name}", bytes as f64 / 1e6);
    }
    Ok(())
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// Builds the tree of a container's root: the program, a user, a data directory and a folder for temporary files.
fn container_root(release: &Release, contents: &Contents) -> Result<PathBuf> {
    let root = release.scratch.join("container");
    copy(&contents.prefix.join("bin/farpool"), &root.join("usr/bin/farpool"))?;
    for name in ["LICENSE", "THIRD-PARTY"] {
        let path = Path::new(DOCUMENTATION).join(name);
        copy(&contents.prefix.join(&path), &root.join("usr").join(path))?;
    }
    let user = CONTAINER_USER;
    write(
        &root.join("etc/passwd"),
        format!("root:x:0:0:root:/:/\nfarpool:x:{user}:{user}:farpool:/var/lib/farpool:/\n"),
    )?;
    write(&root.join("etc/group"), format!("root:x:0:\nfarpool:x:{user}:\n"))?;
    for folder in ["etc/farpool", "tmp", "var/lib/farpool"] {
        fs::create_dir_all(root.join(folder))?;
    }
    set_modes(&root)?;
    Ok(root)
}

/// Packs the root of a container, in which two folders are not owned by root alone.
fn pack_container(release: &Release, root: &Path, archive: &Path) -> Result<()> {
    let plain = archive.with_extension("");
    let file = plain.to_string_lossy();
    let options = options(release);
    let common = || options.iter().map(String::as_str).chain(["-C"]);
    let root = root.to_string_lossy();
    let of_root = ["--owner=0", "--group=0", "--exclude=./tmp", "--exclude=./var/lib/farpool", "."];
    tar(common().chain([&*root, "-cf", &file]).chain(of_root))?;
    let user = [format!("--owner={CONTAINER_USER}"), format!("--group={CONTAINER_USER}")];
    tar(common().chain([&*root, "-rf", &file, "--mode=0700", &user[0], &user[1], "./var/lib/farpool"]))?;
    tar(common().chain([&*root, "-rf", &file, "--mode=1777", "--owner=0", "--group=0", "./tmp"]))?;
    programs::run("gzip", ["-n", "-f", level(release), &file], "install the package gzip")
}

/// Packs some files of a folder.
fn pack(release: &Release, folder: &Path, files: &[&str], archive: &Path) -> Result<()> {
    let plain = archive.with_extension("");
    let (folder, file) = (folder.to_string_lossy(), plain.to_string_lossy());
    let options = options(release);
    let arguments = options.iter().map(String::as_str).chain(["--owner=0", "--group=0", "-C", &folder]);
    tar(arguments.chain(["-cf", &file]).chain(files.iter().copied()))?;
    programs::run("gzip", ["-n", "-f", level(release), &file], "install the package gzip")
}

fn options(release: &Release) -> Vec<String> {
    let fixed = ["--format=gnu", "--sort=name", "--numeric-owner"].map(String::from);
    fixed.into_iter().chain([format!("--mtime=@{}", release.time)]).collect()
}

fn tar<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<()> {
    programs::run("tar", arguments, "GNU tar 1.28 or newer is needed")
}

fn level(release: &Release) -> &'static str {
    if release.is_check { "-1" } else { "-9" }
}
