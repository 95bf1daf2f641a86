//! PERCENTILE_CONT by the standard's formula. DataFusion's accumulator collects the values. Its own interpolation is
//! replaced, because it rounds the position between two values to millionths.

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_schema::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::physical_expr::expressions::Literal;
use std::sync::Arc;

/// Collects values with DataFusion's accumulator, whose state is the list of the values, and interpolates exactly.
#[derive(Debug)]
pub(super) struct Percentile {
    values: Box<dyn Accumulator>,
    /// The requested fraction from 0 to 1, counted from the least value even if the call sorts in descending order.
    share: f64,
    data_type: DataType,
    /// Whether only distinct values count. DataFusion's accumulator then keeps its values when they are read; otherwise
    /// reading moves them out.
    is_distinct: bool,
}

impl Percentile {
    /// Wraps `values`, DataFusion's accumulator, which has already checked the arguments.
    pub(super) fn new(values: Box<dyn Accumulator>, arguments: &AccumulatorArgs<'_>) -> Result<Percentile> {
        let share = arguments.exprs.get(1).and_then(|expr| expr.downcast_ref::<Literal>());
        let share = share.and_then(|literal| match literal.value().cast_to(&DataType::Float64) {
            Ok(ScalarValue::Float64(share)) => share,
            _ => None,
        });
        let share = share.ok_or_else(|| {
            DataFusionError::Plan("the percentile of percentile_cont must be a constant".to_string())
        })?;
        let is_descending = arguments.order_bys.first().is_some_and(|order| order.options.descending);
        Ok(Percentile {
            values,
            share: if is_descending { 1.0 - share } else { share },
            data_type: arguments.return_field.data_type().clone(),
            is_distinct: arguments.is_distinct,
        })
    }
}

impl Accumulator for Percentile {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.update_batch(values)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.values.supports_retract_batch()
    }

    /// Merges all `states`. DataFusion's accumulator merges only the first of several: it never gets more than one
    /// upstream, where groups have another kind of accumulator.
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let lists = &states[0];
        for row in (0..lists.len()).filter(|row| lists.is_valid(*row)) {
            self.values.merge_batch(&[lists.slice(row, 1)])?;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let state = self.values.state()?;
        let [ScalarValue::List(list)] = state.as_slice() else {
            return Err(DataFusionError::Internal(format!("{state:?} is no list of values")));
        };
        let floats = arrow_cast::cast(&list.value(0), &DataType::Float64)?;
        let floats = floats.as_primitive::<Float64Type>();
        let interpolated = interpolated(floats.values().to_vec(), self.share);
        if !self.is_distinct {
            // Reading the values has removed them from the accumulator. They are put back, because later rows of a
            // window's frame need them.
            self.values.merge_batch(&[Arc::clone(list) as ArrayRef])?;
        }
        ScalarValue::Float64(interpolated).cast_to(&self.data_type)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.values.state()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.size()
    }
}

/// Returns the value at the fraction `share` of the way from the least to the greatest value; `None` if there are no
/// values. If the position is between two values, interpolates linearly. NaN is greatest.
fn interpolated(mut values: Vec<f64>, share: f64) -> Option<f64> {
    let place = share * values.len().checked_sub(1)? as f64;
    let (_, low, above) = values.select_nth_unstable_by(place as usize, f64::total_cmp);
    let (low, part) = (*low, place.fract());
    match above.iter().copied().min_by(f64::total_cmp) {
        Some(high) if part > 0.0 => Some(low + part * (high - low)),
        _ => Some(low),
    }
}

#[cfg(test)]
mod tests {
    use super::interpolated;

    #[test]
    fn interpolation_is_not_quantized() {
        assert_eq!(interpolated(vec![], 0.5), None);
        assert_eq!(interpolated(vec![3.0], 0.9), Some(3.0));
        assert_eq!(interpolated(vec![2.0, 1.0], 0.5), Some(1.5));
        assert_eq!(interpolated(vec![4.0, 1.0, 2.0, 3.0], 1.0), Some(4.0));
        let third = interpolated(vec![0.0, 1e9], 1.0 / 3.0).unwrap();
        assert!((third - 1e9 / 3.0).abs() < 1e-6, "{third}");
        assert!(interpolated(vec![1.0, f64::NAN], 0.5).unwrap().is_nan());
    }
}
