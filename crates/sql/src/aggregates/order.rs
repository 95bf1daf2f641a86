//! MIN and MAX of floats. DataFusion's accumulators of floats have two problems: they start at the greatest and the
//! least finite float, and if there is a NaN, the result depends on the order of rows. Its accumulators of integers
//! have neither problem. Therefore floats are mapped to integers that compare as the floats do ([`Step::Order`]; NaN is
//! greatest), and the result is mapped back.

use arrow_array::{ArrayRef, BooleanArray};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use farpool_planner::finish::{Step, float_of};

/// Returns the type of the integers to which floats are mapped.
pub(super) fn orders() -> DataType {
    DataType::Int64
}

fn order_of(floats: &[ArrayRef]) -> Result<[ArrayRef; 1]> {
    let field = Field::new("order", orders(), true);
    Ok([Step::Order.apply(floats, &field).map_err(crate::error::wrap)?])
}

fn floats_of(orders: &[ArrayRef], field: &Field) -> Result<ArrayRef> {
    Step::Float.apply(orders, field).map_err(crate::error::wrap)
}

/// Accumulates one group or a moving frame of floats, with DataFusion's accumulator of integers.
#[derive(Debug)]
pub(super) struct Ordered {
    integers: Box<dyn Accumulator>,
    field: FieldRef,
}

impl Ordered {
    pub(super) fn new(integers: Box<dyn Accumulator>, field: FieldRef) -> Self {
        Ordered { integers, field }
    }
}

impl Accumulator for Ordered {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.integers.update_batch(&order_of(values)?)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.integers.retract_batch(&order_of(values)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.integers.supports_retract_batch()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.integers.merge_batch(&order_of(states)?)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let float = match self.integers.evaluate()? {
            ScalarValue::Int64(order) => ScalarValue::Float64(order.map(float_of)),
            other => return Err(DataFusionError::Internal(format!("{other} stands for no float"))),
        };
        match self.field.data_type() {
            DataType::Float64 => Ok(float),
            narrower => float.cast_to(narrower),
        }
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.integers.size()
    }
}

/// Accumulates many groups of floats, with DataFusion's accumulator of integers.
pub(super) struct OrderedGroups {
    integers: Box<dyn GroupsAccumulator>,
    field: FieldRef,
}

impl OrderedGroups {
    pub(super) fn new(integers: Box<dyn GroupsAccumulator>, field: FieldRef) -> Self {
        OrderedGroups { integers, field }
    }

    fn floats(&self, states: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        Ok(vec![floats_of(states, &self.field)?])
    }
}

impl GroupsAccumulator for OrderedGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.integers.update_batch(&order_of(values)?, group_indices, filter, total_num_groups)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.integers.merge_batch(&order_of(values)?, group_indices, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let orders = self.integers.evaluate(emit_to)?;
        floats_of(&[orders], &self.field)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let states = self.integers.state(emit_to)?;
        self.floats(&states)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let states = self.integers.convert_to_state(&order_of(values)?, filter)?;
        self.floats(&states)
    }

    fn size(&self) -> usize {
        self.integers.size()
    }
}
