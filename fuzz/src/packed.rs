//! Fuzz body that reads compressed values of keyspaces.

use farpool_kv::{Compression, Packer};

const CODECS: [&[u8]; 3] = [b"lz4", b"deflate", b"fsst"];

/// Reads a value. The input is the number of a codec, a sample with its length in two bytes, the length of the value in
/// two bytes, and the value. A valid value must be the same after it is compressed and read again.
pub fn packed_values(data: &[u8]) {
    let Some((codec, rest)) = data.split_first() else { return };
    let Some((sample_bytes, rest)) = rest.split_first_chunk() else { return };
    let (sample, rest) = rest.split_at(usize::from(u16::from_le_bytes(*sample_bytes)).min(rest.len()));
    let Some((bytes, packed)) = rest.split_first_chunk() else { return };
    let mut plain = vec![0; usize::from(u16::from_le_bytes(*bytes))];
    let codec = CODECS[usize::from(*codec) % CODECS.len()];
    let packer = Packer::new(Compression::named(codec).expect("a codec with this name"), sample);
    if packer.unpack(packed, &mut plain).is_err() {
        return;
    }
    let (mut again, mut found) = (Vec::new(), vec![0; plain.len()]);
    if packer.pack(&plain, plain.len(), &mut again) {
        packer.unpack(&again, &mut found).expect("what we write, we read");
        assert_eq!(found, plain);
    }
}
