//! Encoded column chunks in pool memory.

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{DataType, Schema, SchemaRef};
use farpool_memory::Pool;
use farpool_model::{ColumnStatistics, CompareOp, Literal, Result, TenantName};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// How a chunk is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EncodingKind {
    /// One value.
    Constant,
    /// Fixed width.
    Plain,
    /// Packed.
    BitPacked,
    /// Dictionary.
    Dictionary,
    /// Bytes.
    PlainBytes,
    /// FSST.
    Fsst,
}

/// Zone map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ZoneMap {
    /// Least.
    pub min: Option<Literal>,
    /// Greatest.
    pub max: Option<Literal>,
    /// NULLs.
    pub null_count: usize,
}

/// A chunk.
#[derive(Debug)]
pub struct Chunk;

#[expect(missing_docs, reason = "skeleton")]
impl Chunk {
    pub fn data_type(&self) -> &DataType {
        todo!()
    }
    pub fn rows(&self) -> usize {
        todo!()
    }
    pub fn null_count(&self) -> usize {
        todo!()
    }
    pub fn bytes_encoded(&self) -> usize {
        todo!()
    }
    pub fn zone(&self) -> &ZoneMap {
        todo!()
    }
    pub fn encoding(&self) -> EncodingKind {
        todo!()
    }
    pub fn decode(&self, _rows: Range<usize>) -> Result<ArrayRef> {
        todo!()
    }
    pub fn gather(&self, _rows: &[u32]) -> Result<ArrayRef> {
        todo!()
    }
    pub fn validity(&self, _rows: Range<usize>) -> Option<BooleanBuffer> {
        todo!()
    }
    pub fn integers(&self) -> Option<Integers<'_>> {
        todo!()
    }
    pub fn dictionary(&self) -> Option<Dictionary<'_>> {
        todo!()
    }
    pub fn to_bytes(&self) -> Vec<u8> {
        todo!()
    }
    pub fn from_bytes(_pool: &Arc<Pool>, _tenant: &TenantName, _bytes: &[u8]) -> Result<Chunk> {
        todo!()
    }
}

/// Integers.
#[derive(Clone, Copy, Debug)]
pub struct Integers<'a>(PhantomData<&'a ()>);

#[expect(missing_docs, reason = "skeleton")]
impl Integers<'_> {
    pub fn min(&self) -> i64 {
        todo!()
    }
    pub fn max(&self) -> i64 {
        todo!()
    }
    pub fn rows(&self) -> usize {
        todo!()
    }
    pub fn lane_bits(&self) -> u32 {
        todo!()
    }
    /// `out` is cleared first.
    pub fn unpack(&self, _rows: Range<usize>, _out: &mut Vec<i64>) {
        todo!()
    }
    /// Bits beyond the range are cleared.
    pub fn compare(&self, _op: CompareOp, _literal: i128, _rows: Range<usize>, _out: &mut [u64]) {
        todo!()
    }
    /// Values minus `min()`; `lane_bits()` must be 8. `out` is cleared first.
    pub fn unpack_deltas_u8(&self, _rows: Range<usize>, _out: &mut Vec<u8>) {
        todo!()
    }
    /// Values minus `min()`; `lane_bits()` must be 16. `out` is cleared first.
    pub fn unpack_deltas_u16(&self, _rows: Range<usize>, _out: &mut Vec<u16>) {
        todo!()
    }
    /// Values minus `min()`; `lane_bits()` must be 32. `out` is cleared first.
    pub fn unpack_deltas_u32(&self, _rows: Range<usize>, _out: &mut Vec<u32>) {
        todo!()
    }
}

/// Dictionary.
#[derive(Clone, Copy, Debug)]
pub struct Dictionary<'a>(PhantomData<&'a ()>);

#[expect(missing_docs, reason = "skeleton")]
impl<'a> Dictionary<'a> {
    pub fn values(&self) -> &'a ArrayRef {
        todo!()
    }
    pub fn codes(&self) -> Integers<'a> {
        todo!()
    }
}

/// A row group.
#[derive(Debug)]
pub struct RowGroup {
    /// Rows.
    pub rows: usize,
    /// Chunks.
    pub chunks: Vec<Arc<Chunk>>,
}

/// A table.
#[derive(Debug)]
pub struct Table {
    /// Canonical schema.
    pub schema: SchemaRef,
    /// Row groups.
    pub row_groups: Vec<Arc<RowGroup>>,
    /// Statistics by column.
    pub statistics: Vec<ColumnStatistics>,
    /// Rows.
    pub rows: u64,
    /// Plain Arrow bytes.
    pub bytes_plain: u64,
    /// Encoded bytes.
    pub bytes_encoded: u64,
    distinct: (),
}

/// Encodes row groups of one table; several threads may use it at once.
#[derive(Clone, Debug)]
pub struct Encoder;

#[expect(missing_docs, reason = "skeleton")]
impl Encoder {
    pub fn encode(&self, _columns: &[ArrayRef]) -> Result<RowGroup> {
        todo!()
    }
}

/// Builder.
#[derive(Debug)]
pub struct TableBuilder;

#[expect(missing_docs, reason = "skeleton")]
impl TableBuilder {
    pub fn new(
        _pool: Arc<Pool>,
        _tenant: TenantName,
        _schema: &Schema,
        _rows_hint: Option<u64>,
    ) -> Result<Self> {
        todo!()
    }
    pub fn append_to(
        _pool: Arc<Pool>,
        _base: &Table,
        _tenant: TenantName,
        _rows_hint: Option<u64>,
    ) -> Result<Self> {
        todo!()
    }
    pub fn schema(&self) -> &SchemaRef {
        todo!()
    }
    /// Buffers, and encodes full row groups itself.
    pub fn push(&mut self, _batch: &RecordBatch) -> Result<()> {
        todo!()
    }
    /// Buffers only: for owners that take full row groups and encode them on their own threads.
    pub fn buffer(&mut self, _batch: &RecordBatch) -> Result<()> {
        todo!()
    }
    /// The next full row group that waits for its encoding.
    pub fn take_full_row_group(&mut self) -> Option<Vec<ArrayRef>> {
        todo!()
    }
    /// What remains when no more rows come: less than a row group.
    pub fn take_last_row_group(&mut self) -> Option<Vec<ArrayRef>> {
        todo!()
    }
    /// Row groups keep the order in which they are added.
    pub fn add_row_group(&mut self, _group: RowGroup) -> Result<()> {
        todo!()
    }
    /// Packs the row groups of this table closer together than [`encode_row_group`] does.
    pub fn encoder(&self) -> Encoder {
        todo!()
    }
    pub fn finish(self) -> Result<Table> {
        todo!()
    }
}

/// Encodes.
pub fn encode_row_group(
    _pool: &Arc<Pool>,
    _tenant: &TenantName,
    _schema: &SchemaRef,
    _columns: &[ArrayRef],
) -> Result<RowGroup> {
    todo!()
}
