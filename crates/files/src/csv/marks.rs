//! Finds delimiters, line breaks and quotes in a piece of a CSV file, as bit masks: a word per kind of character and 64
//! bytes, with the lowest bit for the first byte.

use farpool_columns::{Kernel, Level, Simd};

/// Number of bytes per block, which are those of one mask.
pub(super) const BLOCK: usize = 64;

/// Number of blocks that are examined in one pass. Reason: their masks stay in the L1 cache.
const AHEAD: usize = 64;

/// The characters to find in a piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks {
    pub delimiter: u8,
    /// The quote character; `None` if the piece has no quotes.
    pub quote: Option<u8>,
}

/// Bit masks of the positions in one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    pub delimiters: u64,
    pub breaks: u64,
    pub quotes: u64,
}

/// Bit masks of consecutive blocks of a piece.
pub(super) struct Marked {
    marks: Marks,
    level: Level,
    /// Index of the first block in `blocks`.
    first: usize,
    blocks: Vec<Places>,
}

impl Marked {
    pub(super) fn new(marks: Marks, level: Level) -> Self {
        Marked { marks, level, first: 0, blocks: Vec::with_capacity(AHEAD) }
    }

    /// Returns the masks of the block with index `number` in `bytes`, which must exist. Fastest if blocks are requested
    /// in order.
    #[inline]
    pub(super) fn block(&mut self, bytes: &[u8], number: usize) -> Places {
        let known = number.checked_sub(self.first).and_then(|at| self.blocks.get(at));
        known.copied().unwrap_or_else(|| self.look(bytes, number))
    }

    #[cold]
    fn look(&mut self, bytes: &[u8], number: usize) -> Places {
        let (start, marks) = (number * BLOCK, self.marks);
        let end = bytes.len().min(start + AHEAD * BLOCK);
        self.first = number;
        self.blocks.clear();
        self.level.run(Look { bytes: &bytes[start..end], marks, blocks: &mut self.blocks });
        self.blocks.first().copied().unwrap_or_default()
    }
}

/// The kernel that computes the masks of a range of bytes.
struct Look<'a> {
    bytes: &'a [u8],
    marks: Marks,
    blocks: &'a mut Vec<Places>,
}

impl Kernel for Look<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (whole, rest) = self.bytes.as_chunks::<BLOCK>();
        for block in whole {
            self.blocks.push(self.marks.places(simd, block));
        }
        if !rest.is_empty() {
            let mut block = [0; BLOCK];
            block[..rest.len()].copy_from_slice(rest);
            let Places { delimiters, breaks, quotes } = self.marks.places(simd, &block);
            let there = (1_u64 << rest.len()) - 1;
            let [delimiters, breaks, quotes] = [delimiters, breaks, quotes].map(|places| places & there);
            self.blocks.push(Places { delimiters, breaks, quotes });
        }
    }
}

impl Marks {
    #[inline(always)]
    fn places<S: Simd>(self, simd: S, block: &[u8; BLOCK]) -> Places {
        let quotes = match self.quote {
            Some(quote) => simd.within_u8(block, quote, 0),
            None => 0,
        };
        Places {
            delimiters: simd.within_u8(block, self.delimiter, 0),
            breaks: simd.within_u8(block, b'\n', 0),
            quotes,
        }
    }
}

/// Returns a word in which a bit is set if the number of set bits of `bits` up to and including that position is odd.
pub(super) fn parity(bits: u64) -> u64 {
    [1, 2, 4, 8, 16, 32].into_iter().fold(bits, |parity, distance| parity ^ (parity << distance))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_say_where_bytes_are(
            bytes in prop::collection::vec(prop::sample::select(b"\x00\x01,\"\n\x7f\x80\xac\xff".to_vec()), 0..9_000),
            delimiter in prop::sample::select(b"\x00,\xff".to_vec()),
            has_quotes: bool,
        ) {
            let marks = Marks { delimiter, quote: has_quotes.then_some(b'"') };
            let bits = |block: &[u8], byte: u8| {
                block.iter().enumerate().fold(0, |bits, (i, found)| bits | u64::from(*found == byte) << i)
            };
            for level in Level::all() {
                let mut marked = Marked::new(marks, level);
                for (number, block) in bytes.chunks(BLOCK).enumerate() {
                    let expected = Places {
                        delimiters: bits(block, delimiter),
                        breaks: bits(block, b'\n'),
                        quotes: marks.quote.map_or(0, |quote| bits(block, quote)),
                    };
                    prop_assert_eq!(marked.block(&bytes, number), expected);
                }
            }
        }

        #[test]
        fn parity_counts(bits: u64) {
            let odd = |i: u32| (bits & (u64::MAX >> (63 - i))).count_ones() % 2 == 1;
            let expected = (0..64).fold(0, |parity, i| parity | u64::from(odd(i)) << i);
            prop_assert_eq!(parity(bits), expected);
        }
    }
}
