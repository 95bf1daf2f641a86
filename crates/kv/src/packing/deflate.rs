//! DEFLATE. The library's state is large, so each thread keeps one.

use libdeflater::{CompressionLvl, Compressor, Decompressor};
use std::cell::RefCell;

/// Higher levels save a twentieth and take half as long again.
const LEVEL: i32 = 1;

thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor>> = const { RefCell::new(None) };
}

/// Compresses into `out`; returns the number of bytes, or `None` if they do not fit.
pub(super) fn pack(plain: &[u8], out: &mut [u8]) -> Option<usize> {
    let level = CompressionLvl::new(LEVEL).ok()?;
    COMPRESSOR.with_borrow_mut(|made| {
        let made = made.get_or_insert_with(|| Compressor::new(level));
        made.deflate_compress(plain, out).ok()
    })
}

/// Decompresses into `out`; returns the number of bytes, or `None` if `packed` is damaged or its contents do not fit.
pub(super) fn unpack(packed: &[u8], out: &mut [u8]) -> Option<usize> {
    DECOMPRESSOR.with_borrow_mut(|made| made.get_or_insert_default().deflate_decompress(packed, out).ok())
}
