//! Detects whether the system grants huge pages. With them, scans spend less time on address translation; the pool
//! works the same without them.

/// Kind of memory that backs the pages of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Huge pages that the administrator set aside (`vm.nr_hugepages`).
    Explicit,
    /// Huge pages where the kernel has some free (transparent huge pages), otherwise ordinary ones.
    Transparent,
    /// Ordinary pages of the system.
    None,
}

impl HugePages {
    /// Returns the name that the status of a pool shows.
    pub fn name(self) -> &'static str {
        match self {
            HugePages::Explicit => "explicit",
            HugePages::Transparent => "transparent",
            HugePages::None => "none",
        }
    }
}

/// Returns the number of 2 MiB huge pages that are set aside and free; 0 on systems without explicit huge pages.
pub(crate) fn explicit_pages_free() -> usize {
    read_number("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
        .saturating_sub(read_number("/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages"))
}

/// Returns whether the kernel gives transparent huge pages to mappings that ask for them.
pub(crate) fn transparent_granted() -> bool {
    let modes = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    modes.contains("[always]") || modes.contains("[madvise]")
}

fn read_number(path: &str) -> usize {
    std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}
