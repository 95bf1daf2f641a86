//! Segments: immutable files of parts. Each part is the image of a column chunk.
//!
//! Layout, all numbers little-endian: a header of [`ALIGNMENT`] bytes; the data of the parts, large ones at multiples
//! of [`ALIGNMENT`], so that direct I/O can read them, small ones at multiples of [`SMALL_ALIGNMENT`]; the directory,
//! which has the number, offset, lengths, checksum and head of each part; a trailer of [`ALIGNMENT`] bytes with the
//! directory's offset and checksum. A file without an intact trailer was not finished.
//!
//! In an encrypted directory the header has a random salt, from which the key of the file is derived. Each part is
//! encrypted in place and keeps its length, so that a reader decrypts it in the buffer that it was read to. The tag of
//! a part is in the segment's directory, which is encrypted as a whole and whose tag is in the trailer. The parts of a
//! table that has a key, and their heads, are encrypted under a key derived from the table's key and the salt: the key
//! of the file is not enough to read them.
//!
//! A part may be compressed block by block; its entry then has a table of blocks in place of one checksum or tag
//! (`blocks.rs`). Segments of the first formats have no such parts.
//!
//! Invariant: when [`SegmentWriter::finish`] returns, the data and the file's name are durable. Only then may a record
//! of the log refer to the segment. Example: if the name were not synced, a crash could keep the record and lose the
//! file, and the next start would find acknowledged rows missing.

use crate::blocks::{self, BlockCipher, BlockFailure, Blocks, with_scratch};
use crate::compression::CodecSelector;
use crate::encrypted::{changed, needs_key, not_encrypted};
use crate::files::{Directory, File, failed};
use crate::heads::PartHead;
use crate::keys::{Nonce, Purpose, associated, associated_of, cipher, decrypt, encrypt};
use crate::part_id::segment_name;
use crate::parts::{ByteCursor, ENCRYPTED_FORMAT, FORMAT, Part, PartStorage, is_encrypted, parts};
use crate::sealed::other_format;
use crate::table_keys::TableKey;
use farpool_cipher::{Cipher, SALT_BYTES, Salt, Secret, TAG_BYTES, WrappedKeyId, random_salt};
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{Error, ErrorKind, Result};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Alignment in bytes of large parts: the unit in which devices and file systems read.
const ALIGNMENT: usize = 4096;

/// Alignment in bytes of small parts. Padding to [`ALIGNMENT`] would be large compared with the part.
const SMALL_ALIGNMENT: usize = 64;
/// Parts with fewer bytes are small.
const SMALL_BYTES: usize = 4 * ALIGNMENT;

const HEADER_MAGIC: &[u8; 8] = b"fpsegmnt";
const TRAILER_MAGIC: &[u8; 8] = b"fpsegend";
/// Bytes of the header without the salt.
const HEADER_BYTES: usize = 28;
/// Bytes of the trailer without the tag.
const TRAILER_BYTES: usize = 40;

/// Size of the write buffer in bytes.
const WRITE_BYTES: usize = 1 << 20;

/// A segment (immutable file of parts) that is being written.
#[derive(Debug)]
pub struct SegmentWriter {
    directory: Arc<dyn Directory>,
    number: u64,
    file: Arc<dyn File>,
    parts: BTreeMap<u64, Part>,
    salt: Salt,
    /// Raw key of the file, from which `cipher` is made; `None` in a plain directory.
    key: Option<Secret>,
    cipher: Option<Cipher>,
    /// Cipher of the table whose part was added last, with the id of the table's encryption key, so that consecutive
    /// parts of a table share one key schedule.
    table: Option<(WrappedKeyId, Cipher)>,
    /// Number of parts added so far. It is the index of the next part, from which the nonce of its encryption is made.
    parts_added: u32,
    /// Bytes written to the file so far.
    written: u64,
    /// Write buffer: the bytes that follow those written.
    waiting: Vec<u8>,
}

/// A part (the image of one column chunk) to be added to a segment.
#[derive(Debug)]
pub struct NewPart<'a> {
    /// Id of the column chunk, unique within the segment.
    pub number: u64,
    /// Metadata of the column chunk (bounds, encoding and so on), which stay in memory while the segment is open.
    pub head: Vec<u8>,
    /// Expected number of bytes of the data that the callback of [`SegmentWriter::add`] appends.
    pub bytes: usize,
    /// Encryption key of the table, if the table has one. A plain directory ignores it.
    pub key: Option<&'a Arc<TableKey>>,
    /// Whether the data may be compressed. False for secret data, because compression libraries keep copies of parts of
    /// their input.
    pub may_be_packed: bool,
}

/// A segment (immutable file of parts) that is open for reading.
#[derive(Debug)]
pub struct Segment {
    name: String,
    /// Path of the data directory, for error messages.
    place: String,
    file: Arc<dyn File>,
    number: u64,
    parts: BTreeMap<u64, Part>,
    salt: Salt,
    /// Raw key of the file; `None` if the file is not encrypted. The AES key schedule is computed for each read and not
    /// kept: it takes up to 1 KiB of locked memory instead of 64 bytes, the process may lock only a few MiB, and
    /// thousands of segments are open at once.
    key: Option<Secret>,
    bytes: u64,
}

impl SegmentWriter {
    /// Creates the file of a segment. An existing file with this id is replaced: it was left unfinished by an earlier
    /// process.
    ///
    /// # Errors
    /// Errors of the file system; `OverLimit` if the process may not lock more memory for the key.
    pub fn create(directory: Arc<dyn Directory>, number: u64) -> Result<SegmentWriter> {
        let name = segment_name(number);
        let created = match directory.create(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                directory.remove(&name).and_then(|()| directory.create(&name))
            }
            created => created,
        };
        let file = created.map_err(|error| failed(&*directory, "create", &name, &error))?;
        let key = directory.keys().map(|keys| {
            let salt = random_salt()?;
            keys.derive(Purpose::Segment, &salt).map(|key| (salt, key))
        });
        let key = key.transpose()?;
        let mut waiting = Vec::with_capacity(ALIGNMENT);
        waiting.extend_from_slice(HEADER_MAGIC);
        let format = if key.is_some() { ENCRYPTED_FORMAT } else { FORMAT };
        waiting.extend_from_slice(&format.to_le_bytes());
        waiting.extend_from_slice(&[0; 4]);
        waiting.extend_from_slice(&number.to_le_bytes());
        waiting.extend(key.iter().flat_map(|(salt, _)| salt));
        waiting.extend_from_slice(&crc32fast::hash(&waiting).to_le_bytes());
        assert!(waiting.len() <= ALIGNMENT, "the header fits in front of the first part");
        waiting.resize(ALIGNMENT, 0);
        let (salt, key) = key.map_or(([0; SALT_BYTES], None), |(salt, key)| (salt, Some(key)));
        let cipher = key.as_ref().map(cipher).transpose()?;
        let (parts, table, parts_added, written) = (BTreeMap::new(), None, 0, 0);
        Ok(SegmentWriter {
            directory,
            number,
            file,
            parts,
            salt,
            key,
            cipher,
            table,
            parts_added,
            written,
            waiting,
        })
    }

    /// Returns the id of the segment.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the bytes of all parts added so far.
    pub fn bytes(&self) -> u64 {
        self.written + u64_from(self.waiting.len())
    }

    /// Adds a part. `write` must append its data to the given buffer; [`NewPart::bytes`] is their expected length.
    ///
    /// # Errors
    /// Errors of the file system. The writer must be dropped afterwards, because its buffer no longer matches the file.
    pub fn add(&mut self, part: NewPart<'_>, write: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let NewPart { number, head, bytes, key, may_be_packed } = part;
        self.turn_to(key)?;
        // The data in the buffer are aligned as they will be in the file.
        assert!(
            self.written.is_multiple_of(u64_from(ALIGNMENT)),
            "written bytes end at a unit of the device"
        );
        let small_start = self.waiting.len().next_multiple_of(SMALL_ALIGNMENT);
        let alignment = if bytes < SMALL_BYTES { SMALL_ALIGNMENT } else { ALIGNMENT };
        self.waiting.resize(self.waiting.len().next_multiple_of(alignment), 0);
        let mut start = self.waiting.len();
        write(&mut self.waiting);
        let bytes = self.waiting.len() - start;
        let storage = self.store(number, start, may_be_packed)?;
        let stored = self.waiting.len() - start;
        if bytes >= SMALL_BYTES && stored < SMALL_BYTES {
            self.waiting.copy_within(start.., small_start);
            self.waiting.truncate(small_start + stored);
            start = small_start;
        }
        let (offset, bytes, bytes_stored) =
            (self.written + u64_from(start), u64_from(bytes), u64_from(stored));
        assert!(offset.is_multiple_of(u64_from(SMALL_ALIGNMENT)), "a part begins at an aligned offset");
        assert_eq!(offset + bytes_stored, self.bytes(), "a part is the last in the segment when it is added");
        let head = self.hide(head, number)?;
        self.parts_added += 1;
        self.parts.insert(number, Part { head, bytes, bytes_stored, number, offset, storage });
        if self.waiting.len() >= WRITE_BYTES {
            self.waiting.resize(self.waiting.len().next_multiple_of(ALIGNMENT), 0);
            self.write()?;
        }
        Ok(())
    }

    /// Makes `table` the cipher of the table with this encryption key, or `None` without a key or in a plain directory.
    fn turn_to(&mut self, key: Option<&Arc<TableKey>>) -> Result<()> {
        let id = key.map(|key| key.id());
        if self.table.as_ref().map(|(id, _)| *id) != id {
            let cipher =
                |key: &Arc<TableKey>| Ok::<_, Error>((key.id(), cipher(&key.of_segment(&self.salt)?)?));
            self.table = key.filter(|_| self.cipher.is_some()).map(cipher).transpose()?;
        }
        Ok(())
    }

    /// Returns the head of part `number`, which was just stored, in the form that is kept in memory. It is encrypted
    /// under the table's key if the table has one, else under a key of this process if the directory is encrypted.
    fn hide(&self, mut head: Vec<u8>, number: u64) -> Result<PartHead> {
        if let Some((id, cipher)) = &self.table {
            let associated = associated_of(Some(*id), &[self.number, number], "head");
            let tag = encrypt(cipher, Nonce::Head(self.parts_added), &associated, &mut head)?;
            return Ok(PartHead::OfTable { tag, bytes: head.into() });
        }
        match self.directory.keys() {
            Some(keys) => PartHead::Clear(head).hidden(keys.heads()),
            None => Ok(PartHead::Clear(head)),
        }
    }

    /// Compresses and encrypts the data of a part in place; they are the buffered bytes from `start` on. Returns how
    /// they are stored. They are not compressed if `may_be_packed` is false or compression would not pay.
    fn store(&mut self, number: u64, start: usize, may_be_packed: bool) -> Result<PartStorage> {
        let (place, bytes) = (self.parts_added, self.waiting.len() - start);
        let (cipher, table) = match &self.table {
            Some((id, cipher)) => (Some(cipher), Some(*id)),
            None => (self.cipher.as_ref(), None),
        };
        with_scratch(|scratch| {
            let codec_selector =
                self.directory.codec_selector().filter(|_| may_be_packed && blocks::may_be_packed(bytes));
            let choose = |codec_selector: &CodecSelector| {
                codec_selector.choose(&*self.directory, &mut scratch.compressor, &self.waiting[start..])
            };
            if let Some(codec) = codec_selector.and_then(choose) {
                let (segment, count) = (self.number, blocks::count(bytes));
                let block_cipher = BlockCipher { cipher, table, segment, part: number, place, count };
                return Blocks::pack(codec, &block_cipher, &mut self.waiting, start, scratch)
                    .map(PartStorage::Blocks);
            }
            let data = &mut self.waiting[start..];
            let Some(cipher) = cipher else { return Ok(PartStorage::Plain(crc32fast::hash(data))) };
            let associated = associated_of(table, &[self.number, number], "part");
            Ok(PartStorage::Encrypted(place, encrypt(cipher, Nonce::Part(place), &associated, data)?))
        })
    }

    /// Writes the directory and the trailer, and makes the file and its name durable. Blocks until then.
    ///
    /// # Errors
    /// Errors of the file system. The segment is then unfinished, and no record of the log may refer to it.
    pub fn finish(mut self) -> Result<Segment> {
        self.waiting.resize(self.waiting.len().next_multiple_of(SMALL_ALIGNMENT), 0);
        let (offset, start) = (self.bytes(), self.waiting.len());
        let is_encrypted = self.cipher.is_some();
        self.parts.values().try_for_each(|part| part.encode(is_encrypted, &mut self.waiting))?;
        let directory = &mut self.waiting[start..];
        let bytes = u64_from(directory.len());
        let seal = |cipher: &Cipher| {
            let associated = associated(&[self.number, offset, bytes], "directory");
            encrypt(cipher, Nonce::Directory, &associated, directory)
        };
        let tag = self.cipher.as_ref().map(seal).transpose()?;
        let checksum = crc32fast::hash(&self.waiting[start..]);
        self.waiting.resize(self.waiting.len().next_multiple_of(ALIGNMENT), 0);
        let mut trailer = Vec::with_capacity(ALIGNMENT);
        trailer.extend_from_slice(TRAILER_MAGIC);
        trailer.extend_from_slice(&offset.to_le_bytes());
        trailer.extend_from_slice(&bytes.to_le_bytes());
        trailer.extend_from_slice(&checksum.to_le_bytes());
        trailer.extend_from_slice(&self.number.to_le_bytes());
        trailer.extend(tag.iter().flatten());
        trailer.extend_from_slice(&crc32fast::hash(&trailer).to_le_bytes());
        assert!(trailer.len() <= ALIGNMENT, "the trailer is the last unit of the file");
        trailer.resize(ALIGNMENT, 0);
        self.waiting.extend_from_slice(&trailer);
        self.write()?;
        self.file.sync().map_err(|error| self.failed(&error))?;
        self.directory.sync().map_err(|error| self.failed(&error))?;
        self.file.release();
        let place = self.directory.describe();
        assert!(self.waiting.is_empty(), "a finished segment is written as a whole");
        let (number, parts, bytes) = (self.number, self.parts, self.written);
        let (file, salt, key) = (self.file, self.salt, self.key);
        Ok(Segment { name: segment_name(number), place, file, number, parts, salt, key, bytes })
    }

    fn write(&mut self) -> Result<()> {
        assert!(self.waiting.len().is_multiple_of(ALIGNMENT), "whole units of the device are written");
        self.file.write_at(&self.waiting, self.written).map_err(|error| self.failed(&error))?;
        self.written += u64_from(self.waiting.len());
        self.waiting.clear();
        Ok(())
    }

    fn failed(&self, error: &io::Error) -> Error {
        failed(&*self.directory, "write", &segment_name(self.number), error)
    }
}

impl Segment {
    /// Opens a segment and reads its directory, which stays in memory.
    ///
    /// # Errors
    /// `Corrupt`, with the file's name, if it is corrupted or unfinished; `Invalid` if this version does not know its
    /// format; `Denied` if it is encrypted and the directory was opened without keys; those of the file system.
    pub fn open(directory: &dyn Directory, number: u64) -> Result<Segment> {
        let name = segment_name(number);
        let failed = |error: io::Error| failed(directory, "read", &name, &error);
        let damaged = |what: &str| {
            let message = format!("{name} in {} {what}", directory.describe());
            Error::corrupt(message).advise("restore the directory from a backup, or drop its tables")
        };
        let file = directory.open(&name).map_err(failed)?;
        let bytes = file.bytes().map_err(failed)?;
        if bytes < 2 * ALIGNMENT as u64 {
            return Err(damaged("is cut off"));
        }
        let mut header = [0; HEADER_BYTES + SALT_BYTES];
        file.read_at(&mut header, 0).map_err(failed)?;
        let (format, salt) = opening(&header).ok_or_else(|| damaged("is damaged at byte 0"))?;
        let key = match (is_encrypted(format), directory.keys()) {
            (Some(false), None) => None,
            (Some(false), Some(_)) => return Err(not_encrypted(directory, &name)),
            (Some(true), None) => return Err(needs_key(directory, &name)),
            (Some(true), Some(keys)) => Some(keys.derive(Purpose::Segment, &salt)?),
            (None, _) => return Err(other_format(directory, &name, format, ENCRYPTED_FORMAT)),
        };
        let mut trailer = [0; TRAILER_BYTES + TAG_BYTES];
        let trailer = match &key {
            None => &mut trailer[..TRAILER_BYTES],
            Some(_) => &mut trailer[..],
        };
        file.read_at(trailer, bytes - ALIGNMENT as u64).map_err(failed)?;
        let mut end = ByteCursor(trailer);
        if end.take(8) != Some(TRAILER_MAGIC) || !is_checked(trailer) {
            return Err(damaged(&format!(
                "is damaged at byte {}, or was not finished",
                bytes - ALIGNMENT as u64
            )));
        }
        let (offset, length) = (end.u64().unwrap_or(u64::MAX), end.u64().unwrap_or(u64::MAX));
        let (checksum, of) = (end.u32().unwrap_or_default(), end.u64());
        let is_within = offset.checked_add(length).is_some_and(|end| end <= bytes - ALIGNMENT as u64);
        if !is_within || of != Some(number) {
            return Err(damaged("has a directory that is not of this file"));
        }
        let mut contents = vec![0; usize_saturating(length)];
        file.read_at(&mut contents, offset).map_err(failed)?;
        let at_directory = || damaged(&format!("is damaged at byte {offset}"));
        if crc32fast::hash(&contents) != checksum {
            return Err(at_directory());
        }
        if let Some(key) = &key {
            let associated = associated(&[number, offset, length], "directory");
            let tag = end.tag().ok_or_else(at_directory)?;
            decrypt(&cipher(key)?, Nonce::Directory, &associated, &mut contents, &tag)
                .map_err(|error| changed(directory, &name, error))?;
        }
        let mut parts = parts(&contents, offset, format).ok_or_else(at_directory)?;
        if let Some(keys) = directory.keys() {
            for part in parts.values_mut() {
                let head = std::mem::replace(&mut part.head, PartHead::Clear(Vec::new()));
                part.head = head.hidden(keys.heads())?;
            }
        }
        let place = directory.describe();
        Ok(Segment { name: name.clone(), place, file, number, parts, salt, key, bytes })
    }

    /// Returns the length of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the part of the column chunk with this id; `None` if it is not in the segment.
    pub fn part(&self, number: u64) -> Option<&Part> {
        self.parts.get(&number)
    }

    /// Returns all parts with the ids of their column chunks, in ascending order.
    pub fn parts(&self) -> impl Iterator<Item = (u64, &Part)> {
        self.parts.iter().map(|(number, part)| (*number, part))
    }

    /// Returns the decrypted head of a part (the metadata of its column chunk). `key` is the encryption key of the
    /// part's table, if the table has one.
    ///
    /// # Errors
    /// `Corrupt`, with file and offset, if the head was tampered with or belongs to a table with another key.
    pub fn head<'a>(&self, part: &'a Part, key: Option<&Arc<TableKey>>) -> Result<Cow<'a, [u8]>> {
        let PartHead::OfTable { tag, bytes } = &part.head else { return part.head.open() };
        let (cipher, table) = self.lock(part, key).map_err(|failure| self.unread(failure))?;
        let cipher = cipher.ok_or_else(|| Error::internal("a part of a table without a cipher"))?;
        let associated = associated_of(table, &[self.number, part.number], "head");
        let mut head = bytes.to_vec();
        let opened = decrypt(&cipher, Nonce::Head(part.place()), &associated, &mut head, tag);
        opened.map_err(|error| match error.kind {
            ErrorKind::Corrupt => self.unread(BlockFailure::Damaged(part.offset)),
            _ => error,
        })?;
        Ok(Cow::Owned(head))
    }

    /// Reads the data of a part into `data`, whose length must equal the part's uncompressed length, and decrypts and
    /// decompresses them. `key` is the encryption key of the part's table, if the table has one. Blocks until the data
    /// are read.
    ///
    /// # Errors
    /// `Corrupt`, with file and offset, if the data are corrupted, were tampered with, or belong to a table with
    /// another key; errors of the file system.
    pub fn read(&self, part: &Part, key: Option<&Arc<TableKey>>, data: &mut [u8]) -> Result<()> {
        if u64_from(data.len()) != part.bytes {
            return Err(Error::internal(format!(
                "{} bytes of memory for a part of {}",
                data.len(),
                part.bytes
            )));
        }
        self.try_read(part, key, data).map_err(|failure| self.unread(failure))
    }

    /// Returns the error of a part that cannot be read.
    fn unread(&self, failure: BlockFailure) -> Error {
        let Segment { name, place, .. } = self;
        match failure {
            BlockFailure::Unread(error, at) => {
                Error::unavailable(format!("cannot read {name} in {place} at byte {at}: {error}"))
                    .advise("look at the disk and the system's log")
            }
            BlockFailure::Damaged(at) => Error::corrupt(format!("{name} in {place} is damaged at byte {at}"))
                .advise("restore the table from a backup, or drop it and load it again"),
            BlockFailure::Other(error) => error,
        }
    }

    fn try_read(
        &self,
        part: &Part,
        key: Option<&Arc<TableKey>>,
        data: &mut [u8],
    ) -> std::result::Result<(), BlockFailure> {
        let (cipher, table) = self.lock(part, key)?;
        let (cipher, segment, place) = (cipher.as_ref(), self.number, part.place());
        let count = blocks::count(data.len());
        let block_cipher = BlockCipher { cipher, table, segment, part: part.number, place, count };
        match &part.storage {
            PartStorage::Blocks(blocks) => with_scratch(|scratch| {
                blocks.unpack(&block_cipher, (&*self.file, part.offset), data, scratch)
            }),
            PartStorage::Plain(_) | PartStorage::Encrypted(..) => self.read_whole(part, &block_cipher, data),
        }
    }

    /// Returns the cipher of a part, and the id of its table's encryption key if the part is encrypted under that key.
    fn lock(
        &self,
        part: &Part,
        key: Option<&Arc<TableKey>>,
    ) -> std::result::Result<(Option<Cipher>, Option<WrappedKeyId>), BlockFailure> {
        if !part.is_of_table() {
            return Ok((self.key.as_ref().map(cipher).transpose().map_err(BlockFailure::Other)?, None));
        }
        // A wrong key cannot be distinguished from tampered data, so that a missing key is reported as corruption, too.
        let key = key.ok_or(BlockFailure::Damaged(part.offset))?;
        let secret = key.of_segment(&self.salt).map_err(BlockFailure::Other)?;
        Ok((Some(cipher(&secret).map_err(BlockFailure::Other)?), Some(key.id())))
    }

    fn read_whole(
        &self,
        part: &Part,
        block_cipher: &BlockCipher<'_>,
        data: &mut [u8],
    ) -> std::result::Result<(), BlockFailure> {
        self.file.read_at(data, part.offset).map_err(|error| BlockFailure::Unread(error, part.offset))?;
        let is_intact = match (&part.storage, block_cipher.cipher) {
            (PartStorage::Plain(checksum), None) => crc32fast::hash(data) == *checksum,
            (PartStorage::Encrypted(place, tag), Some(cipher)) => {
                let associated = associated_of(block_cipher.table, &[self.number, part.number], "part");
                match decrypt(cipher, Nonce::Part(*place), &associated, data, tag) {
                    Err(error) if error.kind == ErrorKind::Corrupt => false,
                    opened => opened.map(|()| true).map_err(BlockFailure::Other)?,
                }
            }
            (PartStorage::Plain(_), Some(_))
            | (PartStorage::Encrypted(..), None)
            | (PartStorage::Blocks(_), _) => false,
        };
        if is_intact { Ok(()) } else { Err(BlockFailure::Damaged(part.offset)) }
    }
}

/// Parses the header of a segment: returns the format and the salt, or `None` if the magic number or the checksum is
/// wrong.
///
/// Plain headers have no salt and are shorter than encrypted ones. For an unknown format the checksum may match at
/// either of the two lengths, so that the caller can report the format instead of corruption. The salt has no meaning
/// unless the format is encrypted.
fn opening(header: &[u8; HEADER_BYTES + SALT_BYTES]) -> Option<(u32, Salt)> {
    let mut cursor = ByteCursor(header);
    if cursor.take(8)? != HEADER_MAGIC {
        return None;
    }
    let format = cursor.u32()?;
    let is_encrypted = is_encrypted(format);
    let is_plain_header = is_encrypted != Some(true) && is_checked(&header[..HEADER_BYTES]);
    let is_encrypted_header = is_encrypted != Some(false) && is_checked(header);
    let salt = header[HEADER_BYTES - 4..].first_chunk()?;
    (is_plain_header || is_encrypted_header).then_some((format, *salt))
}

/// Returns whether the last four bytes are the checksum of those before them.
fn is_checked(bytes: &[u8]) -> bool {
    bytes
        .split_last_chunk()
        .is_some_and(|(front, checksum)| crc32fast::hash(front) == u32::from_le_bytes(*checksum))
}

#[cfg(test)]
#[path = "blocks_tests.rs"]
mod blocks_tests;
#[cfg(test)]
#[path = "segment_tests.rs"]
mod tests;
