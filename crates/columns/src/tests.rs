//! Tests chunks against the Arrow arrays from which they were encoded, and tables against their batches.

pub(crate) mod arrays;
mod bytes;
mod chunks;
mod encrypted;
mod tables;

use crate::{Chunk, encode_row_group};
use arrow_array::ArrayRef;
use arrow_schema::{Field, Schema, SchemaRef};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::TenantName;
use std::sync::Arc;

/// Returns a memory pool of `mebibytes` MiB.
pub(crate) fn pool(mebibytes: usize) -> Arc<Pool> {
    Pool::new(PoolConfig { bytes_limit: mebibytes << 20 }).unwrap()
}

pub(crate) fn schema_of(columns: &[ArrayRef]) -> SchemaRef {
    let field =
        |(i, column): (usize, &ArrayRef)| Field::new(format!("c{i}"), column.data_type().clone(), true);
    Arc::new(Schema::new(columns.iter().enumerate().map(field).collect::<Vec<_>>()))
}

/// Encodes the column as a chunk in `pool`.
fn encoded(pool: &Arc<Pool>, array: &ArrayRef) -> Arc<Chunk> {
    let columns = [Arc::clone(array)];
    let group = encode_row_group(pool, &TenantName::default(), &schema_of(&columns), &columns).unwrap();
    assert_eq!(group.rows, array.len());
    Arc::clone(&group.chunks[0])
}
