//! What the machine has: memory and processors, as far as this process may use them.

use farpool_model::cast;

/// Memory for a pool where nobody says how much: half of what the machine, or the container, has.
pub fn memory_bytes_default() -> usize {
    bytes() / 2
}

/// Memory for work beside the pool where nobody says how much: a quarter, and enough for a few clients at least.
pub fn work_bytes_default() -> usize {
    (bytes() / 4).max(WORK_LEAST)
}

/// What the machine, or the container, has.
fn bytes() -> usize {
    let bytes = [machine_bytes(), container_bytes()].into_iter().flatten().min();
    bytes.map_or(MEMORY_UNKNOWN, cast::usize_saturating)
}

/// Processors that this process may use; 1 where the system does not tell.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Taken where the system does not tell how much memory there is.
const MEMORY_UNKNOWN: usize = 8 << 30;

/// The least memory for work that is taken where nobody says how much.
const WORK_LEAST: usize = 256 << 20;

fn machine_bytes() -> Option<u64> {
    total_memory(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// The limit of the control group, version 2 or 1; `max` and absurdly large numbers mean that there is none,
/// and lose against the machine's.
fn container_bytes() -> Option<u64> {
    ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok())
}

/// The first line of `/proc/meminfo`: `MemTotal:       24612860 kB`.
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
