//! The bytes of a log file: a header, and batches of records behind it.
//!
//! All numbers are little-endian. A batch is what one write and one sync made durable. It begins at a multiple of
//! [`SECTOR_BYTES`], so that a write never touches a sector of a batch that was acknowledged before.

use farpool_model::cast::{u32_checked, u64_from};

/// Bytes that a device writes at once, at least.
pub(super) const SECTOR_BYTES: usize = 512;

/// Bytes of the header of a file, with zeros behind it.
pub(super) const HEADER_BYTES: usize = SECTOR_BYTES;

/// Bytes of the header of a batch.
pub(super) const BATCH_HEADER_BYTES: usize = 40;

const FILE_MAGIC: [u8; 8] = *b"farpool\n";
const BATCH_MAGIC: [u8; 4] = *b"fplb";
const FORMAT: u32 = 1;

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    /// Which log it is part of: a number drawn when the directory was made.
    pub log: u64,
    /// Number of its first batch; all batches of a log are numbered one after the other.
    pub first_batch: u64,
    /// Number of its first record, likewise.
    pub first_record: u64,
    /// Where the last batch of the file before ends; 0 in the first file of a log.
    pub previous_end: u64,
}

/// What the first bytes of a file are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opening {
    Header(FileHeader),
    /// A format of another version of farpool.
    Format(u32),
    /// Damaged, or never written.
    Nothing,
}

impl FileHeader {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&FILE_MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        let numbers = [self.log, self.first_batch, self.first_record, self.previous_end];
        for (place, number) in bytes[16..48].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let checksum = crc32fast::hash(&bytes[..48]);
        bytes[48..52].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Opening {
        if bytes[..8] != FILE_MAGIC || crc32fast::hash(&bytes[..48]) != u32_at(bytes, 48) {
            return Opening::Nothing;
        }
        match u32_at(bytes, 8) {
            FORMAT => Opening::Header(FileHeader {
                log: u64_at(bytes, 16),
                first_batch: u64_at(bytes, 24),
                first_record: u64_at(bytes, 32),
                previous_end: u64_at(bytes, 40),
            }),
            other => Opening::Format(other),
        }
    }
}

/// The header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchHeader {
    pub log: u64,
    pub batch: u64,
    pub records: u32,
    /// Bytes of the records with their lengths.
    pub bytes: u32,
    /// Checksum of these.
    pub checksum: u32,
}

impl BatchHeader {
    pub fn encode(&self) -> [u8; BATCH_HEADER_BYTES] {
        let mut bytes = [0; BATCH_HEADER_BYTES];
        bytes[..4].copy_from_slice(&BATCH_MAGIC);
        bytes[8..16].copy_from_slice(&self.log.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.batch.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.records.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.checksum.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[8..]);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// `None` where the bytes are damaged, or none of a header.
    pub fn decode(bytes: &[u8]) -> Option<BatchHeader> {
        let bytes = bytes.get(..BATCH_HEADER_BYTES)?;
        if bytes[..4] != BATCH_MAGIC || crc32fast::hash(&bytes[8..]) != u32_at(bytes, 4) {
            return None;
        }
        Some(BatchHeader {
            log: u64_at(bytes, 8),
            batch: u64_at(bytes, 16),
            records: u32_at(bytes, 24),
            bytes: u32_at(bytes, 28),
            checksum: u32_at(bytes, 32),
        })
    }

    /// Bytes of the batch with its header, and zeros up to the end of the last sector.
    pub fn whole_bytes(&self) -> u64 {
        whole_bytes(self.bytes as usize)
    }
}

/// Bytes that a batch of so many bytes of records takes in its file.
pub(super) fn whole_bytes(payload_bytes: usize) -> u64 {
    u64_from((BATCH_HEADER_BYTES + payload_bytes).next_multiple_of(SECTOR_BYTES))
}

/// Bytes that a record takes in its batch.
pub(super) fn record_bytes(length: usize) -> usize {
    4 + length
}

/// Adds a record to the bytes of a batch.
pub(super) fn push_record(payload: &mut Vec<u8>, record: &[u8]) {
    payload.extend_from_slice(&u32_checked(record.len()).to_le_bytes());
    payload.extend_from_slice(record);
}

/// The records of a batch whose checksum is right; `None` where they are not as many as its header says.
pub(super) fn records(mut payload: &[u8], count: u32) -> Option<Vec<&[u8]>> {
    let mut records = Vec::new();
    while let Some((length, rest)) = payload.split_at_checked(4) {
        let (record, rest) = rest.split_at_checked(u32_at(length, 0) as usize)?;
        records.push(record);
        payload = rest;
    }
    (payload.is_empty() && records.len() == count as usize).then_some(records)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
