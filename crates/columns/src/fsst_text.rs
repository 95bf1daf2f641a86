//! FSST: strings that are compressed one by one with a table of up to 255 frequent byte sequences (symbols).
//!
//! Invariant of a [`SymbolTable`]: every symbol has 1 to 8 bytes. The decoder is not that of `fsst-rs`, which aborts
//! the process if codes are not valid; checking them before would take half as long as decoding. Source: Boncz,
//! Neumann, Leis, "FSST: Fast Random Access String Compression", VLDB 2020.

use farpool_model::{Error, Result};
use fsst::{Compressor, ESCAPE_CODE, Symbol};

const SYMBOLS_MAX: usize = 255;

/// Symbol table of a chunk: the symbol of each code.
#[derive(Clone)]
pub(crate) struct SymbolTable {
    symbols: [Symbol; SYMBOLS_MAX],
    lengths: [u8; SYMBOLS_MAX],
    count: usize,
}

impl SymbolTable {
    pub fn of(compressor: &Compressor) -> SymbolTable {
        let (symbols, lengths) = (compressor.symbol_table(), compressor.symbol_lengths());
        let mut table = SymbolTable {
            symbols: [Symbol::ZERO; SYMBOLS_MAX],
            lengths: [1; SYMBOLS_MAX],
            count: symbols.len(),
        };
        table.symbols[..symbols.len()].copy_from_slice(symbols);
        table.lengths[..lengths.len()].copy_from_slice(lengths);
        table
    }

    /// Rebuilds a table from the output of [`SymbolTable::parts`].
    ///
    /// # Errors
    /// `Corrupt` when a length is not valid, or there are too many symbols.
    pub fn from_parts(symbols: &[u8], lengths: &[u8]) -> Result<SymbolTable> {
        let (symbols, rest) = symbols.as_chunks::<8>();
        let sound = rest.is_empty()
            && symbols.len() == lengths.len()
            && lengths.len() <= SYMBOLS_MAX
            && lengths.iter().all(|length| (1..=8).contains(length));
        if !sound {
            return Err(Error::corrupt("a symbol table with lengths that are none"));
        }
        let mut table = SymbolTable {
            symbols: [Symbol::ZERO; SYMBOLS_MAX],
            lengths: [1; SYMBOLS_MAX],
            count: lengths.len(),
        };
        for (to, from) in table.symbols.iter_mut().zip(symbols) {
            *to = Symbol::from_slice(from);
        }
        table.lengths[..lengths.len()].copy_from_slice(lengths);
        Ok(table)
    }

    /// Returns the symbols, eight bytes each, and their lengths.
    pub fn parts(&self) -> (Vec<u8>, &[u8]) {
        let symbols = self.symbols[..self.count].iter().flat_map(|symbol| symbol.to_u64().to_le_bytes());
        (symbols.collect(), &self.lengths[..self.count])
    }

    /// Returns the symbol of a code other than the escape, and its length in bytes. For a code that is not in the
    /// table, the symbol is an arbitrary byte.
    pub fn symbol(&self, code: u8) -> ([u8; 8], usize) {
        let code = usize::from(code).min(SYMBOLS_MAX - 1);
        (self.symbols[code].to_u64().to_le_bytes(), usize::from(self.lengths[code]))
    }

    /// Returns the size of the table in bytes.
    pub fn bytes(&self) -> usize {
        self.count * 9
    }

    /// Returns the length of the string that `codes` encode, in bytes; `None` if they end within an escape.
    pub fn decoded_len(&self, codes: &[u8]) -> Option<usize> {
        let (mut bytes, mut is_literal) = (0, false);
        for code in codes {
            let is_escape = *code == ESCAPE_CODE && !is_literal;
            bytes += match self.lengths.get(usize::from(*code)) {
                Some(length) if !is_literal => usize::from(*length),
                // An escape counts one byte, that of the literal after it.
                _ => usize::from(!is_escape),
            };
            is_literal = is_escape;
        }
        (!is_literal).then_some(bytes)
    }

    /// Decodes `codes` and appends the string. Returns false and appends nothing if it does not have exactly `bytes`
    /// bytes, or the codes end within an escape.
    #[must_use]
    pub fn decode(&self, codes: &[u8], bytes: usize, out: &mut Vec<u8>) -> bool {
        self.run::<true>(codes, bytes, out).is_some()
    }

    /// Decodes the first of `codes` until exactly `bytes` bytes are decoded, and appends them. Returns the number of
    /// codes; `None`, appending nothing, if no code ends at that length.
    #[must_use]
    pub fn decode_front(&self, codes: &[u8], bytes: usize, out: &mut Vec<u8>) -> Option<usize> {
        self.run::<false>(codes, bytes, out)
    }

    /// Decodes the first of `codes` (with `ALL`, all of them), and appends the result if it has exactly `bytes` bytes.
    /// Returns the number of codes that were decoded, `None` if the length is another one.
    #[inline(always)]
    fn run<const ALL: bool>(&self, codes: &[u8], bytes: usize, out: &mut Vec<u8>) -> Option<usize> {
        // The stated length may be wrong, so that memory is allocated for at most as many bytes as the codes can
        // decode to.
        if bytes > CODES * codes.len() {
            return None;
        }
        // Reserves more than `bytes`, because symbols of any length are written as eight bytes, and eight codes are
        // decoded at a time.
        out.reserve(bytes + 8 * CODES);
        let room = out.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        let (mut at, mut rest) = (0, codes);
        while if ALL { !rest.is_empty() } else { at < bytes } {
            let (&code, behind) = rest.split_first()?;
            if at > bytes {
                return None;
            }
            // Unless all codes are to be decoded, a block of codes must not extend beyond `bytes` decoded bytes.
            if (ALL || at + 8 * CODES <= bytes)
                && let Some((block, behind)) = rest.split_first_chunk::<CODES>()
                && !has_escape(block)
            {
                for code in block {
                    // SAFETY: no code of the block is an escape, and up to the last of them `at` has grown by
                    // no more than seven times eight from at most `bytes`.
                    at += unsafe { self.put(*code, room.add(at)) };
                }
                rest = behind;
            } else if code != ESCAPE_CODE {
                // SAFETY: there is room for eight bytes from at most `bytes` on.
                at += unsafe { self.put(code, room.add(at)) };
                rest = behind;
            } else {
                let (&byte, behind) = behind.split_first()?;
                // SAFETY: there is room for at least eight bytes from at most `bytes` on.
                unsafe { room.add(at).write(byte) };
                at += 1;
                rest = behind;
            }
        }
        if at != bytes {
            return None;
        }
        // SAFETY: all of these bytes were written, one after another.
        unsafe { out.set_len(out.len() + bytes) }
        Some(codes.len() - rest.len())
    }

    /// Writes eight bytes that begin with the symbol of a code, and returns the symbol's length.
    ///
    /// # Safety
    /// The code is no escape, and there is room for eight bytes at `to`.
    #[inline(always)]
    unsafe fn put(&self, code: u8, to: *mut u8) -> usize {
        let code = usize::from(code);
        // SAFETY: there is a symbol for every code but the escape; the caller guarantees the room.
        unsafe {
            to.cast::<u64>().write_unaligned(self.symbols.get_unchecked(code).to_u64());
            usize::from(*self.lengths.get_unchecked(code))
        }
    }
}

/// Number of codes that are decoded at a time.
const CODES: usize = 8;

fn has_escape(codes: &[u8; CODES]) -> bool {
    // The escape code is 0xff, so that its complement is the only byte that is zero.
    let zero = !u64::from_le_bytes(*codes);
    zero.wrapping_sub(0x0101_0101_0101_0101) & !zero & 0x8080_8080_8080_8080 != 0
}

impl std::fmt::Debug for SymbolTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SymbolTable({})", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_back_as_the_library_decodes_them_and_damage_is_noticed() {
        let texts: Vec<Vec<u8>> = (0..300u32)
            .map(|i| {
                format!("every text {} is another: \u{fc} {}", i.wrapping_mul(2_654_435_761), i % 7)
                    .into_bytes()
            })
            .chain((0..100u8).map(|i| (0..i).map(|j| 255 - i.wrapping_mul(j)).collect()))
            .collect();
        let compressor = Compressor::train(&texts.iter().map(|text| &text[..]).collect::<Vec<_>>());
        let table = SymbolTable::of(&compressor);
        for text in &texts {
            let codes = compressor.compress(text);
            let mut out = b"before".to_vec();
            assert_eq!(table.decoded_len(&codes), Some(text.len()));
            assert_eq!(table.decoded_len(&[&codes[..], &[ESCAPE_CODE]].concat()), None);
            assert!(table.decode(&codes, text.len(), &mut out));
            assert_eq!(out, [b"before", &text[..]].concat());
            assert_eq!(out[6..], compressor.decompressor().decompress(&codes));
            for wrong in [0, text.len().wrapping_sub(1), text.len() + 1, text.len() + 9] {
                assert!(wrong == text.len() || !table.decode(&codes, wrong.min(1 << 20), &mut out));
            }
            assert!(!table.decode(&[&codes[..], &[ESCAPE_CODE]].concat(), text.len(), &mut out));
            assert_eq!(out.len(), 6 + text.len());
            out.clear();
            let (twice, whole) = ([&codes[..], &codes[..]].concat(), Some(codes.len()));
            assert_eq!(table.decode_front(&twice, text.len(), &mut out), whole);
            assert_eq!(table.decode_front(&twice[codes.len()..], text.len(), &mut out), whole);
            assert_eq!(out, [&text[..], &text[..]].concat());
        }
    }
}
