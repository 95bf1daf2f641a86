//! Choice of the codec for each part of a segment.
//!
//! The directory is opened with a policy ([`compressing`]): one codec for all parts, none, or by cost. By cost, a part
//! is compressed if reading fewer bytes and decompressing them takes less time than reading it uncompressed. The ratio
//! is estimated from a sample of the part; the cost of a byte from the rate at which one thread reads the device,
//! measured once, and from a table of decompression rates.

use crate::files::Directory;
use crate::over::DirectoryOver;
use farpool_codec::{Codec, Compressor};
use std::sync::{Arc, OnceLock};

/// Compression policy for parts of segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompressionPolicy {
    /// Compresses a part if that makes reading it faster, with the codec that makes it fastest.
    #[default]
    Auto,
    /// Compresses no part.
    None,
    /// Compresses with this codec every part that becomes smaller.
    By(Codec),
}

impl CompressionPolicy {
    /// Returns the name that users write.
    pub fn name(self) -> &'static str {
        match self {
            CompressionPolicy::Auto => "auto",
            CompressionPolicy::None => "none",
            CompressionPolicy::By(codec) => codec.name(),
        }
    }

    /// Returns the policy with the name that users write; `None` for an unknown name.
    pub fn named(name: &str) -> Option<CompressionPolicy> {
        match name {
            "auto" => Some(CompressionPolicy::Auto),
            "none" => Some(CompressionPolicy::None),
            name => Codec::named(name).map(CompressionPolicy::By),
        }
    }
}

/// Decompression rates in output bytes a second on one thread, for blocks of tables that are still compressible after
/// their encodings (`docs/decisions/2026-11-25-compression-on-disk.md`). The codec that compresses best comes
/// first. DEFLATE is missing because Zstandard compresses better and decompresses faster.
const DECOMPRESSED: [(Codec, f64); 2] = [(Codec::Zstd, 1.1e9), (Codec::Lz4, 2.4e9)];

/// Minimum share of the read time that compression must save. It is a margin, because the rates are estimates.
const SAVED_PART: f64 = 0.1;

/// Minimum bytes of a part that may be compressed by cost. Reason: a device reads shorter parts in the time of one
/// block.
const TRIED_BYTES_MIN: usize = 16 << 10;

/// Bytes of each of the two samples of a part from which the compression ratio is estimated.
const SAMPLE_BYTES: usize = 16 << 10;

/// Chooses a codec for each part: the compression policy of a directory, with its measured read rate.
#[derive(Debug)]
pub struct CodecSelector {
    policy: CompressionPolicy,
    /// Rate at which one thread reads the device, in bytes per second, measured at the first use; `None` inside if it
    /// cannot be measured.
    read_rate: OnceLock<Option<f64>>,
}

impl CodecSelector {
    /// Returns the codec for a part with these data in a segment of `directory`; `None` if it should be stored
    /// uncompressed.
    pub(crate) fn choose(
        &self,
        directory: &dyn Directory,
        compressor: &mut Compressor,
        data: &[u8],
    ) -> Option<Codec> {
        match self.policy {
            CompressionPolicy::None => None,
            CompressionPolicy::By(codec) => Some(codec),
            CompressionPolicy::Auto => {
                if data.len() < TRIED_BYTES_MIN {
                    return None;
                }
                let rate = (*self.read_rate.get_or_init(|| directory.read_rate()))?;
                cheapest(rate, &mut |codec| saved(compressor, codec, data))
            }
        }
    }
}

/// Returns the codec with which a byte of data is read fastest; `None` if no codec saves at least [`SAVED_PART`] of the
/// time. `share` returns the compressed length divided by the uncompressed length for a codec.
fn cheapest(read_rate: f64, share: &mut dyn FnMut(Codec) -> f64) -> Option<Codec> {
    let plain = (1.0 - SAVED_PART) / read_rate;
    let mut best: Option<(f64, Codec)> = None;
    for (place, (codec, rate)) in DECOMPRESSED.into_iter().enumerate() {
        // Decompression alone takes longer than reading, so that no sample is needed.
        if 1.0 / rate >= plain {
            continue;
        }
        let share = share(codec);
        let time = share / read_rate + 1.0 / rate;
        if time < best.map_or(plain, |(time, _)| time) {
            best = Some((time, codec));
        }
        // The codec that compresses best comes first, so a later one saves no more bytes. If not even the fastest
        // decompression would make this share of the bytes worth it, no later codec can win. Parts that are
        // incompressible, as most are, therefore cost the trial of one codec only.
        let fastest = DECOMPRESSED[place..].iter().map(|(_, rate)| 1.0 / rate).fold(f64::INFINITY, f64::min);
        if share / read_rate + fastest >= plain {
            break;
        }
    }
    best.map(|(_, codec)| codec)
}

/// Returns the compressed length divided by the uncompressed length, for two samples at one third and at two thirds of
/// `data`.
fn saved(compressor: &mut Compressor, codec: Codec, data: &[u8]) -> f64 {
    let (mut before, mut after) = (0, 0);
    let mut out = Vec::new();
    for at in [data.len() / 3, 2 * data.len() / 3] {
        let at = at.min(data.len().saturating_sub(SAMPLE_BYTES));
        let piece = &data[at..(at + SAMPLE_BYTES).min(data.len())];
        let is_smaller = compressor.compress(codec, piece, piece.len(), &mut out);
        before += piece.len();
        after += if is_smaller { out.len() } else { piece.len() };
    }
    after as f64 / before.max(1) as f64
}

/// Returns a view of a directory in which new segments are compressed by this policy. Existing segments stay readable.
pub fn compressing(directory: Arc<dyn Directory>, policy: CompressionPolicy) -> Arc<dyn Directory> {
    let codec_selector = CodecSelector { policy, read_rate: OnceLock::new() };
    Arc::new(CompressingDirectory { inner: directory, codec_selector })
}

#[derive(Debug)]
struct CompressingDirectory {
    inner: Arc<dyn Directory>,
    codec_selector: CodecSelector,
}

impl DirectoryOver for CompressingDirectory {
    fn below(&self) -> &dyn Directory {
        &*self.inner
    }

    fn codec_selector_here(&self) -> Option<&CodecSelector> {
        Some(&self.codec_selector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the codec that is chosen at a read rate of `rate` MB/s, if Zstandard and LZ4 compress to these shares of
    /// the length, and how many codecs were tried on a sample.
    fn chosen(rate: f64, zstd: f64, lz4: f64) -> (Option<Codec>, usize) {
        let mut tried = 0;
        let codec = cheapest(rate * 1e6, &mut |codec| {
            tried += 1;
            if codec == Codec::Zstd { zstd } else { lz4 }
        });
        (codec, tried)
    }

    #[test]
    fn the_codec_is_the_one_that_is_read_fastest() {
        // A slow disk favours the smallest output, a faster one the fastest codec, the fastest none at all.
        assert_eq!(chosen(100.0, 0.5, 0.6), (Some(Codec::Zstd), 2));
        assert_eq!(chosen(700.0, 0.3, 0.4), (Some(Codec::Lz4), 2));
        assert_eq!(chosen(1500.0, 0.1, 0.1), (Some(Codec::Lz4), 1));
        assert_eq!(chosen(5000.0, 0.1, 0.1), (None, 0));
        assert_eq!(chosen(f64::INFINITY, 0.1, 0.1), (None, 0));
        // For incompressible data, a sample is compressed with one codec only.
        assert_eq!(chosen(100.0, 1.0, 1.0), (None, 1));
        assert_eq!(chosen(100.0, 0.95, 1.0), (None, 1));
        assert_eq!(chosen(700.0, 0.8, 0.9), (None, 1));
    }

    #[test]
    fn samples_are_of_all_lengths() {
        let mut compressor = Compressor::new();
        let text = b"of what repeats, much is saved. ".repeat(4000);
        for bytes in [0, 1, 100, SAMPLE_BYTES, 2 * SAMPLE_BYTES + 1, text.len()] {
            for codec in Codec::ALL {
                let share = saved(&mut compressor, codec, &text[..bytes]);
                assert!((0.0..=1.0).contains(&share) && (bytes < 1000 || share < 0.2), "{bytes}: {share}");
            }
        }
    }

    #[test]
    fn ways_to_compress_have_names() {
        let all = Codec::ALL.map(CompressionPolicy::By);
        for policy in [CompressionPolicy::Auto, CompressionPolicy::None].iter().chain(&all) {
            assert_eq!(CompressionPolicy::named(policy.name()), Some(*policy));
        }
        assert_eq!(CompressionPolicy::named("gzip"), None);
    }
}
