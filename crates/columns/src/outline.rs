//! Outline of a chunk: its type, sizes and encoding, from which a handle can be created that has no values.
//!
//! A *handle* is a chunk whose values may be evicted from memory and read again. An *image* is a chunk as bytes on
//! disk or in a message; its head has the metadata.

use crate::body::EncodingKind;
use crate::bytes::{HeadPrefix, Image, Reader, read_head_prefix};
use crate::chunk::Chunk;
use crate::zone::ZoneMap;
use arrow_schema::DataType;
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::limits::{MESSAGE_BYTES_MAX, ROW_GROUP_ROWS};
use farpool_model::{Error, Result, schema};

/// Type, sizes and encoding of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outline {
    pub data_type: DataType,
    pub rows: usize,
    pub bytes_plain: usize,
    pub bytes_encoded: usize,
    pub kind: EncodingKind,
    /// Minimum and maximum of bit-packed integers; `None` if they are encrypted.
    pub integers: Option<(i64, i64)>,
    /// Number of dictionary entries; `None` if it is encrypted.
    pub distinct: Option<usize>,
}

impl Outline {
    pub fn of(chunk: &Chunk) -> Outline {
        Outline {
            data_type: chunk.data_type().clone(),
            rows: chunk.rows(),
            bytes_plain: chunk.bytes_plain(),
            bytes_encoded: chunk.bytes_encoded(),
            kind: chunk.encoding(),
            integers: chunk.integer_bounds().filter(|_| !chunk.is_encrypted()),
            distinct: chunk.dictionary_len().filter(|_| !chunk.is_encrypted()),
        }
    }

    /// Encodes the outline with the minimum and maximum in `zone`, for [`Outline::read`].
    pub fn write(&self, zone: &ZoneMap) -> Vec<u8> {
        let mut image = Image::opening(&self.data_type, self.rows, zone, self.bytes_plain);
        let out = &mut image.head;
        out.extend(u64_from(self.bytes_encoded).to_le_bytes());
        out.push(self.kind.code());
        out.push(u8::from(self.integers.is_some()));
        for bound in self.integers.iter().flat_map(|(min, max)| [min, max]) {
            out.extend(bound.to_le_bytes());
        }
        out.push(u8::from(self.distinct.is_some()));
        out.extend(self.distinct.iter().flat_map(|distinct| u64_from(*distinct).to_le_bytes()));
        image.head
    }

    /// Decodes the output of [`Outline::write`].
    ///
    /// # Errors
    /// `Corrupt` for bytes that are not an outline.
    pub fn read(bytes: &[u8]) -> Result<(Outline, ZoneMap)> {
        let reader = &mut Reader::new(bytes);
        let HeadPrefix { data_type, rows, zone, bytes_plain } = read_head_prefix(reader)?;
        let bytes_encoded = length(reader)?;
        let kind = EncodingKind::of_code(reader.byte()?)?;
        let integers = match reader.byte()? {
            0 => None,
            _ => Some((i64::from_le_bytes(reader.array()?), i64::from_le_bytes(reader.array()?))),
        };
        let distinct = match reader.byte()? {
            0 => None,
            _ => Some(length(reader)?),
        };
        let is_too_large =
            bytes_encoded > MESSAGE_BYTES_MAX || distinct.is_some_and(|distinct| distinct > ROW_GROUP_ROWS);
        if !reader.is_empty() || is_too_large {
            return Err(Error::corrupt("an outline of more than a chunk may have"));
        }
        Ok((Outline { data_type, rows, bytes_plain, bytes_encoded, kind, integers, distinct }, zone))
    }

    /// Decodes the outline and the zone map from the head of an image.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not those of a head.
    pub fn of_head(head: &[u8]) -> Result<(Outline, ZoneMap)> {
        let reader = &mut Reader::new(head);
        let HeadPrefix { data_type, rows, zone, bytes_plain } = read_head_prefix(reader)?;
        let mut bytes = match reader.byte()? {
            0 => 0,
            _ => length(reader)?,
        };
        let kind = EncodingKind::of_code(reader.byte()?)?;
        let (mut integers, mut distinct) = (None, None);
        match kind {
            EncodingKind::Constant => {
                bytes += 16;
                if reader.byte()? == 0 {
                    match schema::is_bytes(&data_type) {
                        true => bytes = bytes.saturating_add(length(reader)?).saturating_add(length(reader)?),
                        false => drop(reader.text()?),
                    }
                }
            }
            EncodingKind::Plain => bytes = bytes.saturating_add(length(reader)?),
            EncodingKind::BitPacked => integers = Some(packed(reader, &mut bytes)?),
            EncodingKind::Dictionary => {
                let views = length(reader)?;
                bytes = bytes.saturating_add(views).saturating_add(length(reader)?);
                packed(reader, &mut bytes)?;
                distinct = Some(views / size_of::<u128>());
            }
            EncodingKind::PlainBytes => {
                ends(reader, &mut bytes)?;
                bytes = bytes.saturating_add(length(reader)?);
            }
            EncodingKind::Fsst => {
                bytes = bytes.saturating_add(reader.text()?.len()).saturating_add(reader.text()?.len());
                ends(reader, &mut bytes)?;
                packed(reader, &mut bytes)?;
                bytes = bytes.saturating_add(length(reader)?);
            }
        }
        if !reader.is_empty() {
            return Err(Error::corrupt("the head of a chunk with more than its parts"));
        }
        Ok((Outline { data_type, rows, bytes_plain, bytes_encoded: bytes, kind, integers, distinct }, zone))
    }
}

/// Reads the length of a buffer.
fn length(reader: &mut Reader<'_>) -> Result<usize> {
    Ok(usize_saturating(u64::from_le_bytes(reader.array()?)))
}

/// Reads a bit-packed sequence: returns its minimum and maximum, and adds its length to `bytes`.
fn packed(reader: &mut Reader<'_>, bytes: &mut usize) -> Result<(i64, i64)> {
    let bounds = (i64::from_le_bytes(reader.array()?), i64::from_le_bytes(reader.array()?));
    *bytes = bytes.saturating_add(length(reader)?);
    Ok(bounds)
}

fn ends(reader: &mut Reader<'_>, bytes: &mut usize) -> Result<()> {
    *bytes = bytes.saturating_add(length(reader)?);
    packed(reader, bytes).map(|_| ())
}
