//! Fixes `ORDER BY` of group keys of grouping sets (`ROLLUP`, `CUBE`), which are NULL in the rows of sets without them.
//! If a filter below the grouping compares a key with a constant, or its input is sorted by the key, DataFusion 55.2
//! assumes that the same is true above the grouping, and drops an `ORDER BY` of this key. This rule is obsolete once
//! upstream drops these properties at grouping sets.
//!
//! Invariant: properties of the rows below grouping sets are not assumed for the rows above. The rule runs before those
//! that insert sorts and repartition rows.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PhysicalExpr,
    PlanProperties,
};
use std::fmt;
use std::sync::Arc;

/// The physical optimizer rule that inserts `SetsExec` above grouping sets.
#[derive(Debug)]
pub struct KeysOfSets;

impl PhysicalOptimizerRule for KeysOfSets {
    fn name(&self) -> &'static str {
        "keys_of_sets"
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let covered = plan.transform_up(|node| {
            let groups_by_sets = |groups: &AggregateExec| groups.group_expr().has_grouping_set();
            Ok(match node.downcast_ref::<AggregateExec>().is_some_and(groups_by_sets) {
                true => Transformed::yes(Arc::new(SetsExec::new(node)) as _),
                false => Transformed::no(node),
            })
        });
        covered.data()
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns its input's rows unchanged, but declares none of their properties, such as a sort order.
#[derive(Debug)]
struct SetsExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl SetsExec {
    fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let partitions = input.output_partitioning().partition_count();
        let properties = PlanProperties::clone(input.properties())
            .with_eq_properties(EquivalenceProperties::new(input.schema()))
            .with_partitioning(Partitioning::UnknownPartitioning(partitions));
        SetsExec { input, properties: Arc::new(properties) }
    }
}

impl DisplayAs for SetsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SetsExec")
    }
}

impl ExecutionPlan for SetsExec {
    fn name(&self) -> &'static str {
        "SetsExec"
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

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(SetsExec::new(input))),
            _ => Err(DataFusionError::Internal("it has one input".to_string())),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }
}
