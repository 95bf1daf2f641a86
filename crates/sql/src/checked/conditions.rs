//! Guards filter conditions, parts of which may fail on some rows (for instance by a division by zero).
//!
//! Invariant: a row makes a statement fail only if an operand of its AND or OR fails on the row and no other operand
//! decides the result for it. That does not depend on the order in which the operands are written, or on where they are
//! evaluated. An operand decides an AND if it is not true, and an OR if it is true. DataFusion 55.2 evaluates both
//! sides of AND and OR on all rows of a batch unless the first side decides nearly all of them. This module is obsolete
//! once upstream evaluates the second side on undecided rows only.
//!
//! Cost: operands are evaluated on whole batches as long as none fails. An operand that fails is evaluated again on the
//! undecided rows; these are halved repeatedly to find the rows on which it fails.

use super::guard::{Risk, cast_may_fail};
use super::operation_of;
use crate::types::is_cast_function;
use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_schema::{DataType, Schema};
use arrow_select::filter::filter_record_batch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The physical optimizer rule that guards filters. It runs last, because other rules need to recognize AND.
#[derive(Debug)]
pub struct GuardedFilters;

impl PhysicalOptimizerRule for GuardedFilters {
    fn name(&self) -> &'static str {
        "guarded_filters"
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let guarded = plan.transform_up(|plan| {
            let Some(filter) = plan.downcast_ref::<FilterExec>() else { return Ok(Transformed::no(plan)) };
            let schema = filter.input().schema();
            if risk(filter.predicate(), &schema)? == Risk::None {
                return Ok(Transformed::no(plan));
            }
            let predicate = guarded(filter.predicate(), &schema)?;
            let filter = FilterExecBuilder::from(filter).with_predicate(predicate).build()?;
            Ok(Transformed::yes(Arc::new(filter) as _))
        })?;
        Ok(guarded.data)
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Guards a condition of which it only matters whether it is true: NULL and false are equivalent.
fn guarded(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
    let op = match expr.downcast_ref::<BinaryExpr>().map(|binary| *binary.op()) {
        Some(op @ (Operator::And | Operator::Or)) => op,
        _ => return Ok(Arc::clone(expr)),
    };
    let mut parts = Vec::new();
    for part in operands(expr, op) {
        parts.push((risk(part, schema)?, guarded(part, schema)?));
    }
    // Operands that are unlikely to fail are evaluated first, so that few rows are left for the others.
    parts.sort_by_key(|(risk, _)| *risk);
    let parts = parts.into_iter().map(|(_, part)| part).collect();
    Ok(Arc::new(Conditions { parts, is_and: op == Operator::And }))
}

/// Returns the operands of a chain of one operator, left to right, without recursion: chains may be long.
fn operands(expr: &Arc<dyn PhysicalExpr>, op: Operator) -> Vec<&Arc<dyn PhysicalExpr>> {
    let (mut operands, mut stack) = (Vec::new(), vec![expr]);
    while let Some(next) = stack.pop() {
        match next.downcast_ref::<BinaryExpr>() {
            Some(binary) if *binary.op() == op => stack.extend([binary.right(), binary.left()]),
            _ => operands.push(next),
        }
    }
    operands
}

/// Returns how likely the expression is to fail on some row (for instance by overflow or a failed cast): the greatest
/// `Risk` of all nodes of its tree.
fn risk(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Risk> {
    let mut greatest = Risk::None;
    expr.exists(|part| {
        greatest = greatest.max(risk_of_node(part, schema)?);
        Ok(greatest == Risk::Likely)
    })?;
    Ok(greatest)
}

fn risk_of_node(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Risk> {
    if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        let from = cast.expr().data_type(schema)?;
        return Ok(if cast_may_fail(&from, cast.cast_type()) { Risk::Likely } else { Risk::None });
    }
    if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() {
        let is_likely = operation_of(call.fun()).is_some() || is_cast_function(call.fun());
        return Ok(if is_likely { Risk::Likely } else { Risk::Unlikely });
    }
    match expr.downcast_ref::<BinaryExpr>() {
        Some(binary) if binary.op().is_numerical_operators() => {
            let is_float = binary.left().data_type(schema)?.is_floating();
            Ok(if is_float { Risk::None } else { Risk::Likely })
        }
        _ => Ok(Risk::None),
    }
}

/// An AND or OR whose operands are evaluated in the order of their risk, only on undecided rows if one fails.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Conditions {
    parts: Vec<Arc<dyn PhysicalExpr>>,
    is_and: bool,
}

impl Conditions {
    /// Returns whether an operand whose value `is_true` (or not) decides the result for a row.
    fn decides(&self, is_true: bool) -> bool {
        is_true != self.is_and
    }

    fn undecided(&self, before: &[bool], value: ColumnarValue) -> Result<Vec<bool>> {
        let array = value.into_array(before.len())?;
        let value = array.as_any().downcast_ref::<BooleanArray>().ok_or_else(not_boolean)?;
        let is_true = |row: usize| value.is_valid(row) && value.value(row);
        Ok(before.iter().enumerate().map(|(row, open)| *open && !self.decides(is_true(row))).collect())
    }

    /// Evaluates an operand that fails on some of the `open` (undecided) rows of `batch`. Returns the rows that are
    /// still undecided. Rows on which the operand fails stay undecided, and are added to `failed`.
    fn apart(
        &self,
        part: &Arc<dyn PhysicalExpr>,
        batch: &RecordBatch,
        open: &[bool],
        failed: &mut Vec<(usize, DataFusionError)>,
    ) -> Result<Vec<bool>> {
        let rows: Vec<usize> = (0..open.len()).filter(|row| open[*row]).collect();
        let few = filter_record_batch(batch, &BooleanArray::from(open.to_vec()))?;
        let mut left = vec![false; open.len()];
        let mut ranges: Vec<Range<usize>> = std::iter::once(0..rows.len()).collect();
        while let Some(range) = ranges.pop() {
            if range.is_empty() {
                continue;
            }
            match part.evaluate(&few.slice(range.start, range.len())) {
                Ok(value) => {
                    let open = self.undecided(&vec![true; range.len()], value)?;
                    for (row, open) in rows[range].iter().zip(open) {
                        left[*row] = open;
                    }
                }
                Err(error) if is_of_no_row(&error) => return Err(error),
                Err(error) if range.len() == 1 => {
                    let row = rows[range.start];
                    left[row] = true;
                    failed.push((row, error));
                }
                Err(_) => {
                    let middle = range.start + range.len() / 2;
                    ranges.push(middle..range.end);
                    ranges.push(range.start..middle);
                }
            }
        }
        Ok(left)
    }
}

/// Returns whether an error has nothing to do with the values of a row, such as a lack of memory.
fn is_of_no_row(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_) | DataFusionError::Internal(_))
}

fn not_boolean() -> DataFusionError {
    DataFusionError::Internal("a part of a condition is no condition".to_string())
}

impl PhysicalExpr for Conditions {
    fn data_type(&self, _: &Schema) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, _: &Schema) -> Result<bool> {
        Ok(false)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let mut open = vec![true; batch.num_rows()];
        let mut failed = Vec::new();
        for part in &self.parts {
            if !open.contains(&true) {
                break;
            }
            open = match part.evaluate(batch) {
                Ok(value) => self.undecided(&open, value)?,
                Err(error) if is_of_no_row(&error) => return Err(error),
                Err(_) => self.apart(part, batch, &open, &mut failed)?,
            };
        }
        if let Some((_, error)) = failed.into_iter().find(|(row, _)| open[*row]) {
            return Err(error);
        }
        let passes: BooleanArray = open.into_iter().map(|open| Some(open == self.is_and)).collect();
        Ok(ColumnarValue::Array(Arc::new(passes)))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.parts.iter().collect()
    }

    fn with_new_children(
        self: Arc<Self>,
        parts: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Conditions { parts, is_and: self.is_and }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in self.parts.iter().enumerate() {
            if i > 0 {
                f.write_str(if self.is_and { " AND " } else { " OR " })?;
            }
            match part.downcast_ref::<Conditions>() {
                Some(_) => write!(f, "({part})")?,
                None => write!(f, "{part}")?,
            }
        }
        Ok(())
    }
}
