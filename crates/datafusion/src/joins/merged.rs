//! Replaces hash joins whose hash tables need too much memory by sort-merge joins, because sorts can spill to files and
//! hash tables cannot.
//!
//! A statement that has run out of memory is planned again with a lower limit for the hash tables (see [`HashTables`]),
//! and then once more without any hash tables. Hash joins are not replaced before a statement has failed, because
//! estimates are often too high by orders of magnitude (for example for groups with a HAVING), and a hash join that
//! fits is several times as fast.
//!
//! Invariant: a sort-merge join returns the rows of the hash join that it replaces. Joins that it does not support stay
//! hash joins: `NOT IN`, where a NULL matters (`null_aware`), and join keys of other types than those of [`has_order`].

use super::physical::registry;
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Schema, SortOptions};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinSide, JoinType, ScalarValue, internal_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, lit};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{HashJoinExec, JoinOn, SortMergeJoinExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions, SendableRecordBatchStream,
};
use futures::{TryStreamExt, stream};
use std::fmt;
use std::sync::Arc;

/// Bytes per row of a hash table in addition to the columns, for the estimate: a hash, an index, and unused capacity.
const ROW_BYTES: usize = 24;

/// Assumed bytes of a value of variable size, such as a string, because estimates do not include lengths.
const VALUE_BYTES: usize = 32;

/// Minimum bytes of memory for each sort below a join; the number of threads is reduced to reach it. Reason: the sort
/// may use about half of it (see `crate::memory`), which holds some batches of wide rows.
const SORT_BYTES_MIN: usize = 16 << 20;

/// Limit for the total size of all hash tables of a plan, which is compared with estimates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HashTables {
    bytes_max: usize,
}

impl HashTables {
    /// Returns the limit for the next attempt, after `failed` plans that ran out of `memory_bytes`: a quarter of the
    /// memory, then zero. Returns `None` if no attempts remain.
    pub(crate) fn after(failed: usize, memory_bytes: usize) -> Option<Self> {
        let bytes_max = match failed {
            // The sorts need the rest of the memory. With an eighth, q09 of TPC-H at scale 10 takes 32 s within 512
            // MiB, with a quarter 2 s, because join keys are sent to the pool only from hash tables.
            1 => memory_bytes / 4,
            2 => 0,
            _ => return None,
        };
        Some(HashTables { bytes_max })
    }

    /// Returns the maximum number of threads for a plan with `joins` joins, so that each of their sorts has enough of
    /// `memory_bytes`. The last attempt, without hash tables, gets one thread, which needs the least memory.
    pub(crate) fn threads_max(self, joins: usize, memory_bytes: usize) -> usize {
        match self.bytes_max {
            0 => 1,
            _ => (memory_bytes / (2 * joins.max(1) * SORT_BYTES_MIN)).max(1),
        }
    }

    /// Returns the size in bytes from which on hash tables must be replaced, largest first, so that the others fit the
    /// limit; `None` if all may stay.
    fn cut(self, mut bytes: Vec<usize>) -> Option<usize> {
        bytes.sort_unstable();
        let mut cut = None;
        while bytes.iter().fold(0_usize, |sum, bytes| sum.saturating_add(*bytes)) > self.bytes_max {
            cut = bytes.pop();
        }
        cut
    }

    /// Estimates the bytes of the hash table of `join`; returns `usize::MAX` if the number of rows is not known.
    fn bytes(join: &HashJoinExec) -> Result<usize> {
        let built = join.left();
        let Some(rows) = registry().compute(built.as_ref())?.base().num_rows.get_value().copied() else {
            return Ok(usize::MAX);
        };
        let schema = built.schema();
        let widths = schema.fields().iter().map(|f| f.data_type().primitive_width().unwrap_or(VALUE_BYTES));
        Ok(rows.max(1).saturating_mul(ROW_BYTES + widths.sum::<usize>()))
    }
}

/// The optimizer rule that replaces hash joins; see the documentation of this module.
#[derive(Debug)]
pub(crate) struct MergedJoins(pub HashTables);

impl PhysicalOptimizerRule for MergedJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut bytes = Vec::new();
        plan.apply(|node| {
            if let Some(join) = replaceable(node)? {
                bytes.push(HashTables::bytes(join)?);
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        let Some(cut) = self.0.cut(bytes) else { return Ok(plan) };
        // From the root down, so that the inputs of each join, from which its size is estimated, are still unchanged.
        plan.transform_down(|node| match replaceable(&node)? {
            Some(join) if HashTables::bytes(join)? >= cut => Ok(Transformed::yes(merged(join)?)),
            _ => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "merged_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The optimizer rule that puts [`FencedExec`] around the sorts below sort-merge joins. It runs after the sorts have
/// been inserted.
#[derive(Debug)]
pub(crate) struct CompactRows;

impl PhysicalOptimizerRule for CompactRows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let compact = |side: &Arc<dyn ExecutionPlan>| match side.downcast_ref::<SortExec>() {
            Some(sort) => {
                let rows = Arc::new(FencedExec(Arc::clone(sort.input())));
                Arc::clone(side).replace_children(vec![rows], same_properties())
            }
            None => Ok(Arc::clone(side)),
        };
        plan.transform_up(|node| {
            if !node.is::<SortMergeJoinExec>() {
                return Ok(Transformed::no(node));
            }
            let sides = node.children().into_iter().map(compact).collect::<Result<Vec<_>>>()?;
            Ok(Transformed::yes(node.replace_children(sides, same_properties())?))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "compact_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn same_properties() -> ReplaceChildrenOptions {
    ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep)
}

/// Returns `node` as a hash join if a sort-merge join can replace it; otherwise `None`.
fn replaceable(node: &Arc<dyn ExecutionPlan>) -> Result<Option<&HashJoinExec>> {
    let Some(join) = node.downcast_ref::<HashJoinExec>() else { return Ok(None) };
    if join.null_aware || join.fetch().is_some() {
        return Ok(None);
    }
    // For joins that return only one side, DataFusion uses another stream, whose comparison panics for NaN.
    let with_floats =
        matches!(join.join_type(), JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full);
    let (left, right) = (join.left().schema(), join.right().schema());
    for (ours, theirs) in join.on() {
        let types = [ours.data_type(&left)?, theirs.data_type(&right)?];
        if !types.iter().all(|t| has_order(t) || with_floats && is_float(t)) {
            return Ok(None);
        }
    }
    Ok(Some(join))
}

fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

/// Returns whether sorts and all comparisons of join keys order values of this type in the same way.
fn has_order(data_type: &DataType) -> bool {
    data_type.is_integer()
        || data_type.is_string()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::FixedSizeBinary(_)
                | DataType::Decimal128(..)
                | DataType::Date32
                | DataType::Date64
                | DataType::Timestamp(..)
        )
}

/// Returns the sort-merge join that replaces `join`. A later rule inserts the sorts below it, as for any operator that
/// requires sorted input.
fn merged(join: &HashJoinExec) -> Result<Arc<dyn ExecutionPlan>> {
    let (left, right) = (join.left().schema(), join.right().schema());
    let key = |(ours, theirs): &(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)| {
        Ok((ordered(ours, &ours.data_type(&left)?)?, ordered(theirs, &theirs.data_type(&right)?)?))
    };
    let on = join.on().iter().map(key).collect::<Result<JoinOn>>()?;
    let orders = vec![SortOptions::default(); on.len()];
    let merged: Arc<dyn ExecutionPlan> = Arc::new(SortMergeJoinExec::try_new(
        Arc::clone(join.left()),
        Arc::clone(join.right()),
        on,
        join.filter().map(left_first).transpose()?,
        *join.join_type(),
        orders,
        join.null_equality(),
    )?);
    let merged: Arc<dyn ExecutionPlan> = Arc::new(FencedExec(merged));
    let Some(kept) = &join.projection else { return Ok(merged) };
    let schema = merged.schema();
    let column = |&index: &usize| {
        let name = schema.field(index).name().clone();
        (Arc::new(Column::new(&name, index)) as Arc<dyn PhysicalExpr>, name)
    };
    Ok(Arc::new(ProjectionExec::try_new(kept.iter().map(column), merged)?))
}

/// Returns its input's rows unchanged; it stands between sort-merge joins and the operators above, and between their
/// sorts and the inputs of these, for two reasons.
///
/// It copies strings to memory of their own, in batches of the usual size, because a batch may keep alive the strings
/// of many others, and sorts and joins count all memory that a batch refers to.
///
/// It also keeps projections above: if DataFusion 55.2 pushes one below such a join, the join's filter still refers to
/// the columns from before, and the mark of a mark join is taken for a column of the other side.
#[derive(Debug)]
struct FencedExec(Arc<dyn ExecutionPlan>);

impl DisplayAs for FencedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FencedExec")
    }
}

impl ExecutionPlan for FencedExec {
    fn name(&self) -> &'static str {
        "FencedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.0.properties()
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
        vec![&self.0]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([join]) = <[_; 1]>::try_from(children) else { return internal_err!("a fence has one input") };
        Ok(Arc::new(FencedExec(join)))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let rows_max = context.session_config().batch_size().max(1);
        let rows = self.0.execute(partition, context)?;
        let compact = rows.map_ok(move |batch| {
            let starts = (0..batch.num_rows()).step_by(rows_max);
            let piece = move |at: usize| compact(&batch.slice(at, rows_max.min(batch.num_rows() - at)));
            stream::iter(starts.map(piece))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), compact.try_flatten())))
    }
}

/// Copies the strings of a batch that refers to the memory of many others.
fn compact(batch: &RecordBatch) -> Result<RecordBatch> {
    let columns = batch.columns().iter().map(|column| -> ArrayRef {
        if let Some(texts) = column.as_string_view_opt() {
            Arc::new(texts.gc())
        } else if let Some(texts) = column.as_binary_view_opt() {
            Arc::new(texts.gc())
        } else {
            Arc::clone(column)
        }
    });
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(batch.schema(), columns.collect(), &options)?)
}

/// Returns the filter with the columns of the left side first, as the sort-merge join of DataFusion 55.2 passes them.
/// After the sides of a hash join have been swapped, its columns have the old order. Each column is nullable, as in
/// unmatched rows, for which that join evaluates the filter as well.
fn left_first(filter: &JoinFilter) -> Result<JoinFilter> {
    let columns = filter.column_indices();
    let mut order: Vec<usize> = (0..columns.len()).collect();
    order.sort_by_key(|&place| columns[place].side != JoinSide::Left);
    let expression = Arc::clone(filter.expression()).transform(|expr| {
        let Some(column) = expr.downcast_ref::<Column>() else { return Ok(Transformed::no(expr)) };
        let Some(place) = order.iter().position(|&before| before == column.index()) else {
            return internal_err!("a filter of a join reads a column that it does not have");
        };
        Ok(Transformed::yes(Arc::new(Column::new(column.name(), place)) as _))
    })?;
    let fields = filter.schema().fields();
    let schema = Schema::new(
        order.iter().map(|&i| fields[i].as_ref().clone().with_nullable(true)).collect::<Vec<_>>(),
    );
    let columns = order.iter().map(|&place| columns[place].clone()).collect();
    Ok(JoinFilter::new(expression.data, columns, Arc::new(schema)))
}

/// Returns an expression to sort and join by in place of the join key. It is equal exactly when the key is, and sorts
/// as the sort-merge join assumes. Two kinds of keys need it: joins consider 0.0 and -0.0 equal, while sorts do not, so
/// that following keys would be out of order; and not all comparisons support timestamps with a time zone, which are
/// therefore compared as integers.
fn ordered(key: &Arc<dyn PhysicalExpr>, data_type: &DataType) -> Result<Arc<dyn PhysicalExpr>> {
    let key = Arc::clone(key);
    Ok(match data_type {
        DataType::Timestamp(_, Some(_)) => Arc::new(CastExpr::new(key, DataType::Int64, None)),
        float if is_float(float) => {
            let zero = lit(ScalarValue::from(0.0).cast_to(float)?);
            Arc::new(BinaryExpr::new(key, Operator::Plus, zero))
        }
        _ => key,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_hash_tables_are_the_first_to_go() {
        let cut = |failed, bytes: &[usize]| HashTables::after(failed, 400).unwrap().cut(bytes.to_vec());
        assert_eq!(cut(1, &[]), None);
        assert_eq!(cut(1, &[60, 40]), None, "they fit");
        assert_eq!(cut(1, &[10, 701, 50]), Some(701));
        assert_eq!(cut(1, &[900, 51, 50]), Some(51));
        assert_eq!(cut(1, &[usize::MAX, 60, usize::MAX, 40]), Some(usize::MAX));
        assert_eq!(cut(2, &[60, 40]), Some(40));
        assert_eq!(HashTables::after(3, 800), None);
        let threads = |failed, mib: usize| {
            let tables = HashTables::after(failed, mib << 20).unwrap();
            tables.threads_max(2, mib << 20)
        };
        assert_eq!([threads(1, 640), threads(1, 10), threads(2, 640)], [10, 1, 1]);
    }
}
