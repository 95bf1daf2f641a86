//! Binary format of a file of the write-ahead log: a header followed by batches of records.
//!
//! All numbers are little-endian. A batch is the unit of one write and one sync. It begins at a multiple of
//! [`SECTOR_BYTES`], so that a torn write never damages a sector of a batch that was acknowledged before.
//!
//! Example: a batch with 3 bytes of records takes one sector, 512 bytes, and the next batch begins at the next sector.
//!
//! In an encrypted directory the file header is authenticated with a key of its own, and the records of a batch are
//! encrypted, with a seal in front of them. Each process that writes to the log generates its own salt, so that a
//! process that uses a batch number again, after the first batch with this number was torn, encrypts with another key.
//! The checksum of a batch covers the encrypted bytes, so that a torn batch (wrong checksum) is distinguished from a
//! tampered one (right checksum, wrong tag).

use crate::keys::{Keys, Nonce, Purpose, SEAL_BYTES, Seal, associated, cipher, decrypt, encrypt};
use farpool_cipher::{Cipher, Salt, random_salt};
use farpool_model::cast::{u32_checked, u64_from};
use farpool_model::{Error, Result};

/// Bytes of the smallest unit that a device writes (sector).
pub(super) const SECTOR_BYTES: usize = 512;

/// Bytes of the file header, padded with zeros.
pub(super) const HEADER_BYTES: usize = SECTOR_BYTES;

/// Bytes of a batch header.
pub(super) const BATCH_HEADER_BYTES: usize = 40;

const FILE_MAGIC: [u8; 8] = *b"farpool\n";
const BATCH_MAGIC: [u8; 4] = *b"fplb";
const FORMAT: u32 = 1;
pub(super) const ENCRYPTED_FORMAT: u32 = 2;

/// Bytes of the file header before the seal (salt and tag), which only an encrypted log has, and the checksum.
const NUMBERS_BYTES: usize = 48;

/// The header of a file of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    /// Random id of the log, generated when the log was created.
    pub log: u64,
    /// Sequence number of the first batch in the file. Batches are numbered consecutively over all files of a log.
    pub first_batch: u64,
    /// Sequence number of the first record in the file. Records, too, are numbered consecutively over all files of a
    /// log.
    pub first_record: u64,
    /// Offset of the end of the last batch in the previous file; 0 in the first file of a log.
    pub previous_end: u64,
    /// Length of the file, a multiple of [`SECTOR_BYTES`], which is reserved before the first batch is written. 0 in
    /// files of older versions, which did not store it.
    pub file_bytes: u64,
}

/// Result of decoding the first bytes of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DecodedFileHeader {
    /// A valid header, with its seal (salt and tag) if the log is encrypted.
    Header(FileHeader, Option<Seal>),
    /// A file of a newer version of farpool, with its format.
    Format(u32),
    /// The file has no valid header: it is corrupted, or was never written.
    Nothing,
}

impl FileHeader {
    /// Encodes the header of the file with sequence number `file`.
    pub fn encode(&self, keys: Option<&Keys>, file: u64) -> Result<[u8; HEADER_BYTES]> {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&FILE_MAGIC);
        let format = if keys.is_some() { ENCRYPTED_FORMAT } else { FORMAT };
        bytes[8..12].copy_from_slice(&format.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.sectors().to_le_bytes());
        let numbers = [self.log, self.first_batch, self.first_record, self.previous_end];
        for (place, number) in bytes[16..NUMBERS_BYTES].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let mut end = NUMBERS_BYTES;
        if let Some(keys) = keys {
            let seal = keys.seal(Purpose::LogFile, &self.associated(file), &mut [])?;
            end += SEAL_BYTES;
            bytes[NUMBERS_BYTES..end].copy_from_slice(&seal.encode());
        }
        let checksum = crc32fast::hash(&bytes[..end]);
        bytes[end..end + 4].copy_from_slice(&checksum.to_le_bytes());
        Ok(bytes)
    }

    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> DecodedFileHeader {
        let is_checked = |end: usize| crc32fast::hash(&bytes[..end]) == u32_at(bytes, end);
        let (is_plain, is_sealed) = (is_checked(NUMBERS_BYTES), is_checked(NUMBERS_BYTES + SEAL_BYTES));
        if bytes[..8] != FILE_MAGIC || !is_plain && !is_sealed {
            return DecodedFileHeader::Nothing;
        }
        let header = FileHeader {
            log: u64_at(bytes, 16),
            first_batch: u64_at(bytes, 24),
            first_record: u64_at(bytes, 32),
            previous_end: u64_at(bytes, 40),
            file_bytes: u64::from(u32_at(bytes, 12)) * u64_from(SECTOR_BYTES),
        };
        match u32_at(bytes, 8) {
            FORMAT if is_plain => DecodedFileHeader::Header(header, None),
            ENCRYPTED_FORMAT if is_sealed => {
                let seal = Seal::split(&bytes[NUMBERS_BYTES..]).map(|(seal, _)| seal);
                DecodedFileHeader::Header(header, seal)
            }
            FORMAT | ENCRYPTED_FORMAT => DecodedFileHeader::Nothing,
            other => DecodedFileHeader::Format(other),
        }
    }

    /// Checks that the header is authentic and belongs to the file with sequence number `file`.
    ///
    /// # Errors
    /// `Corrupt` if it was tampered with or belongs to another file.
    pub fn check(&self, keys: &Keys, seal: &Seal, file: u64) -> Result<()> {
        keys.open(Purpose::LogFile, &self.associated(file), seal, &mut [])
    }

    fn sectors(&self) -> u32 {
        u32::try_from(self.file_bytes / u64_from(SECTOR_BYTES)).unwrap_or(0)
    }

    fn associated(&self, file: u64) -> Vec<u8> {
        let mut numbers = vec![file, self.log, self.first_batch, self.first_record, self.previous_end];
        if self.sectors() > 0 {
            numbers.push(self.sectors().into());
        }
        associated(&numbers, "header")
    }
}

/// The header of a batch (the records of one write).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchHeader {
    pub log: u64,
    pub batch: u64,
    pub records: u32,
    /// Bytes of the payload: the seal (salt and tag), if the log is encrypted, and the records, each after its length.
    pub bytes: u32,
    /// CRC-32 of the payload.
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

    /// Decodes a header; `None` if the bytes are corrupted or not a batch header.
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

    fn associated(&self, file: u64) -> Vec<u8> {
        associated(&[file, self.log, self.batch, u64::from(self.records)], "batch")
    }

    /// Returns the bytes of the batch with its header, rounded up to whole sectors.
    pub fn whole_bytes(&self) -> u64 {
        whole_bytes(self.bytes as usize)
    }
}

/// Encrypts the batches that one process writes to a log.
#[derive(Debug)]
pub(super) struct BatchEncryptor {
    salt: Salt,
    cipher: Cipher,
    /// Lowest sequence number of a batch that may still be encrypted. A second batch with the same number would reuse a
    /// nonce.
    next_batch: u64,
}

impl BatchEncryptor {
    pub fn new(keys: &Keys) -> Result<BatchEncryptor> {
        let salt = random_salt()?;
        let cipher = cipher(&keys.derive(Purpose::LogBatches, &salt)?)?;
        Ok(BatchEncryptor { salt, cipher, next_batch: 0 })
    }

    /// Encrypts the records of a batch; the first [`SEAL_BYTES`] of `payload` receive the seal. Runs before the
    /// checksum in `header` is computed.
    pub fn seal(&mut self, header: &BatchHeader, file: u64, payload: &mut [u8]) -> Result<()> {
        if header.batch < self.next_batch {
            return Err(Error::internal(format!("batch {} of the log is written twice", header.batch)));
        }
        self.next_batch = header.batch + 1;
        let Some((front, records)) = payload.split_first_chunk_mut::<SEAL_BYTES>() else {
            return Err(Error::internal("a batch without room for its seal"));
        };
        let tag = encrypt(&self.cipher, Nonce::Batch(header.batch), &header.associated(file), records)?;
        *front = Seal { salt: self.salt, tag }.encode();
        Ok(())
    }
}

/// Decrypts the batches of an encrypted log, and checks that they are authentic.
#[derive(Debug, Default)]
pub(super) struct BatchDecryptor {
    /// Salt and cipher of the previous batch, because all batches written by one process share a salt.
    latest: Option<(Salt, Cipher)>,
    /// Buffer for the decrypted records of the current batch.
    records: Vec<u8>,
}

impl BatchDecryptor {
    /// Decrypts the records of a batch whose checksum is right.
    ///
    /// # Errors
    /// `Corrupt` if they were tampered with.
    pub fn open<'a>(
        &'a mut self,
        keys: &Keys,
        header: &BatchHeader,
        file: u64,
        payload: &[u8],
    ) -> Result<&'a [u8]> {
        let (seal, records) = Seal::split(payload).ok_or_else(|| Error::corrupt("a seal that is cut off"))?;
        let latest = self.latest.take().filter(|(salt, _)| *salt == seal.salt);
        let (_, cipher) = match latest {
            Some(latest) => self.latest.insert(latest),
            None => {
                let cipher = cipher(&keys.derive(Purpose::LogBatches, &seal.salt)?)?;
                self.latest.insert((seal.salt, cipher))
            }
        };
        self.records.clear();
        self.records.extend_from_slice(records);
        decrypt(cipher, Nonce::Batch(header.batch), &header.associated(file), &mut self.records, &seal.tag)?;
        Ok(&self.records)
    }
}

/// Returns the bytes that a batch with a payload of `payload_bytes` takes in its file.
pub(super) fn whole_bytes(payload_bytes: usize) -> u64 {
    u64_from((BATCH_HEADER_BYTES + payload_bytes).next_multiple_of(SECTOR_BYTES))
}

/// Returns the largest payload whose batch takes at most `bytes` of the file.
pub(super) fn payload_bytes(bytes: u64) -> u64 {
    (bytes - bytes % u64_from(SECTOR_BYTES)).saturating_sub(u64_from(BATCH_HEADER_BYTES))
}

/// Returns the bytes that a record takes in its batch.
pub(super) fn record_bytes(length: usize) -> usize {
    4 + length
}

/// Appends a record, preceded by its length, to the payload of a batch.
pub(super) fn push_record(payload: &mut Vec<u8>, record: &[u8]) {
    payload.extend_from_slice(&u32_checked(record.len()).to_le_bytes());
    payload.extend_from_slice(record);
}

/// Splits the payload of a batch into records; `None` if it is corrupted or has another number of records than the
/// batch header says.
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
