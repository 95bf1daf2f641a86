//! Has the system read what will be needed soon, so that bytes come from the disk while others are parsed.
//!
//! It is advice: what the system makes of it changes no result, and errors of it say nothing about the file.

use std::fs::File;
use std::io::{Read, Result};

/// Bytes that are asked for before they are read.
const AHEAD_BYTES: u64 = 16 << 20;

/// Bytes behind which a file is read on, rather than looked at: the first rows need no more.
const LOOK_BYTES: u64 = 1 << 20;

/// Bytes of one request: Linux cuts off what is longer than the requests that the disk takes, and none takes less.
const REQUEST_BYTES: u64 = 128 << 10;

/// Asks for the bytes from `start` up to `end`.
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

/// Asks for nothing: what stands in for it elsewhere is the system's own reading ahead.
#[cfg(not(target_os = "linux"))]
pub(super) fn advise(_: &File, _: u64, _: u64) {}

/// A file that is read from its beginning to its end.
pub(super) struct Ahead {
    file: File,
    at: u64,
    /// Up to where the system has been asked.
    asked: u64,
}

impl Ahead {
    /// `file` is at its beginning.
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
