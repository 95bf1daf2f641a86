//! Strings compressed one by one with a table of up to 255 frequent byte sequences.
//!
//! Invariant of a [`SymbolTable`]: every length is 1 to 8, which is what makes the decoder of `fsst-rs` stay
//! inside its output. Invariant of codes: an escape is followed by the byte it escapes ([`SymbolTable::measure`]
//! finds out), because the decoder ends the program where one is cut off.
//! Source: Boncz, Neumann, Leis, "FSST: Fast Random Access String Compression", VLDB 2020.

use farpool_model::{Error, Result};
use fsst::{Compressor, Decompressor, ESCAPE_CODE, Symbol};

const SYMBOLS_MAX: usize = 255;

/// What the codes of a chunk stand for.
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

    /// A table from what [`SymbolTable::parts`] gave.
    ///
    /// # Errors
    /// `Corrupt`.
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

    /// The symbols, eight bytes each, and their lengths.
    pub fn parts(&self) -> (Vec<u8>, &[u8]) {
        let symbols = self.symbols[..self.count].iter().flat_map(|symbol| symbol.to_u64().to_le_bytes());
        (symbols.collect(), &self.lengths[..self.count])
    }

    /// Bytes of the table.
    pub fn bytes(&self) -> usize {
        self.count * 9
    }

    /// Bytes that codes stand for; `None` when an escape at their end lacks its byte.
    pub fn measure(&self, codes: &[u8]) -> Option<usize> {
        let mut codes = codes.iter();
        let mut bytes = 0;
        while let Some(code) = codes.next() {
            if *code == ESCAPE_CODE {
                codes.next()?;
                bytes += 1;
            } else {
                bytes += usize::from(self.lengths[usize::from(*code)]);
            }
        }
        Some(bytes)
    }

    /// Appends what `codes` stand for, `bytes` bytes.
    ///
    /// # Panics
    /// When [`SymbolTable::measure`] does not give `bytes`.
    pub fn decode(&self, codes: &[u8], bytes: usize, out: &mut Vec<u8>) {
        if bytes == 0 {
            return;
        }
        // The eight bytes more let the decoder write whole symbols to the end.
        out.reserve(bytes + 8);
        let decoder = Decompressor::new(&self.symbols, &self.lengths);
        let decoded = decoder.decompress_into(codes, out.spare_capacity_mut());
        assert_eq!(decoded, bytes, "codes that stand for another number of bytes");
        // SAFETY: the decoder has written `decoded` bytes, as it returns.
        unsafe { out.set_len(out.len() + decoded) }
    }
}

impl std::fmt::Debug for SymbolTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SymbolTable({})", self.count)
    }
}
