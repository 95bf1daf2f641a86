//! Parcels: rows of a result that leave a node as encoded columns and are decoded where they are read.
//!
//! A parcel holds at most a row group. Its columns are chunks of the pool, whose buffers are sent without a
//! copy ([`pack_chunks`]), or arrays that were packed to be sent ([`pack_array`]).
//!
//! Layout, all numbers little-endian (`docs/wire.md` has the details): a head, which says how each column is
//! encoded and how long its buffers are, and the buffers, in order, each at a multiple of [`ALIGNMENT`].
//!
//! Invariant: for any bytes, [`Parcel::read`] returns a parcel or an error, and [`Parcel::next`] returns
//! sound arrays or an error. Bounds are not checked against the values: unlike kernels on stored chunks,
//! nothing here relies on them.

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

/// Alignment of buffers, from the start of the parcel: enough for the widest value, so that a parcel in
/// aligned memory is decoded in place.
const ALIGNMENT: usize = 16;

const NULLS: u8 = 0;
const CONSTANT: u8 = 1;
const PLAIN: u8 = 2;
const BIT_PACKED: u8 = 3;
const DICTIONARY: u8 = 4;
const BYTES: u8 = 5;
const FSST: u8 = 6;

/// Form of the last block of packed values if it is not full: a block like the others, or each value in the
/// whole bytes that it needs.
const TAIL_BLOCK: u8 = 0;
const TAIL_LOOSE: u8 = 1;

/// Bytes of a value of `width` bits in a loose tail.
fn loose_bytes(width: u32) -> usize {
    width.div_ceil(8) as usize
}

/// Bytes of a whole block of values of `width` bits.
fn block_bytes(width: u32) -> usize {
    farpool_model::limits::BLOCK_ROWS / 8 * width as usize
}
