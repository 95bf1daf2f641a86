//! Window functions whose results are strings, lists or other values of variable size. DataFusion 55.2 copies the
//! result of a frame into each row and charges nothing to its memory pool: `string_agg(x, ',') OVER ()` of a thousand
//! rows needs a thousand times the memory of the whole column.
//!
//! Such a function is replaced by one that reserves memory for its results when they are computed, before the engine
//! copies them into a column. The condition of FILTER becomes the last argument, so that the function sees the number
//! of rows. This module is obsolete once upstream charges these results or shares them.

use super::function::{has_fixed_size, refused};
use crate::interrupt::current;
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_schema::{DataType, FieldRef};
use arrow_select::filter::filter;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::function::{
    AccumulatorArgs, ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs,
};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Expr, LimitEffect, PartitionEvaluator, ReversedUDAF,
    ReversedUDWF, Signature, Volatility, WindowFunctionDefinition, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;
use std::ops::Range;
use std::sync::Arc;

/// If `expr` is a call of a window function whose results have variable size, replaces the function by a charging one.
pub(super) fn charged(expr: Expr, data_type: &DataType) -> Transformed<Expr> {
    let mut call = match expr {
        Expr::Alias(mut alias) => {
            let inner = charged(std::mem::take(&mut *alias.expr), data_type);
            return inner.update_data(|inner| {
                *alias.expr = inner;
                Expr::Alias(alias)
            });
        }
        Expr::WindowFunction(call) if !has_fixed_size(data_type) => call,
        other => return Transformed::no(other),
    };
    call.fun = match call.fun {
        WindowFunctionDefinition::AggregateUDF(inner) => {
            let condition = call.params.filter.take();
            let has_filter = condition.is_some();
            call.params.args.extend(condition.map(|condition| *condition));
            let signature = taken(&call.params.args);
            WindowFunctionDefinition::AggregateUDF(ChargedAggregate::over(inner, has_filter, signature))
        }
        WindowFunctionDefinition::WindowUDF(inner) => {
            WindowFunctionDefinition::WindowUDF(ChargedFunction::over(inner, taken(&call.params.args)))
        }
    };
    Transformed::yes(Expr::WindowFunction(call))
}

/// Returns a signature of exactly the types of `args`, which have been coerced already.
fn taken(args: &[Expr]) -> Signature {
    Signature::any(args.len(), Volatility::Immutable)
}

/// Reserves memory for a value that is copied into `rows` rows.
fn charge(name: &str, value: &ScalarValue, rows: usize) -> Result<()> {
    let Some((scope, charge)) = current::charged() else { return Ok(()) };
    let Some(memory) = scope.memory() else { return Ok(()) };
    let bytes = value.size().saturating_mul(rows);
    // Offsets within a column are 32 bits wide, so that a larger column is impossible even with free memory.
    match i32::try_from(bytes).is_ok() && charge.grow(memory, bytes) {
        true => current::check(),
        false => Err(refused(name, memory, bytes)),
    }
}

/// An aggregate that reserves memory for its results.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ChargedAggregate {
    inner: Arc<AggregateUDF>,
    /// Whether the last argument is the condition of FILTER.
    has_filter: bool,
    signature: Signature,
}

impl ChargedAggregate {
    fn over(inner: Arc<AggregateUDF>, has_filter: bool, signature: Signature) -> Arc<AggregateUDF> {
        Arc::new(AggregateUDF::from(ChargedAggregate { inner, has_filter, signature }))
    }

    /// Returns the arguments without the condition of FILTER.
    fn own<'a, T>(&self, arguments: &'a [T]) -> &'a [T] {
        &arguments[..arguments.len().saturating_sub(usize::from(self.has_filter))]
    }

    fn own_args<'a>(&self, args: &AccumulatorArgs<'a>) -> AccumulatorArgs<'a> {
        AccumulatorArgs {
            exprs: self.own(args.exprs),
            expr_fields: self.own(args.expr_fields),
            ..args.clone()
        }
    }

    fn charging(&self, inner: Box<dyn Accumulator>) -> Box<dyn Accumulator> {
        let name = self.inner.name().to_string();
        Box::new(ChargedAccumulator { inner, name, has_filter: self.has_filter, rows: 0 })
    }
}

impl AggregateUDFImpl for ChargedAggregate {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(self.own(types))
    }

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        self.inner.return_field(self.own(fields))
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(self.charging(self.inner.accumulator(self.own_args(&args))?))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(self.charging(self.inner.create_sliding_accumulator(self.own_args(&args))?))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.inner.reverse_udf() {
            ReversedUDAF::Reversed(inner) => {
                ReversedUDAF::Reversed(ChargedAggregate::over(inner, self.has_filter, self.signature.clone()))
            }
            other => other,
        }
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.inner.default_value(data_type)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.supports_null_handling_clause()
    }
}

/// The accumulator of [`ChargedAggregate`].
#[derive(Debug)]
struct ChargedAccumulator {
    inner: Box<dyn Accumulator>,
    name: String,
    has_filter: bool,
    /// Number of rows since the last result. If the frame is the whole partition, all of them get the same result.
    rows: usize,
}

impl ChargedAccumulator {
    /// Returns the values of the rows that satisfy the condition of FILTER.
    fn passing(&self, values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        if !self.has_filter {
            return Ok(values.to_vec());
        }
        let Some((condition, values)) = values.split_last() else { return internal_err!("no condition") };
        let Some(passes) = condition.as_any().downcast_ref::<BooleanArray>() else {
            return internal_err!("a condition that is none");
        };
        values.iter().map(|values| Ok(filter(values, passes)?)).collect()
    }
}

impl Accumulator for ChargedAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.rows += values.first().map_or(0, |values| values.len());
        let passing = self.passing(values)?;
        self.inner.update_batch(&passing)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let passing = self.passing(values)?;
        self.inner.retract_batch(&passing)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = self.inner.evaluate()?;
        charge(&self.name, &value, std::mem::take(&mut self.rows).max(1))?;
        Ok(value)
    }

    fn size(&self) -> usize {
        self.inner.size() + size_of::<Self>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }
}

/// A window function (`first_value`, `lag`, …) that reserves memory for its results.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ChargedFunction {
    inner: Arc<WindowUDF>,
    signature: Signature,
}

impl ChargedFunction {
    fn over(inner: Arc<WindowUDF>, signature: Signature) -> Arc<WindowUDF> {
        Arc::new(WindowUDF::from(ChargedFunction { inner, signature }))
    }
}

impl WindowUDFImpl for ChargedFunction {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn expressions(&self, args: ExpressionArgs<'_>) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.expressions(args)
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs<'_>) -> Result<Box<dyn PartitionEvaluator>> {
        let inner = self.inner.partition_evaluator_factory(args)?;
        Ok(Box::new(ChargedEvaluator { inner, name: self.inner.name().to_string() }))
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.field(args)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        match self.inner.reverse_expr() {
            ReversedUDWF::Reversed(inner) => {
                ReversedUDWF::Reversed(ChargedFunction::over(inner, self.signature.clone()))
            }
            other => other,
        }
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(args)
    }
}

/// The evaluator of [`ChargedFunction`].
#[derive(Debug)]
struct ChargedEvaluator {
    inner: Box<dyn PartitionEvaluator>,
    name: String,
}

impl PartitionEvaluator for ChargedEvaluator {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.inner.memoize(state)
    }

    fn get_range(&self, index: usize, rows: usize) -> Result<Range<usize>> {
        self.inner.get_range(index, rows)
    }

    fn is_causal(&self) -> bool {
        self.inner.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        self.inner.evaluate_all(values, rows)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        let value = self.inner.evaluate(values, range)?;
        charge(&self.name, &value, 1)?;
        Ok(value)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        self.inner.evaluate_all_with_rank(rows, ranks)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.inner.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.inner.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.inner.include_rank()
    }
}
