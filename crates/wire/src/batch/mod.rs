//! Schemas and batches as Arrow IPC encapsulated messages.

use crate::frame::FrameKind;
use crate::message::Outgoing;
use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use bytes::Bytes;
use farpool_model::Result;

/// The IPC message of a schema.
pub fn encode_schema(_schema: &Schema) -> Result<Bytes> {
    todo!()
}

/// Reads the IPC message of a schema.
pub fn decode_schema(_bytes: &[u8]) -> Result<SchemaRef> {
    todo!()
}

/// The messages of `kind` that carry the batch: one, or several when it is too large for one.
pub fn encode_batch(_kind: FrameKind, _batch: &RecordBatch) -> Result<Vec<Outgoing>> {
    todo!()
}

/// Reads the IPC message of a batch in `schema`.
pub fn decode_batch(_schema: &SchemaRef, _body: &Bytes) -> Result<RecordBatch> {
    todo!()
}
