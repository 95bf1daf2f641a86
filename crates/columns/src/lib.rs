//! Tables in the memory of a pool, as row groups of encoded column chunks.
//!
//! A table is divided into row groups of up to [`farpool_model::limits::ROW_GROUP_ROWS`] rows. Each column of a row
//! group is a chunk, which is encoded by itself in the form that takes least memory ([`EncodingKind`]). Operators
//! process encoded values where they can ([`Integers`], [`Dictionary`]), and otherwise decode them to Arrow arrays
//! ([`Chunk::decode`], [`Chunk::gather`]).
//!
//! Invariants: everything here is immutable once built, so that any number of threads may read it; decoding a chunk
//! gives exactly the values from which it was encoded, bit by bit for floats.

mod arch;
mod arena;
mod automaton;
mod body;
mod builder;
#[expect(unsafe_code, reason = "strings that were checked once")]
mod bytes;
mod chunk;
#[expect(unsafe_code, reason = "strings that were checked once")]
mod decode;
mod distinct;
mod encode;
mod encrypted;
mod ends;
mod floats;
#[expect(unsafe_code, reason = "the decoder writes into memory that is not initialised")]
mod fsst_text;
#[expect(unsafe_code, reason = "strings that were checked once")]
mod gather;
mod given;
mod integers;
mod kernels;
mod lanes;
mod live;
mod outline;
mod packed;
mod parcel;
mod pick;
mod plain;
mod replace;
mod residence;
mod result_buffer;
mod row_groups;
mod string_set;
#[expect(unsafe_code, reason = "strings that were checked once")]
mod strings;
mod sums;
mod table;
#[cfg(test)]
mod tests;
mod type_code;
mod types;
#[expect(unsafe_code, reason = "strings that were checked once")]
mod views;
mod zone;

pub use arch::{Kernel, Level, Simd};
pub use automaton::{Automaton, Texts};
pub use body::EncodingKind;
pub use builder::{TableBuilder, to_canonical};
pub use bytes::{Image, read_into_pool};
pub use chunk::{Chunk, Dictionary, Location, RowGroup, is_large};
pub use encrypted::{encrypt_into_pool, table_cipher};
pub use farpool_cipher::MemoryCipher;
pub use farpool_memory::working;
pub use floats::Floats;
pub use given::table_of;
pub use integers::{IntegerSet, Integers};
pub use live::{FilteredLiveRows, LiveGroup, LiveGroupBounds, LiveRows};
pub use parcel::{Parcel, pack_array, pack_chunks};
pub use plain::PlainGroup;
pub use replace::NewValues;
pub use residence::{HeldValues, ValueReader, ValueSource, fetch};
pub use result_buffer::{ResultBuffer, ResultMemory};
pub use row_groups::RowGroups;
pub use table::{Encoder, Table, encode_row_group};
pub use type_code::{type_from_bytes, type_to_bytes};
pub use zone::ZoneMap;
