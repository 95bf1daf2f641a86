//! Decompresses untrusted blocks.

use farpool_codec::{Codec, Compressor, Decompressor};

/// Decompresses a block: the first byte says which codec, the next two the length that it should become. What is accepted
/// is compressed and comes back, by the same contexts.
pub fn block_decoder(data: &[u8]) {
    let Some(([codec, low, high], block)) = data.split_first_chunk::<3>() else { return };
    let codec = Codec::ALL[usize::from(*codec) % Codec::ALL.len()];
    let mut plain = vec![0; usize::from(u16::from_le_bytes([*low, *high]))];
    let mut decompressor = Decompressor::new();
    if decompressor.decompress(codec, block, &mut plain).is_err() {
        return;
    }
    let mut again = Vec::new();
    assert!(Compressor::new().compress(codec, &plain, 2 * plain.len() + 100, &mut again), "there is room");
    let mut back = vec![1; plain.len()];
    decompressor.decompress(codec, &again, &mut back).expect("what we compress, we decompress");
    assert!(back == plain, "other bytes come back");
}
