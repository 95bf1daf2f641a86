//! Fuzz body that opens segments (files of column chunks) whose directories are untrusted, with valid checksums.

use farpool_disk::{Directory, Segment, SimulatedDirectory, segment_name};
use std::sync::Arc;

/// Alignment of parts and of the end of a file (`crates/disk/src/segment.rs`).
const ALIGNMENT: usize = 4096;

/// Maximal plain bytes of a part that is read.
const READ_BYTES_MAX: u64 = 4 << 20;

/// Opens a segment: the first byte is the format, the next two are the number of data bytes that follow; the remaining
/// bytes are the directory. Every part of a segment that opens is read: the announced number of bytes, or an error.
pub fn segment_reader(data: &[u8]) {
    let Some(([format, low, high], rest)) = data.split_first_chunk::<3>() else { return };
    let (data, entries) = rest.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(rest.len()));
    let directory = SimulatedDirectory::new();
    let file = directory.create(&segment_name(1)).expect("there is none of the name");
    file.write_at(&file_bytes(if format % 2 == 0 { 1 } else { 3 }, data, entries), 0)
        .expect("nothing fails here");
    let Ok(segment) = Segment::open(&*(Arc::clone(&directory) as Arc<dyn Directory>), 1) else { return };
    for (_, part) in segment.parts() {
        // The sizes in a directory are bounded by the size of the directory.
        assert!(part.bytes <= (entries.len() as u64) << 16 || part.bytes == part.bytes_stored, "{part:?}");
        if part.bytes <= READ_BYTES_MAX {
            let mut plain = vec![0; part.bytes as usize];
            let _ = segment.read(part, None, &mut plain);
        }
    }
}

/// Returns a file with these data and this directory.
fn file_bytes(format: u32, data: &[u8], entries: &[u8]) -> Vec<u8> {
    let with_checksum = |mut bytes: Vec<u8>| {
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        bytes
    };
    let mut header = b"fpsegmnt".to_vec();
    header.extend_from_slice(&u64::from(format).to_le_bytes());
    header.extend_from_slice(&1_u64.to_le_bytes());
    let mut file = with_checksum(header);
    file.resize(ALIGNMENT, 0);
    file.extend_from_slice(data);
    let mut trailer = b"fpsegend".to_vec();
    for number in [file.len() as u64, entries.len() as u64] {
        trailer.extend_from_slice(&number.to_le_bytes());
    }
    trailer.extend_from_slice(&crc32fast::hash(entries).to_le_bytes());
    trailer.extend_from_slice(&1_u64.to_le_bytes());
    file.extend_from_slice(entries);
    file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
    file.extend_from_slice(&with_checksum(trailer));
    file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
    file
}

/// Returns the input that yields the file of a segment.
#[cfg(test)]
pub(crate) fn seed_of(file: &[u8]) -> Vec<u8> {
    let trailer = &file[file.len() - ALIGNMENT..];
    let number = |at: usize| u64::from_le_bytes(trailer[at..at + 8].try_into().unwrap()) as usize;
    let (offset, length) = (number(8), number(16));
    let data = &file[ALIGNMENT..offset];
    let mut seed = vec![u8::from(file[8] == 3)];
    seed.extend_from_slice(&u16::try_from(data.len()).unwrap().to_le_bytes());
    seed.extend_from_slice(data);
    seed.extend_from_slice(&file[offset..offset + length]);
    assert!(
        file_bytes(u32::from(file[8]), data, &file[offset..offset + length]) == file,
        "the same file is made"
    );
    seed
}
