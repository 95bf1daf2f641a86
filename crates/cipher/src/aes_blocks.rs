//! AES of independent blocks, many at once, by the `aes` crate.
//!
//! CBC cannot encrypt a block before the previous block of the same chain, so that a single chain uses only a fraction
//! of the processor's AES unit. Independent chains (CBC messages) are therefore encrypted side by side, one block of
//! each in turn.

use crate::cipher::START_BYTES;
use crate::locked::Locked;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit, array::typenum::U16};
use aes::{Aes128, Aes192, Aes256};
use farpool_model::{Error, Result};

type Block = Array<u8, U16>;

/// Number of chains that are encrypted side by side: enough for the widest AES units, which take 64 blocks at once.
const CHAINS: usize = 64;

/// Number of blocks of each chain that are copied to a buffer where blocks of different chains are adjacent, and copied
/// back after encryption. Encryption in place is half as fast, because chains of some KiB have their blocks in the same
/// sets of the L1 cache, which has eight ways.
const STRIP_BLOCKS: usize = 16;

/// The key schedule of AES for one of three key sizes.
pub(crate) enum BlockKey {
    Aes128(Locked<Aes128>),
    Aes192(Locked<Aes192>),
    Aes256(Locked<Aes256>),
}

impl BlockKey {
    pub fn new(key: &[u8]) -> Result<BlockKey> {
        let wrong = |_| Error::internal("a key of AES of another length");
        Ok(match key.len() {
            16 => BlockKey::Aes128(Locked::new(Aes128::new_from_slice(key).map_err(wrong)?)?),
            24 => BlockKey::Aes192(Locked::new(Aes192::new_from_slice(key).map_err(wrong)?)?),
            _ => BlockKey::Aes256(Locked::new(Aes256::new_from_slice(key).map_err(wrong)?)?),
        })
    }

    fn encrypt_blocks(&self, blocks: &mut [Block]) {
        match self {
            BlockKey::Aes128(key) => key.encrypt_blocks(blocks),
            BlockKey::Aes192(key) => key.encrypt_blocks(blocks),
            BlockKey::Aes256(key) => key.encrypt_blocks(blocks),
        }
    }

    /// Encrypts each block of `data` independently; bytes after the last whole block stay unchanged.
    pub fn encrypt(&self, data: &mut [u8]) {
        self.encrypt_blocks(Array::slice_as_chunks_mut(data).0);
    }

    /// Reverses [`BlockKey::encrypt`].
    pub fn decrypt(&self, data: &mut [u8]) {
        let (blocks, _) = Array::<u8, U16>::slice_as_chunks_mut(data);
        match self {
            BlockKey::Aes128(key) => key.decrypt_blocks(blocks),
            BlockKey::Aes192(key) => key.decrypt_blocks(blocks),
            BlockKey::Aes256(key) => key.decrypt_blocks(blocks),
        }
    }

    /// Encrypts consecutive chains of `chain_bytes` each (whole blocks) in `data`. Each chain has its own
    /// initialization vector in `starts`.
    pub fn encrypt_chains(&self, starts: &[[u8; START_BYTES]], chain_bytes: usize, data: &mut [u8]) {
        let mut strip = [Block::default(); CHAINS * STRIP_BLOCKS];
        for (starts, chains) in starts.chunks(CHAINS).zip(data.chunks_mut(CHAINS * chain_bytes)) {
            let mut last = [Block::default(); CHAINS];
            last.iter_mut().zip(starts).for_each(|(block, start)| block.0 = *start);
            for offset in (0..chain_bytes).step_by(STRIP_BLOCKS * START_BYTES) {
                let end = chain_bytes.min(offset + STRIP_BLOCKS * START_BYTES);
                for (place, chain) in chains.chunks(chain_bytes).enumerate() {
                    let blocks = Array::<u8, U16>::slice_as_chunks(&chain[offset..end]).0;
                    strip[place..].iter_mut().step_by(CHAINS).zip(blocks).for_each(|(to, from)| *to = *from);
                }
                for row in strip.chunks_mut(CHAINS).take((end - offset) / START_BYTES) {
                    let row = &mut row[..starts.len()];
                    row.iter_mut().zip(&last).for_each(|(block, last)| {
                        let sum = u128::from_ne_bytes(block.0) ^ u128::from_ne_bytes(last.0);
                        block.0 = sum.to_ne_bytes();
                    });
                    self.encrypt_blocks(row);
                    last[..row.len()].copy_from_slice(row);
                }
                for (place, chain) in chains.chunks_mut(chain_bytes).enumerate() {
                    let blocks = Array::<u8, U16>::slice_as_chunks_mut(&mut chain[offset..end]).0;
                    blocks
                        .iter_mut()
                        .zip(strip[place..].iter().step_by(CHAINS))
                        .for_each(|(to, from)| *to = *from);
                }
            }
        }
    }
}

impl std::fmt::Debug for BlockKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BlockKey")
    }
}
