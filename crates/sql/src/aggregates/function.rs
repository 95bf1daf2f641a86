//! The replaced aggregate functions, as DataFusion's user-defined aggregates (UDAFs). Planning questions, such as the
//! type of the result, are answered by DataFusion's function of the same name; only the accumulators are replaced.

use super::distinct::{Distinct, SlidingDistinct};
use super::exact::{ExactAccumulator, ExactGroups};
use super::order::{Ordered, OrderedGroups, orders};
use super::percentile::Percentile;
use super::truth::{SlidingTruth, Truth};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_aggregate::{average, bool_and_or, min_max, percentile_cont, sum as builtin_sum};
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, Expr, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};
use farpool_statistics::{ExactSums, Purpose};
use std::sync::Arc;

/// Returns `sum`, which is exact for integers and decimals.
pub fn sum() -> Arc<AggregateUDF> {
    Replacement::of(builtin_sum::sum_udaf(), Meaning::Exact(Purpose::Sum))
}

/// Returns `avg`, also known as `mean`, which is exact for decimals.
pub(super) fn avg() -> Arc<AggregateUDF> {
    Replacement::of(average::avg_udaf(), Meaning::Exact(Purpose::Mean))
}

/// Returns `min`, which compares floats as the pool does (NaN is the greatest).
pub fn min() -> Arc<AggregateUDF> {
    Replacement::of(min_max::min_udaf(), Meaning::Extreme)
}

/// Returns `max`, which compares floats as the pool does (NaN is the greatest).
pub fn max() -> Arc<AggregateUDF> {
    Replacement::of(min_max::max_udaf(), Meaning::Extreme)
}

/// Returns `percentile_cont`, also known as `quantile_cont`, computed by the standard's formula.
pub fn percentile_cont() -> Arc<AggregateUDF> {
    Replacement::of(percentile_cont::percentile_cont_udaf(), Meaning::Percentile)
}

/// Returns `bool_and` and `bool_or`, which support removing rows from a moving frame.
pub(super) fn truths() -> [Arc<AggregateUDF>; 2] {
    [
        Replacement::of(bool_and_or::bool_and_udaf(), Meaning::Truth(Truth::All)),
        Replacement::of(bool_and_or::bool_or_udaf(), Meaning::Truth(Truth::Some)),
    ]
}

/// A DataFusion aggregate whose accumulators are replaced for some argument types.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Replacement {
    builtin: Arc<AggregateUDF>,
    meaning: Meaning,
}

/// Computation for the types that are not left to DataFusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Meaning {
    Exact(Purpose),
    Extreme,
    Percentile,
    Truth(Truth),
}

/// Computation for arguments of one type.
enum Way {
    /// By exact sums; this value is the state without any groups.
    Exact(ExactSums),
    /// By DataFusion's accumulator of integers: floats are mapped to integers that compare as the floats do.
    Ordered,
    /// By DataFusion's accumulator, except for the interpolation at the end.
    Percentile,
    /// By counting the true and the false rows if the window's frame moves; otherwise by DataFusion's accumulator.
    Truth(Truth),
    /// By DataFusion's accumulator for the type.
    Builtin,
}

impl Replacement {
    fn of(builtin: Arc<AggregateUDF>, meaning: Meaning) -> Arc<AggregateUDF> {
        Arc::new(AggregateUDF::from(Replacement { builtin, meaning }))
    }

    fn way(&self, arguments: &[FieldRef]) -> Way {
        let Some(argument) = arguments.first().map(|field| field.data_type()) else { return Way::Builtin };
        match self.meaning {
            Meaning::Exact(purpose) => ExactSums::new(argument, purpose).map_or(Way::Builtin, Way::Exact),
            Meaning::Extreme if argument.is_floating() => Way::Ordered,
            Meaning::Percentile if argument.is_floating() => Way::Percentile,
            Meaning::Truth(truth) if *argument == DataType::Boolean => Way::Truth(truth),
            Meaning::Extreme | Meaning::Percentile | Meaning::Truth(_) => Way::Builtin,
        }
    }
}

/// Returns `arguments`, which are floats, with the type of the integers that represent them (`order`).
fn of_orders<'a>(arguments: &AccumulatorArgs<'a>, order: &'a [FieldRef; 1]) -> AccumulatorArgs<'a> {
    AccumulatorArgs {
        return_field: Arc::clone(&order[0]),
        expr_fields: order,
        schema: arguments.schema,
        ignore_nulls: arguments.ignore_nulls,
        order_bys: arguments.order_bys,
        is_reversed: arguments.is_reversed,
        name: arguments.name,
        is_distinct: arguments.is_distinct,
        exprs: arguments.exprs,
    }
}

fn order_field(name: &str) -> [FieldRef; 1] {
    [Arc::new(Field::new(name, orders(), true))]
}

/// `simplify_expr_op_literal` is deliberately not forwarded: DataFusion's SUM rewrites `sum(x + c)` to `sum(x) + c *
/// count(x)`, which can wrap around where the sum does not.
impl AggregateUDFImpl for Replacement {
    fn name(&self) -> &str {
        self.builtin.name()
    }

    fn aliases(&self) -> &[String] {
        self.builtin.aliases()
    }

    fn signature(&self) -> &Signature {
        self.builtin.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.builtin.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.builtin.return_type(types)
    }

    fn is_nullable(&self) -> bool {
        self.builtin.is_nullable()
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.builtin.default_value(data_type)
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        match self.way(arguments.input_fields) {
            Way::Exact(sums) if !arguments.is_distinct => {
                let field = |(part, data_type)| -> FieldRef {
                    Arc::new(Field::new(format!("{}[{part}]", arguments.name), data_type, true))
                };
                Ok(sums.state_types().into_iter().map(field).collect())
            }
            // The state consists of the values themselves; for MIN and MAX, of the floats.
            Way::Exact(_) | Way::Ordered | Way::Percentile | Way::Truth(_) | Way::Builtin => {
                self.builtin.state_fields(arguments)
            }
        }
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match self.way(arguments.expr_fields) {
            Way::Exact(sums) => {
                let exact = ExactAccumulator::new(sums, &arguments);
                match arguments.is_distinct {
                    true => Ok(Box::new(Distinct::new(self.builtin.accumulator(arguments)?, exact))),
                    false => Ok(Box::new(exact)),
                }
            }
            Way::Ordered => {
                let order = order_field(arguments.name);
                let builtin = self.builtin.accumulator(of_orders(&arguments, &order))?;
                Ok(Box::new(Ordered::new(builtin, arguments.return_field)))
            }
            Way::Percentile => {
                let values = self.builtin.accumulator(arguments.clone())?;
                Ok(Box::new(Percentile::new(values, &arguments)?))
            }
            Way::Truth(_) | Way::Builtin => self.builtin.accumulator(arguments),
        }
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        match self.way(arguments.expr_fields) {
            Way::Exact(_) => !arguments.is_distinct,
            // PERCENTILE_CONT keeps all values, so that each group needs its own accumulator.
            Way::Percentile => false,
            Way::Ordered | Way::Truth(_) | Way::Builtin => {
                self.builtin.groups_accumulator_supported(arguments)
            }
        }
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        match self.way(arguments.expr_fields) {
            Way::Exact(sums) => Ok(Box::new(ExactGroups::new(sums, &arguments))),
            Way::Ordered => {
                let order = order_field(arguments.name);
                let builtin = self.builtin.create_groups_accumulator(of_orders(&arguments, &order))?;
                Ok(Box::new(OrderedGroups::new(builtin, arguments.return_field)))
            }
            Way::Percentile | Way::Truth(_) | Way::Builtin => {
                self.builtin.create_groups_accumulator(arguments)
            }
        }
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match self.way(arguments.expr_fields) {
            Way::Exact(sums) => {
                let exact = ExactAccumulator::new(sums, &arguments);
                match arguments.is_distinct {
                    true => Ok(Box::new(SlidingDistinct::new(exact))),
                    false => Ok(Box::new(exact)),
                }
            }
            Way::Ordered => {
                let order = order_field(arguments.name);
                let builtin = self.builtin.create_sliding_accumulator(of_orders(&arguments, &order))?;
                Ok(Box::new(Ordered::new(builtin, arguments.return_field)))
            }
            Way::Percentile => {
                let values = self.builtin.create_sliding_accumulator(arguments.clone())?;
                Ok(Box::new(Percentile::new(values, &arguments)?))
            }
            Way::Truth(truth) => Ok(Box::new(SlidingTruth::new(truth))),
            Way::Builtin => self.builtin.create_sliding_accumulator(arguments),
        }
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.builtin.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.builtin.reverse_udf()
    }

    fn is_descending(&self) -> Option<bool> {
        self.builtin.is_descending()
    }

    /// Returns no value, so that sums are not taken from statistics: DataFusion adds up those of several files with
    /// wrapping arithmetic.
    fn value_from_stats(&self, arguments: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        match self.meaning {
            Meaning::Exact(_) => None,
            Meaning::Extreme | Meaning::Percentile | Meaning::Truth(_) => {
                self.builtin.value_from_stats(arguments)
            }
        }
    }

    fn supports_within_group_clause(&self) -> bool {
        self.builtin.supports_within_group_clause()
    }

    /// DataFusion simplifies percentiles at the ends (0 and 1) to MIN and MAX; returns this simplification, with the
    /// MIN and MAX of this file.
    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        if self.meaning != Meaning::Percentile {
            return None;
        }
        let simplified = self.builtin.simplify()?;
        Some(Box::new(move |call, info| {
            let mut expr = simplified(call, info)?;
            if let Expr::AggregateFunction(call) = &mut expr {
                match call.func.name() {
                    "min" => call.func = min(),
                    "max" => call.func = max(),
                    _ => {}
                }
            }
            Ok(expr)
        }))
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.builtin.inner().set_monotonicity(data_type)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.builtin.documentation()
    }
}
