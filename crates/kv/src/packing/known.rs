//! What the compressed entries of a table were packed with.
//!
//! A packed value begins with the number of its packer in the table and with how many bytes it is of, two bytes; the
//! compressed bytes follow. Another dictionary is another packer: entries name the one that they were made with, and a packer
//! stays for as long as an entry, or a cut, may need it.

use super::{PLAIN_PER_BYTE, Packer, damaged};
use crate::entry::{Entry, entry_bytes};
use crate::slab::slot_bytes;
use farpool_model::Result;
use farpool_model::limits::KV_PACKED_BYTES_MAX;
use std::borrow::Cow;
use std::sync::Arc;

/// Bytes in front of what a codec has made of a value.
const HEAD_BYTES: usize = 3;

/// Packers that a table may have entries of at once.
const PACKERS: usize = 256;

const _: () = assert!(KV_PACKED_BYTES_MAX <= u16::MAX as usize);

/// The packers of a table.
#[derive(Default)]
pub(crate) struct Packers {
    /// The one of new values, with its number once it has packed one.
    current: Option<Arc<Packer>>,
    number: Option<u8>,
    known: Unpackers,
    /// Entries of each.
    entries: Vec<usize>,
    buffer: Vec<u8>,
}

/// What reads packed values, also where the table is not at hand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unpackers(Arc<Vec<Arc<Packer>>>);

/// A value that is packed: the bytes of it, and how much room they are to have.
pub(crate) struct Packed {
    pub bytes: Vec<u8>,
    pub room: usize,
}

impl Packers {
    /// What new values are packed with.
    pub fn current(&self) -> Option<&Arc<Packer>> {
        self.current.as_ref()
    }

    /// Sets what new values are packed with; returns whether that is another packer than before.
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

    /// Whether there may be packed entries.
    pub fn has_some(&self) -> bool {
        !self.known.0.is_empty()
    }

    /// What reads the entries.
    pub fn unpackers(&self) -> &Unpackers {
        &self.known
    }

    /// Whether an entry was packed with another one than new values are.
    pub fn is_old(&self, entry: Entry<'_>) -> bool {
        entry.is_packed() && entry.stored().first().copied() != self.number
    }

    /// Packs a value, if that saves its entry a class of slots; `keeps` says that numbers stay those of the packers that they
    /// are of. What is returned is to be given back to [`Packers::packed`].
    pub fn pack(&mut self, key_bytes: usize, plain: &[u8], expires: bool, keeps: bool) -> Option<Packed> {
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
        Some(Packed { bytes, room })
    }

    /// Says that an entry has the value, or has not.
    pub fn packed(&mut self, packed: Packed, is_put: bool) {
        if let Some(number) = packed.bytes.first().filter(|_| is_put) {
            self.entries[usize::from(*number)] += 1;
        }
        self.buffer = packed.bytes;
    }

    /// Says that an entry is no more.
    pub fn forget(&mut self, entry: Entry<'_>) {
        let number = entry.stored().first().map_or(0, |number| usize::from(*number));
        if let Some(entries) = self.entries.get_mut(number).filter(|_| entry.is_packed()) {
            *entries -= 1;
        }
    }

    /// The number of the packer of new values; `None` where there is none, or too many.
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
    /// Whether these are the same ones.
    pub fn is(&self, other: &Unpackers) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The value of an entry.
    ///
    /// # Errors
    /// `Corrupt` where its bytes are damaged.
    pub fn plain<'a>(&self, entry: Entry<'a>) -> Result<Cow<'a, [u8]>> {
        if !entry.is_packed() {
            return Ok(Cow::Borrowed(entry.stored()));
        }
        let mut plain = vec![0; plain_bytes(entry)];
        self.unpack(entry, &mut plain)?;
        Ok(Cow::Owned(plain))
    }

    /// The value of a packed entry, in a buffer that is used again.
    ///
    /// # Errors
    /// As [`Unpackers::plain`].
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

    /// Appends the value of a packed entry.
    ///
    /// # Errors
    /// As [`Unpackers::plain`].
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

    /// Whether the value of an entry is read in about the time of copying it.
    #[inline]
    pub fn is_quick(&self, entry: Entry<'_>) -> bool {
        self.packer_of(entry).is_none_or(Packer::is_quick)
    }

    #[inline]
    fn packer_of(&self, entry: Entry<'_>) -> Option<&Packer> {
        let number = entry.stored().first().filter(|_| entry.is_packed())?;
        self.0.get(usize::from(*number)).map(|packer| &**packer)
    }

    /// Bytes that are copied in the time in which the value of an entry is read, about.
    #[inline]
    pub fn cost(&self, entry: Entry<'_>) -> usize {
        self.packer_of(entry).map_or(entry.stored().len(), |packer| packer.cost(plain_bytes(entry)))
    }
}

/// Bytes of the value of an entry.
pub(crate) fn plain_bytes(entry: Entry<'_>) -> usize {
    match entry.stored().first_chunk() {
        Some([_, low, high]) if entry.is_packed() => usize::from(u16::from_le_bytes([*low, *high])),
        _ => entry.stored().len(),
    }
}

/// Bytes that a packed value is to have room for.
fn room_of(packed_bytes: usize, plain_bytes: usize) -> usize {
    packed_bytes.max(plain_bytes / PLAIN_PER_BYTE)
}

/// Bytes that the value of an entry is to have room for.
pub(crate) fn room_of_entry(entry: Entry<'_>) -> usize {
    if entry.is_packed() { room_of(entry.stored().len(), plain_bytes(entry)) } else { entry.stored().len() }
}
