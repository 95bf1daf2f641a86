//! Finishes aggregations whose groups a pool (the store that holds the tables) returns in parts (partial aggregates:
//! several rows may belong to one group). Builds the plan above the program (the part of the query that the pool runs),
//! which merges the parts of each group with the engine's aggregates. The planner crate decides which aggregates merge
//! the parts, and how the results follow from the merged values.
//!
//! Invariant: the finished plan has the schema of the fragment that it replaces, and returns the same rows as a pool
//! that answers `exact` (groups that are already complete).

use crate::statistics::merger;
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::{Column, DFSchema, DFSchemaRef, TableReference};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::bit_and_or_xor;
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction};
use datafusion::logical_expr::{
    self as logical, AggregateUDF, ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use farpool_model::{BitOp, Fold, Pick};
use farpool_planner::finish::{Call, Finish, PartMerge, Step};
use farpool_sql::aggregates;
use std::sync::Arc;

/// Returns the schema of the partial aggregates, for a plan fragment with schema `of`.
///
/// # Errors
/// Fails only on a bug in this crate.
pub(crate) fn parts_schema(finish: &Finish, of: &DFSchema) -> Result<DFSchemaRef> {
    let keys = of.fields().iter().take(finish.keys()).map(|f| (f.data_type().clone(), f.is_nullable()));
    let field = |(i, (data_type, nullable)): (usize, (DataType, bool))| {
        (None::<TableReference>, Arc::new(Field::new(format!("part{i}"), data_type, nullable)))
    };
    let fields = keys.chain(finish.parts()).enumerate().map(field).collect();
    Ok(Arc::new(DFSchema::new_with_metadata(fields, std::collections::HashMap::new())?))
}

/// Returns the plan that merges the partial aggregates `parts`, in place of a fragment with schema `of`.
///
/// # Errors
/// Fails only on a bug in this crate.
pub(crate) fn above(finish: &Finish, parts: LogicalPlan, of: &DFSchemaRef) -> Result<LogicalPlan> {
    let column = |i: usize| Expr::Column(Column::new_unqualified(format!("part{i}")));
    let keys: Vec<Expr> = (0..finish.keys()).map(column).collect();
    let calls = finish.calls().into_iter().map(|call| {
        let value = column(finish.keys() + call.part);
        let value = match call.before {
            Some(step) => {
                let made = Arc::new(Field::new("order", DataType::Int64, true));
                Finishing::call(step, vec![value], &made)
            }
            None => value,
        };
        let function = aggregate(call.merge);
        let merged = AggregateFunction::new_udf(function, vec![value], false, None, Vec::new(), None);
        named(Expr::AggregateFunction(merged), &call, of.field(finish.keys() + call.aggregate).name())
    });
    let merged = logical::Aggregate::try_new(Arc::new(parts), keys, calls.collect())?;
    let outputs = outputs(finish, &merged.schema, of);
    let merged = Arc::new(LogicalPlan::Aggregate(merged));
    let whole =
        LogicalPlan::Projection(logical::Projection::try_new_with_schema(outputs, merged, Arc::clone(of))?);
    match finish.limit() {
        None => Ok(whole),
        Some(limit) => {
            let rows = farpool_model::cast::usize_saturating(limit);
            logical::LogicalPlanBuilder::from(whole).limit(0, Some(rows))?.build()
        }
    }
}

/// Renames a merged sum to its name in the result, because the error of a sum that overflows contains the name. Counts
/// cannot overflow and keep their names: the count and the sum of a mean would otherwise have the same name. Group keys
/// have the right names already.
fn named(merged: Expr, call: &Call, result: &str) -> Expr {
    match call.merge {
        PartMerge::Sum if !call.is_count && !result.starts_with("part") => merged.alias(result),
        PartMerge::Sum | PartMerge::Fold(_) | PartMerge::State(_) => merged,
    }
}

/// Returns the aggregate function that merges partial aggregates. Those of `any_value` are merged by the minimum, which
/// ignores NULLs as well.
fn aggregate(merge: PartMerge) -> Arc<AggregateUDF> {
    match merge {
        PartMerge::Sum => aggregates::sum(),
        PartMerge::Fold(Fold::Pick(Pick::Least | Pick::Any)) => aggregates::min(),
        PartMerge::Fold(Fold::Pick(Pick::Greatest)) => aggregates::max(),
        PartMerge::Fold(Fold::Bits(BitOp::And)) => bit_and_or_xor::bit_and_udaf(),
        PartMerge::Fold(Fold::Bits(BitOp::Or)) => bit_and_or_xor::bit_or_udaf(),
        PartMerge::Fold(Fold::Bits(BitOp::Xor)) => bit_and_or_xor::bit_xor_udaf(),
        PartMerge::State(form) => merger(form),
    }
}

/// Returns the expressions that compute the columns of `of` from the columns of the merging aggregation.
fn outputs(finish: &Finish, merged: &DFSchema, of: &DFSchema) -> Vec<Expr> {
    let mut columns = merged.iter().map(|(qualifier, field)| {
        let name = field.name().clone();
        (Expr::Column(Column::new(qualifier.cloned(), name)), field.data_type().clone())
    });
    let mut next = || columns.next().expect("each column of the plan is made of some");
    let mut outputs = Vec::with_capacity(of.fields().len());
    for (i, (qualifier, field)) in of.iter().enumerate() {
        let (value, data_type) = next();
        let merge = i.checked_sub(finish.keys()).map(|aggregate| finish.merges()[aggregate]);
        let value = match merge.and_then(|merge| Step::after(merge, &data_type, field.data_type())) {
            Some(step) => {
                let mut arguments = vec![value];
                arguments.resize_with(step.arguments(), || next().0);
                Finishing::call(step, arguments, field)
            }
            None => value,
        };
        outputs.push(value.alias_qualified(qualifier.cloned(), field.name().clone()));
    }
    outputs
}

/// A function that computes a result from merged values. It appears only in plans that are built here, and is not
/// registered, so that SQL cannot call it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Finishing {
    step: Step,
    result: FieldRef,
    signature: Signature,
}

impl Finishing {
    fn call(step: Step, arguments: Vec<Expr>, result: &FieldRef) -> Expr {
        let signature = Signature::any(arguments.len(), Volatility::Immutable);
        let function = ScalarUDF::from(Finishing { step, result: Arc::clone(result), signature });
        Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), arguments))
    }
}

impl ScalarUDFImpl for Finishing {
    fn name(&self) -> &str {
        match self.step {
            Step::Count => "merged_count",
            Step::Sum => "merged_sum",
            Step::Mean => "merged_mean",
            Step::Order => "order_of_float",
            Step::Float => "float_of_order",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.result.data_type().clone())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::clone(&self.result))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let value = self.step.apply(&arrays, &self.result).map_err(farpool_sql::error::wrap)?;
        if value.data_type() != self.result.data_type() {
            let types = format!("{} where {} is wanted", value.data_type(), self.result.data_type());
            return Err(DataFusionError::Internal(types));
        }
        Ok(ColumnarValue::Array(value))
    }
}
