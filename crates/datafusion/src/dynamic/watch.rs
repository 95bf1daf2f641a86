//! Collects the join keys of a join's smaller (build) side while its rows pass into the join.
//!
//! DataFusion itself reports to a scan the least and the greatest key, and either the join's hash table, which cannot
//! be sent to a pool (the store of the scanned table), or every key as an expression. The latter takes 150 ns per key
//! before the scan can start, or a microsecond for several columns. A [`KeyWatch`] instead keeps the key columns of the
//! batches as they pass.
//!
//! Invariant: keys are reported only after every partition of the smaller side has ended, and either all of them or
//! none.

use super::keys::{KEY_BYTES_MAX, KEYS_MAX};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::DataType;
use arrow_select::concat::concat;
use arrow_select::take::take;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PhysicalExpr, PlanProperties,
    SendableRecordBatchStream,
};
use futures::StreamExt;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

/// The join keys collected so far, from all partitions of the smaller side.
#[derive(Debug)]
pub(crate) struct KeyWatch {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Number of partitions of the smaller side that have not ended.
    open: usize,
    rows: usize,
    bytes: usize,
    /// The key columns of each batch; `None` if there were too many keys.
    batches: Option<Vec<Vec<ArrayRef>>>,
}

impl KeyWatch {
    /// Creates a watch for the join keys `keys`, expressions over the rows of the smaller side, which has `partitions`
    /// partitions.
    pub(crate) fn new(keys: Vec<Arc<dyn PhysicalExpr>>, partitions: usize) -> KeyWatch {
        KeyWatch {
            keys,
            state: Mutex::new(State { open: partitions, rows: 0, bytes: 0, batches: Some(Vec::new()) }),
        }
    }

    /// Returns the values of each key column over all rows; `None` if more rows may come, or if there were too many.
    /// Does not block.
    pub(super) fn keys(&self) -> Option<Vec<ArrayRef>> {
        let state = self.state.lock();
        let batches = state.batches.as_ref().filter(|_| state.open == 0)?;
        let of_key = |key: usize| {
            let values: Vec<&dyn Array> = batches.iter().map(|batch| &*batch[key]).collect();
            concat(&values).ok()
        };
        (0..self.keys.len()).map(of_key).collect()
    }

    /// Collects the join keys of a batch.
    pub(crate) fn take(&self, batch: &RecordBatch) {
        let state = &mut *self.state.lock();
        state.rows += batch.num_rows();
        if state.rows > KEYS_MAX {
            state.batches = None;
        }
        let Some(batches) = &mut state.batches else { return };
        let of_key =
            |key: &Arc<dyn PhysicalExpr>| compact(&key.evaluate(batch)?.into_array(batch.num_rows())?);
        match self.keys.iter().map(of_key).collect::<Result<Vec<ArrayRef>>>() {
            Ok(keys) => {
                state.bytes += keys.iter().map(|key| key.get_buffer_memory_size()).sum::<usize>();
                batches.push(keys);
            }
            // The key expression fails on a row: no keys are reported, and the join will fail with the same error.
            Err(_) => state.batches = None,
        }
        if state.bytes > KEY_BYTES_MAX {
            state.batches = None;
        }
    }

    /// Records that one partition of the smaller side has ended.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.open = state.open.saturating_sub(1);
    }
}

/// Copies the values to memory of their own, because a column of a batch may keep the whole received message alive.
fn compact(values: &ArrayRef) -> Result<ArrayRef> {
    match values.data_type() {
        DataType::Utf8View => Ok(Arc::new(values.as_string_view().gc())),
        DataType::BinaryView => Ok(Arc::new(values.as_binary_view().gc())),
        _ => {
            let every = UInt32Array::from_iter_values(0..u32::try_from(values.len()).unwrap_or(u32::MAX));
            Ok(take(values, &every, None)?)
        }
    }
}

/// A physical operator that returns its input unchanged and passes each batch to a [`KeyWatch`].
#[derive(Debug)]
pub(crate) struct KeyWatchExec {
    input: Arc<dyn ExecutionPlan>,
    watch: Arc<KeyWatch>,
}

impl KeyWatchExec {
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, watch: Arc<KeyWatch>) -> Self {
        debug_assert_eq!(watch.state.lock().open, input.output_partitioning().partition_count());
        KeyWatchExec { input, watch }
    }
}

impl DisplayAs for KeyWatchExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<String> = self.watch.keys.iter().map(ToString::to_string).collect();
        write!(f, "KeyWatchExec: keys=[{}]", keys.join(", "))
    }
}

impl ExecutionPlan for KeyWatchExec {
    fn name(&self) -> &'static str {
        "KeyWatchExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        datafusion::physical_plan::execution_plan::apply_expression_roots(&self.watch.keys, f)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [input] = <[_; 1]>::try_from(children)
            .map_err(|_| DataFusionError::Internal("a watch has one input".to_string()))?;
        Ok(Arc::new(KeyWatchExec { input, watch: Arc::clone(&self.watch) }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut input = self.input.execute(partition, context)?;
        let watch = Arc::clone(&self.watch);
        let mut ended = false;
        let watched = futures::stream::poll_fn(move |context| {
            let next = input.poll_next_unpin(context);
            match &next {
                std::task::Poll::Ready(Some(Ok(batch))) => watch.take(batch),
                std::task::Poll::Ready(None) if !std::mem::replace(&mut ended, true) => watch.end(),
                _ => {}
            }
            next
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), watched)))
    }
}
