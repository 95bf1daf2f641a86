//! Read-ahead: tells the operating system which bytes will be needed soon, so that disk reads overlap with parsing.
//!
//! It is only advice: results do not depend on it, and its errors are ignored.

use std::fs::File;
use std::io::{Read, Result};

/// Bytes after the current offset that are requested.
const AHEAD_BYTES: u64 = 16 << 20;

/// Offset from which on read-ahead begins, because a file may be opened only for its first rows.
const LOOK_BYTES: u64 = 1 << 20;

/// Bytes per request. Reason: Linux truncates requests that exceed the disk's maximum, and no disk has a lower maximum
/// than this.
const REQUEST_BYTES: u64 = 128 << 10;

/// Asks the system to read the bytes from `start` to `end`.
#[cfg(target_os = "linux")]
pub(super) fn advise(file: &File, start: u64, end: u64) {
    use rustix::fs::{Advice, fadvise};
    let step = usize::try_from(REQUEST_BYTES).unwrap_or(usize::MAX);
    for start in (start..end).step_by(step) {
        let bytes = std::num::NonZeroU64::new(REQUEST_BYTES.min(end - start));
        if fadvise(file, start, bytes, Advice::WillNeed).is_err() {
            return;
        }
    }
}

/// Does nothing: other systems rely on their own read-ahead.
#[cfg(not(target_os = "linux"))]
pub(super) fn advise(_: &File, _: u64, _: u64) {}

/// A reader with read-ahead, for files that are read from beginning to end.
pub(super) struct Ahead {
    file: File,
    at: u64,
    /// Offset of the end of the requested bytes.
    asked: u64,
}

impl Ahead {
    /// Wraps `file`, which must be at its beginning.
    pub(super) fn new(file: File) -> Self {
        Ahead { file, at: 0, asked: 0 }
    }
}

impl Read for Ahead {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let count = self.file.read(buffer)?;
        self.at += count as u64;
        if self.at > LOOK_BYTES && self.at + AHEAD_BYTES / 2 > self.asked {
            let start = self.asked.max(self.at);
            self.asked = start + AHEAD_BYTES;
            advise(&self.file, start, self.asked);
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};

    #[test]
    fn all_bytes_come_in_their_order() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..40_000_000_u32).map(|i| (i % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        file.rewind().unwrap();
        let mut read = Vec::new();
        Ahead::new(file).read_to_end(&mut read).unwrap();
        assert!(read == bytes);
    }
}
