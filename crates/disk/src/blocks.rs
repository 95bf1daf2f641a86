//! Compression of the parts of a segment in blocks. A block is compressed and then, in an encrypted segment, encrypted
//! while it is in the CPU cache.
//!
//! The blocks of a part follow one another without gaps. A block that does not shrink is stored uncompressed, which is
//! recognized by its stored length. The *block table* of a part, in the directory of its segment, has two fields for
//! each block: the stored length as `u32`, and the check, which is a checksum of the stored bytes or an authentication
//! tag. Every block but the last has [`BLOCK_BYTES`] uncompressed bytes.
//!
//! The associated data of a block name its part, its index and the number of blocks, so that blocks can be neither
//! swapped nor left out. Example: with equal blocks 0 and 1, storing block 1 in place of block 0 still fails
//! authentication.

use crate::files::File;
use crate::keys::{Nonce, associated_of, decrypt, encrypt};
use crate::local::placed;
use farpool_cipher::{Cipher, TAG_BYTES, WrappedKeyId};
use farpool_codec::{Codec, Compressor, Decompressor};
use farpool_model::cast::{u32_checked, u64_from, usize_saturating};
use farpool_model::{Error, ErrorKind, Result, limits};
use std::cell::RefCell;
use std::io;

/// Uncompressed bytes per block; part of the format. Larger blocks save one or two percent, but do not fit into the L2
/// cache together with their output.
pub(crate) const BLOCK_BYTES: usize = 64 << 10;

/// Divisor: a block is stored compressed only if it shrinks by at least 1/16. Reason: a smaller saving is not worth the
/// time of decompression.
const SAVED_PART: usize = 16;

/// Approximate number of stored bytes that are read from the file with one call.
const WINDOW_BYTES: usize = 512 << 10;

const LENGTH_BYTES: usize = 4;
const CHECKSUM_BYTES: usize = 4;

/// Description of a part that is compressed in blocks: codec and block table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    pub codec: Codec,
    /// Index of the part in the order in which parts were added, from which nonces are made in an encrypted segment.
    pub place: u32,
    /// Block table: for each block its stored length and its check (a checksum or an authentication tag).
    pub table: Vec<u8>,
}

/// Cipher and identity of one part, by which its blocks are encrypted and authenticated.
pub(crate) struct BlockCipher<'a> {
    /// Cipher of the part; `None` in a plain segment, whose blocks have checksums.
    pub cipher: Option<&'a Cipher>,
    /// Id of the table's encryption key, if the cipher is made from that key.
    pub table: Option<WrappedKeyId>,
    /// Id of the segment.
    pub segment: u64,
    /// Id of the column chunk.
    pub part: u64,
    /// Index of the part in the order in which parts were added.
    pub place: u32,
    /// Number of blocks of the part.
    pub count: usize,
}

/// Reason why blocks of a part cannot be read.
#[derive(Debug)]
pub(crate) enum BlockFailure {
    /// Error of the file system, with the offset in the file.
    Unread(io::Error, u64),
    /// Corrupted or tampered block, with its offset in the file.
    Damaged(u64),
    Other(Error),
}

/// Reusable contexts and buffers of a thread that compresses or decompresses.
#[derive(Default)]
pub(crate) struct CodecScratch {
    pub compressor: Compressor,
    decompressor: Decompressor,
    /// Buffer for the output of the compressor for one block.
    packed: Vec<u8>,
    /// Buffer for stored bytes that were read from the file and are not decompressed yet.
    window: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<CodecScratch> = RefCell::default();
}

/// Calls `work` with the calling thread's [`CodecScratch`].
pub(crate) fn with_scratch<T>(work: impl FnOnce(&mut CodecScratch) -> T) -> T {
    SCRATCH.with_borrow_mut(work)
}

/// Returns the number of blocks of a part with `bytes` uncompressed bytes.
pub(crate) fn count(bytes: usize) -> usize {
    bytes.div_ceil(BLOCK_BYTES)
}

/// Returns whether a part with `bytes` uncompressed bytes may be compressed: it is not empty, and not above the limit.
pub(crate) fn may_be_packed(bytes: usize) -> bool {
    (1..=limits::PACKED_PART_BYTES_MAX).contains(&bytes)
}

impl BlockCipher<'_> {
    /// Encrypts a block in place if there is a cipher, and appends its stored length and check to the block table.
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

    /// Decrypts a block in place if there is a cipher. Returns whether its checksum or tag is right.
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
    /// Returns the bytes of an entry of the block table.
    pub fn entry_bytes(is_encrypted: bool) -> usize {
        LENGTH_BYTES + if is_encrypted { TAG_BYTES } else { CHECKSUM_BYTES }
    }

    /// Compresses the bytes of `data` from `start` on, block by block, and replaces them by the stored bytes.
    ///
    /// # Errors
    /// `Internal` if the cipher library fails.
    pub fn pack(
        codec: Codec,
        block_cipher: &BlockCipher<'_>,
        data: &mut Vec<u8>,
        start: usize,
        scratch: &mut CodecScratch,
    ) -> Result<Blocks> {
        let mut table =
            Vec::with_capacity(block_cipher.count * Blocks::entry_bytes(block_cipher.cipher.is_some()));
        // In place is safe: the stored bytes of earlier blocks never extend past the start of the next plain block.
        let (mut read, mut write) = (start, start);
        for index in 0..block_cipher.count {
            let bytes = BLOCK_BYTES.min(data.len() - read);
            let most = bytes - bytes.div_ceil(SAVED_PART);
            let CodecScratch { compressor, packed, .. } = scratch;
            if compressor.compress(codec, &data[read..read + bytes], most, packed) {
                block_cipher.seal(index, packed, &mut table)?;
                data[write..write + packed.len()].copy_from_slice(packed);
                write += packed.len();
            } else {
                data.copy_within(read..read + bytes, write);
                block_cipher.seal(index, &mut data[write..write + bytes], &mut table)?;
                write += bytes;
            }
            read += bytes;
        }
        data.truncate(write);
        Ok(Blocks { codec, place: block_cipher.place, table })
    }

    /// Returns whether the block table is consistent with the uncompressed and stored lengths of a part. Checked before
    /// memory for the part is allocated, so that a corrupted length cannot make a reader allocate too much.
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

    /// Returns the stored length and the check of each block.
    fn entries(&self, entry_bytes: usize) -> impl Iterator<Item = (usize, &[u8])> {
        self.table.chunks_exact(entry_bytes).map(|entry| {
            let (length, check) = entry.split_at(LENGTH_BYTES);
            (length.iter().rev().fold(0, |length, byte| length << 8 | usize::from(*byte)), check)
        })
    }

    /// Reads the blocks, which begin at `offset` of `file`, checks and decrypts them, and decompresses them into
    /// `plain`.
    ///
    /// # Errors
    /// Fails if bytes cannot be read, are corrupted, or were tampered with.
    pub fn unpack(
        &self,
        block_cipher: &BlockCipher<'_>,
        (file, offset): (&dyn File, u64),
        plain: &mut [u8],
        scratch: &mut CodecScratch,
    ) -> std::result::Result<(), BlockFailure> {
        let CodecScratch { decompressor, window, .. } = scratch;
        let entry_bytes = Blocks::entry_bytes(block_cipher.cipher.is_some());
        let mut entries = self.entries(entry_bytes).enumerate();
        let (mut plain, mut at, mut next) = (plain, offset, 0);
        while next < block_cipher.count {
            let (mut end, mut bytes) = (next, 0);
            for (stored, _) in self.entries(entry_bytes).skip(next) {
                if end > next && bytes + stored > WINDOW_BYTES {
                    break;
                }
                (end, bytes) = (end + 1, bytes + stored);
            }
            let mut waiting = placed(window, bytes, at);
            file.read_at(waiting, at).map_err(|error| BlockFailure::Unread(error, at))?;
            for (index, (stored, check)) in entries.by_ref().take(end - next) {
                let (block, behind) = waiting.split_at_mut(stored);
                let (to, rest) = plain.split_at_mut(BLOCK_BYTES.min(plain.len()));
                if !block_cipher.open(index, block, check).map_err(BlockFailure::Other)? {
                    return Err(BlockFailure::Damaged(at));
                }
                if stored == to.len() {
                    to.copy_from_slice(block);
                } else {
                    let decompressed = decompressor.decompress(self.codec, block, to);
                    decompressed.map_err(|error| match error.kind {
                        ErrorKind::Corrupt => BlockFailure::Damaged(at),
                        _ => BlockFailure::Other(error),
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
