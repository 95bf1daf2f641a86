//! FSST: compresses short strings one by one with a table of up to 255 frequent symbols of one to eight bytes.
//!
//! The decoder is implemented here, because that of the library aborts on invalid codes. Source: Boncz, Neumann, Leis,
//! "FSST: Fast Random Access String Compression", VLDB 2020.

use fsst::{Compressor, ESCAPE_CODE};

/// Bytes of the pieces into which a sample is divided for training; about the length of values.
const LINE_BYTES: usize = 256;

/// Number of codes that are decoded per iteration of the decoder.
const CODES: usize = 8;

/// A symbol table of FSST: up to 255 frequent symbols, each with a code of one byte.
pub(super) struct Symbols {
    compressor: Compressor,
    /// Symbol of each code, padded to eight bytes; `lengths` has its length.
    symbols: [[u8; 8]; 256],
    lengths: [u8; 256],
}

impl Symbols {
    /// Estimated bytes of memory, mostly of the compressor's tables for finding symbols.
    pub const BYTES: usize = 256 << 10;

    /// Trains a symbol table on a sample. The same sample always gives the same table.
    pub fn of(sample: &[u8]) -> Symbols {
        let compressor = Compressor::train(&sample.chunks(LINE_BYTES).collect());
        let (mut symbols, mut lengths) = ([[0; 8]; 256], [1; 256]);
        for (at, symbol) in compressor.symbol_table().iter().enumerate() {
            symbols[at] = symbol.to_u64().to_le_bytes();
            lengths[at] = compressor.symbol_lengths()[at].clamp(1, 8);
        }
        Symbols { compressor, symbols, lengths }
    }

    /// Appends the codes of a string to `out`; returns their number of bytes.
    pub fn pack(&self, plain: &[u8], out: &mut Vec<u8>) -> usize {
        let codes = self.compressor.compress(plain);
        out.extend_from_slice(&codes);
        codes.len()
    }

    /// Decodes `codes` into `out`; returns the number of decoded bytes, or `None` if they do not fit or the byte after
    /// an escape code is missing.
    pub fn unpack(&self, codes: &[u8], out: &mut [u8]) -> Option<usize> {
        let (mut at, mut rest) = (0, codes);
        while let Some((&code, behind)) = rest.split_first() {
            if let Some((block, behind)) = rest.split_first_chunk::<CODES>()
                && !has_escape(block)
                && let Some(room) = out.get_mut(at..at + 8 * CODES)
            {
                let mut end = 0;
                for code in block {
                    room.get_mut(end..end + 8)?.copy_from_slice(&self.symbols[usize::from(*code)]);
                    end += usize::from(self.lengths[usize::from(*code)]);
                }
                (at, rest) = (at + end, behind);
            } else if code == ESCAPE_CODE {
                let (&byte, behind) = behind.split_first()?;
                *out.get_mut(at)? = byte;
                (at, rest) = (at + 1, behind);
            } else {
                let bytes = usize::from(self.lengths[usize::from(code)]);
                let symbol = &self.symbols[usize::from(code)];
                match out.get_mut(at..at + 8) {
                    Some(place) => place.copy_from_slice(symbol),
                    None => out.get_mut(at..at + bytes)?.copy_from_slice(&symbol[..bytes]),
                }
                (at, rest) = (at + bytes, behind);
            }
        }
        Some(at)
    }
}

fn has_escape(codes: &[u8; CODES]) -> bool {
    // Finds an escape code, 0xff, among eight codes: only the complement of 0xff is a zero byte.
    let zero = !u64::from_le_bytes(*codes);
    zero.wrapping_sub(0x0101_0101_0101_0101) & !zero & 0x8080_8080_8080_8080 != 0
}
