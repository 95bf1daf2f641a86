//! Fuzz body that decompresses untrusted blocks.

use farpool_codec::{Codec, Compressor, Decompressor};

/// Decompresses a block: the first byte selects the codec, the next two are the decompressed length. The output of a
/// valid block is compressed and decompressed again, with the same contexts.
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
