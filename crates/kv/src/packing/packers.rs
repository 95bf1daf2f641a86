//! The packers (compressors) with which the compressed values of a table were made.
//!
//! A packed (compressed) value begins with the number of its packer in the table (1 byte) and its plain length (2
//! bytes); the compressed bytes follow. A new dictionary makes a new packer. Invariant: a number is not reused as long
//! as an entry, or a cut (point-in-time view), may refer to it. Example: an entry was packed by packer 0; then a
//! dictionary is trained, which makes packer 1. If the new packer got the number 0, the old entry would be decompressed
//! with the wrong dictionary.

use super::{PLAIN_PER_BYTE, Packer, damaged};
use crate::entry::{Entry, entry_bytes};
use crate::slab::slot_bytes;
use farpool_model::Result;
use farpool_model::limits::KV_PACKED_BYTES_MAX;
use std::borrow::Cow;
use std::sync::Arc;

/// Bytes of a packed value before the output of the codec.
const HEAD_BYTES: usize = 3;

/// Maximum number of packers to which entries of a table may refer, as a number has one byte.
const PACKERS: usize = 256;

const _: () = assert!(KV_PACKED_BYTES_MAX <= u16::MAX as usize);

/// The packers (compressors with dictionaries) of a table, by number.
#[derive(Default)]
pub(crate) struct Packers {
    /// The packer for new values; `number` is its number, given when it has packed a value.
    current: Option<Arc<Packer>>,
    number: Option<u8>,
    known: Unpackers,
    /// Number of entries that were packed by each packer, by number.
    entries: Vec<usize>,
    buffer: Vec<u8>,
}

/// A shared handle to the packers of a table, with which values can be decompressed without the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unpackers(Arc<Vec<Arc<Packer>>>);

/// A packed value that is not stored yet: its bytes, and how many bytes to allocate for it.
pub(crate) struct PackedValue {
    pub bytes: Vec<u8>,
    pub room: usize,
}

impl Packers {
    /// Returns the packer (compressor) for new values; `None` if they are not compressed.
    pub fn current(&self) -> Option<&Arc<Packer>> {
        self.current.as_ref()
    }

    /// Sets the packer for new values; returns whether it differs from the previous one.
    pub fn set_current(&mut self, packer: Option<&Arc<Packer>>) -> bool {
        let is_same = match (&self.current, packer) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new) || old.is_like(new),
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            (self.current, self.number) = (packer.cloned(), None);
        }
        !is_same
    }

    /// Returns whether the table may have packed entries.
    pub fn has_some(&self) -> bool {
        !self.known.0.is_empty()
    }

    /// Returns the handle for decompression.
    pub fn unpackers(&self) -> &Unpackers {
        &self.known
    }

    /// Returns whether an entry is packed, and by another packer than the current one.
    pub fn is_old(&self, entry: Entry<'_>) -> bool {
        entry.is_packed() && entry.stored().first().copied() != self.number
    }

    /// Packs a value if its entry then fits a smaller size class; otherwise returns `None`. `keeps` says that numbers
    /// of packers without entries must not be reused, because a cut may refer to them. The result must be passed to
    /// [`Packers::packed`], which counts it.
    pub fn pack(
        &mut self,
        key_bytes: usize,
        plain: &[u8],
        expires: bool,
        keeps: bool,
    ) -> Option<PackedValue> {
        let slot = slot_bytes(entry_bytes(key_bytes, plain.len(), expires));
        let least = slot_bytes(entry_bytes(key_bytes, HEAD_BYTES + 1, expires));
        if plain.len() > KV_PACKED_BYTES_MAX || least >= slot {
            return None;
        }
        let number = self.number_of_current(keeps)?;
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.clear();
        bytes.push(number);
        bytes.extend_from_slice(&(plain.len() as u16).to_le_bytes());
        let packer = self.current.as_ref()?;
        let is_packed = packer.pack(plain, plain.len().saturating_sub(HEAD_BYTES + 1), &mut bytes);
        let room = room_of(bytes.len(), plain.len());
        if !is_packed || slot_bytes(entry_bytes(key_bytes, room, expires)) >= slot {
            self.buffer = bytes;
            return None;
        }
        Some(PackedValue { bytes, room })
    }

    /// Takes back the buffer of a result of [`Packers::pack`]. `is_put` says whether the value was stored in an entry,
    /// which is then counted.
    pub fn packed(&mut self, packed: PackedValue, is_put: bool) {
        if let Some(number) = packed.bytes.first().filter(|_| is_put) {
            self.entries[usize::from(*number)] += 1;
        }
        self.buffer = packed.bytes;
    }

    /// Notes that a packed entry was removed or overwritten.
    pub fn forget(&mut self, entry: Entry<'_>) {
        let number = entry.stored().first().map_or(0, |number| usize::from(*number));
        if let Some(entries) = self.entries.get_mut(number).filter(|_| entry.is_packed()) {
            *entries -= 1;
        }
    }

    /// Returns the number of the packer for new values, giving it one if needed; `None` if there is no packer or no
    /// free number.
    fn number_of_current(&mut self, keeps: bool) -> Option<u8> {
        if let Some(number) = self.number {
            return Some(number);
        }
        let current = self.current.as_ref()?;
        let known = Arc::make_mut(&mut self.known.0);
        let like = known.iter().position(|packer| packer.is_like(current));
        let unused = || self.entries.iter().position(|entries| *entries == 0).filter(|_| !keeps);
        let number = match like.or_else(unused) {
            Some(number) => {
                known[number] = Arc::clone(current);
                number
            }
            None if known.len() < PACKERS => {
                known.push(Arc::clone(current));
                self.entries.push(0);
                known.len() - 1
            }
            None => return None,
        };
        self.number = u8::try_from(number).ok();
        self.number
    }
}

impl Unpackers {
    /// Returns whether this handle and `other` refer to the same list of packers.
    pub fn is(&self, other: &Unpackers) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the plain value of an entry.
    ///
    /// # Errors
    /// `Corrupt` when the compressed bytes are corrupt.
    pub fn plain<'a>(&self, entry: Entry<'a>) -> Result<Cow<'a, [u8]>> {
        if !entry.is_packed() {
            return Ok(Cow::Borrowed(entry.stored()));
        }
        let mut plain = vec![0; plain_bytes(entry)];
        self.unpack(entry, &mut plain)?;
        Ok(Cow::Owned(plain))
    }

    /// Decompresses the value of a packed entry into `buffer`, which is reused, and returns it.
    ///
    /// # Errors
    /// Errors of [`Unpackers::plain`].
    #[inline]
    pub fn plain_in<'a>(&self, entry: Entry<'_>, buffer: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let bytes = plain_bytes(entry);
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        let plain = &mut buffer[..bytes];
        self.unpack(entry, plain)?;
        Ok(plain)
    }

    /// Appends the plain value of a packed entry to `out`.
    ///
    /// # Errors
    /// Errors of [`Unpackers::plain`].
    #[inline]
    pub fn append_plain(&self, entry: Entry<'_>, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        out.resize(start + plain_bytes(entry), 0);
        self.unpack(entry, &mut out[start..])
    }

    #[inline]
    fn unpack(&self, entry: Entry<'_>, plain: &mut [u8]) -> Result<()> {
        let (head, packed) = entry.stored().split_first_chunk::<HEAD_BYTES>().ok_or_else(damaged)?;
        let packer = self.0.get(usize::from(head[0])).filter(|_| plain.len() <= KV_PACKED_BYTES_MAX);
        packer.ok_or_else(damaged)?.unpack(packed, plain)
    }

    /// Returns whether decompressing the value of an entry takes about as long as copying it.
    #[inline]
    pub fn is_quick(&self, entry: Entry<'_>) -> bool {
        self.packer_of(entry).is_none_or(Packer::is_quick)
    }

    #[inline]
    fn packer_of(&self, entry: Entry<'_>) -> Option<&Packer> {
        let number = entry.stored().first().filter(|_| entry.is_packed())?;
        self.0.get(usize::from(*number)).map(|packer| &**packer)
    }

    /// Returns the cost of reading the value of an entry, as the number of bytes that could be copied in that time.
    #[inline]
    pub fn cost(&self, entry: Entry<'_>) -> usize {
        self.packer_of(entry).map_or(entry.stored().len(), |packer| packer.cost(plain_bytes(entry)))
    }
}

/// Returns the length of the uncompressed value of an entry.
pub(crate) fn plain_bytes(entry: Entry<'_>) -> usize {
    match entry.stored().first_chunk() {
        Some([_, low, high]) if entry.is_packed() => usize::from(u16::from_le_bytes([*low, *high])),
        _ => entry.stored().len(),
    }
}

/// Returns the bytes to allocate for a packed value, at least 1/8 of the plain length (see [`PLAIN_PER_BYTE`]).
fn room_of(packed_bytes: usize, plain_bytes: usize) -> usize {
    packed_bytes.max(plain_bytes / PLAIN_PER_BYTE)
}

/// Returns the bytes that are needed to store the value of an entry as it is now, packed or plain.
pub(crate) fn room_of_entry(entry: Entry<'_>) -> usize {
    if entry.is_packed() { room_of(entry.stored().len(), plain_bytes(entry)) } else { entry.stored().len() }
}
