//! INSERT INTO a table of a pool (the store of the table): the rows are loaded as a new version of the table.

use crate::table::PoolTable;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use datafusion::datasource::sink::DataSink;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, SendableRecordBatchStream};
use farpool_model::LoadMode;
use farpool_sql::error;
use futures::{StreamExt, TryStreamExt};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The DataFusion sink of INSERT: loads its input rows into a table of a pool.
#[derive(Debug)]
pub(crate) struct PoolSink {
    pub table: PoolTable,
    pub mode: LoadMode,
}

impl DisplayAs for PoolSink {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolSink: table={}, mode={:?}", self.table.info().name, self.mode)
    }
}

#[async_trait]
impl DataSink for PoolSink {
    fn schema(&self) -> &SchemaRef {
        &self.table.info().schema
    }

    async fn write_all(&self, data: SendableRecordBatchStream, _context: &Arc<TaskContext>) -> Result<u64> {
        let rows = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&rows);
        let batches = data.map_err(error::unwrap).inspect_ok(move |batch| {
            counted.fetch_add(farpool_model::cast::u64_from(batch.num_rows()), Ordering::Relaxed);
        });
        let (name, schema) = (&self.table.info().name, Arc::clone(self.schema()));
        let loaded = self.table.pool().load(name, self.mode.into(), schema, None, batches.boxed()).await;
        loaded.map_err(error::wrap)?;
        Ok(rows.load(Ordering::Relaxed))
    }
}
