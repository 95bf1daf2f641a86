//! Chooses the hash joins whose hash table is built by one thread, so that the rows of the other side need not be
//! repartitioned by the join keys.
//!
//! DataFusion does so up to a fixed number of rows, independently of the number of threads. With few threads,
//! partitioning speeds up the build only little, while every row of the other side is copied for it. Only joins that
//! keep no unmatched rows (such as inner joins) are changed, because a grouping by the join keys above an outer join,
//! as in TPC-H Q13, benefits from the partitioning.
//!
//! Invariant: the join itself stays the same, including its sides.

use super::merged::{HashTables, MergedJoins};
use super::physical::registry;
use datafusion::common::JoinType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::join_selection::JoinSelection;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use farpool_sql::KeysOfSets;
use std::any::Any;
use std::sync::Arc;

/// Maximum number of rows from which one thread builds a hash table, multiplied by the number of threads. Reason,
/// measured on two cores: TPC-H's Q3 (147 thousand rows) takes four fifths of the time of the partitioned join, Q5 (150
/// thousand) nine tenths, but Q18 (1.5 million) four times as long.
const COLLECTED_ROWS: usize = 512 << 10;

/// Returns DataFusion's physical optimizer rules, with [`CollectedJoins`] after the rule that chooses the build sides
/// of joins, and another rule before all others. If `tables` limits the size of hash tables, a later rule replaces the
/// joins that exceed the limit.
pub(crate) fn rules(tables: Option<HashTables>) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    // The physical rule FilterPushdown is left out: conditions have already moved down in the logical plan. The rule
    // finds the columns of conditions by their names alone, so that it may move a condition on one side of an outer
    // join to a column of the same name on the other side. It can be used again once upstream finds columns by their
    // positions, as it does for dynamic filters at hash joins.
    rules.retain(|rule| rule.name() != "FilterPushdown");
    let chooses = |rule: &Arc<dyn PhysicalOptimizerRule + Send + Sync>| {
        let rule: &dyn Any = &**rule;
        rule.is::<JoinSelection>()
    };
    let chosen = rules.iter().position(chooses);
    debug_assert!(chosen.is_some(), "DataFusion chooses the sides of joins elsewhere");
    let behind = chosen.map_or(0, |place| place + 1);
    if let Some(tables) = tables {
        rules.insert(behind, Arc::new(MergedJoins(tables)));
    }
    rules.insert(behind, Arc::new(CollectedJoins));
    rules.insert(0, Arc::new(KeysOfSets));
    rules
}

/// The optimizer rule; see the documentation of this module.
#[derive(Debug)]
struct CollectedJoins;

impl PhysicalOptimizerRule for CollectedJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rows_max = COLLECTED_ROWS / config.execution.target_partitions.max(1);
        plan.transform_up(|node| match collected(&node, rows_max)? {
            Some(join) => Ok(Transformed::yes(join)),
            None => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "collected_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns the join with a hash table that one thread builds, if `node` is a partitioned hash join that builds from up
/// to `rows_max` rows; otherwise `None`.
fn collected(node: &Arc<dyn ExecutionPlan>, rows_max: usize) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(join) = node.downcast_ref::<HashJoinExec>() else { return Ok(None) };
    let matched = matches!(join.join_type(), JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi);
    if !matched || *join.partition_mode() != PartitionMode::Partitioned {
        return Ok(None);
    }
    let rows = registry().compute(join.left().as_ref())?.base().num_rows;
    if rows.get_value().is_none_or(|rows| *rows > rows_max) {
        return Ok(None);
    }
    Ok(Some(Arc::new(join.builder().with_partition_mode(PartitionMode::CollectLeft).build()?)))
}
