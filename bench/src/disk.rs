//! The disk with the data of suites: its speed, and ways to drop data from the system's page cache.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The file through which Linux drops its caches. 3: pages, and names and attributes of files.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// A way to drop files from the system's page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropping {
    /// The whole cache is dropped.
    Cache,
    /// The pages of each file are dropped.
    Files,
}

impl Dropping {
    /// Finds a way that works for files in `folder`; if times do not count, a gentle one is tried first.
    ///
    /// # Errors
    /// Fails if no way works.
    pub fn find(folder: &Path, is_gentle: bool) -> Result<Dropping> {
        let file = tempfile::NamedTempFile::new_in(folder)?;
        if is_gentle && forget(file.path()).is_ok() {
            return Ok(Dropping::Files);
        }
        let denied = match std::fs::write(DROP_CACHES, "3") {
            Ok(()) => return Ok(Dropping::Cache),
            Err(error) => error,
        };
        match forget(file.path()) {
            Ok(()) => Ok(Dropping::Files),
            Err(error) => bail!(
                "files cannot be put out of the system's cache, so that no start would be cold: {DROP_CACHES}: {denied} \
                 (needs root); {error:#}"
            ),
        }
    }

    /// Drops the files below `folders` from the cache, so that they are read from disk when they are next used.
    pub fn drop(self, folders: &[&Path]) -> Result<()> {
        // Pages that are not on disk yet would stay in the cache.
        if !Command::new("sync").status().context("cannot start sync")?.success() {
            bail!("sync failed");
        }
        match self {
            Dropping::Cache => std::fs::write(DROP_CACHES, "3").context(DROP_CACHES),
            Dropping::Files => {
                folders.iter().flat_map(|folder| files_below(folder)).try_for_each(|file| forget(&file))
            }
        }
    }
}

fn files_below(place: &Path) -> Vec<PathBuf> {
    match std::fs::read_dir(place) {
        Ok(entries) => entries.flatten().flat_map(|entry| files_below(&entry.path())).collect(),
        Err(_) if place.is_file() => vec![place.to_path_buf()],
        Err(_) => Vec::new(),
    }
}

/// Drops the pages of a file from the system's page cache (`posix_fadvise`, by means of `dd`), after writing them back.
///
/// # Errors
/// Fails if `dd` does not support this: the run then continues with a warm cache, and reports that.
pub fn forget(file: &Path) -> Result<()> {
    let of_file = |name: &str| -> Result<()> {
        let mut argument = std::ffi::OsString::from(format!("{name}="));
        argument.push(file);
        let flags = if name == "if" { "iflag=nocache" } else { "oflag=nocache" };
        let mut command = Command::new("dd");
        command.arg(argument).args([flags, "count=0", "status=none"]);
        if name == "of" {
            command.args(["conv=notrunc,fdatasync"]);
        }
        match command.status().context("cannot start dd")?.success() {
            true => Ok(()),
            false => bail!("dd has no flag nocache"),
        }
    };
    of_file("of")?;
    of_file("if")
}

/// Returns the bytes of a file, or of all files in a folder.
pub fn bytes_below(place: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(place) else {
        return std::fs::metadata(place).map_or(0, |file| file.len());
    };
    entries.flatten().map(|entry| bytes_below(&entry.path())).sum()
}

/// Reads the largest segment of a data directory sequentially, bypassing the page cache; returns the speed in GB/s.
/// Files of the log are unsuitable: parts of them were never written, which no disk reads.
pub fn disk_gb_s(folder: &Path) -> Result<f64> {
    let files = std::fs::read_dir(folder)?.flatten();
    let segments = files.filter(|entry| entry.file_name().to_string_lossy().starts_with("segment"));
    let largest = segments.map(|entry| entry.path()).max_by_key(|file| bytes_below(file));
    let largest = largest.context("a data directory without segments")?;
    let bytes = bytes_below(&largest);
    let start = Instant::now();
    let from = format!("if={}", largest.display());
    let read =
        Command::new("dd").args([&from, "of=/dev/null", "bs=4M", "iflag=direct", "status=none"]).status()?;
    if !read.success() {
        bail!("dd cannot read {} past the cache (O_DIRECT)", largest.display());
    }
    Ok(bytes as f64 / start.elapsed().as_secs_f64() / 1e9)
}
