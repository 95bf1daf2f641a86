//! Copies strings without those codes that repeat the effect of the code before them.
//!
//! A code of the set changes a state once: a second one directly behind it has no further effect. The byte
//! after an escape is not a code, but may look like one of the set. So a code is dropped only if the one
//! before it is in the set and is surely a code: if there is no escape before that.

use crate::arch::{Kernel, Simd};

/// Number of codes that are processed together, and capacity of a string's slot in codes.
pub(crate) const SLOT: usize = 64;

/// Number of strings that are copied together.
const STRINGS: usize = 64;

/// The remaining codes of a few strings, each in its own slot and followed by pads.
#[derive(Debug)]
pub(crate) struct Thinned {
    /// One slot more than strings, since the last piece of a string may extend into a second slot.
    slots: Box<[[u8; SLOT]; STRINGS + 1]>,
    lengths: [u8; STRINGS],
}

impl Default for Thinned {
    fn default() -> Self {
        Thinned { slots: Box::new([[0; SLOT]; STRINGS + 1]), lengths: [0; STRINGS] }
    }
}

impl Thinned {
    /// Returns the `index`-th group of `COUNT` lengths and slots; slots behind the last string have
    /// unspecified contents.
    ///
    /// # Panics
    /// When there are not so many slots.
    #[inline(always)]
    pub fn some<const COUNT: usize>(&self, index: usize) -> (&[u8; COUNT], &[[u8; SLOT]; COUNT]) {
        let (lengths, _) = self.lengths.as_chunks();
        let (slots, _) = self.slots.as_chunks();
        (&lengths[index], &slots[index])
    }
}

/// Copies those of 64 strings that are selected, one after the other. Returns their number, or `None` if a
/// string has more codes left than a slot holds.
pub(crate) struct Thin<'a> {
    pub data: &'a [u8],
    /// The end of each string, preceded by the start of the first.
    pub bounds: &'a [u32],
    pub selected: u64,
    /// A bit for each code whose repetition has no effect.
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
            // Whether the previous code is in the set; whether it, and the one before it, are escapes.
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

/// Returns a word with the lowest `count` bits set, at most all.
#[inline(always)]
fn first_bits(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// Returns the codes from `at` on, in `copy` if there are few; the bytes behind the last code are
/// unspecified.
#[inline(always)]
fn piece<'a>(data: &'a [u8], at: usize, copy: &'a mut [u8; SLOT]) -> &'a [u8; SLOT] {
    let rest = &data[at..];
    rest.first_chunk().unwrap_or_else(|| {
        copy[..rest.len()].copy_from_slice(rest);
        copy
    })
}
