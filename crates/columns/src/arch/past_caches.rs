//! Non-temporal writes, for memory that is not read again soon: the memory need not be read into the caches
//! first, and other data is not evicted from them.
//!
//! Invariant: other threads see the memory only after its writer is dropped, which waits for the writes. Reason: the
//! CPU does not order non-temporal writes with other writes.

use arrow_buffer::{ArrowNativeType, ToByteSlice};
use std::marker::PhantomData;

/// Writes values to memory, from its start to its end.
#[derive(Debug)]
pub(crate) struct Writer<'a, T> {
    rest: &'a mut [u8],
    past_caches: bool,
    values: PhantomData<T>,
}

impl<'a, T: ArrowNativeType> Writer<'a, T> {
    /// Creates a writer to `memory`. With `past_caches` false, it writes normally, through the caches.
    pub fn new(memory: &'a mut [u8], past_caches: bool) -> Writer<'a, T> {
        Writer { rest: memory, past_caches, values: PhantomData }
    }

    /// Appends values.
    ///
    /// # Panics
    /// When there is not enough room.
    pub fn append(&mut self, values: &[T]) {
        let bytes = values.to_byte_slice();
        let (out, rest) = std::mem::take(&mut self.rest).split_at_mut(bytes.len());
        if self.past_caches {
            copy_past_caches(bytes, out);
        } else {
            out.copy_from_slice(bytes);
        }
        self.rest = rest;
    }

    /// Returns the number of bytes that are still to be written.
    pub fn missing(&self) -> usize {
        self.rest.len()
    }
}

impl<T> Drop for Writer<'_, T> {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if self.past_caches {
            // SAFETY: every x86-64 processor has the instruction.
            unsafe { std::arch::x86_64::_mm_sfence() }
        }
    }
}

/// Copies `from` to `to`, which must have the same length.
#[cfg(target_arch = "x86_64")]
fn copy_past_caches(from: &[u8], to: &mut [u8]) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
    const WORD_BYTES: usize = 16;
    let start = to.as_ptr().align_offset(WORD_BYTES).min(to.len());
    let end = to.len() - (to.len() - start) % WORD_BYTES;
    let words = from[start..end].chunks_exact(WORD_BYTES);
    for (from, to) in words.zip(to[start..end].chunks_exact_mut(WORD_BYTES)) {
        // SAFETY: both are 16 bytes long, and `to` is aligned to 16 bytes; every x86-64 CPU has the instructions.
        unsafe { _mm_stream_si128(to.as_mut_ptr().cast(), _mm_loadu_si128(from.as_ptr().cast())) }
    }
    to[..start].copy_from_slice(&from[..start]);
    to[end..].copy_from_slice(&from[end..]);
}

#[cfg(not(target_arch = "x86_64"))]
fn copy_past_caches(from: &[u8], to: &mut [u8]) {
    to.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives_wherever_it_lies() {
        let from: Vec<u8> = (0..300_u32).map(|i| i as u8).collect();
        for past_caches in [false, true] {
            for start in 0..20 {
                for (first, second) in [(0, 0), (1, 0), (3, 40), (16, 16), (33, 100), (200, 64)] {
                    let mut to = vec![0; 320];
                    let mut writer = Writer::new(&mut to[start..300], past_caches);
                    writer.append(&from[..first]);
                    writer.append(&from[first..first + second]);
                    assert_eq!(writer.missing(), 300 - start - first - second);
                    drop(writer);
                    let expected = [&vec![0; start][..], &from[..first + second]].concat();
                    assert_eq!(to[..expected.len()], expected);
                    assert!(to[expected.len()..].iter().all(|byte| *byte == 0));
                }
            }
        }
    }
}
