//! Chunks whose values are encrypted in memory.
//!
//! An encrypted chunk has in the clear only its type, its sizes and its number of NULLs. Its values, with the
//! dictionary or symbol table of their encoding, are one message encrypted with the key of the table
//! ([`MemoryCipher`]). Its minimum and maximum, which planning and zone map checks need, are another message, which is
//! short and is decrypted on each use. A worker decrypts values from the pool into its own memory
//! ([`RowGroup::with_values`](crate::RowGroup::with_values)), which should stay in its CPU cache, and frees that memory
//! when it has finished the row group.

use crate::arena::{ALIGNMENT, Arena};
use crate::body::{Body, EncodingKind};
use crate::bytes::{Image, Reader};
use crate::chunk::Chunk;
use crate::zone::ZoneMap;
use arrow_array::{Array, ArrayRef, BinaryViewArray, StringViewArray};
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_schema::DataType;
use farpool_cipher::{MemoryCipher, MessageTag, wipe_freed_memory};
use farpool_memory::{Pool, Tenure};
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{Error, Result, TenantName, Tier};
use std::sync::Arc;

/// Maximum size of a dictionary, in bytes of its array's buffers, that is stored next to a chunk's minimum and maximum.
/// Planning reads the dictionaries of all row groups, so small ones are kept where it finds them without the chunk's
/// values.
pub(crate) const DICTIONARY_BYTES_MAX: usize = 512;

/// Encrypted minimum, maximum and other properties of a chunk that planning needs ([`DecryptedBounds`]).
#[derive(Debug)]
pub(crate) struct EncryptedBounds {
    cipher: Arc<MemoryCipher>,
    message_tag: MessageTag,
    bytes: Box<[u8]>,
}

/// Decrypted contents of [`EncryptedBounds`].
#[derive(Clone, Debug, Default)]
pub(crate) struct DecryptedBounds {
    /// Minimum and maximum. The number of NULLs is 0 here: it is no secret, so the chunk has it in the clear.
    pub zone: ZoneMap,
    /// Minimum and maximum of a bit-packed chunk, as integers.
    pub integers: Option<(i64, i64)>,
    /// Number of dictionary entries, if the chunk is dictionary-encoded.
    pub distinct: Option<usize>,
    /// Dictionary entries, if they take at most [`DICTIONARY_BYTES_MAX`].
    pub dictionary: Option<ArrayRef>,
}

/// Encrypted values of a chunk: the head and the data of its image ([`Image`]), with the data at an offset that is a
/// multiple of [`ALIGNMENT`].
#[derive(Clone, Debug)]
pub(crate) struct EncryptedValues {
    message_tag: MessageTag,
    kind: EncodingKind,
    head_bytes: usize,
    pub bytes: Buffer,
}

/// Creates a cipher for the chunks of one table in memory. From then on the whole process overwrites memory when it
/// frees it, because freed memory may contain decrypted values.
///
/// # Errors
/// As [`MemoryCipher::new`].
pub fn table_cipher(tier: Tier) -> Result<Arc<MemoryCipher>> {
    wipe_freed_memory();
    MemoryCipher::new(tier)
}

impl EncryptedBounds {
    /// Encrypts `open`, the properties of one chunk, with `cipher`.
    pub fn new(cipher: &Arc<MemoryCipher>, open: &DecryptedBounds) -> Result<Arc<EncryptedBounds>> {
        let mut out = Image::default();
        out.bound(open.zone.min.as_ref());
        out.bound(open.zone.max.as_ref());
        let mut number = |number: Option<u64>| match number {
            Some(number) => {
                out.head.push(1);
                out.head.extend_from_slice(&number.to_le_bytes());
            }
            None => out.head.push(0),
        };
        number(open.integers.map(|(min, _)| min.cast_unsigned()));
        number(open.integers.map(|(_, max)| max.cast_unsigned()));
        number(open.distinct.map(u64_from));
        number(open.dictionary.as_ref().map(|dictionary| u64_from(dictionary.len())));
        for value in open.dictionary.iter().flat_map(|dictionary| crate::views::slices(dictionary)) {
            out.text(value);
        }
        let mut bytes = out.head.into_boxed_slice();
        let message_tag = cipher.encrypt(&mut bytes)?;
        Ok(Arc::new(EncryptedBounds { cipher: cipher.clone(), message_tag, bytes }))
    }

    /// Decrypts the properties; `data_type` must be the type of the chunk.
    pub fn open(&self, data_type: &DataType) -> Result<DecryptedBounds> {
        let mut bytes = vec![0; self.bytes.len()];
        self.cipher.decrypt(&self.message_tag, &self.bytes, &mut bytes)?;
        let mut reader = Reader::new(&bytes);
        let (min, max) = (reader.bound(data_type)?, reader.bound(data_type)?);
        let mut number = || match reader.byte()? {
            0 => Ok(None),
            _ => Ok(Some(u64::from_le_bytes(reader.array()?))),
        };
        let (least, greatest) = (number()?, number()?);
        let (distinct, count) = (number()?, number()?);
        let texts = (0..count.unwrap_or(0)).map(|_| reader.text()).collect::<Result<Vec<_>>>()?;
        let dictionary = count.map(|_| array_of(&texts, data_type)).transpose()?;
        Ok(DecryptedBounds {
            zone: ZoneMap { min, max, null_count: 0 },
            integers: least.zip(greatest).map(|(min, max)| (min.cast_signed(), max.cast_signed())),
            distinct: distinct.map(usize_saturating),
            dictionary,
        })
    }

    /// Returns the cipher of the chunk's table.
    pub fn cipher(&self) -> &Arc<MemoryCipher> {
        &self.cipher
    }

    /// Returns the bytes of heap memory that this takes.
    pub fn bytes_held(&self) -> usize {
        size_of::<EncryptedBounds>() + self.bytes.len()
    }
}

impl DecryptedBounds {
    fn of(chunk: &Chunk) -> DecryptedBounds {
        let dictionary = chunk.dictionary().map(|dictionary| dictionary.values());
        let is_small = |values: &&ArrayRef| values.get_buffer_memory_size() <= DICTIONARY_BYTES_MAX;
        DecryptedBounds {
            zone: chunk.zone().into_owned(),
            integers: chunk.integer_bounds(),
            distinct: chunk.dictionary_len(),
            dictionary: dictionary.filter(is_small).cloned(),
        }
    }
}

/// Returns strings or binaries, the entries of a dictionary, as an array of `data_type`.
fn array_of(values: &[&[u8]], data_type: &DataType) -> Result<ArrayRef> {
    if *data_type != DataType::Utf8View {
        return Ok(Arc::new(BinaryViewArray::from_iter_values(values)));
    }
    let texts =
        values.iter().map(|value| std::str::from_utf8(value)).collect::<std::result::Result<Vec<_>, _>>();
    let texts = texts.map_err(|_| Error::corrupt("a dictionary with a string that is not UTF-8"))?;
    Ok(Arc::new(StringViewArray::from_iter_values(texts)))
}

impl EncryptedValues {
    pub fn kind(&self) -> EncodingKind {
        self.kind
    }
}

impl Chunk {
    /// Encrypts the chunk; the result is on the heap, not in the pool.
    ///
    /// # Errors
    /// As [`Chunk::check_intact`]; `Invalid` where it is encrypted already.
    pub(crate) fn encrypted(self, cipher: &Arc<MemoryCipher>) -> Result<Chunk> {
        if self.is_encrypted() {
            return Err(Error::internal("a chunk is encrypted twice"));
        }
        let facts = EncryptedBounds::new(cipher, &DecryptedBounds::of(&self))?;
        let image = self.to_image()?;
        let head_bytes = image.head.len();
        let mut bytes = Vec::with_capacity(head_bytes.next_multiple_of(ALIGNMENT) + image.data_bytes());
        bytes.extend_from_slice(&image.head);
        bytes.resize(head_bytes.next_multiple_of(ALIGNMENT), 0);
        image.write_data(&mut bytes);
        let message_tag = cipher.encrypt(&mut bytes)?;
        let hidden =
            EncryptedValues { message_tag, kind: self.encoding(), head_bytes, bytes: Buffer::from(bytes) };
        let zone = ZoneMap { null_count: self.null_count(), ..ZoneMap::default() };
        let body = Body::nulls(self.data_type());
        let chunk = Chunk::new(self.data_type().clone(), self.rows(), None, zone, body, self.bytes_plain());
        Ok(chunk.with_hidden(hidden).with_facts(facts))
    }

    /// Decrypts the chunk into heap memory; `None` if it is not encrypted. If decryption fails because the bytes were
    /// tampered with, the returned chunk reports that error to whoever reads its values.
    pub(crate) fn opened(&self) -> Option<Chunk> {
        let (hidden, facts) = (self.hidden()?, self.facts()?);
        let opened = hidden.open(facts.cipher());
        Some(opened.unwrap_or_else(|error| {
            let zone = ZoneMap { null_count: self.null_count(), ..ZoneMap::default() };
            let body = Body::nulls(self.data_type());
            Chunk::new(self.data_type().clone(), self.rows(), None, zone, body, self.bytes_plain())
                .with_damage(error)
        }))
    }

    /// Returns the same chunk with other encrypted bytes.
    #[cfg(test)]
    pub(crate) fn with_other_bytes(&self, bytes: Buffer) -> Chunk {
        let (hidden, facts) = (self.hidden().unwrap(), self.facts().unwrap());
        let zone = ZoneMap { null_count: self.null_count(), ..ZoneMap::default() };
        let body = Body::nulls(self.data_type());
        let EncryptedValues { message_tag, kind, head_bytes, .. } = *hidden;
        Chunk::new(self.data_type().clone(), self.rows(), None, zone, body, self.bytes_plain())
            .with_hidden(EncryptedValues { message_tag, kind, head_bytes, bytes })
            .with_facts(facts.clone())
    }

    /// Returns whether the values are encrypted in memory. For a handle: whether they will be once they are in memory.
    pub fn is_encrypted(&self) -> bool {
        self.facts().is_some()
    }

    /// Returns the cipher of an encrypted chunk; `None` for other chunks.
    pub fn cipher(&self) -> Option<&Arc<MemoryCipher>> {
        self.facts().map(|facts| facts.cipher())
    }
}

impl EncryptedValues {
    fn open(&self, cipher: &MemoryCipher) -> Result<Chunk> {
        let mut data = MutableBuffer::from_len_zeroed(self.bytes.len());
        cipher.decrypt(&self.message_tag, &self.bytes, &mut data)?;
        let bytes: Buffer = data.into();
        let start = self.head_bytes.next_multiple_of(ALIGNMENT);
        let data = bytes.slice_with_length(start, bytes.len() - start);
        Chunk::from_own_image(&bytes[..self.head_bytes], &data).map(Chunk::passing)
    }
}

/// Encrypts a chunk and places it in the pool for `tenant`.
///
/// # Errors
/// `OverLimit` when memory is short; as [`Chunk::check_intact`].
pub fn encrypt_into_pool(
    pool: &Arc<Pool>,
    tenant: &TenantName,
    tenure: Tenure,
    cipher: &Arc<MemoryCipher>,
    chunk: Chunk,
) -> Result<Arc<Chunk>> {
    let arena = Arena::new(Arc::clone(pool), tenant.clone());
    let placed = arena.place_together(vec![chunk.encrypted(cipher)?], tenure)?;
    placed.into_iter().next().ok_or_else(|| Error::internal("a chunk that was not placed"))
}
