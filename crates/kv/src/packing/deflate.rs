//! Compression of values by DEFLATE. Each thread keeps the state of the library for its next call, because the state is
//! large.

use libdeflater::{CompressionLvl, Compressor, Decompressor};
use std::cell::RefCell;

/// Compression level. Reason for 1: higher levels save 5 % of the bytes and take 50 % more time.
const LEVEL: i32 = 1;

thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor>> = const { RefCell::new(None) };
}

/// Compresses `plain` into `out`; returns the number of compressed bytes, or `None` if they do not fit.
pub(super) fn pack(plain: &[u8], out: &mut [u8]) -> Option<usize> {
    let level = CompressionLvl::new(LEVEL).ok()?;
    COMPRESSOR.with_borrow_mut(|made| {
        let made = made.get_or_insert_with(|| Compressor::new(level));
        made.deflate_compress(plain, out).ok()
    })
}

/// Decompresses `packed` into `out`; returns the number of plain bytes, or `None` if `packed` is corrupt or they do not
/// fit.
pub(super) fn unpack(packed: &[u8], out: &mut [u8]) -> Option<usize> {
    DECOMPRESSOR.with_borrow_mut(|made| made.get_or_insert_default().deflate_decompress(packed, out).ok())
}
