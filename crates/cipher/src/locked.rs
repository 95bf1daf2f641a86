//! Memory for keys: never swapped out, not in core dumps, not inherited by child processes, and wiped when it is freed.
//!
//! Slots of two sizes are allocated from regions that are mapped, locked and marked once and stay for the life of the
//! process. A process without privileges may lock little memory (8 MiB on most systems, 64 KiB on some). Keys that are
//! stored for long are therefore stored as raw bytes, and their key schedules are computed when they are used.
//!
//! Rejected: `memsec` and `secrecy` take a page or more for each key, which exceeds the limit with some thousand open
//! files; `zeroize` alone leaves keys in swap and dumps.

#![expect(unsafe_code, reason = "locked memory is handed out in slots")]

use crate::sys;
use farpool_model::{Error, Result};
use parking_lot::Mutex;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use zeroize::Zeroize;

/// Bytes of the two sizes of slots, and of the regions that they are allocated from. Reason: a raw key has at most 64
/// bytes, and a key schedule up to a kilobyte.
const SMALL_BYTES: usize = 64;
const LARGE_BYTES: usize = 1024;
const REGION_BYTES: usize = 16 << 10;

/// The free slots of locked memory, by size class (small and large).
static FREE: [Mutex<Vec<Start>>; 2] = [const { Mutex::new(Vec::new()) }; 2];

/// Address of the first byte of a free slot.
struct Start(NonNull<u8>);

// SAFETY: a free slot has no other owner, so its address may be sent to another thread.
unsafe impl Send for Start {}

/// A slot of locked memory, aligned to 64 bytes; initially zero.
pub(crate) struct Slot {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a slot owns its bytes exclusively, and shared references to it only read them.
unsafe impl Send for Slot {}
// SAFETY: a slot owns its bytes exclusively, and shared references to it only read them.
unsafe impl Sync for Slot {}

impl Slot {
    /// Allocates a slot of `bytes` bytes of locked memory, which are zero.
    ///
    /// # Errors
    /// `OverLimit` if the process may not lock more memory.
    pub fn new(bytes: usize) -> Result<Slot> {
        assert!(bytes <= LARGE_BYTES, "a slot of {bytes} bytes");
        let (class, slot_bytes) = class(bytes);
        let mut free = FREE[class].lock();
        if free.is_empty() {
            let region = sys::locked_region(REGION_BYTES).map_err(|error| {
                Error::over_limit(format!("cannot lock memory for keys: {error}"))
                    .advise("raise the limit of locked memory (ulimit -l; LimitMEMLOCK= of a systemd unit)")
            })?;
            free.extend((0..REGION_BYTES).step_by(slot_bytes).map(|offset| {
                // SAFETY: the offset is within the region.
                Start(unsafe { region.add(offset) })
            }));
        }
        let Start(start) = free.pop().ok_or_else(|| Error::internal("a region without slots"))?;
        Ok(Slot { start, bytes })
    }

    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
}

/// Returns the index of the size class of slots for `bytes` bytes, and the size.
fn class(bytes: usize) -> (usize, usize) {
    if bytes <= SMALL_BYTES { (0, SMALL_BYTES) } else { (1, LARGE_BYTES) }
}

impl Deref for Slot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the slot has `bytes` bytes, which were zeroed when they were mapped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Slot {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the slot has `bytes` bytes, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.zeroize();
        FREE[class(self.bytes).0].lock().push(Start(self.start));
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({} bytes)", self.bytes)
    }
}

/// A value in locked memory.
pub(crate) struct Locked<T> {
    slot: Slot,
    _value: std::marker::PhantomData<T>,
}

impl<T> Locked<T> {
    /// Moves a value to locked memory. The caller's copy on the stack is overwritten only by later calls, so that
    /// secrets that protect data must be created in their slot instead.
    ///
    /// # Errors
    /// Errors of [`Slot::new`].
    pub fn new(value: T) -> Result<Locked<T>> {
        const { assert!(align_of::<T>() <= 64 && size_of::<T>() <= LARGE_BYTES) };
        let mut slot = Slot::new(size_of::<T>())?;
        // SAFETY: the slot is large enough and aligned, as just checked.
        unsafe { slot.as_mut_ptr().cast::<T>().write(value) };
        Ok(Locked { slot, _value: std::marker::PhantomData })
    }
}

impl<T> Deref for Locked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the value was written when this was created, and has not been moved or changed since.
        unsafe { self.slot.start.cast::<T>().as_ref() }
    }
}

impl<T> Drop for Locked<T> {
    fn drop(&mut self) {
        // SAFETY: the slot contains the value, which is not used after this.
        unsafe { self.slot.as_mut_ptr().cast::<T>().drop_in_place() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_wiped_when_it_is_given_back() {
        for bytes in [1, 32, 64, 65, 1024] {
            let mut slot = Slot::new(bytes).unwrap();
            assert!(slot.len() == bytes && slot.iter().all(|byte| *byte == 0));
            assert_eq!(slot.as_ptr().addr() % 64, 0);
            slot.fill(7);
        }
        let slots: Vec<Slot> = (0..100).map(|_| Slot::new(64).unwrap()).collect();
        assert!(slots.iter().all(|slot| slot.iter().all(|byte| *byte == 0)));
        let mut starts: Vec<usize> = slots.iter().map(|slot| slot.as_ptr().addr()).collect();
        starts.sort_unstable();
        assert!(starts.windows(2).all(|pair| pair[0] + 64 <= pair[1]));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn slots_are_locked_and_in_no_dump() {
        let slot = Slot::new(32).unwrap();
        let address = slot.as_ptr().addr();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_here = false;
        let flags = maps.lines().find_map(|line| {
            let range = line.split_whitespace().next()?.split_once('-');
            let number = |hex| usize::from_str_radix(hex, 16).ok();
            if let Some((Some(first), Some(end))) = range.map(|(first, end)| (number(first), number(end))) {
                is_here = (first..end).contains(&address);
            }
            line.strip_prefix("VmFlags:").filter(|_| is_here)
        });
        let flags = flags.unwrap();
        assert!(["lo", "dd", "wf"].iter().all(|flag| flags.contains(flag)), "{flags}");
    }

    #[test]
    fn values_in_locked_memory_are_dropped() {
        let shared = std::sync::Arc::new(5);
        let locked = Locked::new(shared.clone()).unwrap();
        assert_eq!((**locked, std::sync::Arc::strong_count(&shared)), (5, 2));
        drop(locked);
        assert_eq!(std::sync::Arc::strong_count(&shared), 1);
    }
}
