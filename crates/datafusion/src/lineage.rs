//! Determines which dynamic filters can be trusted.
//!
//! From the operator that derives a dynamic filter down to a scan, DataFusion 55.2 resolves the filter's columns by
//! name in the schema of each operator on the path. If two columns share a name (as after a join of two tables with an
//! `id` each), it takes the first, which may be the wrong one; the filter then removes rows that belong to the result.
//! This rule, which runs last, traces the columns of each filter back up, and removes filters that passed such a schema
//! or an unknown operator.
//!
//! Joins whose filters stay get a watch above their smaller side, which provides scans with its keys.
//!
//! Invariant: a filter that stays at a scan refers, at that scan, to the column that it was derived from.

use crate::dynamic::{KeyWatch, KeyWatchExec};
use crate::exec::PoolExec;
use arrow_schema::Schema;
use datafusion::common::JoinType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::buffer::BufferExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, PhysicalExpr};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The optimizer rule; see the documentation of this module.
#[derive(Debug)]
pub(crate) struct TrustedFilters;

impl PhysicalOptimizerRule for TrustedFilters {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        audit(&plan, &mut Vec::new());
        Ok(plan.transform_up(watched)?.data)
    }

    fn name(&self) -> &'static str {
        "trusted_filters"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// If `node` is a hash join whose dynamic filter a scan of a pool uses, inserts a [`KeyWatch`], which collects the join
/// keys, above the join's smaller side.
fn watched(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let Some(join) = node.downcast_ref::<HashJoinExec>() else { return Ok(Transformed::no(node)) };
    let made = join.dynamic_expressions_produced();
    let Some(id) = made.first().and_then(|filter| filter.expression_id()) else {
        return Ok(Transformed::no(node));
    };
    let partitions = join.left().output_partitioning().partition_count();
    let watch =
        Arc::new(KeyWatch::new(join.on().iter().map(|(left, _)| Arc::clone(left)).collect(), partitions));
    let mut heard = false;
    join.right().apply(|below| {
        if let Some(program) = below.downcast_ref::<PoolExec>()
            && program.listens_to(id)
        {
            program.listen_at(id, &watch);
            heard = true;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !heard {
        return Ok(Transformed::no(node));
    }
    let left: Arc<dyn ExecutionPlan> = Arc::new(KeyWatchExec::new(Arc::clone(join.left()), watch));
    let children = vec![left, Arc::clone(join.right())];
    Ok(Transformed::yes(Arc::new(join.builder().with_new_children(children)?.build()?)))
}

fn audit(plan: &Arc<dyn ExecutionPlan>, above: &mut Vec<Arc<dyn ExecutionPlan>>) {
    if let Some(program) = plan.downcast_ref::<PoolExec>() {
        program.retain_dynamic(|filter| is_trusted(filter, plan, above));
        return;
    }
    above.push(Arc::clone(plan));
    plan.children().into_iter().for_each(|child| audit(child, above));
    above.pop();
}

/// Returns whether `filter` refers, at `scan`, to the columns that it was derived from. `above` are the operators from
/// the root down to the scan.
fn is_trusted(
    filter: &Arc<dyn PhysicalExpr>,
    scan: &Arc<dyn ExecutionPlan>,
    above: &[Arc<dyn ExecutionPlan>],
) -> bool {
    let Some(id) = filter.expression_id() else { return false };
    let produces = |node: &Arc<dyn ExecutionPlan>| {
        node.dynamic_expressions_produced().iter().any(|made| made.expression_id() == Some(id))
    };
    let Some(producer) = above.iter().rposition(produces) else { return false };
    let passed = &above[producer + 1..];
    columns_of(filter).into_iter().all(|column| {
        let (mut names, mut below) = (BTreeSet::from([column]), scan);
        !ambiguous(&scan.schema(), &names)
            && passed.iter().rev().all(|node| match names_above(node, below, &names) {
                Some(above) => {
                    (names, below) = (above, node);
                    !names.is_empty() && !ambiguous(&node.schema(), &names)
                }
                None => false,
            })
    })
}

fn columns_of(filter: &Arc<dyn PhysicalExpr>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let visited = filter.apply(|expr| {
        if let Some(column) = expr.downcast_ref::<Column>() {
            names.insert(column.name().to_string());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(visited.is_ok(), "the visitor cannot fail");
    names
}

/// Maps the columns `names` of `input`, an input of `node`, to their names in the output of `node`; `None` if they are
/// ambiguous or the operator is unknown.
fn names_above(
    node: &Arc<dyn ExecutionPlan>,
    input: &Arc<dyn ExecutionPlan>,
    names: &BTreeSet<String>,
) -> Option<BTreeSet<String>> {
    let is_one = |expr: &Arc<dyn PhysicalExpr>| {
        expr.downcast_ref::<Column>().is_some_and(|column| names.contains(column.name()))
    };
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let outputs = projection.expr().iter().filter(|output| is_one(&output.expr));
        return Some(outputs.map(|output| output.alias.clone()).collect());
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        let keys = aggregate.group_expr().expr().iter().filter(|(key, _)| is_one(key));
        return Some(keys.map(|(_, name)| name.clone()).collect());
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        // Semi and anti joins output the columns of only one side. A filter that reached the other side did so by the
        // name of a join key.
        let hidden = match join.join_type() {
            JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => Some(join.right()),
            JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => Some(join.left()),
            _ => None,
        };
        return (!hidden.is_some_and(|side| Arc::ptr_eq(side, input))).then(|| names.clone());
    }
    keeps_names(node).then(|| names.clone())
}

/// Returns whether the operator forwards filters and keeps the names of columns.
fn keeps_names(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<RepartitionExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<CooperativeExec>()
        || node.is::<SortExec>()
        || node.is::<SortPreservingMergeExec>()
        || node.is::<FilterExec>()
        || node.is::<BufferExec>()
}

fn ambiguous(schema: &Schema, names: &BTreeSet<String>) -> bool {
    let count = |name: &String| schema.fields().iter().filter(|field| field.name() == name).count();
    names.iter().any(|name| count(name) > 1)
}
