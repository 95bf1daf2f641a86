//! Memory and processors that this process may use on this machine, and the user's folders.

use farpool_model::cast;
use std::path::PathBuf;

/// Returns the default bytes of a pool: half of the memory of the machine or container.
pub fn memory_bytes_default() -> usize {
    bytes() / 2
}

/// Returns the default bytes of working memory: a quarter of the machine's memory, but at least 256 MiB.
pub fn work_bytes_default() -> usize {
    (bytes() / 4).max(WORK_LEAST)
}

/// Returns the bytes of memory of the machine or container; `None` if the system does not report them.
pub fn memory_bytes() -> Option<usize> {
    let bytes = [machine_bytes(), container_bytes()].into_iter().flatten().min();
    bytes.map(cast::usize_saturating)
}

fn bytes() -> usize {
    memory_bytes().unwrap_or(MEMORY_UNKNOWN)
}

/// Returns the folder for farpool's files of one kind, by the XDG Base Directory Specification: a subfolder of the
/// folder that the environment variable `variable` names, or of `under_home` in the home folder. The folder may not
/// exist yet. Returns `None` if there is no home folder.
pub fn user_folder(variable: &str, under_home: &str) -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = folder(variable).or_else(|| Some(folder("HOME")?.join(under_home)))?;
    Some(folder.join("farpool"))
}

/// Returns the number of processors that this process may use; 1 if the system does not report it.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Bytes of memory that are assumed if the system does not report them.
const MEMORY_UNKNOWN: usize = 8 << 30;

/// Minimum of the default working memory in bytes. Reason: enough for a few clients.
const WORK_LEAST: usize = 256 << 20;

fn machine_bytes() -> Option<u64> {
    total_memory(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// Returns the memory limit of the control group, version 2 or 1. Without a limit the file contains the text `max`,
/// which is not parsed (`None`), or a number larger than the machine's memory, of which the caller takes the minimum.
fn container_bytes() -> Option<u64> {
    ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok())
}

/// Parses the bytes of memory from the first line of `/proc/meminfo`: `MemTotal:       24612860 kB`.
fn total_memory(meminfo: &str) -> Option<u64> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_the_machine_is_read() {
        assert_eq!(total_memory("MemTotal:       24612860 kB\nMemFree: 1 kB\n"), Some(24_612_860 * 1024));
        assert_eq!(total_memory("something else"), None);
        assert!(memory_bytes_default() > 0 && work_bytes_default() >= WORK_LEAST);
        assert!(processors() > 0);
    }
}
