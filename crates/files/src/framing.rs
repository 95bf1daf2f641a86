//! Checks of the framing of Arrow IPC files and streams before they are passed to the Arrow reader.
//!
//! The Arrow reader trusts the sizes stated in a file and allocates accordingly; a corrupted size would abort the
//! process, which no caller can catch. The check reads only metadata: the messages' headers and, for compressed
//! buffers, the eight bytes that state their uncompressed size.
//!
//! Invariant: after `Ok` every message and every buffer is within the file, and no stated size exceeds what
//! [`limits::IPC_BUFFER_BYTES_MAX`] and 32-bit row counts allow. (Arrow columnar format, "Serialization and
//! interprocess communication".)

use super::ipc::Kind;
use super::parquet::types::has_wide_integer;
use arrow_ipc::{Block, Message, MessageHeader, RecordBatch as BatchHeader};
use arrow_schema::ArrowError;
use farpool_model::{brief, cast, limits};
use std::io::{Read, Seek, SeekFrom};

/// The marker before each message of the current format.
const CONTINUATION: [u8; 4] = [0xff; 4];

type Result<T> = std::result::Result<T, ArrowError>;

/// Checks a file of `bytes` bytes; returns the number of its rows.
pub(super) fn walk(file: &mut (impl Read + Seek), bytes: u64, kind: Kind) -> Result<u64> {
    let mut walk = Walk { file, bytes, rows: 0 };
    match kind {
        Kind::File => walk.file()?,
        Kind::Stream => walk.stream()?,
    }
    Ok(walk.rows)
}

struct Walk<'a, R> {
    file: &'a mut R,
    bytes: u64,
    rows: u64,
}

impl<R: Read + Seek> Walk<'_, R> {
    fn file(&mut self) -> Result<()> {
        let end = self.bytes.checked_sub(10).ok_or_else(|| broken("it is too short"))?;
        let mut tail = [0; 10];
        self.read_at(end, &mut tail)?;
        let footer_bytes = cast::u64_from(arrow_ipc::reader::read_footer_length(tail)?);
        let start = end.checked_sub(footer_bytes).ok_or_else(|| broken("its footer is cut off"))?;
        let footer = self.read_vec(start, footer_bytes)?;
        let footer = arrow_ipc::root_as_footer(&footer).map_err(|e| broken(&e.to_string()))?;
        readable(footer.schema())?;
        for block in footer.dictionaries().into_iter().flatten() {
            self.block(block, false)?;
        }
        for block in footer.recordBatches().into_iter().flatten() {
            self.block(block, true)?;
        }
        Ok(())
    }

    fn block(&mut self, block: &Block, counts: bool) -> Result<()> {
        let start = unsigned(block.offset())?;
        let metadata_bytes = unsigned(i64::from(block.metaDataLength()))?;
        let body_bytes = unsigned(block.bodyLength())?;
        let metadata = self.read_vec(start, metadata_bytes)?;
        let message = match metadata.strip_prefix(&CONTINUATION) {
            Some(rest) => rest.get(4..),
            None => metadata.get(4..),
        };
        let message = message.ok_or_else(|| broken("a message is cut off"))?;
        self.message(message, start + metadata_bytes, body_bytes, counts)
    }

    fn stream(&mut self) -> Result<()> {
        let mut position = 0;
        while position < self.bytes {
            let mut word = [0; 4];
            self.read_at(position, &mut word)?;
            position += 4;
            if word == CONTINUATION {
                self.read_at(position, &mut word)?;
                position += 4;
            }
            let metadata_bytes = unsigned(i64::from(i32::from_le_bytes(word)))?;
            if metadata_bytes == 0 {
                return Ok(());
            }
            let metadata = self.read_vec(position, metadata_bytes)?;
            position += metadata_bytes;
            let body_bytes = arrow_ipc::root_as_message(&metadata).map_err(|e| broken(&e.to_string()))?;
            let body_bytes = unsigned(body_bytes.bodyLength())?;
            self.message(&metadata, position, body_bytes, true)?;
            position += body_bytes;
        }
        Ok(())
    }

    fn message(&mut self, message: &[u8], body_start: u64, body_bytes: u64, counts: bool) -> Result<()> {
        self.check_range(body_start, body_bytes)?;
        let message = arrow_ipc::root_as_message(message).map_err(|e| broken(&e.to_string()))?;
        readable(message.header_as_schema())?;
        if let Some(batch) = batch_header(&message) {
            self.batch(&batch, body_start, body_bytes)?;
        }
        if counts && message.header_type() == MessageHeader::RecordBatch {
            self.rows += message.header_as_record_batch().map_or(0, |batch| batch.length().unsigned_abs());
        }
        Ok(())
    }

    fn batch(&mut self, batch: &BatchHeader<'_>, body_start: u64, body_bytes: u64) -> Result<()> {
        i32::try_from(batch.length())
            .ok()
            .filter(|rows| *rows >= 0)
            .ok_or_else(|| broken("it has too many rows"))?;
        let buffers = batch.buffers().into_iter().flatten();
        let mut count = 0;
        for buffer in buffers {
            count += 1;
            let (start, length) = (unsigned(buffer.offset())?, unsigned(buffer.length())?);
            if start.checked_add(length).is_none_or(|end| end > body_bytes) {
                return Err(broken("a buffer lies outside its message"));
            }
            if batch.compression().is_some() && length > 0 {
                let mut size = [0; 8];
                self.read_at(body_start + start, &mut size)?;
                // The size -1 marks a buffer that is not compressed.
                if !(-1..=limits::IPC_BUFFER_BYTES_MAX).contains(&i64::from_le_bytes(size)) {
                    return Err(broken("a buffer's uncompressed size is out of bounds"));
                }
            }
        }
        match batch.variadicBufferCounts().into_iter().flatten().find(|n| !(0..=count).contains(n)) {
            Some(_) => Err(broken("a column has more buffers than its message")),
            None => Ok(()),
        }
    }

    fn check_range(&self, start: u64, bytes: u64) -> Result<()> {
        match start.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(broken("a message reaches beyond the end of the file")),
        }
    }

    fn read_at(&mut self, start: u64, buffer: &mut [u8]) -> Result<()> {
        self.check_range(start, cast::u64_from(buffer.len()))?;
        self.file.seek(SeekFrom::Start(start))?;
        Ok(self.file.read_exact(buffer)?)
    }

    fn read_vec(&mut self, start: u64, bytes: u64) -> Result<Vec<u8>> {
        self.check_range(start, bytes)?;
        let mut buffer = vec![0; cast::usize_saturating(bytes)];
        self.read_at(start, &mut buffer)?;
        Ok(buffer)
    }
}

/// Reads the first message of a stream, which has the columns, and returns its bytes.
pub(super) fn first_message(from: &mut impl Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut more = |bytes: &mut Vec<u8>, count: u64| from.take(count).read_to_end(bytes).map(drop);
    more(&mut bytes, 4)?;
    if bytes == CONTINUATION {
        more(&mut bytes, 4)?;
    }
    let length = bytes.last_chunk().map_or(0, |word| i32::from_le_bytes(*word));
    let start = bytes.len();
    more(&mut bytes, unsigned(i64::from(length))?)?;
    let message = arrow_ipc::root_as_message(&bytes[start..]).map_err(|e| broken(&e.to_string()))?;
    readable(message.header_as_schema())?;
    Ok(bytes)
}

/// Checks that the Arrow reader supports the columns' types, because it panics at integers of 128 bits, as Polars
/// writes them.
fn readable(schema: Option<arrow_ipc::Schema<'_>>) -> Result<()> {
    let fields = schema.and_then(|schema| schema.fields());
    match fields.into_iter().flatten().find(has_wide_integer) {
        None => Ok(()),
        Some(field) => {
            let name = field.name().map(brief).unwrap_or_default();
            Err(ArrowError::NotYetImplemented(format!("column {name:?} has 128-bit integers")))
        }
    }
}

fn batch_header<'a>(message: &Message<'a>) -> Option<BatchHeader<'a>> {
    match message.header_type() {
        MessageHeader::RecordBatch => message.header_as_record_batch(),
        MessageHeader::DictionaryBatch => message.header_as_dictionary_batch()?.data(),
        _ => None,
    }
}

fn unsigned(stated: i64) -> Result<u64> {
    u64::try_from(stated).map_err(|_| broken("a stated size is negative"))
}

fn broken(what: &str) -> ArrowError {
    ArrowError::IpcError(what.to_string())
}
