//! The values of an encoded chunk in memory, and the traversal of its buffers.
//!
//! A body is built with buffers on the heap and then moved, buffer by buffer, into pages of the pool
//! ([`Body::map_buffers`]). All operations work in both places.

use crate::ends::Ends;
use crate::fsst_text::SymbolTable;
use crate::packed::Packed;
use crate::views;
use arrow_array::{ArrayRef, new_null_array};
use arrow_buffer::Buffer;
use arrow_schema::DataType;
use farpool_model::schema;

/// The encoding of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EncodingKind {
    /// One value for all rows, which may be NULL.
    Constant,
    /// Values of fixed width in Arrow's layout; booleans as a bitmap.
    Plain,
    /// Integers as distances from the least one, in as few bits as the greatest distance needs (frame of reference).
    BitPacked,
    /// The distinct strings in sorted order, and for each row its bit-packed dictionary code (an index into them).
    Dictionary,
    /// Strings one after another.
    PlainBytes,
    /// Strings one after another, each compressed with a table of frequent byte sequences (FSST).
    Fsst,
}

/// The values of a chunk. The values of NULL rows are arbitrary.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// An array of one row. For a value other than NULL also the packed form of its integer; for a string, that is
    /// its code 0 in a dictionary of one entry.
    Constant {
        value: ArrayRef,
        number: Option<Packed>,
    },
    Plain {
        values: Buffer,
    },
    BitPacked(Packed),
    Dictionary {
        values: ArrayRef,
        codes: Packed,
    },
    PlainBytes {
        ends: Ends,
        data: Buffer,
    },
    Fsst {
        table: Box<SymbolTable>,
        ends: Ends,
        lengths: Packed,
        data: Buffer,
    },
}

impl Body {
    /// Creates a body with NULL for all rows.
    pub fn nulls(data_type: &DataType) -> Body {
        Body::Constant { value: new_null_array(data_type, 1), number: None }
    }

    pub fn kind(&self) -> EncodingKind {
        match self {
            Body::Constant { .. } => EncodingKind::Constant,
            Body::Plain { .. } => EncodingKind::Plain,
            Body::BitPacked(_) => EncodingKind::BitPacked,
            Body::Dictionary { .. } => EncodingKind::Dictionary,
            Body::PlainBytes { .. } => EncodingKind::PlainBytes,
            Body::Fsst { .. } => EncodingKind::Fsst,
        }
    }

    /// Applies `map` to each buffer. `map` must return the same bytes, aligned to 64.
    pub fn map_buffers(self, data_type: &DataType, map: &mut dyn FnMut(&Buffer) -> Buffer) -> Body {
        match self {
            Body::Constant { value, number } if schema::is_bytes(data_type) => {
                Body::Constant { value: views::moved(&value, data_type, map), number }
            }
            Body::Constant { .. } => self,
            Body::Plain { values } => Body::Plain { values: map(&values) },
            Body::BitPacked(packed) => Body::BitPacked(map_packed(packed, map)),
            Body::Dictionary { values, codes } => {
                let values = views::moved(&values, data_type, map);
                Body::Dictionary { values, codes: map_packed(codes, map) }
            }
            Body::PlainBytes { ends, data } => {
                Body::PlainBytes { ends: map_ends(ends, map), data: map(&data) }
            }
            Body::Fsst { table, ends, lengths, data } => {
                let (ends, lengths) = (map_ends(ends, map), map_packed(lengths, map));
                Body::Fsst { table, ends, lengths, data: map(&data) }
            }
        }
    }

    /// Returns the size of the body in bytes: its buffers, and the small data that are stored beside them.
    pub fn bytes(&self, data_type: &DataType) -> usize {
        let mut bytes = match self {
            Body::Constant { .. } => 16,
            Body::Fsst { table, .. } => table.bytes(),
            _ => 0,
        };
        let counted = self.clone().map_buffers(data_type, &mut |buffer| {
            bytes += buffer.len();
            buffer.clone()
        });
        drop(counted);
        bytes
    }
}

fn map_packed(packed: Packed, map: &mut dyn FnMut(&Buffer) -> Buffer) -> Packed {
    Packed { data: map(&packed.data), ..packed }
}

fn map_ends(ends: Ends, map: &mut dyn FnMut(&Buffer) -> Buffer) -> Ends {
    Ends { lines: map(&ends.lines), above: map_packed(ends.above, map) }
}
