//! Segments: immutable files of parts, each of them the image of a column chunk.
//!
//! Layout, all numbers little-endian: a header of [`ALIGNMENT`] bytes; the data of the parts, large ones at multiples of
//! [`ALIGNMENT`], so that they can be read past the system's cache, small ones at multiples of [`SMALL_ALIGNMENT`]; the
//! directory, which has for each part its number, place,
//! checksum and head; a trailer of [`ALIGNMENT`] bytes with the directory's place and checksum. A file without a whole
//! trailer was not finished.
//!
//! Invariant: [`SegmentWriter::finish`] returns after everything is durable, the file's name included.

use crate::files::{Directory, File, failed};
use crate::sealed::other_format;
use farpool_model::cast::{u32_checked, u64_from, usize_saturating};
use farpool_model::{Error, Result};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Large parts begin at a multiple of this: what devices and file systems read at once.
const ALIGNMENT: usize = 4096;

/// Small parts begin at a multiple of this: what is left free before a large one is a fraction of it.
const SMALL_ALIGNMENT: usize = 64;
const SMALL_BYTES: usize = 4 * ALIGNMENT;

const HEADER_MAGIC: &[u8; 8] = b"fpsegmnt";
const TRAILER_MAGIC: &[u8; 8] = b"fpsegend";
const FORMAT: u32 = 1;

/// Bytes of an entry of the directory without its head.
const ENTRY_BYTES: usize = 32;

/// Bytes that are collected before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// The name of the file of a segment.
pub fn segment_name(number: u64) -> String {
    format!("segment-{number:012}")
}

/// The number of the segment whose file has this name.
pub fn segment_number(name: &str) -> Option<u64> {
    name.strip_prefix("segment-")?.parse().ok()
}

/// A part of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What the part is, apart from its data.
    pub head: Vec<u8>,
    /// Bytes of its data.
    pub bytes: u64,
    offset: u64,
    checksum: u32,
}

/// A segment that is being written.
#[derive(Debug)]
pub struct SegmentWriter {
    directory: Arc<dyn Directory>,
    number: u64,
    file: Arc<dyn File>,
    parts: BTreeMap<u64, Part>,
    /// Written so far, and what comes next.
    written: u64,
    waiting: Vec<u8>,
}

/// A segment that can be read.
#[derive(Debug)]
pub struct Segment {
    name: String,
    place: String,
    file: Arc<dyn File>,
    parts: BTreeMap<u64, Part>,
    bytes: u64,
}

impl SegmentWriter {
    /// Creates the file of a segment; one of the same number that is there is from a process that did not finish it, and
    /// is replaced.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(directory: Arc<dyn Directory>, number: u64) -> Result<SegmentWriter> {
        let name = segment_name(number);
        let created = match directory.create(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                directory.remove(&name).and_then(|()| directory.create(&name))
            }
            created => created,
        };
        let file = created.map_err(|error| failed(&*directory, "create", &name, &error))?;
        let mut header = Vec::with_capacity(ALIGNMENT);
        header.extend_from_slice(HEADER_MAGIC);
        header.extend_from_slice(&FORMAT.to_le_bytes());
        header.extend_from_slice(&[0; 4]);
        header.extend_from_slice(&number.to_le_bytes());
        header.extend_from_slice(&crc32fast::hash(&header).to_le_bytes());
        header.resize(ALIGNMENT, 0);
        Ok(SegmentWriter { directory, number, file, parts: BTreeMap::new(), written: 0, waiting: header })
    }

    /// The number of the segment.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Bytes of the parts so far.
    pub fn bytes(&self) -> u64 {
        self.written + u64_from(self.waiting.len())
    }

    /// Adds a part with a number that none before has; `write` appends its data, of `bytes` bytes, to what it is given.
    ///
    /// # Errors
    /// Those of the file system: the segment can only be dropped then.
    pub fn add(
        &mut self,
        number: u64,
        head: Vec<u8>,
        bytes: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<()> {
        // What was written ends at a multiple of the larger alignment.
        let alignment = if bytes < SMALL_BYTES { SMALL_ALIGNMENT } else { ALIGNMENT };
        self.waiting.resize(self.waiting.len().next_multiple_of(alignment), 0);
        let (offset, start) = (self.bytes(), self.waiting.len());
        write(&mut self.waiting);
        let data = &self.waiting[start..];
        let (bytes, checksum) = (u64_from(data.len()), crc32fast::hash(data));
        self.parts.insert(number, Part { head, bytes, offset, checksum });
        if self.waiting.len() >= WRITE_BYTES {
            self.waiting.resize(self.waiting.len().next_multiple_of(ALIGNMENT), 0);
            self.write()?;
        }
        Ok(())
    }

    /// Completes the segment and makes it durable.
    ///
    /// # Errors
    /// Those of the file system; the segment does not count then.
    pub fn finish(mut self) -> Result<Segment> {
        self.waiting.resize(self.waiting.len().next_multiple_of(SMALL_ALIGNMENT), 0);
        let (offset, start) = (self.bytes(), self.waiting.len());
        for (number, part) in &self.parts {
            for number in [*number, part.offset, part.bytes] {
                self.waiting.extend_from_slice(&number.to_le_bytes());
            }
            self.waiting.extend_from_slice(&part.checksum.to_le_bytes());
            self.waiting.extend_from_slice(&u32_checked(part.head.len()).to_le_bytes());
            self.waiting.extend_from_slice(&part.head);
        }
        let directory = &self.waiting[start..];
        let (bytes, checksum) = (u64_from(directory.len()), crc32fast::hash(directory));
        self.waiting.resize(self.waiting.len().next_multiple_of(ALIGNMENT), 0);
        let mut trailer = Vec::with_capacity(ALIGNMENT);
        trailer.extend_from_slice(TRAILER_MAGIC);
        trailer.extend_from_slice(&offset.to_le_bytes());
        trailer.extend_from_slice(&bytes.to_le_bytes());
        trailer.extend_from_slice(&checksum.to_le_bytes());
        trailer.extend_from_slice(&self.number.to_le_bytes());
        trailer.extend_from_slice(&crc32fast::hash(&trailer).to_le_bytes());
        trailer.resize(ALIGNMENT, 0);
        self.waiting.extend_from_slice(&trailer);
        self.write()?;
        self.file.sync().map_err(|error| self.failed(&error))?;
        self.directory.sync().map_err(|error| self.failed(&error))?;
        let place = self.directory.describe();
        let (name, bytes) = (segment_name(self.number), self.written);
        Ok(Segment { name, place, file: self.file, parts: self.parts, bytes })
    }

    fn write(&mut self) -> Result<()> {
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
    /// Opens a segment and reads its directory.
    ///
    /// # Errors
    /// `Corrupt`, with the file's name, where it is damaged or was not finished; `Invalid` where it has another format;
    /// those of the file system.
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
        let (mut header, mut trailer) = ([0; 28], [0; 40]);
        file.read_at(&mut header, 0).map_err(failed)?;
        file.read_at(&mut trailer, bytes - ALIGNMENT as u64).map_err(failed)?;
        let (mut fields, mut end) = (Fields(&header), Fields(&trailer));
        if fields.take(8) != Some(HEADER_MAGIC) || crc32fast::hash(&header[..24]) != u32_of(&header[24..]) {
            return Err(damaged("is damaged at byte 0"));
        }
        match fields.u32() {
            Some(FORMAT) => {}
            format => return Err(other_format(directory, &name, format.unwrap_or_default())),
        }
        if end.take(8) != Some(TRAILER_MAGIC) || crc32fast::hash(&trailer[..36]) != u32_of(&trailer[36..]) {
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
        let parts = (crc32fast::hash(&contents) == checksum).then(|| parts(&contents, offset)).flatten();
        let parts = parts.ok_or_else(|| damaged(&format!("is damaged at byte {offset}")))?;
        Ok(Segment { name: name.clone(), place: directory.describe(), file, parts, bytes })
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The part of a number.
    pub fn part(&self, number: u64) -> Option<&Part> {
        self.parts.get(&number)
    }

    /// The parts and their numbers.
    pub fn parts(&self) -> impl Iterator<Item = (u64, &Part)> {
        self.parts.iter().map(|(number, part)| (*number, part))
    }

    /// Reads the data of a part into `data`, which has their length.
    ///
    /// # Errors
    /// `Corrupt`, with file and offset, where they are damaged; those of the file system.
    pub fn read(&self, part: &Part, data: &mut [u8]) -> Result<()> {
        let Segment { name, place, .. } = self;
        self.file.read_at(data, part.offset).map_err(|error| {
            Error::unavailable(format!("cannot read {name} in {place} at byte {}: {error}", part.offset))
                .advise("look at the disk and the system's log")
        })?;
        match crc32fast::hash(data) == part.checksum {
            true => Ok(()),
            false => Err(Error::corrupt(format!("{name} in {place} is damaged at byte {}", part.offset))
                .advise("restore the table from a backup, or drop it and load it again")),
        }
    }
}

/// The entries of a directory at `end`, before which all data lie.
fn parts(directory: &[u8], end: u64) -> Option<BTreeMap<u64, Part>> {
    let (mut fields, mut parts) = (Fields(directory), BTreeMap::new());
    while fields.0.len() >= ENTRY_BYTES {
        let (number, offset, bytes) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (checksum, head_bytes) = (fields.u32()?, fields.u32()?);
        let head = fields.take(head_bytes as usize)?.to_vec();
        if offset.checked_add(bytes)? > end {
            return None;
        }
        parts.insert(number, Part { head, bytes, offset, checksum });
    }
    fields.0.is_empty().then_some(parts)
}

/// Bytes that are taken apart from the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(front)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4).map(u32_of)
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}

fn u32_of(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::SimulatedDirectory;
    use farpool_model::ErrorKind;

    /// Sizes of the data: none, small ones on both sides of a block, and a large one.
    const SIZES: [usize; 6] = [0, 1, 4095, 4097, SMALL_BYTES, 3 << 20];

    fn data(number: u64) -> Vec<u8> {
        let bytes = SIZES[number as usize];
        (0..bytes).map(|i| (i as u64 * 31 + number) as u8).collect()
    }

    fn written(parts: usize) -> Arc<SimulatedDirectory> {
        let directory = SimulatedDirectory::new();
        let mut writer = SegmentWriter::create(directory.clone(), 7).unwrap();
        for number in 0..parts as u64 {
            let write = |out: &mut Vec<u8>| out.extend(data(number));
            writer.add(number, vec![number as u8; 3 * number as usize], data(number).len(), write).unwrap();
        }
        writer.finish().unwrap();
        directory
    }

    /// Reads everything, and returns the first error.
    fn read(directory: &SimulatedDirectory, parts: usize) -> Result<()> {
        let segment = Segment::open(directory, 7)?;
        assert_eq!(segment.parts().count(), parts);
        for (number, part) in segment.parts() {
            assert_eq!(part.head, vec![number as u8; 3 * number as usize]);
            let mut bytes = vec![0; part.bytes as usize];
            segment.read(part, &mut bytes)?;
            assert!(bytes == data(number), "part {number}");
        }
        Ok(())
    }

    #[test]
    fn parts_are_found_again_after_power_was_lost() {
        let directory = written(SIZES.len());
        read(&directory, SIZES.len()).unwrap();
        directory.crash(1);
        read(&directory, SIZES.len()).unwrap();
    }

    #[test]
    fn damage_anywhere_is_found() {
        let directory = written(5);
        let bytes = directory.open(&segment_name(7)).unwrap().bytes().unwrap();
        let mut harmless = 0;
        for at in 0..bytes {
            directory.flip(&segment_name(7), at as usize, 1 << (at % 8));
            match read(&directory, 5) {
                // Padding.
                Ok(()) => harmless += 1,
                Err(error) => {
                    let place = format!("{} in", segment_name(7));
                    assert!(error.message.contains(&place), "{error}");
                    assert!([ErrorKind::Corrupt, ErrorKind::Invalid].contains(&error.kind), "{error}");
                }
            }
            directory.flip(&segment_name(7), at as usize, 1 << (at % 8));
        }
        assert!(harmless < 4 * ALIGNMENT, "{harmless}");
        read(&directory, 5).unwrap();
    }

    #[test]
    fn a_segment_that_was_not_finished_is_told() {
        let directory = SimulatedDirectory::new();
        let mut writer = SegmentWriter::create(directory.clone(), 7).unwrap();
        writer.add(0, vec![1], 2 << 20, |out| out.resize(2 << 20, 5)).unwrap();
        drop(writer);
        assert!(Segment::open(&*directory, 7).unwrap_err().message.contains("was not finished"));
        assert_eq!(segment_number(&segment_name(7)), Some(7));
        // Its number is used again by whoever comes next.
        SegmentWriter::create(directory.clone(), 7).unwrap().finish().unwrap();
        assert_eq!(Segment::open(&*directory, 7).unwrap().parts().count(), 0);
    }
}
