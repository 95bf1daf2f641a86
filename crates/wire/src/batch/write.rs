//! Encodes batches as IPC messages. The metadata is built here; the column buffers are sent from where they are.

use super::compact::compact;
use super::compress::{codec, compress};
use super::{ALIGNMENT, ZEROS, encapsulate, string_bytes};
use crate::message::Outgoing;
use crate::verbs::FrameKind;
use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use arrow_schema::DataType;
use bytes::{Bytes, BytesMut};
use farpool_model::{Compression, Error, Result, cast, limits};
use flatbuffers::FlatBufferBuilder;

/// Minimum size in bytes of a buffer that is sent as a piece of its own; smaller ones are copied into one piece with
/// their neighbours. Reason: a system call takes a limited number of pieces, and each costs about as much as copying
/// this many bytes.
const PIECE_BYTES_MIN: usize = 4 << 10;

/// A batch encoded as messages.
#[derive(Debug, Default)]
pub struct EncodedBatch {
    /// The messages, each with consecutive rows; more than one if the batch is too large for one.
    pub messages: Vec<Outgoing>,
    /// Bytes of the buffers before compression.
    pub bytes_plain: usize,
}

/// Encodes a batch as messages of `kind`, with compressed buffers if `compression` is set. A large batch is split by
/// its uncompressed size, so that readers can limit that.
///
/// # Errors
/// `Invalid` if a column's type is not canonical; `OverLimit` if a single row is too large.
pub fn encode_batch(
    kind: FrameKind,
    batch: &RecordBatch,
    compression: Option<Compression>,
) -> Result<EncodedBatch> {
    let mut encoded = EncodedBatch::default();
    encode_within(kind, batch, kind.message_bytes_max(), compression, &mut encoded)?;
    Ok(encoded)
}

/// Encodes a batch like [`encode_batch`], with at most `bytes_max` bytes per message: halves the batch until its parts
/// fit.
pub(super) fn encode_within(
    kind: FrameKind,
    batch: &RecordBatch,
    bytes_max: usize,
    compression: Option<Compression>,
    encoded: &mut EncodedBatch,
) -> Result<()> {
    if let Some((pieces, bytes_plain)) = encode_pieces(batch, bytes_max, compression)? {
        encoded.messages.push(Outgoing::new(kind, pieces)?);
        encoded.bytes_plain += bytes_plain;
        return Ok(());
    }
    let rows = batch.num_rows();
    if rows <= 1 {
        return Err(Error::over_limit(format!("one row takes more than the {bytes_max} bytes of a message"))
            .advise("select fewer of the long columns"));
    }
    let half = rows / 2;
    encode_within(kind, &batch.slice(0, half), bytes_max, compression, encoded)?;
    encode_within(kind, &batch.slice(half, rows - half), bytes_max, compression, encoded)
}

/// Returns the pieces of the message, and the uncompressed bytes of its buffers. Returns `None` if a reader would
/// reject the message: it or the strings of its rows have more than `bytes_max` bytes, or it has too many rows.
fn encode_pieces(
    batch: &RecordBatch,
    bytes_max: usize,
    compression: Option<Compression>,
) -> Result<Option<(Vec<Bytes>, usize)>> {
    if batch.num_rows() > limits::MESSAGE_ROWS_MAX {
        return Ok(None);
    }
    let mut body = Body::default();
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        if !body.add_column(column.as_ref(), bytes_max).map_err(|e| e.at(field.name()))? {
            return Ok(None);
        }
    }
    let bytes_plain = body.layout.bytes;
    if let Some(compression) = compression {
        body = body.compressed(compression)?;
    }
    if body.buffers.len() > limits::MESSAGE_BUFFERS_MAX {
        return Ok(None);
    }
    let metadata = encapsulate(&body.layout.metadata(batch.num_rows() as i64, compression));
    if metadata.len() + body.layout.bytes > bytes_max {
        return Ok(None);
    }
    let mut pieces = Vec::with_capacity(body.buffers.len() + 1);
    let mut small = BytesMut::from(&metadata[..]);
    for buffer in body.buffers {
        let padding = buffer.len().next_multiple_of(ALIGNMENT) - buffer.len();
        if buffer.len() < PIECE_BYTES_MIN {
            small.extend_from_slice(&buffer);
            small.extend_from_slice(&ZEROS[..padding]);
            continue;
        }
        if !small.is_empty() {
            pieces.push(small.split().freeze());
        }
        pieces.push(Bytes::from_owner(Owner(buffer)));
        if padding > 0 {
            pieces.push(Bytes::from_static(&ZEROS[..padding]));
        }
    }
    if !small.is_empty() {
        pieces.push(small.freeze());
    }
    Ok(Some((pieces, bytes_plain)))
}

/// Owner of a column's memory within a message's bytes: keeps the memory alive until the bytes have been sent.
struct Owner(Buffer);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The buffers of a message and their positions in its body.
#[derive(Default)]
struct Body {
    layout: Layout,
    buffers: Vec<Buffer>,
    /// Total length of the strings of all rows; a string that rows share counts once per row.
    string_bytes: usize,
}

/// The lengths of columns and the positions of buffers, which the metadata of a batch describes.
#[derive(Default)]
pub(super) struct Layout {
    pub(super) nodes: Vec<arrow_ipc::FieldNode>,
    pub(super) variadic_counts: Vec<i64>,
    places: Vec<arrow_ipc::Buffer>,
    /// Bytes of the buffers added so far, including padding.
    bytes: usize,
}

impl Body {
    /// Adds the buffers of a column. Returns false if the body then has more than `bytes_max` bytes.
    fn add_column(&mut self, column: &dyn Array, bytes_max: usize) -> Result<bool> {
        let node = arrow_ipc::FieldNode::new(column.len() as i64, column.null_count() as i64);
        self.layout.nodes.push(node);
        let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
        self.add_buffer(nulls.map(|nulls| nulls.inner().sliced()).unwrap_or_default());
        match column.data_type() {
            DataType::Boolean => self.add_buffer(column.as_boolean().values().sliced()),
            DataType::Utf8View | DataType::BinaryView => {
                let (views, data) = match column.as_string_view_opt() {
                    Some(strings) => (strings.views(), strings.data_buffers()),
                    None => (column.as_binary_view().views(), column.as_binary_view().data_buffers()),
                };
                let Some(compacted) = compact(views, nulls, data, bytes_max) else { return Ok(false) };
                self.string_bytes += string_bytes(&compacted.views);
                self.layout.variadic_counts.push(compacted.data.len() as i64);
                self.add_buffer(compacted.views);
                compacted.data.into_iter().for_each(|buffer| self.add_buffer(buffer));
            }
            data_type => {
                let width = data_type
                    .primitive_width()
                    .filter(|_| farpool_model::schema::canonical_type(data_type).as_ref() == Some(data_type));
                let width = width.ok_or_else(|| {
                    Error::invalid(format!("values of type {data_type} do not go over the wire"))
                        .advise("cast them to their canonical type")
                })?;
                let data = column.to_data();
                let values = &data.buffers()[0];
                self.add_buffer(values.slice_with_length(data.offset() * width, data.len() * width));
            }
        }
        Ok(self.layout.bytes.max(self.string_bytes) <= bytes_max)
    }

    /// Compresses each buffer and returns the new body.
    fn compressed(self, compression: Compression) -> Result<Self> {
        let Layout { nodes, variadic_counts, .. } = self.layout;
        let layout = Layout { nodes, variadic_counts, ..Layout::default() };
        let mut body = Body { layout, ..Body::default() };
        for buffer in self.buffers {
            body.add_buffer(compress(&buffer, compression)?);
        }
        Ok(body)
    }

    fn add_buffer(&mut self, buffer: Buffer) {
        self.layout.add(buffer.len());
        self.buffers.push(buffer);
    }
}

impl Layout {
    /// Adds a buffer of `length` bytes behind the others.
    pub(super) fn add(&mut self, length: usize) {
        self.places.push(arrow_ipc::Buffer::new(self.bytes as i64, length as i64));
        self.bytes += length.next_multiple_of(ALIGNMENT);
    }

    /// Returns the flatbuffer that describes the body.
    pub(super) fn metadata(&self, rows: i64, compression: Option<Compression>) -> Vec<u8> {
        let places = &self.places;
        let mut builder = FlatBufferBuilder::with_capacity(256 + 16 * (places.len() + self.nodes.len()));
        let nodes = builder.create_vector(&self.nodes);
        let places = builder.create_vector(places);
        let variadic_counts = builder.create_vector(&self.variadic_counts);
        let compression = compression.map(|compression| {
            let mut table = arrow_ipc::BodyCompressionBuilder::new(&mut builder);
            table.add_method(arrow_ipc::BodyCompressionMethod::BUFFER);
            table.add_codec(codec(compression));
            table.finish()
        });
        let mut header = arrow_ipc::RecordBatchBuilder::new(&mut builder);
        header.add_length(rows);
        header.add_nodes(nodes);
        header.add_buffers(places);
        if let Some(compression) = compression {
            header.add_compression(compression);
        }
        if !self.variadic_counts.is_empty() {
            header.add_variadicBufferCounts(variadic_counts);
        }
        let header = header.finish();
        let mut message = arrow_ipc::MessageBuilder::new(&mut builder);
        message.add_version(arrow_ipc::MetadataVersion::V5);
        message.add_header_type(arrow_ipc::MessageHeader::RecordBatch);
        message.add_bodyLength(cast::u64_from(self.bytes) as i64);
        message.add_header(header.as_union_value());
        let message = message.finish();
        builder.finish(message, None);
        builder.finished_data().to_vec()
    }
}
