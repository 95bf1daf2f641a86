//! Parts in blocks: each is compressed, and encrypted where there is a key, while it is in the processor's cache.
//!
//! The blocks of a part follow one another without gaps. A block that does not become smaller is stored as it is, which its
//! length says. The *table* of a part, in the directory of its segment, has for each block the length that is stored, as
//! `u32`, and its check: a checksum of what is stored, or the tag. Every block but the last is of [`BLOCK_BYTES`].
//!
//! What is authenticated with a block says of which part it is, the how manieth, and of how many, so that blocks are neither
//! exchanged nor left out.

use crate::files::File;
use crate::keys::{Nonce, associated_of, decrypt, encrypt};
use farpool_cipher::{Cipher, TAG_BYTES, WrappedKeyId};
use farpool_codec::{Codec, Compressor, Decompressor};
use farpool_model::cast::{u32_checked, u64_from, usize_saturating};
use farpool_model::{Error, ErrorKind, Result, limits};
use std::cell::RefCell;
use std::io;

/// Plain bytes of a block; a number of the format. Larger ones save a percent or two, and fall out of the second cache
/// together with what they become.
pub(crate) const BLOCK_BYTES: usize = 64 << 10;

/// The part of a block that must be saved, or it is stored as it is: less is not worth the time of decompressing.
const SAVED_PART: usize = 16;

/// Stored bytes that are read at once.
const WINDOW_BYTES: usize = 512 << 10;

const LENGTH_BYTES: usize = 4;
const CHECKSUM_BYTES: usize = 4;

/// The blocks of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    pub codec: Codec,
    /// The place at which the part was added, in an encrypted segment.
    pub place: u32,
    /// See the comment of this file.
    pub table: Vec<u8>,
}

/// What guards the blocks of one part.
pub(crate) struct Guard<'a> {
    pub cipher: Option<&'a Cipher>,
    /// The id of the table's key, where the cipher is of one.
    pub table: Option<WrappedKeyId>,
    /// The number of the segment, and that of the part.
    pub segment: u64,
    pub part: u64,
    pub place: u32,
    pub count: usize,
}

/// Why blocks cannot be read.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The file system's reason, and where in the stored bytes.
    Unread(io::Error, u64),
    /// Where in the stored bytes they are not what was written.
    Damaged(u64),
    Other(Error),
}

/// What a thread that compresses or decompresses uses again and again.
#[derive(Default)]
pub(crate) struct Tools {
    pub compressor: Compressor,
    decompressor: Decompressor,
    /// A block that was compressed.
    packed: Vec<u8>,
    /// What was read.
    window: Vec<u8>,
}

thread_local! {
    static TOOLS: RefCell<Tools> = RefCell::default();
}

/// Calls `work` with the thread's tools.
pub(crate) fn with_tools<T>(work: impl FnOnce(&mut Tools) -> T) -> T {
    TOOLS.with_borrow_mut(work)
}

/// Number of the blocks of a part of so many plain bytes.
pub(crate) fn count(bytes: usize) -> usize {
    bytes.div_ceil(BLOCK_BYTES)
}

/// Whether a part of so many plain bytes may be compressed.
pub(crate) fn may_be_packed(bytes: usize) -> bool {
    (1..=limits::PACKED_PART_BYTES_MAX).contains(&bytes)
}

impl Guard<'_> {
    /// Encrypts a block, if it is to be, and appends its length and its check to the table.
    fn seal(&self, index: usize, stored: &mut [u8], table: &mut Vec<u8>) -> Result<()> {
        table.extend_from_slice(&u32_checked(stored.len()).to_le_bytes());
        match self.cipher {
            None => table.extend_from_slice(&crc32fast::hash(stored).to_le_bytes()),
            Some(cipher) => {
                let nonce = Nonce::Block(self.place, u32_checked(index));
                table.extend_from_slice(&encrypt(cipher, nonce, &self.associated(index), stored)?);
            }
        }
        Ok(())
    }

    /// Decrypts a block, if it is encrypted, and tells whether it is what was written.
    fn open(&self, index: usize, stored: &mut [u8], check: &[u8]) -> Result<bool> {
        let Some(cipher) = self.cipher else {
            return Ok(crc32fast::hash(stored).to_le_bytes() == *check);
        };
        let Ok(tag) = check.try_into() else { return Ok(false) };
        let nonce = Nonce::Block(self.place, u32_checked(index));
        match decrypt(cipher, nonce, &self.associated(index), stored, tag) {
            Err(error) if error.kind == ErrorKind::Corrupt => Ok(false),
            opened => opened.map(|()| true),
        }
    }

    fn associated(&self, index: usize) -> Vec<u8> {
        let numbers = [self.segment, self.part, u64_from(index), u64_from(self.count)];
        associated_of(self.table, &numbers, "block")
    }
}

impl Blocks {
    /// Bytes of an entry of the table.
    pub fn entry_bytes(is_encrypted: bool) -> usize {
        LENGTH_BYTES + if is_encrypted { TAG_BYTES } else { CHECKSUM_BYTES }
    }

    /// Compresses what is in `data` from `start` on, block by block and where it lies, and leaves what is to be stored.
    ///
    /// # Errors
    /// `Internal` where the library of ciphers refuses.
    pub fn pack(
        codec: Codec,
        guard: &Guard<'_>,
        data: &mut Vec<u8>,
        start: usize,
        tools: &mut Tools,
    ) -> Result<Blocks> {
        let mut table = Vec::with_capacity(guard.count * Blocks::entry_bytes(guard.cipher.is_some()));
        // What is stored never passes what is still to be compressed.
        let (mut read, mut write) = (start, start);
        for index in 0..guard.count {
            let bytes = BLOCK_BYTES.min(data.len() - read);
            let most = bytes - bytes.div_ceil(SAVED_PART);
            let Tools { compressor, packed, .. } = tools;
            if compressor.compress(codec, &data[read..read + bytes], most, packed) {
                guard.seal(index, packed, &mut table)?;
                data[write..write + packed.len()].copy_from_slice(packed);
                write += packed.len();
            } else {
                data.copy_within(read..read + bytes, write);
                guard.seal(index, &mut data[write..write + bytes], &mut table)?;
                write += bytes;
            }
            read += bytes;
        }
        data.truncate(write);
        Ok(Blocks { codec, place: guard.place, table })
    }

    /// Whether the table can be that of a part with so many bytes, plain and stored.
    pub fn fit(&self, bytes: u64, bytes_stored: u64, is_encrypted: bool) -> bool {
        let plain = usize_saturating(bytes);
        let entry_bytes = Blocks::entry_bytes(is_encrypted);
        if !may_be_packed(plain) || self.table.len() != count(plain) * entry_bytes {
            return false;
        }
        let mut left = plain;
        let mut sum = 0;
        for (stored, _) in self.entries(entry_bytes) {
            let block = left.min(BLOCK_BYTES);
            left -= block;
            sum += u64_from(stored);
            if stored == 0 || stored > block {
                return false;
            }
        }
        sum == bytes_stored
    }

    /// The stored bytes and the check of each block.
    fn entries(&self, entry_bytes: usize) -> impl Iterator<Item = (usize, &[u8])> {
        self.table.chunks_exact(entry_bytes).map(|entry| {
            let (length, check) = entry.split_at(LENGTH_BYTES);
            (length.iter().rev().fold(0, |length, byte| length << 8 | usize::from(*byte)), check)
        })
    }

    /// Reads the blocks, which begin at `offset` of `file`, and puts what they were before into `plain`.
    ///
    /// # Errors
    /// Where bytes cannot be read, or are not those that were written.
    pub fn unpack(
        &self,
        guard: &Guard<'_>,
        (file, offset): (&dyn File, u64),
        plain: &mut [u8],
        tools: &mut Tools,
    ) -> std::result::Result<(), Failure> {
        let Tools { decompressor, window, .. } = tools;
        let entry_bytes = Blocks::entry_bytes(guard.cipher.is_some());
        let mut entries = self.entries(entry_bytes).enumerate();
        let (mut plain, mut at, mut next) = (plain, offset, 0);
        while next < guard.count {
            let (mut end, mut bytes) = (next, 0);
            for (stored, _) in self.entries(entry_bytes).skip(next) {
                if end > next && bytes + stored > WINDOW_BYTES {
                    break;
                }
                (end, bytes) = (end + 1, bytes + stored);
            }
            if window.len() < bytes {
                window.resize(bytes, 0);
            }
            let mut waiting = &mut window[..bytes];
            file.read_at(waiting, at).map_err(|error| Failure::Unread(error, at))?;
            for (index, (stored, check)) in entries.by_ref().take(end - next) {
                let (block, behind) = waiting.split_at_mut(stored);
                let (to, rest) = plain.split_at_mut(BLOCK_BYTES.min(plain.len()));
                if !guard.open(index, block, check).map_err(Failure::Other)? {
                    return Err(Failure::Damaged(at));
                }
                if stored == to.len() {
                    to.copy_from_slice(block);
                } else {
                    let decompressed = decompressor.decompress(self.codec, block, to);
                    decompressed.map_err(|error| match error.kind {
                        ErrorKind::Corrupt => Failure::Damaged(at),
                        _ => Failure::Other(error),
                    })?;
                }
                (waiting, plain) = (behind, rest);
                at += u64_from(stored);
            }
            next = end;
        }
        Ok(())
    }
}
