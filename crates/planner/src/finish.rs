//! Finishes groupings that a pool gives in parts: the plan above the program that merges the parts of each
//! group (Ibex, section 6.2.1: the query over the query).
//!
//! Invariant: the finished plan has the schema of the piece that it stands for, and gives the same rows as a
//! pool that answers `exact`.

use crate::statistics::merger;
use arrow_array::types::Decimal128Type;
use arrow_array::{Array, ArrayRef, Decimal128Array, Float64Array, Int64Array, cast::AsArray};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::{Column, DFSchema, DFSchemaRef, TableReference};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::{bit_and_or_xor, min_max, sum};
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction};
use datafusion::logical_expr::{
    self as logical, AggregateUDF, ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use farpool_model::partial::{Merge, mean_of_decimals};
use farpool_model::{Accumulation, Answer, BitOp, Error, Fold, Output, PartialForm, Pick, Prepared, Program};
use farpool_statistics::StateForm;
use std::sync::Arc;

/// How the result of a program is finished.
pub(crate) struct Finish {
    keys: usize,
    form: PartialForm,
    limit: Option<u64>,
}

impl Finish {
    /// How the result of `prepared` becomes that of `program`; `None` if that takes more than merging groups
    /// and cutting off.
    pub(crate) fn of(
        program: &Program,
        prepared: &Prepared,
        table_schema: &arrow_schema::Schema,
    ) -> Option<Self> {
        let Output::Aggregate { keys, aggregates } = &program.output else { return None };
        let form = PartialForm::of(aggregates, table_schema).ok()?;
        let output = Output::Aggregate { keys: keys.clone(), aggregates: form.aggregates.clone() };
        // Which version it is of is the pool's to say.
        let version = prepared.effective.version;
        let expected = Program { output, version, order: Vec::new(), limit: None, ..program.clone() };
        let others = |a: &&farpool_model::OperatorAnswer| {
            a.answer != Answer::Exact && !a.operator.is_grouping() && !a.operator.cuts_rows()
        };
        let is_as_expected = prepared.is_partial()
            && prepared.effective == expected
            && prepared.answers.iter().find(others).is_none();
        // What sorts has its sort above, which also cuts.
        let limit = program.limit.filter(|_| program.order.is_empty());
        is_as_expected.then_some(Finish { keys: keys.len(), form, limit })
    }

    /// The schema of the program's result, for a piece of the plan with schema `of`.
    ///
    /// # Errors
    /// None in practice.
    pub(crate) fn parts_schema(&self, of: &DFSchema) -> Result<DFSchemaRef> {
        let keys = of.fields().iter().take(self.keys).map(|f| (f.data_type().clone(), f.is_nullable()));
        let parts = self.form.aggregates.iter();
        let parts =
            parts.map(|a| (a.data_type.clone(), a.function != farpool_model::AggregateFunction::Count));
        let field = |(i, (data_type, nullable)): (usize, (DataType, bool))| {
            (None::<TableReference>, Arc::new(Field::new(format!("part{i}"), data_type, nullable)))
        };
        let fields = keys.chain(parts).enumerate().map(field).collect();
        Ok(Arc::new(DFSchema::new_with_metadata(fields, std::collections::HashMap::new())?))
    }

    /// The plan that finishes `parts`, in place of a piece with schema `of`.
    ///
    /// # Errors
    /// None in practice.
    pub(crate) fn above(&self, parts: LogicalPlan, of: &DFSchemaRef) -> Result<LogicalPlan> {
        let column = |i: usize| Expr::Column(Column::new_unqualified(format!("part{i}")));
        let keys: Vec<Expr> = (0..self.keys).map(column).collect();
        let mut calls = Vec::new();
        for merge in &self.form.merges {
            let mut call = |function: Arc<AggregateUDF>, part: usize| {
                let value = column(self.keys + part);
                // DataFusion's extremes of NaN depend on the order of rows; those of integers do not.
                let ordered = is_float_pick(&self.form.aggregates[part]);
                let arguments = vec![if ordered { Finishing::order(value) } else { value }];
                let call = AggregateFunction::new_udf(function, arguments, false, None, Vec::new(), None);
                calls.push(Expr::AggregateFunction(call));
            };
            match *merge {
                Merge::Count(part) | Merge::Sum(part) => call(sum::sum_udaf(), part),
                Merge::Fold(fold, part) => call(folding(fold), part),
                Merge::State(state, part) => call(merger(StateForm::of(state)), part),
                Merge::Mean { sum: total, count } => {
                    call(sum::sum_udaf(), total);
                    call(sum::sum_udaf(), count);
                }
            }
        }
        let merged = logical::Aggregate::try_new(Arc::new(parts), keys, calls)?;
        let outputs = self.outputs(&merged.schema, of);
        let merged = Arc::new(LogicalPlan::Aggregate(merged));
        let whole = logical::Projection::try_new_with_schema(outputs, merged, Arc::clone(of))?;
        let whole = LogicalPlan::Projection(whole);
        match self.limit {
            None => Ok(whole),
            Some(limit) => {
                let rows = farpool_model::cast::usize_saturating(limit);
                logical::LogicalPlanBuilder::from(whole).limit(0, Some(rows))?.build()
            }
        }
    }

    /// The columns of `of`, from those of the merging aggregation.
    fn outputs(&self, merged: &DFSchema, of: &DFSchema) -> Vec<Expr> {
        let mut columns = merged.iter().map(|(qualifier, field)| {
            let name = field.name().clone();
            (Expr::Column(Column::new(qualifier.cloned(), name)), field.data_type().clone())
        });
        let mut next = || columns.next().expect("each column of the plan is made of some");
        let mut outputs = Vec::with_capacity(of.fields().len());
        for (i, (qualifier, field)) in of.iter().enumerate() {
            let (value, data_type) = next();
            let merge = i.checked_sub(self.keys).map(|aggregate| self.form.merges[aggregate]);
            let value = match merge {
                Some(Merge::Count(_)) => Finishing::call(Kind::Count, vec![value], field),
                Some(Merge::Mean { .. }) => Finishing::call(Kind::Mean, vec![value, next().0], field),
                Some(Merge::Sum(_)) if data_type != *field.data_type() => {
                    Finishing::call(Kind::Sum, vec![value], field)
                }
                Some(Merge::Fold(..)) if data_type != *field.data_type() => {
                    Finishing::call(Kind::Float, vec![value], field)
                }
                Some(Merge::Sum(_) | Merge::Fold(..) | Merge::State(..)) | None => value,
            };
            outputs.push(value.alias_qualified(qualifier.cloned(), field.name().clone()));
        }
        outputs
    }
}

fn is_float_pick(part: &farpool_model::Aggregate) -> bool {
    matches!(part.function.accumulation(), Accumulation::Fold(Fold::Pick(_))) && part.data_type.is_floating()
}

/// The engine's aggregate that folds parts. That of any value ignores NULLs, as the least one does.
fn folding(fold: Fold) -> Arc<AggregateUDF> {
    match fold {
        Fold::Pick(Pick::Least | Pick::Any) => min_max::min_udaf(),
        Fold::Pick(Pick::Greatest) => min_max::max_udaf(),
        Fold::Bits(BitOp::And) => bit_and_or_xor::bit_and_udaf(),
        Fold::Bits(BitOp::Or) => bit_and_or_xor::bit_or_udaf(),
        Fold::Bits(BitOp::Xor) => bit_and_or_xor::bit_xor_udaf(),
    }
}

/// What a merged value takes to become the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// A sum of counts, which is never NULL.
    Count,
    /// An exact sum, which must fit the result's type.
    Sum,
    /// A sum and a count.
    Mean,
    /// A float as an integer of the same order, NaN being greatest.
    Order,
    /// The float of such an integer.
    Float,
}

/// A function that only plans made here call.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Finishing {
    kind: Kind,
    result: FieldRef,
    signature: Signature,
}

impl Finishing {
    fn call(kind: Kind, arguments: Vec<Expr>, result: &FieldRef) -> Expr {
        let signature = Signature::any(arguments.len(), Volatility::Immutable);
        let function = ScalarUDF::from(Finishing { kind, result: Arc::clone(result), signature });
        Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), arguments))
    }

    fn order(float: Expr) -> Expr {
        Finishing::call(Kind::Order, vec![float], &Arc::new(Field::new("order", DataType::Int64, true)))
    }

    fn value(&self, arguments: &[ArrayRef]) -> farpool_model::Result<ArrayRef> {
        match (self.kind, arguments) {
            (Kind::Count, [counts]) => Ok(Arc::clone(counts)),
            (Kind::Sum, [sums]) => self.sums(sums.as_primitive::<Decimal128Type>()),
            (Kind::Order, [floats]) => {
                let floats = self.cast(floats, &DataType::Float64)?;
                let floats = floats.as_primitive::<arrow_array::types::Float64Type>();
                Ok(Arc::new(floats.unary::<_, arrow_array::types::Int64Type>(order_of)))
            }
            (Kind::Float, [orders]) => {
                let orders = orders.as_primitive::<arrow_array::types::Int64Type>();
                let floats = orders.unary::<_, arrow_array::types::Float64Type>(float_of);
                self.cast(&floats, self.result.data_type())
            }
            (Kind::Mean, [sums, counts]) => self.means(sums, counts.as_primitive()),
            _ => Err(Error::internal("a merged aggregate without its parts")),
        }
    }

    fn sums(&self, sums: &Decimal128Array) -> farpool_model::Result<ArrayRef> {
        self.cast(sums, self.result.data_type())
    }

    fn cast(&self, values: &dyn Array, to: &DataType) -> farpool_model::Result<ArrayRef> {
        arrow_cast::cast_with_options(values, to, &EXACT).map_err(|_| self.overflow("sum"))
    }

    fn means(&self, sums: &ArrayRef, counts: &Int64Array) -> farpool_model::Result<ArrayRef> {
        let counted = |row: usize| counts.is_valid(row) && counts.value(row) > 0 && sums.is_valid(row);
        let rows = 0..counts.len();
        if let DataType::Float64 = sums.data_type() {
            let sums = sums.as_primitive::<arrow_array::types::Float64Type>();
            let mean = |row| counted(row).then(|| sums.value(row) / counts.value(row) as f64);
            return Ok(Arc::new(rows.map(mean).collect::<Float64Array>()));
        }
        let sums = sums.as_primitive::<Decimal128Type>();
        let DataType::Decimal128(precision, scale) = self.result.data_type() else {
            let mean = |row| counted(row).then(|| sums.value(row) as f64 / counts.value(row) as f64);
            return Ok(Arc::new(rows.map(mean).collect::<Float64Array>()));
        };
        let digits = u32::from((i16::from(*scale) - i16::from(sums.scale())).unsigned_abs());
        let bound = 10_i128.pow(u32::from(*precision));
        let mean = |row: usize| {
            let factor = 10_i128.checked_pow(digits)?;
            let mean = mean_of_decimals(sums.value(row), counts.value(row), factor)?;
            Some(mean).filter(|mean| -bound < *mean && *mean < bound)
        };
        let mean = |row| counted(row).then(|| mean(row).ok_or_else(|| self.overflow("mean"))).transpose();
        let means = rows.map(mean).collect::<farpool_model::Result<Decimal128Array>>()?;
        let typed = means.with_precision_and_scale(*precision, *scale);
        typed.map(|means| Arc::new(means) as ArrayRef).map_err(|_| self.overflow("mean"))
    }

    fn overflow(&self, what: &str) -> Error {
        let (name, data_type) = (self.result.name(), self.result.data_type());
        Error::invalid(format!("{what} of {name:?} overflows {data_type}"))
            .advise("cast the argument to a wider type, such as DECIMAL(38, 0)")
    }
}

/// An integer that compares as the float does in total order, but that NaN is greatest whatever its sign.
fn order_of(float: f64) -> i64 {
    let bits = float.to_bits().cast_signed();
    if float.is_nan() { i64::MAX } else { bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed() }
}

fn float_of(order: i64) -> f64 {
    if order == i64::MAX {
        return f64::NAN;
    }
    f64::from_bits((order ^ ((order >> 63).cast_unsigned() >> 1).cast_signed()).cast_unsigned())
}

const EXACT: arrow_cast::CastOptions<'static> =
    arrow_cast::CastOptions { safe: false, format_options: arrow_cast::display::FormatOptions::new() };

impl ScalarUDFImpl for Finishing {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Count => "merged_count",
            Kind::Sum => "merged_sum",
            Kind::Mean => "merged_mean",
            Kind::Order => "order_of_float",
            Kind::Float => "float_of_order",
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
        let value = self.value(&arrays).map_err(crate::error::wrap)?;
        if value.data_type() != self.result.data_type() {
            let types = format!("{} where {} is wanted", value.data_type(), self.result.data_type());
            return Err(DataFusionError::Internal(types));
        }
        Ok(ColumnarValue::Array(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_keep_their_order_as_integers() {
        let floats =
            [f64::NEG_INFINITY, f64::MIN, -1.5, -f64::MIN_POSITIVE, -0.0, 0.0, 5e-324, 2.0, f64::INFINITY];
        for pair in floats.windows(2) {
            assert!(order_of(pair[0]) < order_of(pair[1]), "{pair:?}");
        }
        for float in floats {
            assert_eq!(float_of(order_of(float)).to_bits(), float.to_bits());
        }
        assert!(order_of(-f64::NAN) > order_of(f64::INFINITY) && float_of(order_of(-f64::NAN)).is_nan());
    }
}
