//! Large vectors of working memory, on huge pages where the kernel has some. Without these, hash tables and other
//! randomly accessed memory spend most of their time on address translation.
//!
//! Invariant: the kernel only gets advice; the contents and behaviour of a vector do not change.

use farpool_model::limits::PAGE_BYTES;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Reserves capacity for `more` values, as [`Vec::reserve`] does.
pub fn reserve<T>(values: &mut Vec<T>, more: usize) {
    let needed = values.len() + more;
    if needed <= values.capacity() {
        return;
    }
    let mut larger = Vec::with_capacity(needed.max(values.capacity() * 2));
    advise(&larger);
    larger.append(values);
    *values = larger;
}

/// Creates `count` zeros. Pages take memory only once they are changed.
pub fn zeros(count: usize) -> Vec<i64> {
    let values = vec![0; count];
    advise(&values);
    values
}

/// Creates `count` zeros that several threads may change. Pages take memory only once they are changed.
pub fn shared_zeros(count: usize) -> Vec<AtomicU64> {
    let zeros = vec![0_u64; count];
    advise(&zeros);
    shared(zeros)
}

/// Creates `count` small zeros as [`shared_zeros`] does.
pub fn shared_small_zeros(count: usize) -> Vec<AtomicU32> {
    let zeros = vec![0_u32; count];
    advise(&zeros);
    shared(zeros)
}

/// Converts integers `T` to the atomic integers `A` of the same type.
#[expect(unsafe_code, reason = "zeroed pages of the kernel are taken as they are")]
fn shared<T, A>(values: Vec<T>) -> Vec<A> {
    const { assert!(size_of::<T>() == size_of::<A>() && align_of::<T>() == align_of::<A>()) };
    let mut values = std::mem::ManuallyDrop::new(values);
    let (start, length, capacity) = (values.as_mut_ptr(), values.len(), values.capacity());
    // SAFETY: an atomic integer has the bits of its integer, and as checked above, its size and alignment. The allocation
    // is that of a vector, which is not used or dropped any more.
    unsafe { Vec::from_raw_parts(start.cast(), length, capacity) }
}

/// Creates `count` copies of `value`.
pub fn filled<T: Clone>(value: T, count: usize) -> Vec<T> {
    let mut values = Vec::new();
    reserve(&mut values, count);
    values.resize(count, value);
    values
}

/// Advises the kernel to use huge pages for the whole capacity of a vector, if it is large.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "huge pages are asked for by a system call")]
fn advise<T>(values: &Vec<T>) {
    let (start, bytes) = (values.as_ptr().addr(), values.capacity() * size_of::<T>());
    if bytes < 2 * PAGE_BYTES {
        return;
    }
    // Only pages that lie entirely within the vector's allocation are included.
    let (first, last) = (start.next_multiple_of(ORDINARY_PAGE_BYTES), (start + bytes) / ORDINARY_PAGE_BYTES);
    let length = (last * ORDINARY_PAGE_BYTES).saturating_sub(first);
    let first = values.as_ptr().cast::<u8>().wrapping_add(first - start).cast_mut();
    // SAFETY: the range lies within the vector's allocation, and the advice changes neither its contents nor who may
    // use it. If the kernel refuses, nothing changes.
    unsafe { libc::madvise(first.cast(), length, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise<T>(_: &Vec<T>) {}

/// Page size to which the advised range is aligned. `madvise` refuses the range on systems with larger pages,
/// which does no harm.
#[cfg(target_os = "linux")]
const ORDINARY_PAGE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_vectors_hold_what_small_ones_do() {
        for count in [0, 1, 1000, 3 << 20] {
            assert_eq!(zeros(count), vec![0; count]);
            let (shared, small) = (shared_zeros(count), shared_small_zeros(count));
            assert!(shared.len() == count && shared.into_iter().all(|zero| zero.into_inner() == 0));
            assert!(small.len() == count && small.into_iter().all(|zero| zero.into_inner() == 0));
            let mut values = filled(7_u32, count);
            assert_eq!(values, vec![7; count]);
            reserve(&mut values, count + 1);
            assert!(values.capacity() > 2 * count);
            values.resize(2 * count, 8);
            assert!(values[..count].iter().all(|v| *v == 7) && values[count..].iter().all(|v| *v == 8));
        }
    }
}
