//! Tests of parts of a segment file that are compressed in blocks: corrupted, swapped and missing blocks, and false
//! lengths in the table of blocks.

use super::tests::part as new_part;
use super::*;
use crate::blocks::BLOCK_BYTES;
use crate::compression::{CompressionPolicy, compressing};
use crate::encrypted::tests::with_keys;
use crate::simulated::SimulatedDirectory;
use farpool_codec::Codec;
use farpool_model::limits;

/// A pseudo-random number generator (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Generates `bytes` bytes of 64-bit words of which only `bits` bits are random, so that fewer bits compress
    /// better.
    fn words(&mut self, bytes: usize, bits: u32) -> Vec<u8> {
        let mask = u64::MAX.checked_shr(64 - bits).unwrap_or(0);
        (0..bytes.div_ceil(8)).flat_map(|_| (self.next() & mask).to_le_bytes()).take(bytes).collect()
    }
}

/// Writes a segment with these parts, numbered from 0; returns the simulated disk, the directory and the segment.
fn segment_of(
    parts: &[Vec<u8>],
    codec: Codec,
    is_encrypted: bool,
) -> (Arc<SimulatedDirectory>, Arc<dyn Directory>, Segment) {
    let device = SimulatedDirectory::new();
    let directory: Arc<dyn Directory> = if is_encrypted { with_keys(device.clone()) } else { device.clone() };
    let directory = compressing(directory, CompressionPolicy::By(codec));
    let mut writer = SegmentWriter::create(directory.clone(), 7).unwrap();
    for (number, part) in (0..).zip(parts) {
        let new = new_part(number, vec![5; 9], part.len(), None);
        writer.add(new, |out| out.extend_from_slice(part)).unwrap();
    }
    let segment = writer.finish().unwrap();
    (device, directory, segment)
}

fn read(segment: &Segment, part: &Part) -> Result<Vec<u8>> {
    let mut data = vec![1; part.bytes as usize];
    segment.read(part, None, &mut data).map(|()| data)
}

fn table(part: &mut Part) -> &mut Blocks {
    match &mut part.storage {
        PartStorage::Blocks(blocks) => blocks,
        other => panic!("{other:?}"),
    }
}

#[test]
fn parts_of_all_kinds_come_back() {
    let mut random = Random(1);
    for codec in Codec::ALL {
        for is_encrypted in [false, true] {
            let sizes =
                [1, 2, 100, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 5 * BLOCK_BYTES + 77, 2 << 20];
            let mut parts = vec![Vec::new()];
            for bytes in sizes {
                parts.push(vec![0; bytes]);
                for bits in [8, 30, 64] {
                    parts.push(random.words(bytes, bits));
                }
                // A part with compressible and incompressible blocks in random order.
                let mixed = |_| {
                    if random.below(2) == 0 {
                        random.words(BLOCK_BYTES, 64)
                    } else {
                        random.words(BLOCK_BYTES, 20)
                    }
                };
                parts.push((0..bytes.div_ceil(BLOCK_BYTES)).flat_map(mixed).take(bytes).collect());
            }
            let (_, directory, written) = segment_of(&parts, codec, is_encrypted);
            let opened = Segment::open(&*directory, 7).unwrap();
            assert_eq!(written.parts, opened.parts);
            for (number, part) in opened.parts() {
                let expected = &parts[number as usize];
                assert!(read(&opened, part).unwrap() == *expected, "{codec}, part {number}");
                assert!(part.bytes == expected.len() as u64 && part.bytes_stored <= part.bytes);
                let is_large = part.bytes_stored >= SMALL_BYTES as u64;
                let alignment = if is_large { ALIGNMENT } else { SMALL_ALIGNMENT };
                assert!(part.offset.is_multiple_of(alignment as u64));
            }
            // A part of zeros takes almost no space, and a part of noise no more than its length.
            let stored = |number: u64| opened.part(number).unwrap().bytes_stored;
            assert!(stored(36) < 20_000 && stored(39) == 2 << 20, "{} {}", stored(36), stored(39));
        }
    }
}

/// Generates a part of four blocks, the second of them incompressible.
fn four_blocks(random: &mut Random) -> Vec<u8> {
    let mut data = vec![b'a'; BLOCK_BYTES];
    data.extend(random.words(BLOCK_BYTES, 64));
    data.extend(vec![b'b'; BLOCK_BYTES]);
    data.extend(b"the end ".repeat(90));
    data
}

#[test]
fn damage_of_any_block_is_found() {
    let data = four_blocks(&mut Random(2));
    for codec in Codec::ALL {
        for is_encrypted in [false, true] {
            let (device, directory, segment) = segment_of(std::slice::from_ref(&data), codec, is_encrypted);
            let part = segment.part(0).unwrap();
            let (start, end) = (part.offset as usize, (part.offset + part.bytes_stored) as usize);
            // Flips a bit at a sample of offsets (most are within the incompressible block), and at all near the ends.
            for at in (start..end)
                .filter(|at| end - start < 4000 || at % 61 == 0 || at - start < 300 || end - at < 300)
            {
                device.flip(&segment_name(7), at, 1 << (at % 8));
                let error = read(&segment, part).unwrap_err();
                assert!(
                    error.kind == ErrorKind::Corrupt && error.message.contains("is damaged at byte"),
                    "{error}"
                );
                device.flip(&segment_name(7), at, 1 << (at % 8));
            }
            assert!(read(&segment, part).unwrap() == data);
            drop(directory);
        }
    }
}

#[test]
fn encrypted_blocks_are_neither_exchanged_nor_left_out() {
    let mut random = Random(3);
    // Three equal blocks, so that their plain contents and stored lengths do not reveal an exchange.
    let data = random.words(BLOCK_BYTES, 30).repeat(3);
    for codec in Codec::ALL {
        let (device, _directory, segment) = segment_of(&[data.clone(), data.clone()], codec, true);
        let entry_bytes = Blocks::entry_bytes(true);
        let part = segment.part(0).unwrap().clone();
        let stored = part.bytes_stored as usize / 3;
        let file = device.open(&segment_name(7)).unwrap();
        let mut before = vec![0; part.bytes_stored as usize];
        file.read_at(&mut before, part.offset).unwrap();
        assert!(before[..stored] != before[stored..2 * stored], "equal blocks look different");
        let refused = |part: &Part, stored: &[u8]| {
            file.write_at(stored, part.offset).unwrap();
            let error = read(&segment, part).unwrap_err();
            assert!(error.kind == ErrorKind::Corrupt && error.message.contains("damaged at byte"), "{error}");
            file.write_at(&before, part.offset).unwrap();
        };
        // Swaps the first two blocks; then puts the first block in place of the second.
        let mut exchanged = before.clone();
        exchanged.rotate_left(stored);
        let mut other = part.clone();
        table(&mut other).table.rotate_left(entry_bytes);
        refused(&other, &exchanged);
        let mut repeated = before.clone();
        repeated.copy_within(..stored, stored);
        let mut other = part.clone();
        table(&mut other).table.copy_within(..entry_bytes, entry_bytes);
        refused(&other, &repeated);
        // Removes the last block from the table and the lengths.
        let mut other = part.clone();
        table(&mut other).table.truncate(2 * entry_bytes);
        (other.bytes, other.bytes_stored) = (2 * BLOCK_BYTES as u64, 2 * stored as u64);
        assert!(table(&mut other).clone().fit(other.bytes, other.bytes_stored, true));
        refused(&other, &before[..2 * stored]);
        // Puts the blocks and the table of another part in place of those of this part.
        let second = segment.part(1).unwrap().clone();
        let mut theirs = vec![0; before.len()];
        file.read_at(&mut theirs, second.offset).unwrap();
        refused(&Part { storage: second.storage.clone(), ..part.clone() }, &theirs);
        assert!(read(&segment, &part).unwrap() == data && read(&segment, &second).unwrap() == data);
    }
}

/// False lengths in a directory are rejected before anything is read.
#[test]
fn lengths_that_are_lies_are_refused() {
    let mut random = Random(4);
    for is_encrypted in [false, true] {
        let data = random.words(3 * BLOCK_BYTES + 5, 20);
        let (_, _directory, segment) = segment_of(&[data], Codec::Zstd, is_encrypted);
        let format = if is_encrypted { ENCRYPTED_FORMAT } else { FORMAT };
        let good = segment.part(0).unwrap().clone();
        let decoded = |part: &Part, end: u64| {
            let mut bytes = Vec::new();
            part.encode(is_encrypted, &mut bytes).unwrap();
            parts(&bytes, end, format)
        };
        let end = good.offset + good.bytes_stored;
        assert_eq!(decoded(&good, end), Some([(0, good.clone())].into()));
        assert_eq!(decoded(&good, end - 1), None);
        for bytes in [0, 1, good.bytes - 6, good.bytes + (1 << 20), 1 << 40, u64::MAX] {
            assert_eq!(decoded(&Part { bytes, ..good.clone() }, end), None, "{bytes}");
        }
        for bytes_stored in [0, good.bytes_stored - 1, good.bytes_stored + 1, u64::MAX] {
            assert_eq!(decoded(&Part { bytes_stored, ..good.clone() }, u64::MAX), None, "{bytes_stored}");
        }
        assert_eq!(decoded(&Part { offset: u64::MAX, ..good.clone() }, u64::MAX), None);
        // A block with a stored length of 0, or greater than its plain length, in a part whose total is right.
        for first in [0, BLOCK_BYTES as u32 + 1] {
            let mut other = good.clone();
            let old = u32::from_le_bytes(table(&mut other).table[..4].try_into().unwrap());
            table(&mut other).table[..4].copy_from_slice(&first.to_le_bytes());
            other.bytes_stored = other.bytes_stored - u64::from(old) + u64::from(first);
            assert_eq!(decoded(&other, u64::MAX), None);
        }
        // An uncompressed part has equal plain and stored lengths.
        let plain = Part { storage: PartStorage::Plain(7), bytes: 9, bytes_stored: 8, ..good.clone() };
        assert_eq!(decoded(&plain, u64::MAX), None);
    }
    // A tiny part whose table claims very many blocks.
    let entries = limits::PACKED_PART_BYTES_MAX / BLOCK_BYTES + 1;
    let blocks = Blocks { codec: Codec::Zstd, place: 0, table: [15, 0, 0, 0, 1, 2, 3, 4].repeat(entries) };
    let bytes = (entries * BLOCK_BYTES) as u64;
    assert!(!blocks.fit(bytes, 15 * entries as u64, false));
    let fewer = Blocks { table: blocks.table[8..].to_vec(), ..blocks };
    assert!(fewer.fit(bytes - BLOCK_BYTES as u64, 15 * (entries as u64 - 1), false));
}

/// Blocks with right checksums that decompress to another length than they should.
#[test]
fn blocks_of_other_lengths_are_errors() {
    for codec in Codec::ALL {
        let (device, _directory, segment) = segment_of(&[vec![0; BLOCK_BYTES]], codec, false);
        let file = device.open(&segment_name(7)).unwrap();
        let good = segment.part(0).unwrap();
        for plain in [BLOCK_BYTES / 2, 2 * BLOCK_BYTES, 64 * BLOCK_BYTES] {
            let mut bomb = Vec::new();
            assert!(farpool_codec::Compressor::new().compress(
                codec,
                &vec![0; plain],
                BLOCK_BYTES - 1,
                &mut bomb
            ));
            file.write_at(&bomb, good.offset).unwrap();
            let mut part = Part { bytes_stored: bomb.len() as u64, ..good.clone() };
            let (length, checksum) = (bomb.len() as u32, crc32fast::hash(&bomb));
            table(&mut part).table = [length.to_le_bytes(), checksum.to_le_bytes()].concat();
            assert!(table(&mut part).clone().fit(part.bytes, part.bytes_stored, false));
            let error = read(&segment, &part).unwrap_err();
            assert!(error.kind == ErrorKind::Corrupt && error.message.contains("damaged"), "{error}");
        }
    }
}

#[test]
fn memory_of_another_length_is_refused() {
    let (_, _directory, segment) = segment_of(&[vec![3; 1000]], Codec::Lz4, false);
    let part = segment.part(0).unwrap();
    for bytes in [0, 999, 1001] {
        assert_eq!(segment.read(part, None, &mut vec![0; bytes]).unwrap_err().kind, ErrorKind::Internal);
    }
}
