//! Tries the wheel in a root that contains only a Python interpreter, its own modules, and the libraries of both.

use super::proof::{CSV, say};
use super::root::{Root, User};
use super::{Release, copy};
use crate::programs;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A script that prints the paths of the interpreter and its modules.
const WHERE: &str = "import os, sys, sysconfig
print(os.path.realpath(sys.executable))
print(sysconfig.get_path('stdlib'))";

/// The folder of the root into which the wheel is unpacked.
const SITE: &str = "/site";

/// A script that loads a table, runs a query, and checks its result.
const SCRIPT: &str = "import farpool
with farpool.open(memory='64MiB') as p:
    p.load('trips', '/tmp/trips.csv')
    rows = p.sql('select city, sum(fare) from trips group by city order by city').fetchall()
assert rows == [('Bergen', 30.25), ('Oslo', 19.75)], rows
print(farpool.__version__)";

/// Tries the wheel with this machine's Python.
///
/// # Errors
/// Fails if it does not work, or cannot be tried here.
pub fn works(release: &Release, wheel: &Path) -> Result<()> {
    say("wheel", wheel);
    let root = Root::make(release.scratch.join("root-wheel"))?;
    let told = Root::output(Command::new("python3").args(["-I", "-c", WHERE]))?;
    let (interpreter, modules) =
        told.trim_end().split_once('\n').context("Python does not say where it is")?;
    let (interpreter, modules) = (Path::new(interpreter), Path::new(modules));
    copy(interpreter, &inside(&root, interpreter))?;
    let parent = inside(&root, modules.parent().context("a library of Python without a folder")?);
    fs::create_dir_all(&parent)?;
    let folders = ["-R", &modules.to_string_lossy(), &parent.to_string_lossy()];
    programs::run("cp", folders, "is there space left?")?;
    let site = root.folder.join(SITE.trim_start_matches('/'));
    let unpack = ["-I", "-m", "zipfile", "-e", &wheel.to_string_lossy(), &site.to_string_lossy()];
    programs::run("python3", unpack, "the wheel is damaged")?;

    let mut objects = vec![interpreter.to_path_buf()];
    for folder in [modules.join("lib-dynload"), site.join("farpool")] {
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
        let files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
        objects.extend(files.into_iter().filter(|file| file.extension().is_some_and(|end| end == "so")));
    }
    for library in libraries(&objects)? {
        copy(&library, &inside(&root, &library))?;
    }

    super::write(&root.folder.join("tmp/trips.csv"), CSV)?;
    let mut python = root.command(User::Root, &interpreter.to_string_lossy(), &["-c", SCRIPT]);
    let version = Root::output(python.env("PYTHONPATH", SITE))?;
    ensure!(version.trim_end() == release.version, "the wheel says that it is version {version}");
    Ok(())
}

/// Returns the path in a root for a file of this machine.
fn inside(root: &Root, path: &Path) -> PathBuf {
    root.folder.join(path.strip_prefix("/").unwrap_or(path))
}

/// Returns the libraries that programs and other libraries are linked with, as the loader resolves them.
fn libraries(objects: &[PathBuf]) -> Result<BTreeSet<PathBuf>> {
    let told = Root::output(Command::new("ldd").args(objects))?;
    // `libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x…)`, and the loader itself without an arrow.
    let path = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let path = words.iter().position(|word| *word == "=>").map_or(0, |arrow| arrow + 1);
        words.get(path).filter(|word| word.starts_with('/') && !word.ends_with(':')).map(PathBuf::from)
    };
    Ok(told.lines().filter_map(path).collect())
}
