//! Copies FSST-compressed strings for LIKE matching, without redundant codes.
//!
//! `set` holds FSST codes that all have the same effect on the states of the automaton, and whose second application in
//! a row changes nothing. Of consecutive such codes only the first matters, so the others are dropped. The byte after
//! an FSST escape is a literal, but may equal a code of `set`. So a code is dropped only if the byte before it is in
//! `set` and the byte before that one is not the escape. This is conservative, because the escape value may itself be a
//! literal.

use crate::arch::{Kernel, Simd};

/// Number of codes that are processed together, and maximum number of codes of a copied string.
pub(crate) const SLOT: usize = 64;

/// Number of strings that are copied together, one for each bit of `selected`.
const STRINGS: usize = 64;

/// Copied strings, without redundant codes. Each has a slot of its own, which is filled up with the pad code.
#[derive(Debug)]
pub(crate) struct Thinned {
    /// The slots. There is one more than strings, because the last store of a string may reach into the slot after
    /// its own.
    slots: Box<[[u8; SLOT]; STRINGS + 1]>,
    lengths: [u8; STRINGS],
}

impl Default for Thinned {
    fn default() -> Self {
        Thinned { slots: Box::new([[0; SLOT]; STRINGS + 1]), lengths: [0; STRINGS] }
    }
}

impl Thinned {
    /// Returns the lengths and slots of `COUNT` strings, from string `index * COUNT` on. Slots behind the last string
    /// have unspecified contents.
    ///
    /// # Panics
    /// When the slots end before these strings.
    #[inline(always)]
    pub fn some<const COUNT: usize>(&self, index: usize) -> (&[u8; COUNT], &[[u8; SLOT]; COUNT]) {
        let (lengths, _) = self.lengths.as_chunks();
        let (slots, _) = self.slots.as_chunks();
        (&lengths[index], &slots[index])
    }
}

/// Kernel that copies the selected ones of 64 strings to consecutive slots. Returns the number of strings; `None` if
/// one of them does not fit its slot even without redundant codes.
pub(crate) struct Thin<'a> {
    pub data: &'a [u8],
    /// Offset in `data` of the start of the first string, followed by the end of each string.
    pub bounds: &'a [u32],
    pub selected: u64,
    /// Bitmap of the codes whose repetitions are dropped; see the comment of this file.
    pub set: &'a [u8; 32],
    pub escape: u8,
    pub pad: u8,
    pub out: &'a mut Thinned,
}

impl Kernel for Thin<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Option<usize> {
        let Thin { data, bounds, selected, set, escape, pad, out } = self;
        let (mut rest, mut count) = (selected, 0);
        while rest != 0 {
            let row = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let (mut at, end) = (bounds[row] as usize, bounds[row + 1] as usize);
            let mut length = 0;
            // State at the start of the current piece. Bit 0 of `repeats`: whether the byte before the piece is in
            // `set`. Bit 1 of `escapes`: whether that byte equals the escape; bit 0: whether the byte before it does.
            let (mut repeats, mut escapes) = (0, 0);
            loop {
                let mut copy = [0; SLOT];
                let codes = piece(data, at, &mut copy);
                let of_set = simd.bits_at_u8(set, codes);
                let is_escape = simd.within_u8(codes, escape, 0);
                let dropped = of_set & (of_set << 1 | repeats) & !(is_escape << 2 | escapes);
                let kept = first_bits(end - at) & !dropped;
                let place = out.slots.as_flattened_mut()[count * SLOT + length..].first_chunk_mut();
                simd.compress_padded_u8(codes, kept, pad, place.expect("there is a slot more than strings"));
                length += kept.count_ones() as usize;
                at += SLOT;
                if length > SLOT {
                    return None;
                }
                if at >= end {
                    break;
                }
                (repeats, escapes) = (of_set >> (SLOT - 1), is_escape >> (SLOT - 2));
            }
            out.lengths[count] = length as u8;
            count += 1;
        }
        Some(count)
    }
}

/// Returns a word whose lowest `count` bits are set, or all 64 if `count` is larger.
#[inline(always)]
fn first_bits(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// Returns 64 bytes of `data` from `at` on. If fewer are left, they are copied to `copy`, and the bytes behind them are
/// unspecified.
#[inline(always)]
fn piece<'a>(data: &'a [u8], at: usize, copy: &'a mut [u8; SLOT]) -> &'a [u8; SLOT] {
    let rest = &data[at..];
    rest.first_chunk().unwrap_or_else(|| {
        copy[..rest.len()].copy_from_slice(rest);
        copy
    })
}
