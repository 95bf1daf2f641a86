//! ARRAY_AGG, fixed for `array_agg(DISTINCT x ORDER BY x)` next to aggregates with another order.
//!
//! DataFusion 55.2 serves several sort orders with one sort: it reverses an aggregate and feeds it its input backwards.
//! Its accumulator of distinct values sorts by itself, and then does so in the reversed order. This module is obsolete
//! once upstream reverses that accumulator correctly.

use arrow_schema::{DataType, FieldRef};
use datafusion::error::Result;
use datafusion::functions_aggregate::array_agg;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF, Signature,
};
use std::sync::Arc;

/// Returns the `array_agg` of this module, which keeps its sort order.
pub(super) fn array_agg() -> Arc<AggregateUDF> {
    List::of(&array_agg::array_agg_udaf())
}

/// DataFusion's `array_agg`. If the engine reverses a call with DISTINCT, the accumulator still gets the original sort
/// order.
#[derive(Debug, PartialEq, Eq, Hash)]
struct List {
    builtin: AggregateUDF,
}

impl List {
    fn of(builtin: &AggregateUDF) -> Arc<AggregateUDF> {
        Arc::new(AggregateUDF::from(List { builtin: builtin.clone() }))
    }
}

impl AggregateUDFImpl for List {
    fn name(&self) -> &str {
        self.builtin.name()
    }

    fn aliases(&self) -> &[String] {
        self.builtin.aliases()
    }

    fn signature(&self) -> &Signature {
        self.builtin.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.builtin.return_type(types)
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.builtin.state_fields(arguments)
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if !(arguments.is_distinct && arguments.is_reversed) {
            return self.builtin.accumulator(arguments);
        }
        let mut order = arguments.order_bys.to_vec();
        order.iter_mut().for_each(|key| key.options = !key.options);
        self.builtin.accumulator(AccumulatorArgs { order_bys: &order, ..arguments })
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        self.builtin.groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        self.builtin.create_groups_accumulator(arguments)
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        is_beneficial: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let builtin = self.builtin.clone().with_beneficial_ordering(is_beneficial)?;
        Ok(builtin.map(|builtin| Arc::new(List { builtin }) as _))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.builtin.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.builtin.reverse_udf() {
            ReversedUDAF::Reversed(builtin) => ReversedUDAF::Reversed(List::of(&builtin)),
            ReversedUDAF::Identical => ReversedUDAF::Identical,
            ReversedUDAF::NotSupported => ReversedUDAF::NotSupported,
        }
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.builtin.supports_null_handling_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.builtin.documentation()
    }
}
