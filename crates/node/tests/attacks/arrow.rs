//! Builder of Arrow IPC messages (record batches) for tests, whose metadata may claim counts and lengths that do not
//! fit the data.

use arrow_ipc::{Buffer, FieldNode, MessageBuilder, MessageHeader, MetadataVersion, RecordBatchBuilder};
use flatbuffers::FlatBufferBuilder;

/// Alignment of each buffer within the message body, in bytes.
const ALIGNMENT: usize = 64;

/// Encodes a record batch whose metadata claim `rows` rows. `columns` has the claimed number of rows and of NULLs of
/// each column, `buffers` the bytes and the claimed length of each buffer, `variadic` the number of data buffers of
/// each column of string or binary views.
pub fn batch(rows: i64, columns: &[(i64, i64)], buffers: &[(Vec<u8>, i64)], variadic: &[i64]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut places = Vec::new();
    for (bytes, length) in buffers {
        places.push(Buffer::new(body.len() as i64, *length));
        body.extend_from_slice(bytes);
        body.resize(body.len().next_multiple_of(ALIGNMENT), 0);
    }
    let nodes: Vec<FieldNode> = columns.iter().map(|(rows, nulls)| FieldNode::new(*rows, *nulls)).collect();
    let metadata = metadata(rows, &nodes, &places, variadic, body.len() as i64);
    let length = (8 + metadata.len()).next_multiple_of(ALIGNMENT);
    let mut message = [[0xff; 4], ((length - 8) as i32).to_le_bytes()].concat();
    message.extend_from_slice(&metadata);
    message.resize(length, 0);
    message.extend(body);
    message
}

fn metadata(rows: i64, nodes: &[FieldNode], places: &[Buffer], variadic: &[i64], body: i64) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let nodes = builder.create_vector(nodes);
    let places = builder.create_vector(places);
    let variadic = builder.create_vector(variadic);
    let mut header = RecordBatchBuilder::new(&mut builder);
    header.add_length(rows);
    header.add_nodes(nodes);
    header.add_buffers(places);
    header.add_variadicBufferCounts(variadic);
    let header = header.finish();
    let mut message = MessageBuilder::new(&mut builder);
    message.add_version(MetadataVersion::V5);
    message.add_header_type(MessageHeader::RecordBatch);
    message.add_bodyLength(body);
    message.add_header(header.as_union_value());
    let message = message.finish();
    builder.finish(message, None);
    builder.finished_data().to_vec()
}
