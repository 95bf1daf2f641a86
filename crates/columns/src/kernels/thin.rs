//! Copies strings without those of their codes that change nothing behind another of their kind.
//!
//! What a code of the set does to a state it does once: a second one right behind it leads nowhere else. Behind an
//! escape lies a byte, which is no code and may look like one of the set. So a code goes only if the one before it
//! is of the set and surely a code: if there is no escape before that.

use crate::arch::{Kernel, Simd};

/// Codes that are looked at together, and codes of a string that there is room for.
pub(crate) const SLOT: usize = 64;

/// Strings of which copies are made together.
const STRINGS: usize = 64;

/// What is left of some strings, each in a slot of its own that is full of pads behind it.
#[derive(Debug)]
pub(crate) struct Thinned {
    /// One slot more than strings: the last piece of a string may lie in two.
    slots: Box<[[u8; SLOT]; STRINGS + 1]>,
    lengths: [u8; STRINGS],
}

impl Default for Thinned {
    fn default() -> Self {
        Thinned { slots: Box::new([[0; SLOT]; STRINGS + 1]), lengths: [0; STRINGS] }
    }
}

impl Thinned {
    /// Lengths and slots of the `index`-th `COUNT` strings; what lies in slots behind the last string has no meaning.
    ///
    /// # Panics
    /// When there are no slots for so many.
    #[inline(always)]
    pub fn some<const COUNT: usize>(&self, index: usize) -> (&[u8; COUNT], &[[u8; SLOT]; COUNT]) {
        let (lengths, _) = self.lengths.as_chunks();
        let (slots, _) = self.slots.as_chunks();
        (&lengths[index], &slots[index])
    }
}

/// Copies those of 64 strings that are selected, one after the other. Gives their number, or nothing if more codes of
/// a string are left than a slot takes.
pub(crate) struct Thin<'a> {
    pub data: &'a [u8],
    /// Where each string ends, preceded by where the first starts.
    pub bounds: &'a [u32],
    pub selected: u64,
    /// A bit for each code of which a second one changes nothing.
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
            // Whether the code before is of the set; whether it, and the one before it, are escapes.
            let (mut repeats, mut escapes) = (0, 0);
            loop {
                let mut copy = [0; SLOT];
                let codes = piece(data, at, &mut copy);
                let of_set = simd.bits_at_u8(set, codes);
                let is_escape = simd.within_u8(codes, escape, 0);
                let dropped = of_set & (of_set << 1 | repeats) & !(is_escape << 2 | escapes);
                let kept = first_bits(end - at) & !dropped;
                let left = simd.compress_padded_u8(codes, kept, pad);
                out.slots.as_flattened_mut()[count * SLOT + length..][..SLOT].copy_from_slice(&left);
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

/// So many bits, at most all.
#[inline(always)]
fn first_bits(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// The codes from `at` on, in `copy` if there are few; what follows the last of them has no meaning.
#[inline(always)]
fn piece<'a>(data: &'a [u8], at: usize, copy: &'a mut [u8; SLOT]) -> &'a [u8; SLOT] {
    let rest = &data[at..];
    rest.first_chunk().unwrap_or_else(|| {
        copy[..rest.len()].copy_from_slice(rest);
        copy
    })
}
