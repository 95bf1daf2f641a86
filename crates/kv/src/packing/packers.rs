//! The packers that the compressed entries of a table were made with.
//!
//! A packed value begins with the number of its packer in the table (1 byte) and its plain length (2 bytes); the
//! compressed bytes follow. A new dictionary is a new packer. Invariant: a packer stays in the table as long as an
//! entry, or a cut, may need it. Example: an entry was packed by packer 0; then the dictionary is trained, which makes
//! packer 1. If number 0 were reused for it, the old entry would be decompressed with the wrong dictionary.

use super::{PLAIN_PER_BYTE, Packer, damaged};
use crate::entry::{Entry, entry_bytes};
use crate::slab::slot_bytes;
use farpool_model::Result;
use farpool_model::limits::KV_PACKED_BYTES_MAX;
use std::borrow::Cow;
use std::sync::Arc;

/// Bytes before the output of the codec.
const HEAD_BYTES: usize = 3;

/// Most packers that entries of a table may refer to.
const PACKERS: usize = 256;

const _: () = assert!(KV_PACKED_BYTES_MAX <= u16::MAX as usize);

/// The packers of a table.
#[derive(Default)]
pub(crate) struct Packers {
    /// Packer for new values, and its number once it has packed one.
    current: Option<Arc<Packer>>,
    number: Option<u8>,
    known: Unpackers,
    /// Number of entries of each packer.
    entries: Vec<usize>,
    buffer: Vec<u8>,
}

/// A shared handle to a table's packers, for decompression without the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unpackers(Arc<Vec<Arc<Packer>>>);

/// A packed value: its bytes, and the bytes to allocate for it.
pub(crate) struct PackedValue {
    pub bytes: Vec<u8>,
    pub room: usize,
}

impl Packers {
    /// Returns the packer for new values.
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

    /// Returns whether there may be packed entries.
    pub fn has_some(&self) -> bool {
        !self.known.0.is_empty()
    }

    /// Returns the handle for decompression.
    pub fn unpackers(&self) -> &Unpackers {
        &self.known
    }

    /// Returns whether an entry was packed by another packer than the current one.
    pub fn is_old(&self, entry: Entry<'_>) -> bool {
        entry.is_packed() && entry.stored().first().copied() != self.number
    }

    /// Packs a value if that saves its entry a size class. `keeps` forbids reusing the number of a packer without
    /// entries, because a cut may still refer to it. The result must be passed to [`Packers::packed`].
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

    /// Notes whether a packed value was stored in an entry, and takes its buffer back.
    pub fn packed(&mut self, packed: PackedValue, is_put: bool) {
        if let Some(number) = packed.bytes.first().filter(|_| is_put) {
            self.entries[usize::from(*number)] += 1;
        }
        self.buffer = packed.bytes;
    }

    /// Notes that an entry was removed.
    pub fn forget(&mut self, entry: Entry<'_>) {
        let number = entry.stored().first().map_or(0, |number| usize::from(*number));
        if let Some(entries) = self.entries.get_mut(number).filter(|_| entry.is_packed()) {
            *entries -= 1;
        }
    }

    /// Returns the number of the current packer; `None` if there is no packer, or no free number.
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
    /// Returns whether two handles are the same.
    pub fn is(&self, other: &Unpackers) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the plain value of an entry.
    ///
    /// # Errors
    /// `Corrupt` when its bytes are damaged.
    pub fn plain<'a>(&self, entry: Entry<'a>) -> Result<Cow<'a, [u8]>> {
        if !entry.is_packed() {
            return Ok(Cow::Borrowed(entry.stored()));
        }
        let mut plain = vec![0; plain_bytes(entry)];
        self.unpack(entry, &mut plain)?;
        Ok(Cow::Owned(plain))
    }

    /// Returns the plain value of a packed entry in a reusable buffer.
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

    /// Returns whether decompressing an entry takes about as long as copying it.
    #[inline]
    pub fn is_quick(&self, entry: Entry<'_>) -> bool {
        self.packer_of(entry).is_none_or(Packer::is_quick)
    }

    #[inline]
    fn packer_of(&self, entry: Entry<'_>) -> Option<&Packer> {
        let number = entry.stored().first().filter(|_| entry.is_packed())?;
        self.0.get(usize::from(*number)).map(|packer| &**packer)
    }

    /// Returns the cost of reading an entry, as the number of bytes that could be copied in that time.
    #[inline]
    pub fn cost(&self, entry: Entry<'_>) -> usize {
        self.packer_of(entry).map_or(entry.stored().len(), |packer| packer.cost(plain_bytes(entry)))
    }
}

/// Returns the plain length of an entry's value.
pub(crate) fn plain_bytes(entry: Entry<'_>) -> usize {
    match entry.stored().first_chunk() {
        Some([_, low, high]) if entry.is_packed() => usize::from(u16::from_le_bytes([*low, *high])),
        _ => entry.stored().len(),
    }
}

/// Returns the bytes to allocate for a packed value.
fn room_of(packed_bytes: usize, plain_bytes: usize) -> usize {
    packed_bytes.max(plain_bytes / PLAIN_PER_BYTE)
}

/// Returns the bytes that an entry needs for its value.
pub(crate) fn room_of_entry(entry: Entry<'_>) -> usize {
    if entry.is_packed() { room_of(entry.stored().len(), plain_bytes(entry)) } else { entry.stored().len() }
}
