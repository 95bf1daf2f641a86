//! Tables in the memory of a pool: row groups of encoded column chunks.
//!
//! A table is cut into row groups of [`farpool_model::limits::ROW_GROUP_ROWS`] rows, and each column of a
//! row group is encoded by itself in the form that takes least memory ([`EncodingKind`]). Operators work on
//! the encoded form where they can ([`Integers`], [`Dictionary`]) and on Arrow arrays where they cannot
//! ([`Chunk::decode`], [`Chunk::gather`]).
//!
//! Invariants: everything here is immutable once built, so that any number of threads may read it; a chunk
//! gives back exactly the values that it was made of, bit by bit for floats.

mod arena;
mod bitmap;
mod body;
mod builder;
mod bytes;
mod chunk;
mod decode;
mod distinct;
mod encode;
mod ends;
mod fsst_text;
mod gather;
mod integers;
mod lanes;
mod packed;
mod strings;
mod table;
#[cfg(test)]
mod tests;
mod type_code;
mod types;
mod views;
mod zone;

pub use body::EncodingKind;
pub use builder::TableBuilder;
pub use chunk::{Chunk, Dictionary, RowGroup};
pub use farpool_memory::working;
pub use integers::Integers;
pub use table::{Encoder, Table, encode_row_group};
pub use zone::ZoneMap;
