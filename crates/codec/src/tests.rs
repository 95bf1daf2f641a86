//! Every codec on every kind of bytes, and DEFLATE beside another implementation.

use crate::{Codec, Compressor, Decompressor};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use proptest::prelude::*;

/// Bytes of which some repeat: runs, copies of what came before, and noise.
fn blocks() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        (any::<u8>(), 1_usize..3000).prop_map(|(byte, count)| vec![byte; count]),
        prop::collection::vec(any::<u8>(), 0..600),
        (prop::collection::vec(any::<u8>(), 1..9), 1_usize..400).prop_map(|(unit, count)| unit.repeat(count)),
    ];
    prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

fn compressed(codec: Codec, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(Compressor::new().compress(codec, data, 2 * data.len() + 100, &mut out));
    out
}

fn by_flate2(data: &[u8], level: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 * data.len() + 100);
    let mut context = Compress::new(Compression::new(level), false);
    context.compress_vec(data, &mut out, FlushCompress::Finish).unwrap();
    assert_eq!(context.total_in(), data.len() as u64);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn blocks_come_back(data in blocks(), others in prop::collection::vec(blocks(), 0..3)) {
        let (mut compressor, mut decompressor) = (Compressor::new(), Decompressor::new());
        let mut out = Vec::new();
        for data in others.iter().chain([&data]) {
            for codec in Codec::ALL {
                prop_assert!(compressor.compress(codec, data, 2 * data.len() + 100, &mut out));
                let mut plain = vec![7; data.len()];
                decompressor.decompress(codec, &out, &mut plain).unwrap();
                prop_assert!(plain == *data, "{codec}");
                // The bound is exact, and whatever was left there does no harm.
                let bytes = out.len();
                prop_assert!(bytes == 0 || !compressor.compress(codec, data, bytes - 1, &mut out));
                if codec != Codec::Zstd {
                    prop_assert!(compressor.compress(codec, data, bytes, &mut out));
                    prop_assert_eq!(out.len(), bytes);
                }
            }
        }
    }

    #[test]
    fn other_lengths_are_errors(data in blocks(), less in 1_usize..40, more in 1_usize..40) {
        for codec in Codec::ALL {
            let out = compressed(codec, &data);
            let mut decompressor = Decompressor::new();
            let mut longer = vec![0; data.len() + more];
            prop_assert!(decompressor.decompress(codec, &out, &mut longer).is_err(), "{codec}");
            if let Some(bytes) = data.len().checked_sub(less) {
                prop_assert!(decompressor.decompress(codec, &out, &mut vec![0; bytes]).is_err(), "{codec}");
            }
            if let Some(bytes) = out.len().checked_sub(less).filter(|_| !data.is_empty()) {
                let mut plain = vec![0; data.len()];
                let cut = decompressor.decompress(codec, &out[..bytes], &mut plain);
                // The last bits of DEFLATE may say nothing but that it ends.
                prop_assert!(cut.is_err() || plain == data, "{codec}");
            }
        }
    }

    #[test]
    fn any_bytes_are_an_error_or_a_block(bytes in prop::collection::vec(any::<u8>(), 0..300), length in 0_usize..5000) {
        let mut decompressor = Decompressor::new();
        for codec in Codec::ALL {
            let _ = decompressor.decompress(codec, &bytes, &mut vec![0; length]);
        }
    }

    /// RFC 1951, both ways with another implementation, at all of its levels.
    #[test]
    fn deflate_is_that_of_others(data in blocks(), level in 0_u32..10) {
        let mut plain = vec![0; data.len()];
        Decompressor::new().decompress(Codec::Deflate, &by_flate2(&data, level), &mut plain).unwrap();
        prop_assert!(plain == data);
        let mut theirs = Vec::with_capacity(data.len() + 1);
        let mut context = Decompress::new(false);
        let ours = compressed(Codec::Deflate, &data);
        context.decompress_vec(&ours, &mut theirs, FlushDecompress::Finish).unwrap();
        prop_assert!(theirs == data && context.total_in() == ours.len() as u64);
    }
}

#[test]
fn every_bit_of_a_block_is_flipped() {
    let data: Vec<u8> = (0..2000_u32).map(|i| (i * i % 251) as u8 & 0x3f).collect();
    let mut decompressor = Decompressor::new();
    for codec in Codec::ALL {
        let mut out = compressed(codec, &data);
        let (mut errors, bits) = (0, 8 * out.len());
        for bit in 0..bits {
            out[bit / 8] ^= 1 << (bit % 8);
            let mut plain = vec![0; data.len()];
            // Nothing here notices that bytes are others: what is on disk has checksums and tags.
            errors += usize::from(decompressor.decompress(codec, &out, &mut plain).is_err());
            out[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(errors > 0 && errors < bits, "{codec}: {errors} of {bits}");
        let mut plain = vec![0; data.len()];
        decompressor.decompress(codec, &out, &mut plain).unwrap();
        assert!(plain == data, "an error leaves the context of {codec} as it was");
    }
}

#[test]
fn codecs_have_names_and_numbers() {
    for codec in Codec::ALL {
        assert_eq!(Codec::named(codec.name()), Some(codec));
        assert_eq!(Codec::of_code(codec.code()), Some(codec));
    }
    assert_eq!((Codec::named("gzip"), Codec::of_code(0), Codec::of_code(4)), (None, None, None));
}
