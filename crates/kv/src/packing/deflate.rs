//! DEFLATE. What the library needs for it is large, and kept by each thread.

use libdeflater::{CompressionLvl, Compressor, Decompressor};
use std::cell::RefCell;

/// Higher ones save a twentieth and take half as long again.
const LEVEL: i32 = 1;

thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor>> = const { RefCell::new(None) };
}

/// Compresses into `out`, and returns how many bytes that takes; `None` where it has no room.
pub(super) fn pack(plain: &[u8], out: &mut [u8]) -> Option<usize> {
    let level = CompressionLvl::new(LEVEL).ok()?;
    COMPRESSOR.with_borrow_mut(|made| {
        let made = made.get_or_insert_with(|| Compressor::new(level));
        made.deflate_compress(plain, out).ok()
    })
}

/// Decompresses into `out`, and returns how many bytes that are; `None` for what is damaged, or has more.
pub(super) fn unpack(packed: &[u8], out: &mut [u8]) -> Option<usize> {
    DECOMPRESSOR.with_borrow_mut(|made| made.get_or_insert_default().deflate_decompress(packed, out).ok())
}
