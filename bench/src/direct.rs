//! Files that are read and written with O_DIRECT, bypassing the system's page cache, and aligned memory for that.

use rustix::fs::OFlags;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;

/// Alignment of offsets, lengths and addresses.
pub const PAGE_BYTES: usize = 4096;

/// Returns the options to open a file.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlags::DIRECT.bits() as i32);
    options
}

/// Page-aligned memory for files that are opened with O_DIRECT.
pub struct Pages {
    memory: Vec<u8>,
    start: usize,
}

impl Pages {
    pub fn new(bytes: usize) -> Pages {
        let memory = vec![0_u8; bytes + PAGE_BYTES];
        let start = memory.as_ptr().align_offset(PAGE_BYTES);
        Pages { memory, start }
    }

    /// Returns the first `bytes` bytes.
    pub fn of(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.memory[self.start..self.start + bytes]
    }
}
