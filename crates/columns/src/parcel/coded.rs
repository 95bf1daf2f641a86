//! Compressed strings (FSST) of a parcel, the form in which result rows are sent. They are decompressed in order,
//! piece by piece. Each piece is checked and copied to its final place while it is in the CPU caches.
//!
//! Invariant: the codes before `at` are exactly those of the rows before `row`.

use super::read::check_text;
use crate::fsst_text::SymbolTable;
use crate::lanes::Lane;
use crate::packed::{Packed, with_lane};
use crate::result_buffer::ResultBuffer;
use crate::views::{Views, view_in_piece};
use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_schema::DataType;
use bytes::Bytes;
use farpool_model::limits::{MESSAGE_BYTES_MAX, STRING_BYTES_MAX};
use farpool_model::{Error, Result};

/// Maximum size of a piece in bytes, except for a single longer string. Reason: with its codes and views, a piece takes
/// half of a core's cache. Pieces of 2 MiB took twice as long.
const PIECE_BYTES: usize = 256 << 10;

/// Strings of a column, and the position of the next one to be returned.
#[derive(Debug)]
pub(super) struct CodedStrings {
    pub data_type: DataType,
    pub validity: Option<BooleanBuffer>,
    pub table: Box<SymbolTable>,
    /// Length of each string in bytes.
    pub lengths: Packed,
    pub codes: Bytes,
    pub row: usize,
    pub at: usize,
}

impl CodedStrings {
    /// Decodes the next `count` rows, all of which must exist.
    ///
    /// # Errors
    /// `Corrupt` when the codes do not decode to strings of the stated lengths.
    pub fn next(&mut self, count: usize, room: &mut ResultBuffer) -> Result<ArrayRef> {
        let (start, end) = (self.row, self.row + count);
        let (lengths, bytes) = self.lengths(count)?;
        let mut views = Vec::with_capacity(count);
        let mut text = room.take_text();
        let written = room.try_buffer(bytes, |out| {
            let mut base = 0;
            for lengths in pieces(&lengths) {
                self.piece(lengths, base, &mut text, &mut views)?;
                out.append(&text);
                base += text.len();
            }
            Ok(())
        })?;
        room.give_text(text);
        let data = match written {
            Some(written) => written.into_inner(),
            None => {
                let mut text = Vec::new();
                self.piece(&lengths, 0, &mut text, &mut views)?;
                Buffer::from_vec(text)
            }
        };
        if end == self.lengths.rows && self.at < self.codes.len() {
            return Err(wrong_length());
        }
        self.row = end;
        let views = room.buffer(count, |out| out.append(&views)).unwrap_or_else(|| views.into());
        let nulls = self.validity.as_ref().map(|bits| NullBuffer::new(bits.slice(start, count)));
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        // SAFETY: the views were made over this text, and its values were checked.
        Ok(unsafe { Views { views, data }.into_array(&self.data_type, nulls) })
    }

    /// Returns the lengths of the next `count` strings, and their sum.
    fn lengths(&self, count: usize) -> Result<(Vec<u32>, usize)> {
        let mut lengths: Vec<u32> = Vec::with_capacity(count);
        let (mut bytes, mut longest) = (0_u64, 0);
        with_lane!(self.lengths.width, L => self.lengths.for_each_piece::<L>(self.row..self.row + count, |piece| {
            for length in piece {
                longest = longest.max(length.widen());
                bytes = bytes.saturating_add(length.widen());
                lengths.push(length.widen() as u32);
            }
        }));
        if longest > STRING_BYTES_MAX as u64 || bytes > MESSAGE_BYTES_MAX as u64 {
            return Err(wrong_length());
        }
        Ok((lengths, bytes as usize))
    }

    /// Replaces `text` by the next strings, which have these lengths and will be placed at offset `base`. Appends their
    /// views.
    fn piece(
        &mut self,
        lengths: &[u32],
        base: usize,
        text: &mut Vec<u8>,
        views: &mut Vec<u128>,
    ) -> Result<()> {
        text.clear();
        let bytes = lengths.iter().map(|length| *length as usize).sum();
        let count = self.table.decode_front(&self.codes[self.at..], bytes, text);
        self.at += count.ok_or_else(wrong_length)?;
        let mut end = 0;
        let ends = lengths.iter().map(|length| {
            end += length;
            end
        });
        check_text(text, ends, &self.data_type)?;
        let mut start = 0;
        for length in lengths {
            views.push(view_in_piece(text, start, *length as usize, base));
            start += *length as usize;
        }
        Ok(())
    }
}

fn wrong_length() -> Error {
    Error::corrupt("strings whose codes stand for another length")
}

/// Divides the lengths of the strings into pieces.
fn pieces(mut lengths: &[u32]) -> impl Iterator<Item = &[u32]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |length: &&u32| {
            bytes += **length as usize;
            bytes <= PIECE_BYTES
        };
        let count = lengths.iter().take_while(fits).count().max(1).min(lengths.len());
        let (piece, rest) = lengths.split_at(count);
        lengths = rest;
        (count > 0).then_some(piece)
    })
}
