//! Materialized rows, for parts of a plan that several readers share and that might return different rows each time.
//! The first reader runs the plan and stores its rows; the others read the stored rows.
//!
//! All rows are kept in memory, which is reserved from the statement's memory pool; the plan fails if they do not fit.
//! The rows are one stream, without a sort order or partitions.

use arrow_array::RecordBatch;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchemaRef, DataFusionError};
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, Partitioning, PlanProperties,
};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use futures::{StreamExt, TryStreamExt, stream};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, atomic};
use tokio::sync::OnceCell;

/// Wraps a plan, so that all its clones return the same rows.
pub(super) fn shared(plan: LogicalPlan) -> LogicalPlan {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, atomic::Ordering::Relaxed);
    let node = Once { number, input: plan, kept: Arc::default() };
    LogicalPlan::Extension(Extension { node: Arc::new(node) })
}

/// Returns whether a plan node shares its rows among readers. Conditions of one reader must not be pushed below it,
/// because the other readers need the other rows as well.
pub fn are_shared(extension: &Extension) -> bool {
    extension.node.as_any().is::<Once>()
}

/// The stored rows; empty until the first reader has stored them.
#[derive(Default)]
struct Kept {
    rows: OnceCell<(Vec<RecordBatch>, MemoryReservation)>,
}

#[derive(Clone)]
struct Once {
    number: u64,
    input: LogicalPlan,
    kept: Arc<Kept>,
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Once({})", self.number)
    }
}

impl PartialEq for Once {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number && self.input == other.input
    }
}

impl Eq for Once {}

impl Hash for Once {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl PartialOrd for Once {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.number.partial_cmp(&other.number)
    }
}

impl UserDefinedLogicalNodeCore for Once {
    fn name(&self) -> &str {
        "Once"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Once: rows={}", self.number)
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        match (inputs.pop(), inputs.is_empty()) {
            (Some(input), true) => Ok(Once { input, ..self.clone() }),
            _ => Err(DataFusionError::Internal("it has one input".to_string())),
        }
    }

    fn necessary_children_exprs(&self, _: &[usize]) -> Option<Vec<Vec<usize>>> {
        // All columns are needed, because readers may need different ones.
        Some(vec![(0..self.input.schema().fields().len()).collect()])
    }
}

/// Plans the physical operator for shared rows.
#[derive(Debug)]
pub struct OncePlanner;

#[async_trait]
impl ExtensionPlanner for OncePlanner {
    async fn plan_extension(
        &self,
        _: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &dyn Session,
        _: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<Once>() else { return Ok(None) };
        Ok(inputs
            .first()
            .map(|input| Arc::new(OnceExec::new(Arc::clone(input), Arc::clone(&node.kept))) as _))
    }
}

struct OnceExec {
    input: Arc<dyn ExecutionPlan>,
    kept: Arc<Kept>,
    properties: Arc<PlanProperties>,
}

impl fmt::Debug for OnceExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnceExec")
    }
}

impl OnceExec {
    fn new(input: Arc<dyn ExecutionPlan>, kept: Arc<Kept>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        OnceExec { input, kept, properties: Arc::new(properties) }
    }
}

impl DisplayAs for OnceExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnceExec")
    }
}

impl ExecutionPlan for OnceExec {
    fn name(&self) -> &'static str {
        "OnceExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(OnceExec::new(input, Arc::clone(&self.kept)))),
            _ => Err(DataFusionError::Internal("it has one input".to_string())),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (input, kept) = (Arc::clone(&self.input), Arc::clone(&self.kept));
        let batches = stream::once(async move {
            let (batches, _) = kept.rows.get_or_try_init(|| collected(input, partition, context)).await?;
            Ok::<_, DataFusionError>(stream::iter(batches.clone().into_iter().map(Ok)))
        });
        let schema = self.input.schema();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches.try_flatten().boxed())))
    }
}

async fn collected(
    input: Arc<dyn ExecutionPlan>,
    partition: usize,
    context: Arc<TaskContext>,
) -> Result<(Vec<RecordBatch>, MemoryReservation)> {
    let reservation = MemoryConsumer::new("rows that are read twice").register(context.memory_pool());
    let mut rows = input.execute(partition, context)?;
    let mut batches = Vec::new();
    while let Some(batch) = rows.try_next().await? {
        reservation.try_grow(batch.get_array_memory_size())?;
        batches.push(batch);
    }
    Ok((batches, reservation))
}
