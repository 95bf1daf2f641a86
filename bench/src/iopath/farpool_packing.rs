//! Farpool's codecs followed by ciphers: each block is compressed, and encrypted while it is in the processor's cache,
//! as parts of segments are (`crates/disk/src/blocks.rs`); and decrypted and decompressed likewise.

use super::farpool_side::Farpool;
use super::packing::Packs;
use super::rounds::InPlace;
use anyhow::Result;
use farpool_cipher::Mode;
use farpool_codec::{Codec, Compressor, Decompressor};

/// Minimal bytes that ECB and CBC encrypt.
const CIPHER_BLOCK_BYTES: usize = 16;

/// A cipher that follows a codec.
#[derive(Clone, Copy)]
pub struct Then {
    pub mode: Mode,
    pub bits: usize,
    /// Bytes of a chain of CBC: a block is split into as many chains as it takes, which are encrypted in parallel.
    pub chain_bytes: usize,
}

/// A codec, with an optional cipher after it.
pub struct Packing {
    codec: Codec,
    compressor: Compressor,
    decompressor: Decompressor,
    cipher: Option<(Then, Farpool)>,
    packed: Vec<u8>,
    /// For each block: the bytes before padding, and the tag.
    known: Vec<(usize, Option<[u8; 16]>)>,
}

impl Packing {
    pub fn new(codec: Codec, then: Option<Then>) -> Result<Packing> {
        let cipher = then.map(|then| {
            let chain_bytes = (then.mode == Mode::Cbc).then_some(then.chain_bytes);
            Farpool::new(then.mode, then.bits, chain_bytes).map(|cipher| (then, cipher))
        });
        Ok(Packing {
            codec,
            compressor: Compressor::new(),
            decompressor: Decompressor::new(),
            cipher: cipher.transpose()?,
            packed: Vec::new(),
            known: Vec::new(),
        })
    }
}

impl Packs for Packing {
    fn begin(&mut self) {
        self.known.clear();
    }

    fn pack(&mut self, block: &[u8], stored: &mut [u8]) -> usize {
        let most = block.len() - 1;
        let is_smaller = self.compressor.compress(self.codec, block, most, &mut self.packed);
        let packed = if is_smaller { &self.packed[..] } else { block };
        let bytes = packed.len();
        stored[..bytes].copy_from_slice(packed);
        let Some((then, cipher)) = &mut self.cipher else {
            self.known.push((bytes, None));
            return bytes;
        };
        let unit = match then.mode {
            Mode::Gcm | Mode::Ctr => 1,
            Mode::Ecb => CIPHER_BLOCK_BYTES,
            Mode::Cbc => then.chain_bytes,
        };
        let padded = bytes.next_multiple_of(unit);
        stored[bytes..padded].fill(0);
        cipher.encrypt(&mut stored[..padded]);
        self.known.push((bytes, cipher.tag()));
        padded
    }

    fn unpack(&mut self, place: usize, stored: &mut [u8], block: &mut [u8]) {
        let (bytes, tag) = self.known[place];
        // In place, as for a block that was read from disk.
        if let Some((_, cipher)) = &mut self.cipher {
            cipher.decrypt_with(stored, tag);
        }
        let packed = &stored[..bytes];
        if bytes == block.len() {
            block.copy_from_slice(packed);
        } else {
            self.decompressor.decompress(self.codec, packed, block).expect("it was compressed");
        }
    }
}
