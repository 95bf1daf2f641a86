//! Means, variances and deviations of integers and decimals, which are decimals in PostgreSQL. They are computed from counts
//! and sums, which a pool computes: `avg(x)` is `sum(x) / count(x)`.

use super::quotients::{self, Number};
use arrow_array::Array;
use arrow_array::builder::PrimitiveBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int64Type};
use arrow_buffer::i256;
use arrow_schema::{ArrowError, DECIMAL128_MAX_PRECISION, DataType, FieldRef};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, DFSchema, Result, plan_err};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction};
use datafusion::logical_expr::{
    Aggregate, AggregateUDF, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, Projection,
    ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, Window,
    WindowFunctionDefinition, binary_expr, cast,
};
use std::sync::Arc;

/// A mean, a variance or a deviation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Moment {
    Mean,
    Spread { is_sample: bool, is_root: bool },
}

impl Moment {
    fn of(function: &AggregateUDF) -> Option<Moment> {
        Some(match function.name() {
            "avg" => Moment::Mean,
            "var" => Moment::Spread { is_sample: true, is_root: false },
            "var_pop" => Moment::Spread { is_sample: false, is_root: false },
            "stddev" => Moment::Spread { is_sample: true, is_root: true },
            "stddev_pop" => Moment::Spread { is_sample: false, is_root: true },
            _ => return None,
        })
    }
}

/// Rewrites the means of a grouping, or of a window; returns `None` if it has none.
pub(crate) fn rewrite(plan: &LogicalPlan, columns: &DFSchema) -> Result<Option<LogicalPlan>> {
    let mut parts = Parts { columns, exprs: Vec::new(), is_changed: false };
    let (before, exprs) = match plan {
        LogicalPlan::Aggregate(aggregate) => (aggregate.schema.fields().len(), &aggregate.aggr_expr),
        LogicalPlan::Window(window) => (window.schema.fields().len(), &window.window_expr),
        _ => return Ok(None),
    };
    let results = exprs.iter().map(|expr| parts.result(expr)).collect::<Result<Vec<_>>>()?;
    if !parts.is_changed {
        return Ok(None);
    }
    let kept = plan.schema().iter().take(before - exprs.len());
    let kept: Vec<Expr> = kept.map(|field| Expr::Column(Column::from(field))).collect();
    let below = match plan.clone() {
        LogicalPlan::Aggregate(aggregate) => {
            LogicalPlan::Aggregate(Aggregate::try_new(aggregate.input, aggregate.group_expr, parts.exprs)?)
        }
        LogicalPlan::Window(window) => LogicalPlan::Window(Window::try_new(parts.exprs, window.input)?),
        other => other,
    };
    let all = kept.into_iter().chain(results).collect();
    Ok(Some(LogicalPlan::Projection(Projection::try_new(all, Arc::new(below))?)))
}

/// The aggregates from which results are computed.
struct Parts<'a> {
    columns: &'a DFSchema,
    exprs: Vec<Expr>,
    is_changed: bool,
}

impl Parts<'_> {
    /// Returns an aggregate's result, computed from columns of the parts, with the aggregate's name.
    fn result(&mut self, expr: &Expr) -> Result<Expr> {
        let (_, name) = expr.qualified_name();
        let found = match expr.clone().unalias() {
            Expr::AggregateFunction(call) => {
                Moment::of(&call.func).map(|moment| (moment, Call::Aggregate(call)))
            }
            Expr::WindowFunction(call) => match &call.fun {
                WindowFunctionDefinition::AggregateUDF(function) => {
                    Moment::of(function).map(|moment| (moment, Call::Window(call)))
                }
                WindowFunctionDefinition::WindowUDF(_) => None,
            },
            _ => None,
        };
        let found = found.and_then(|(moment, call)| match call.arguments() {
            [value] => Some((moment, value.clone(), call)),
            _ => None,
        });
        let found = match found {
            Some((moment, value, call)) => {
                let exact = quotients::exact(&value.get_type(self.columns)?);
                exact.map(|exact| (moment, value, exact, call))
            }
            None => None,
        };
        let Some((moment, value, exact, call)) = found else {
            self.exprs.push(expr.clone());
            return Ok(Expr::Column(Column::new_unqualified(name)));
        };
        self.is_changed = true;
        let made = self.moment(moment, value, &exact, &call)?;
        Ok(made.alias(name))
    }

    fn moment(&mut self, moment: Moment, value: Expr, exact: &DataType, call: &Call) -> Result<Expr> {
        // The value is written several times below: those within it would be more and more.
        if value.exists(|part| Ok(is_subquery(part)))? {
            return plan_err!(
                "{} of a subquery is not done: select the subquery in FROM first",
                match moment {
                    Moment::Mean => "a mean",
                    Moment::Spread { .. } => "a variance",
                }
            );
        }
        let digits = quotients::digits_before(exact);
        let count = self.part(call.with(&count_udaf(), value.clone()));
        if moment == Moment::Mean {
            let sum = self.part(call.with(&crate::aggregates::sum(), value.clone()));
            // A sum of integers is an integer.
            let count = cast(count, DataType::Decimal128(19, 0));
            let sum = if value.get_type(self.columns)?.is_integer() {
                cast(sum, DataType::Decimal128(19, 0))
            } else {
                sum
            };
            return Ok(quotients::of(digits, sum, count));
        }
        let value = cast(value, exact.clone());
        let square = binary_expr(value.clone(), Operator::Multiply, value.clone());
        let sum = self.part(call.with(&crate::aggregates::sum(), value));
        let squares = self.part(call.with(&crate::aggregates::sum(), square));
        let signature = Signature::any(3, Volatility::Immutable);
        let spread = ScalarUDF::from(Spread { moment, digits, signature });
        Ok(super::call(&Arc::new(spread), vec![count, sum, squares]))
    }

    /// Adds an aggregate, unless it is there; returns its column.
    fn part(&mut self, expr: Expr) -> Expr {
        let known = self.exprs.iter().find_map(|part| match part {
            Expr::Alias(alias) if *alias.expr == expr => Some(alias.name.clone()),
            _ => None,
        });
        let name = known.unwrap_or_else(|| {
            let name = format!("part {} of means", self.exprs.len());
            self.exprs.push(expr.alias(name.clone()));
            name
        });
        Expr::Column(Column::new_unqualified(name))
    }
}

fn is_subquery(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_))
}

/// A call of an aggregate, with the filter, the frame and whatever else belongs to it.
enum Call {
    Aggregate(AggregateFunction),
    Window(Box<WindowFunction>),
}

impl Call {
    fn arguments(&self) -> &[Expr] {
        match self {
            Call::Aggregate(call) => &call.params.args,
            Call::Window(call) => &call.params.args,
        }
    }

    /// Returns the call of another function, over the same rows.
    fn with(&self, function: &Arc<AggregateUDF>, argument: Expr) -> Expr {
        match self {
            Call::Aggregate(call) => {
                let mut call = call.clone();
                (call.func, call.params.args) = (Arc::clone(function), vec![argument]);
                Expr::AggregateFunction(call)
            }
            Call::Window(call) => {
                let mut call = call.clone();
                call.fun = WindowFunctionDefinition::AggregateUDF(Arc::clone(function));
                call.params.args = vec![argument];
                Expr::WindowFunction(call)
            }
        }
    }
}

/// The function that computes a variance or a deviation from a count, a sum and a sum of squares
/// (`numeric_stddev_internal`).
#[derive(Debug, PartialEq, Eq, Hash)]
struct Spread {
    moment: Moment,
    /// Digits that a value has before the point.
    digits: i8,
    signature: Signature,
}

impl ScalarUDFImpl for Spread {
    fn name(&self) -> &str {
        "postgres_spread"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let before = self.digits.saturating_mul(2);
        Ok(quotients::result(before, [quotients::scale(&types[2])]))
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> =
            arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        Ok(quotients::field(self.name(), self.return_type(&types)?))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let to = quotients::scale(arguments.return_field.data_type());
        let counts = arrays[0].as_primitive::<Int64Type>();
        let [sums, squares] = [&arrays[1], &arrays[2]].map(|array| array.as_primitive::<Decimal128Type>());
        let scale = quotients::scale(arrays[1].data_type());
        let mut results = PrimitiveBuilder::<Decimal128Type>::with_capacity(counts.len())
            .with_precision_and_scale(DECIMAL128_MAX_PRECISION, to)?;
        for (row, count) in counts.values().iter().enumerate() {
            let is_given = counts.is_valid(row) && sums.is_valid(row) && squares.is_valid(row);
            let result = match is_given {
                true => self.spread(*count, (sums.value(row), squares.value(row)), scale, to)?,
                false => None,
            };
            results.append_option(result);
        }
        Ok(ColumnarValue::Array(Arc::new(results.finish())))
    }
}

impl Spread {
    /// Returns the result for a group: its number of values, their sum with `scale` digits behind the point, and the sum of
    /// their squares with twice as many. A sample of one value has none.
    fn spread(
        &self,
        count: i64,
        (sum, squares): (i128, i128),
        scale: i8,
        to: i8,
    ) -> Result<Option<i128>, ArrowError> {
        let Moment::Spread { is_sample, is_root } = self.moment else { return Ok(None) };
        if count < 1 || is_sample && count < 2 {
            return Ok(None);
        }
        let [count, sum, squares] = [count.into(), sum, squares].map(i256::from_i128);
        let over = if is_sample { count.wrapping_sub(i256::ONE) } else { count };
        let all = count.checked_mul(squares).zip(sum.checked_mul(sum));
        let all = all.and_then(|(squares, square)| squares.checked_sub(square));
        let (all, over) = all.zip(count.checked_mul(over)).ok_or_else(quotients::out_of_range)?;
        if all <= i256::ZERO {
            return Ok(Some(0));
        }
        let variance = Number::new(all, scale.saturating_mul(2)).divided_by(&Number::new(over, 0), to)?;
        let result = if is_root { root(&variance)? } else { variance };
        result.with_scale(to).map(Some)
    }
}

/// Returns the square root of a number, with as many digits behind the point, rounded.
fn root(number: &Number) -> Result<Number, ArrowError> {
    // The root of four times a square is twice as large: its last bit rounds.
    let four = i256::from_i128(4);
    let square = quotients::power(number.scale.into()).and_then(|power| number.value.checked_mul(power));
    let square = square.and_then(|square| square.checked_mul(four)).ok_or_else(quotients::out_of_range)?;
    let twice = whole_root(square);
    let value = twice.wrapping_add(i256::ONE).wrapping_div(i256::from_i128(2));
    Ok(Number::new(value, number.scale))
}

/// Returns the whole part of a root by Newton's method, from above.
fn whole_root(square: i256) -> i256 {
    let two = i256::from_i128(2);
    if square < two {
        return square;
    }
    let bits = 256 - square.leading_zeros();
    let mut root = i256::ONE << u8::try_from(bits.div_ceil(2)).unwrap_or(u8::MAX);
    loop {
        let next = root.wrapping_add(square.wrapping_div(root)).wrapping_div(two);
        if next >= root {
            return root;
        }
        root = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values are PostgreSQL 15's.
    #[test]
    fn spreads_have_the_digits_of_postgresql() {
        let of = |is_sample, is_root, values: &[i128], scale: i8| {
            let spread = Spread {
                moment: Moment::Spread { is_sample, is_root },
                digits: 10,
                signature: Signature::any(3, Volatility::Immutable),
            };
            let (sum, squares) = (values.iter().sum(), values.iter().map(|value| value * value).sum());
            spread.spread(i64::try_from(values.len()).unwrap(), (sum, squares), scale, 18).unwrap()
        };
        assert_eq!(of(true, false, &[1, 2, 4], 0), Some(2_333_333_333_333_333_300));
        assert_eq!(of(false, true, &[1, 2, 4], 0), Some(1_247_219_128_924_647_100));
        assert_eq!(of(true, true, &[150, 250, 275], 2), Some(661_437_827_766_147_648));
        assert_eq!(of(false, false, &[7], 0), Some(0));
        assert_eq!(of(true, false, &[7], 0), None);
    }

    #[test]
    fn roots_are_whole() {
        for (square, root) in
            [(0, 0), (1, 1), (3, 1), (4, 2), (99, 9), (100, 10), (i128::MAX, 13_043_817_825_332_782_212)]
        {
            assert_eq!(whole_root(i256::from_i128(square)).to_i128(), Some(root), "{square}");
        }
    }
}
