//! Files that are read and written past the system's cache (O_DIRECT), and memory for that.

use rustix::fs::OFlags;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;

/// What offsets, lengths and addresses are multiples of.
pub const PAGE_BYTES: usize = 4096;

/// How to open a file.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlags::DIRECT.bits() as i32);
    options
}

/// Memory that begins at a page.
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

    /// The first bytes of it.
    pub fn of(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.memory[self.start..self.start + bytes]
    }
}
