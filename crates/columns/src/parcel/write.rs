//! Writes parcels (encoded rows of a result, as they are sent): builds the head, and adds large buffers without
//! copying them.

use super::{
    ALIGNMENT, BIT_PACKED, BYTES, CONSTANT, DICTIONARY, FSST, NULLS, PLAIN, TAIL_BLOCK, TAIL_LOOSE,
    block_bytes, loose_bytes,
};
use crate::body::Body;
use crate::bytes::shared;
use crate::chunk::Chunk;
use crate::ends::Ends;
use crate::lanes::Lane;
use crate::packed::{Packed, with_lane};
use crate::views::slices;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::Buffer;
use bytes::Bytes;
use farpool_model::cast::u32_checked;
use farpool_model::limits::BLOCK_ROWS;
use farpool_model::schema;
use std::sync::Arc;

/// Minimum size of a buffer, in bytes, that is sent as a piece of its own; smaller ones are copied into one piece with
/// their neighbours. Reason: a system call accepts a limited number of pieces, and each costs about as much as copying
/// this many bytes.
const PIECE_BYTES_MIN: usize = 4 << 10;

/// Divisor: values of the last block are stored loose (in whole bytes each) if that saves more than one part in this
/// many of the size of the other blocks. Reason: the reader then has to copy all blocks to one place.
const TAIL_PART_MIN: usize = 16;

static ZEROS: [u8; ALIGNMENT] = [0; ALIGNMENT];

/// Returns the parcel of `chunks`, all of which must have `rows` rows, as pieces to be sent one after the other. The
/// pieces share the memory of the chunks.
pub fn pack_chunks(rows: usize, chunks: &[Arc<Chunk>]) -> Vec<Bytes> {
    let mut writer = Writer::default();
    writer.number(0);
    writer.number(rows);
    writer.number(chunks.len());
    for chunk in chunks {
        debug_assert_eq!(chunk.rows(), rows, "all columns of a parcel have its rows");
        assert!(!chunk.is_handle(), "what is sent is in memory");
        writer.chunk(chunk);
    }
    writer.finish()
}

/// The head so far, and the buffers that follow it.
#[derive(Default)]
struct Writer {
    head: Vec<u8>,
    buffers: Vec<Buffer>,
}

impl Writer {
    fn chunk(&mut self, chunk: &Chunk) {
        let bits = chunk.validity_bits();
        self.head.push(u8::from(bits.is_some()));
        if let Some(bits) = bits {
            self.buffer(bits.inner().clone());
        }
        match &chunk.body {
            Body::Constant { value, .. } if value.is_null(0) => self.head.push(NULLS),
            Body::Constant { value, .. } if schema::is_bytes(chunk.data_type()) => {
                self.dictionary(value, &Packed::constant(0, chunk.rows()));
            }
            Body::Constant { value, .. } => {
                self.head.push(CONSTANT);
                let width = chunk.data_type().primitive_width().unwrap_or(1);
                // An array of one row of a fixed-width type has exactly one buffer.
                self.head.extend_from_slice(&value.to_data().buffers()[0].as_slice()[..width]);
            }
            Body::Plain { values } => {
                self.head.push(PLAIN);
                self.buffer(values.clone());
            }
            Body::BitPacked(packed) => {
                self.head.push(BIT_PACKED);
                self.packed(packed);
            }
            Body::Dictionary { values, codes } => self.dictionary(values, codes),
            Body::PlainBytes { ends, data } => {
                self.head.push(BYTES);
                self.ends(ends);
                self.buffer(data.clone());
            }
            // The reader decodes all strings in one pass, so that the ends of each string's codes are not needed.
            Body::Fsst { table, lengths, data, .. } => {
                self.head.push(FSST);
                let (symbols, symbol_lengths) = table.parts();
                self.buffer(Buffer::from_vec(symbols));
                self.buffer(Buffer::from_slice_ref(symbol_lengths));
                self.packed(lengths);
                self.buffer(data.clone());
            }
        }
    }

    fn number(&mut self, number: usize) {
        self.head.extend_from_slice(&u32_checked(number).to_le_bytes());
    }

    fn buffer(&mut self, buffer: Buffer) {
        self.number(buffer.len());
        self.buffers.push(buffer);
    }

    /// Writes the ends and bytes of the dictionary entries, and a code for each row.
    fn dictionary(&mut self, values: &ArrayRef, codes: &Packed) {
        self.head.push(DICTIONARY);
        let values = slices(values);
        let (mut ends, mut data) = (Vec::with_capacity(values.len()), Vec::new());
        for value in values {
            data.extend_from_slice(value);
            ends.push(u32_checked(data.len()));
        }
        self.buffer(Buffer::from_vec(ends));
        self.buffer(Buffer::from_vec(data));
        self.packed(codes);
    }

    fn ends(&mut self, ends: &Ends) {
        self.buffer(ends.lines.clone());
        self.packed(&ends.above);
    }

    fn packed(&mut self, packed: &Packed) {
        self.head.extend_from_slice(&packed.reference.to_le_bytes());
        self.head.extend_from_slice(&packed.max.to_le_bytes());
        let (blocks, rest) = (packed.rows / BLOCK_ROWS, packed.rows % BLOCK_ROWS);
        let saved = block_bytes(packed.width).saturating_sub(rest * loose_bytes(packed.width));
        if rest == 0 || saved * TAIL_PART_MIN <= blocks * block_bytes(packed.width) {
            self.head.push(TAIL_BLOCK);
            return self.buffer(packed.data.clone());
        }
        self.head.push(TAIL_LOOSE);
        let whole = blocks * block_bytes(packed.width);
        self.buffer(packed.data.slice_with_length(0, whole));
        let mut loose = Vec::with_capacity(rest * loose_bytes(packed.width));
        with_lane!(packed.width, L => packed.for_each_piece::<L>(blocks * BLOCK_ROWS..packed.rows, |piece| {
            for value in piece {
                loose.extend_from_slice(&value.widen().to_le_bytes()[..loose_bytes(packed.width)]);
            }
        }));
        self.buffer(Buffer::from_vec(loose));
    }

    fn finish(self) -> Vec<Bytes> {
        let Writer { mut head, buffers } = self;
        let head_bytes = u32_checked(head.len());
        head[..4].copy_from_slice(&head_bytes.to_le_bytes());
        let mut pieces = Vec::with_capacity(2 * buffers.len() + 1);
        let mut small = head;
        pad(&mut small);
        for buffer in buffers {
            if buffer.len() < PIECE_BYTES_MIN {
                // The position is aligned, because each piece before this one ends at an aligned position, too.
                small.extend_from_slice(&buffer);
                pad(&mut small);
                continue;
            }
            if !small.is_empty() {
                pieces.push(Bytes::from(std::mem::take(&mut small)));
            }
            let padding = buffer.len().next_multiple_of(ALIGNMENT) - buffer.len();
            pieces.push(shared(buffer));
            if padding > 0 {
                pieces.push(Bytes::from_static(&ZEROS[..padding]));
            }
        }
        if !small.is_empty() {
            pieces.push(Bytes::from(small));
        }
        pieces
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
}
