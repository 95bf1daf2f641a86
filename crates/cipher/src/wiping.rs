//! An allocator that overwrites freed memory after the process has got secrets.
//!
//! Values of encrypted tables are unencrypted while they are processed: decrypted chunks, strings in hash tables,
//! results in flight. They are in ordinary allocated memory, and must not remain there after it is freed. Overwriting
//! costs about as much as writing the memory once; before the first encrypted table, it costs one load of a flag.

#![expect(unsafe_code, reason = "an allocator is wrapped")]

use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

static WIPES: AtomicBool = AtomicBool::new(false);

/// Makes every [`Wiping`] allocator of the process overwrite freed memory from now on.
pub fn wipe_freed_memory() {
    WIPES.store(true, Ordering::Relaxed);
}

/// The allocator `A`, which overwrites freed memory after [`wipe_freed_memory`].
#[derive(Debug, Default)]
pub struct Wiping<A>(pub A);

// SAFETY: memory comes from and goes back to `A` by its rules; what is written to it in between was given back by the
// caller.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Wiping<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller fulfils the conditions of this function, which are those of the call.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller fulfils the conditions of this function, which are those of the call.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if WIPES.load(Ordering::Relaxed) {
            // SAFETY: the block has `layout.size()` bytes, and the caller does not use it any more.
            unsafe { wipe(pointer, layout.size()) };
        }
        // SAFETY: the caller fulfils the conditions of this function, which are those of the call.
        unsafe { self.0.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !WIPES.load(Ordering::Relaxed) {
            // SAFETY: the caller fulfils the conditions of this function, which are those of the call.
            return unsafe { self.0.realloc(pointer, layout, new_size) };
        }
        // Not left to `A`, because the block may move, and its old place must be overwritten.
        // SAFETY: the caller promises that the new size is one with this alignment, and not zero.
        let new = unsafe { self.0.alloc(Layout::from_size_align_unchecked(new_size, layout.align())) };
        if !new.is_null() {
            // SAFETY: two blocks that are at least as long as what is copied; the old one is not used after this.
            unsafe {
                new.copy_from_nonoverlapping(pointer, layout.size().min(new_size));
                self.dealloc(pointer, layout);
            }
        }
        new
    }
}

/// Overwrites a block that is about to be freed.
///
/// SAFETY: the block must have `bytes` bytes, which nobody else uses.
unsafe fn wipe(pointer: *mut u8, bytes: usize) {
    // SAFETY: the caller fulfils the conditions of this function, which are those of the call.
    unsafe { pointer.write_bytes(0, bytes) };
    // Prevents the compiler from leaving out the writes, because the memory is never read again.
    black_box(pointer);
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::alloc::System;

    /// An allocator for tests that keeps a copy of each block as it is when it is freed.
    #[derive(Default)]
    struct Keeping(Mutex<Vec<Vec<u8>>>);

    // SAFETY: all calls are passed on to the system's allocator; a freed block is copied before.
    unsafe impl GlobalAlloc for Keeping {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller fulfils the conditions of this function, which are those of the call.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
            // SAFETY: the block has as many bytes, all of which the test has written.
            let bytes = unsafe { std::slice::from_raw_parts(pointer, layout.size()) }.to_vec();
            self.0.lock().push(bytes);
            // SAFETY: the caller fulfils the conditions of this function, which are those of the call.
            unsafe { System.dealloc(pointer, layout) }
        }
    }

    #[test]
    fn what_is_freed_is_overwritten_and_what_is_kept_is_not() {
        let allocator = Wiping(Keeping::default());
        let (small, large) = (Layout::array::<u8>(100).unwrap(), Layout::array::<u8>(5_000).unwrap());
        wipe_freed_memory();
        // SAFETY: blocks are used by their layouts, and freed once.
        let kept = unsafe {
            let block = allocator.alloc(small);
            block.write_bytes(7, 100);
            let block = allocator.realloc(block, small, 5_000);
            let kept = std::slice::from_raw_parts(block, 100).to_vec();
            block.write_bytes(9, 5_000);
            allocator.dealloc(block, large);
            kept
        };
        assert_eq!(kept, [7; 100], "a block that grows keeps its bytes");
        assert_eq!(*allocator.0.0.lock(), [vec![0; 100], vec![0; 5_000]]);
    }
}
