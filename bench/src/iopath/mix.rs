//! Replays the published mix of blocks: reads and writes of a file of data, and of a log, bypassing the system's page
//! cache; unchanged, and with each block compressed and encrypted on its way to the disk, and back.
//!
//! A block of any size is compressed and encrypted in blocks of 64 KiB, as parts of segments are; their lengths and
//! tags are kept in memory, as a segment's directory is. Stored blocks take whole pages of the disk, at the place that
//! the block has without compression.

use super::definition::{Definition, Kind, Mix};
use super::measure_packing::buffer;
use crate::direct::{self, PAGE_BYTES, Pages};
use crate::random::Random;
use crate::suite::Table;
use crate::{places, text};
use anyhow::{Context, Result, ensure};
use farpool_cipher::{Cipher, Mode, Secret, Tag};
use farpool_codec::{Codec, Compressor, Decompressor};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Plain bytes that are compressed and encrypted at a time.
const BLOCK_BYTES: usize = 64 << 10;

/// Maximal number of places for blocks of one size.
const SLOTS_MAX: u64 = 256;

/// Results of the replay in one form of processing.
#[derive(Clone, Debug, Serialize)]
pub struct MixResult {
    /// The processing of blocks on their way to the disk, such as `compressed and encrypted`.
    pub form: String,
    pub kinds: Vec<KindResult>,
}

/// All accesses of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct KindResult {
    pub name: String,
    pub accesses: u64,
    pub bytes: u64,
    pub bytes_on_disk: u64,
    pub seconds: f64,
}

/// Replays the mix in all forms, or in none if the file system does not support it.
pub fn run(definition: &Definition) -> Result<Vec<MixResult>> {
    let mix = &definition.mix;
    let folder = tempfile::tempdir_in(places::cache()?).context("cannot make a folder in the cache")?;
    if let Err(error) = open(&folder.path().join("try")) {
        eprintln!(
            "mix: left out, {} cannot be read past the system's cache: {error}",
            folder.path().display()
        );
        return Ok(Vec::new());
    }
    let codecs = mix
        .codecs
        .iter()
        .map(|name| Codec::named(name).map(Some).with_context(|| format!("there is no codec {name:?}")));
    let codecs: Vec<Option<Codec>> = std::iter::once(Ok(None)).chain(codecs).collect::<Result<_>>()?;
    let plan = Plan::of(mix);
    let source = buffer(&mix.data, plan.largest, definition.packing.data_bytes)?;
    let mut results = Vec::new();
    for codec in codecs {
        let form = match codec {
            None => "as they are".to_string(),
            Some(codec) => format!("{codec} + AES-{}-GCM", mix.bits),
        };
        text::progress(&format!("mix, {form} "));
        let kinds = Replay::new(folder.path(), &plan, codec, mix.bits, &source)?.run(mix)?;
        results.push(MixResult { form, kinds });
    }
    Ok(results)
}

/// Formats the part of the report.
pub fn text(results: &[MixResult]) -> String {
    let Some(first) = results.first() else { return String::new() };
    let rate = |kind: &KindResult| kind.bytes as f64 / kind.seconds / 1e6;
    let rows = results.iter().flat_map(|result| {
        result.kinds.iter().zip(&first.kinds).map(move |(kind, plain)| (result, kind, plain))
    });
    let table = Table::of(rows)
        .column("blocks", |(result, ..)| &result.form)
        .column("", |(_, kind, _)| &kind.name)
        .column("accesses", |(_, kind, _)| kind.accesses)
        .number("MB", 0, |(_, kind, _)| kind.bytes as f64 / 1e6)
        .number("MB on disk", 0, |(_, kind, _)| kind.bytes_on_disk as f64 / 1e6)
        .number("MB/s", 0, |(_, kind, _)| rate(kind))
        .number("of as they are", 2, |(_, kind, plain)| rate(kind) / rate(plain));
    format!("\nthe published mix of blocks, one access after the other, past the system's cache\n{table}\n")
}

/// The accesses, each with the index of its kind and its size.
struct Plan {
    accesses: Vec<(usize, u64)>,
    /// Offset and number of the blocks of each size in the file of data.
    slots: BTreeMap<u64, (u64, u64)>,
    largest: usize,
}

impl Plan {
    fn of(mix: &Mix) -> Plan {
        let total: f64 = mix.kinds.iter().map(|kind| kind.gigabytes).sum();
        let mut accesses = Vec::new();
        for (place, kind) in mix.kinds.iter().enumerate() {
            let weights: f64 = kind.blocks.iter().map(|(_, share)| share).sum();
            let mean: f64 =
                kind.blocks.iter().map(|(bytes, share)| *bytes as f64 * share).sum::<f64>() / weights;
            let count = mix.bytes as f64 * kind.gigabytes / total / mean;
            for (bytes, share) in &kind.blocks {
                let repeats = (count * share / weights).round() as usize;
                // A kind with a single size is always included, however short the replay is.
                let repeats = if kind.blocks.len() == 1 { repeats.max(1) } else { repeats };
                accesses.extend(std::iter::repeat_n((place, *bytes), repeats));
            }
        }
        let mut random = Random(mix.seed);
        for place in (1..accesses.len()).rev() {
            accesses.swap(place, (random.next() % (place as u64 + 1)) as usize);
        }
        let (mut slots, mut end) = (BTreeMap::new(), 0);
        for (_, bytes) in accesses.iter().filter(|(place, _)| mix.kinds[*place].name.starts_with("data")) {
            slots.entry(*bytes).or_insert_with(|| {
                let count = (mix.slots_bytes / bytes).clamp(1, SLOTS_MAX);
                let start = end;
                end += count * bytes;
                (start, count)
            });
        }
        let largest = accesses.iter().map(|(_, bytes)| *bytes as usize).max().unwrap_or(PAGE_BYTES);
        Plan { accesses, slots, largest }
    }
}

/// Opens a file for access with O_DIRECT.
fn open(path: &Path) -> std::io::Result<File> {
    direct::options().write(true).create(true).truncate(false).open(path)
}

/// The directory of a stored block: for each of its parts the plain and the stored bytes, and the nonce and tag.
type Known = Vec<(usize, usize, [u8; 12], Tag)>;

struct Replay<'a> {
    plan: &'a Plan,
    source: &'a [u8],
    data: File,
    log: File,
    log_end: u64,
    log_bytes: u64,
    form: Option<(Codec, Cipher)>,
    compressor: Compressor,
    decompressor: Decompressor,
    packed: Vec<u8>,
    pages: Pages,
    plain: Vec<u8>,
    nonce: u64,
    /// The directories of stored blocks, by size and slot.
    known: BTreeMap<(u64, u64), Known>,
}

impl<'a> Replay<'a> {
    fn new(
        folder: &Path,
        plan: &'a Plan,
        codec: Option<Codec>,
        bits: usize,
        source: &'a [u8],
    ) -> Result<Replay<'a>> {
        let cipher = || Cipher::new(Mode::Gcm, &Secret::take(&mut super::rounds::key(bits))?);
        let form = codec.map(|codec| cipher().map(|cipher| (codec, cipher))).transpose()?;
        let mut replay = Replay {
            plan,
            source,
            data: open(&folder.join("data"))?,
            log: open(&folder.join("log"))?,
            log_end: 0,
            log_bytes: plan.largest as u64,
            form,
            compressor: Compressor::new(),
            decompressor: Decompressor::new(),
            packed: Vec::new(),
            pages: Pages::new(plan.largest + PAGE_BYTES),
            plain: vec![0; plan.largest],
            nonce: 0,
            known: BTreeMap::new(),
        };
        // All data that may be read is written first, to files whose space is allocated.
        for (bytes, (_, count)) in &plan.slots {
            for slot in 0..*count {
                replay.write_data(*bytes, slot)?;
            }
        }
        let mut end = 0;
        while end < replay.log_bytes {
            let piece = replay.pages.of((plan.largest).min(1 << 20));
            replay.log.write_all_at(piece, end)?;
            end += piece.len() as u64;
        }
        replay.data.sync_all()?;
        replay.log.sync_all()?;
        Ok(replay)
    }

    fn run(&mut self, mix: &Mix) -> Result<Vec<KindResult>> {
        let result = |kind: &Kind| KindResult {
            name: kind.name.clone(),
            accesses: 0,
            bytes: 0,
            bytes_on_disk: 0,
            seconds: 0.0,
        };
        let mut results: Vec<KindResult> = mix.kinds.iter().map(result).collect();
        let mut random = Random(mix.seed ^ 1);
        for (place, bytes) in &self.plan.accesses {
            let slot = random.next() % self.plan.slots.get(bytes).map_or(1, |(_, count)| *count);
            let result = &mut results[*place];
            let start = Instant::now();
            result.bytes_on_disk += match result.name.as_str() {
                "data read" => self.read_data(*bytes, slot)?,
                "data write" => self.write_data(*bytes, slot)?,
                "log read" => self.read_log(*bytes)?,
                _ => self.write_log(*bytes)?,
            };
            result.seconds += start.elapsed().max(Duration::from_nanos(1)).as_secs_f64();
            result.accesses += 1;
            result.bytes += bytes;
        }
        // The last read must return the data written.
        for (bytes, slot) in self.known.keys().copied().collect::<Vec<_>>() {
            self.read_data(bytes, slot)?;
            ensure!(self.plain[..bytes as usize] == self.source[..bytes as usize], "other bytes were read");
        }
        Ok(results)
    }

    /// Fills the pages with the stored form of the first `bytes` bytes of the source; returns the number of bytes used.
    fn pack(&mut self, bytes: usize) -> Result<(usize, Known)> {
        let Some((codec, cipher)) = &self.form else {
            self.pages.of(bytes).copy_from_slice(&self.source[..bytes]);
            return Ok((bytes, Known::new()));
        };
        let (mut end, mut known) = (0, Known::new());
        let pages = self.pages.of(bytes);
        for block in self.source[..bytes].chunks(BLOCK_BYTES) {
            let is_smaller = self.compressor.compress(*codec, block, block.len() - 1, &mut self.packed);
            let stored = if is_smaller { &self.packed[..] } else { block };
            let place = &mut pages[end..end + stored.len()];
            place.copy_from_slice(stored);
            self.nonce += 1;
            let mut nonce = [0; 12];
            nonce[..8].copy_from_slice(&self.nonce.to_le_bytes());
            let tag = cipher.encrypt(&nonce, &[], place)?.context("GCM has tags")?;
            known.push((block.len(), stored.len(), nonce, tag));
            end += stored.len();
        }
        Ok((end, known))
    }

    fn write_data(&mut self, bytes: u64, slot: u64) -> Result<u64> {
        let (stored, known) = self.pack(bytes as usize)?;
        let stored = stored.next_multiple_of(PAGE_BYTES);
        let at = self.plan.slots[&bytes].0 + slot * bytes;
        self.data.write_all_at(self.pages.of(stored), at)?;
        self.known.insert((bytes, slot), known);
        Ok(stored as u64)
    }

    fn read_data(&mut self, bytes: u64, slot: u64) -> Result<u64> {
        let at = self.plan.slots[&bytes].0 + slot * bytes;
        let known = &self.known[&(bytes, slot)];
        let Some((codec, cipher)) = &self.form else {
            let pages = self.pages.of(bytes as usize);
            self.data.read_exact_at(pages, at)?;
            self.plain[..bytes as usize].copy_from_slice(pages);
            return Ok(bytes);
        };
        let stored: usize = known.iter().map(|(_, stored, ..)| stored).sum();
        let on_disk = stored.next_multiple_of(PAGE_BYTES);
        let mut pages = self.pages.of(on_disk);
        self.data.read_exact_at(pages, at)?;
        let mut plain = &mut self.plain[..bytes as usize];
        for (bytes, stored, nonce, tag) in known {
            let (block, pages_behind) = pages.split_at_mut(*stored);
            let (to, plain_behind) = plain.split_at_mut(*bytes);
            cipher.decrypt(nonce, &[], block, Some(tag))?;
            if stored == bytes {
                to.copy_from_slice(block);
            } else {
                self.decompressor.decompress(*codec, block, to)?;
            }
            (pages, plain) = (pages_behind, plain_behind);
        }
        Ok(on_disk as u64)
    }

    fn write_log(&mut self, bytes: u64) -> Result<u64> {
        let (stored, _) = self.pack(bytes as usize)?;
        let stored = stored.next_multiple_of(PAGE_BYTES);
        if self.log_end + stored as u64 > self.log_bytes {
            self.log_end = 0;
        }
        self.log.write_all_at(self.pages.of(stored), self.log_end)?;
        self.log_end += stored as u64;
        Ok(stored as u64)
    }

    /// Reads the log without decoding it, which is up to its reader.
    fn read_log(&mut self, bytes: u64) -> Result<u64> {
        self.log.read_exact_at(self.pages.of(bytes as usize), 0)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_shared_out_as_published() {
        let kind = |name: &str, gigabytes, blocks: &[(u64, f64)]| Kind {
            name: name.into(),
            gigabytes,
            blocks: blocks.to_vec(),
        };
        let mix = Mix {
            bytes: 64 << 20,
            data: "comments".into(),
            codecs: Vec::new(),
            bits: 128,
            slots_bytes: 1 << 20,
            seed: 7,
            kinds: vec![
                kind("data read", 1.0, &[(4096, 50.0), (65_536, 50.0)]),
                kind("log read", 0.0, &[(1 << 20, 100.0)]),
            ],
        };
        let plan = Plan::of(&mix);
        let count = |of: (usize, u64)| plan.accesses.iter().filter(|access| **access == of).count();
        assert_eq!((count((0, 4096)), count((0, 65_536)), count((1, 1 << 20))), (964, 964, 1));
        let mut ends: Vec<(u64, u64)> =
            plan.slots.iter().map(|(bytes, (start, count))| (*start, start + bytes * count)).collect();
        ends.sort_unstable();
        assert!(ends.windows(2).all(|pair| pair[0].1 == pair[1].0) && ends[0].0 == 0);
        assert_eq!(plan.largest, 1 << 20);
    }
}
