//! The function that wraps one whose results may be large, and reserves memory for them.

use super::concat::Constant;
use super::growth::{Arguments, Growth, Row, growth, range_bytes};
use super::{Charge, rule};
use crate::error;
use crate::interrupt::current;
use arrow_array::Array;
use arrow_schema::{DataType, FieldRef};
use arrow_select::concat::concat;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DataFusionError, ExprSchema, Result, ScalarValue};
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ExpressionPlacement, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, StructFieldMapping,
};
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use farpool_memory::size_text;
use farpool_model::cast::u64_from;
use farpool_model::{Error, limits};
use std::ops::Range;
use std::sync::Arc;

/// Maximum bytes of arguments and result of a call that is not charged to the memory pool: those of a batch of short
/// values.
const SMALL: usize = 256 << 10;

/// Minimum bytes of a constant whose copies, one for each row, are charged to the memory pool.
pub(super) const LONG: usize = 4 << 10;

/// Bytes of arguments and result that are processed between two checks for cancellation; more only if a single row has
/// more.
pub(super) const SLICE: usize = 4 << 20;

/// Number of steps between two checks for cancellation, for a function whose work is the product of its arguments'
/// sizes.
const SLICE_STEPS: usize = 64 << 20;

/// Wraps a function: reserves memory for the results before it computes them.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct BoundedFunction {
    inner: Arc<ScalarUDF>,
    growth: Growth,
}

impl BoundedFunction {
    /// Returns the function that wraps `inner`.
    pub fn over(inner: Arc<ScalarUDF>) -> ScalarUDF {
        let growth = growth(inner.name());
        ScalarUDF::from(BoundedFunction { inner, growth })
    }
}

/// Returns the maximum bytes of the list or structure that a call with constant arguments returns; `None` for another
/// call.
pub(super) fn bytes_of_constant(call: &ScalarFunctionExpr) -> Result<Option<usize>> {
    let function = call.fun().inner().downcast_ref::<BoundedFunction>();
    let Some(function) = function.filter(|_| call.return_type().is_nested()) else { return Ok(None) };
    let constant = |arg: &Arc<dyn PhysicalExpr>| {
        Some(ColumnarValue::Scalar(arg.downcast_ref::<Literal>()?.value().clone()))
    };
    let Some(args) = call.args().iter().map(constant).collect::<Option<Vec<_>>>() else { return Ok(None) };
    let row = Arguments::new(&args)?.row(function.growth, 0);
    Ok(Some(if function.inner.inner().is::<Constant>() { row.input } else { row.output }))
}

/// A call of the wrapped function, with the memory pool and the account that its result is charged to.
struct Call<'a> {
    function: &'a BoundedFunction,
    args: &'a ScalarFunctionArgs,
    memory: &'a Arc<dyn MemoryPool>,
    charge: &'a Charge,
}

impl Call<'_> {
    fn run(&self) -> Result<ColumnarValue> {
        let made = self.made()?;
        if let ColumnarValue::Scalar(scalar) = &made
            && !current::is_planning()
        {
            self.charge_copies(scalar)?;
        }
        Ok(made)
    }

    /// Reserves memory for the copies of a value that an operator makes, one for each row of the batch.
    fn charge_copies(&self, scalar: &ScalarValue) -> Result<()> {
        let bytes = scalar.size().saturating_mul(self.args.number_rows);
        if scalar.size() <= LONG || bytes <= SMALL {
            return Ok(());
        }
        match i32::try_from(bytes).is_ok() && self.charge.grow(self.memory, bytes) {
            true => Ok(()),
            false => Err(self.refused(bytes)),
        }
    }

    fn made(&self) -> Result<ColumnarValue> {
        let is_one = self.args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let count = if is_one { 1 } else { self.args.number_rows };
        let arguments = Arguments::new(&self.args.args)?;
        let small = arguments.total(self.function.growth, count).filter(|total| total.bytes() <= SLICE);
        if let Some(total) =
            small.filter(|total| !current::is_planning() || total.output <= limits::FOLDED_BYTES_MAX)
        {
            return self.charged(total, || self.function.inner.invoke_with_args(self.args.clone()));
        }
        let mut rows = Vec::with_capacity(count);
        rows.extend((0..count).map(|row| arguments.row(self.function.growth, row)));
        if current::is_planning() && sum(&rows).output > limits::FOLDED_BYTES_MAX {
            // The optimizer then keeps the call instead of folding it, and it is evaluated when the statement runs.
            return Err(self.not_folded(sum(&rows).output));
        }
        let longest = (0..count).map(|row| arguments.product(row)).max().unwrap_or(0);
        if self.function.growth == Growth::Product && longest > limits::FUNCTION_STEPS_MAX {
            return Err(self.too_long());
        }
        let steps = |row: usize| match self.function.growth {
            Growth::Product => arguments.product(row) / (SLICE_STEPS / SLICE),
            _ => 0,
        };
        let slices = slices(&rows, steps);
        if slices.len() <= 1 {
            return self.charged(sum(&rows), || self.function.inner.invoke_with_args(self.args.clone()));
        }
        let mut results = Vec::with_capacity(slices.len());
        for slice in slices {
            current::check()?;
            let args = sliced(self.args, &slice);
            let result =
                self.charged(sum(&rows[slice.clone()]), || self.function.inner.invoke_with_args(args))?;
            results.push(result.into_array(slice.len())?);
        }
        let results: Vec<&dyn Array> = results.iter().map(|result| &**result as _).collect();
        Ok(ColumnarValue::Array(concat(&results)?))
    }

    /// Reserves memory for the arguments and the result of some rows, computes the result, and then changes the
    /// reservation to the result's actual size.
    fn charged(&self, rows: Row, make: impl FnOnce() -> Result<ColumnarValue>) -> Result<ColumnarValue> {
        if rows.bytes() <= SMALL {
            return make();
        }
        // Offsets within a column are 32 bits wide, so that a larger result is impossible even with free memory.
        if i32::try_from(rows.output).is_err() || !self.charge.grow(self.memory, rows.bytes()) {
            return Err(self.refused(rows.output.max(rows.input)));
        }
        let made = make();
        let kept = match &made {
            Ok(ColumnarValue::Array(array)) => range_bytes(array, 0, array.len()).min(rows.bytes()),
            Ok(ColumnarValue::Scalar(scalar)) => scalar.size().min(rows.bytes()),
            Err(_) => 0,
        };
        self.charge.shrink(rows.bytes() - kept);
        made
    }

    fn not_folded(&self, bytes: usize) -> DataFusionError {
        let (name, bytes) = (self.function.inner.name(), size_text(u64_from(bytes)));
        let most = size_text(u64_from(limits::FOLDED_BYTES_MAX));
        let message =
            format!("{name} may make {bytes} while the statement is planned, where a value may have {most}");
        error::wrap(Error::over_limit(message).advise("compute it from a column of a table or of a subquery"))
    }

    fn too_long(&self) -> DataFusionError {
        let name = self.function.inner.name();
        let message = format!("{name} of two such long texts takes too long");
        error::wrap(Error::over_limit(message).advise("shorten them, for example with left(…, 10000)"))
    }

    fn refused(&self, bytes: usize) -> DataFusionError {
        refused(self.function.inner.name(), self.memory, bytes)
    }
}

/// Returns the error of a function whose results need `bytes` bytes that are not free.
pub(super) fn refused(name: &str, memory: &Arc<dyn MemoryPool>, bytes: usize) -> DataFusionError {
    let within = match memory.memory_limit() {
        MemoryLimit::Finite(limit) => format!(
            "; of {} for work, {} are free",
            size_text(u64_from(limit)),
            size_text(u64_from(limit.saturating_sub(memory.reserved())))
        ),
        _ => "; one batch of rows may have 2 GiB".to_string(),
    };
    let message = format!("{name} may make {} of one batch of rows{within}", size_text(u64_from(bytes)));
    let advice = format!("have {name} make less, or give the statement more memory (--work-memory)");
    error::wrap(Error::over_limit(message).advise(advice))
}

/// Returns whether all values of the type have the same small size, such as numbers.
pub(super) fn has_fixed_size(data_type: &DataType) -> bool {
    data_type.primitive_width().is_some() || matches!(data_type, DataType::Boolean | DataType::Null)
}

/// Adds up the bytes of all rows.
fn sum(rows: &[Row]) -> Row {
    rows.iter().fold(Row::default(), |sum, row| Row {
        input: sum.input.saturating_add(row.input),
        output: sum.output.saturating_add(row.output),
    })
}

/// Splits rows into slices of about [`SLICE`] bytes; `more` returns further bytes that count for a row.
fn slices(rows: &[Row], more: impl Fn(usize) -> usize) -> Vec<Range<usize>> {
    let mut slices = Vec::new();
    let (mut start, mut bytes) = (0, 0_usize);
    for (place, row) in rows.iter().enumerate() {
        let of_row = row.bytes().saturating_add(more(place));
        if place > start && bytes.saturating_add(of_row) > SLICE {
            slices.push(start..place);
            (start, bytes) = (place, 0);
        }
        bytes = bytes.saturating_add(of_row);
    }
    slices.push(start..rows.len());
    slices
}

fn sliced(args: &ScalarFunctionArgs, rows: &Range<usize>) -> ScalarFunctionArgs {
    let slice = |value: &ColumnarValue| match value {
        ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(rows.start, rows.len())),
        ColumnarValue::Scalar(scalar) => ColumnarValue::Scalar(scalar.clone()),
    };
    ScalarFunctionArgs {
        args: args.args.iter().map(slice).collect(),
        number_rows: rows.len(),
        ..args.clone()
    }
}

impl ScalarUDFImpl for BoundedFunction {
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        current::check()?;
        let Some((scope, charge)) = current::charged() else { return self.inner.invoke_with_args(args) };
        let Some(memory) = scope.memory() else { return self.inner.invoke_with_args(args) };
        let has_sizes = args.arg_fields.iter().any(|field| !has_fixed_size(field.data_type()));
        if self.growth.is_of_sizes() && !has_sizes {
            return self.inner.invoke_with_args(args);
        }
        Call { function: self, args: &args, memory, charge: &charge }.run()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        #[expect(deprecated, reason = "the engine still calls it")]
        self.inner.display_name(args)
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.inner.schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn is_nullable(&self, args: &[Expr], schema: &dyn ExprSchema) -> bool {
        #[expect(deprecated, reason = "the engine still calls it")]
        self.inner.is_nullable(args, schema)
    }

    fn is_strict(&self) -> bool {
        self.inner.inner().is_strict()
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let updated = self.inner.inner().with_updated_config(config)?;
        Some(BoundedFunction::over(Arc::new(updated)))
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        Ok(match self.inner.simplify(args, info)? {
            ExprSimplifyResult::Simplified(expr) => {
                // The expression that the call was simplified to may call other functions that must be wrapped.
                ExprSimplifyResult::Simplified(rule::bounded_expr(expr)?.data)
            }
            original => original,
        })
    }

    fn preimage(&self, args: &[Expr], literal: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        self.inner.preimage(args, literal, info)
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn evaluate_bounds(&self, input: &[&Interval]) -> Result<Interval> {
        self.inner.evaluate_bounds(input)
    }

    fn propagate_constraints(
        &self,
        interval: &Interval,
        inputs: &[&Interval],
    ) -> Result<Option<Vec<Interval>>> {
        self.inner.propagate_constraints(interval, inputs)
    }

    fn struct_field_mapping(&self, args: &[Option<ScalarValue>]) -> Option<StructFieldMapping> {
        self.inner.inner().struct_field_mapping(args)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.preserves_lex_ordering(inputs)
    }

    fn strictly_order_preserving(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.inner().strictly_order_preserving(inputs)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn placement(&self, args: &[ExpressionPlacement]) -> ExpressionPlacement {
        self.inner.inner().placement(args)
    }
}
