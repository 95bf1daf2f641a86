//! Fuzz body that runs an untrusted load: a schema, and rows, plain and compressed, which become a table in a pool.

use arrow_array::Array;
use bytes::Bytes;
use farpool_columns::{Table, TableBuilder};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::{TenantName, limits};
use farpool_wire::{FrameKind, Message, Request, bytes_to_decode};
use std::sync::{Arc, OnceLock};

/// Maximal bytes that a batch may decode to, instead of a node's budget, which many loads share.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// Decodes the messages of a load, each after its length in four bytes: `LoadBegin`, then `LoadBatch`. All
/// accepted rows must be in the resulting table.
pub fn load_rows(data: &[u8]) {
    let mut messages = messages(data);
    let begin = messages.next().map(|body| message(FrameKind::LoadBegin, body));
    let Some(Ok(Request::LoadBegin { schema, rows_hint, .. })) = begin.map(|m| Request::decode(&m, None))
    else {
        return;
    };
    let builder = TableBuilder::new(pool().clone(), TenantName::default(), &schema, rows_hint);
    let Ok(mut builder) = builder else { return };
    let mut rows = 0;
    for body in messages {
        let message = message(FrameKind::LoadBatch, body);
        let bytes = bytes_to_decode(&message.body);
        if bytes.as_ref().is_ok_and(|bytes| *bytes > BATCH_BYTES_MAX) {
            return;
        }
        let Ok(Request::LoadBatch(batch)) = Request::decode(&message, Some(&schema)) else { return };
        bytes.expect("what it takes to decode a batch is known");
        if builder.push(&batch).is_err() {
            return;
        }
        rows += batch.num_rows() as u64;
        assert!(builder.bytes_held() <= 2 * limits::ROW_GROUP_BYTES_MAX + limits::PLAIN_EXCESS_BYTES_MAX);
    }
    let Ok(table) = builder.finish() else { return };
    assert_eq!(table.rows, rows);
    read_all(&table);
}

/// Reads every value, so that a value that was not stored is detected.
fn read_all(table: &Table) {
    for group in &table.row_groups {
        for chunk in &group.chunks {
            let values = chunk.decode(0..group.rows).expect("all rows can be decoded");
            values.to_data().validate_full().expect("decoded values are sound");
            assert_eq!((values.len(), values.null_count()), (group.rows, chunk.null_count()));
        }
    }
}

/// Splits `data` into messages; the last may be cut off.
fn messages(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = data.split_first_chunk::<4>()?;
        let length = (u32::from_le_bytes(*length) as usize).min(rest.len());
        let (body, behind) = rest.split_at(length);
        data = behind;
        Some(body)
    })
}

fn message(kind: FrameKind, body: &[u8]) -> Message {
    let body = Bytes::copy_from_slice(body);
    Message { kind, stream: 1, bytes_on_wire: body.len() as u64, body }
}

/// Returns a small pool for all inputs: a table that does not fit is rejected.
fn pool() -> &'static Arc<Pool> {
    static POOL: OnceLock<Arc<Pool>> = OnceLock::new();
    POOL.get_or_init(|| Pool::new(PoolConfig { bytes_limit: 16 << 20 }).expect("a small pool can be made"))
}
