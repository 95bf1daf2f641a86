//! Parcels: encoded rows of a result, as they are sent by a node and decoded by the client.
//!
//! A parcel has at most the rows of a row group. Its columns are chunks of the pool, whose buffers are sent without a
//! copy ([`pack_chunks`]), or arrays that were packed for sending ([`pack_array`]).
//!
//! Layout, all numbers little-endian (details are in `docs/wire.md`): a head, which has the encoding of each column and
//! the lengths of its buffers; then the buffers, in order, each at a multiple of [`ALIGNMENT`].
//!
//! Invariant: for any bytes, [`Parcel::read`] returns a parcel or an error, and [`Parcel::next`] returns arrays that
//! are safe to use or an error. Values are not checked against the stated minimum and maximum, because nothing here
//! relies on them, unlike kernels on stored chunks.

mod array;
#[expect(unsafe_code, reason = "strings that were checked once")]
mod coded;
#[expect(unsafe_code, reason = "strings that were checked once")]
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use array::pack_array;
pub use read::Parcel;
pub use write::pack_chunks;

/// Alignment of buffers from the start of the parcel, in bytes. Reason: it is enough for the widest value, so that a
/// parcel in aligned memory is decoded in place.
const ALIGNMENT: usize = 16;

const NULLS: u8 = 0;
const CONSTANT: u8 = 1;
const PLAIN: u8 = 2;
const BIT_PACKED: u8 = 3;
const DICTIONARY: u8 = 4;
const BYTES: u8 = 5;
const FSST: u8 = 6;

/// Form of the last block of bit-packed values if it is not full: `TAIL_BLOCK`, packed like the others, or
/// `TAIL_LOOSE`, each value in as many whole bytes as it needs.
const TAIL_BLOCK: u8 = 0;
const TAIL_LOOSE: u8 = 1;

/// Returns the bytes of a value of `width` bits in a loose tail.
fn loose_bytes(width: u32) -> usize {
    width.div_ceil(8) as usize
}

/// Returns the bytes of a whole block of values of `width` bits.
fn block_bytes(width: u32) -> usize {
    farpool_model::limits::BLOCK_ROWS / 8 * width as usize
}
