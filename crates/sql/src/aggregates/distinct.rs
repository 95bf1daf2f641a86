//! Exact sums and means of distinct values (`sum(DISTINCT x)`). DataFusion's accumulator collects the distinct values;
//! only its computation of the result is replaced.

use super::exact::ExactAccumulator;
use arrow_array::ArrayRef;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Accumulator;
use std::collections::HashMap;

/// Collects distinct values with DataFusion's accumulator (whose state is the list of the values), and adds them up
/// exactly.
#[derive(Debug)]
pub(super) struct Distinct {
    values: Box<dyn Accumulator>,
    exact: ExactAccumulator,
}

impl Distinct {
    pub(super) fn new(values: Box<dyn Accumulator>, exact: ExactAccumulator) -> Self {
        Distinct { values, exact }
    }
}

impl Accumulator for Distinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.values.merge_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let state = self.values.state()?;
        let [ScalarValue::List(list)] = state.as_slice() else {
            return Err(DataFusionError::Internal(format!("{state:?} is no list of distinct values")));
        };
        self.exact.clear();
        self.exact.update_batch(&[list.value(0)])?;
        self.exact.evaluate()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.values.state()
    }

    fn size(&self) -> usize {
        self.values.size() + self.exact.size()
    }
}

/// An accumulator of distinct values for a window whose frame moves. It counts the rows of each value, and removes a
/// value together with its last row.
#[derive(Debug)]
pub(super) struct SlidingDistinct {
    /// Number of rows in the frame that have the value, for each distinct value.
    rows: HashMap<ScalarValue, u64>,
    exact: ExactAccumulator,
}

impl SlidingDistinct {
    pub(super) fn new(exact: ExactAccumulator) -> Self {
        SlidingDistinct { rows: HashMap::new(), exact }
    }
}

impl Accumulator for SlidingDistinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for row in 0..values[0].len() {
            let rows = self.rows.entry(ScalarValue::try_from_array(&values[0], row)?).or_default();
            *rows += 1;
            if *rows == 1 {
                self.exact.update_batch(&[values[0].slice(row, 1)])?;
            }
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for row in 0..values[0].len() {
            let value = ScalarValue::try_from_array(&values[0], row)?;
            let Some(rows) = self.rows.get_mut(&value) else { continue };
            *rows -= 1;
            if *rows == 0 {
                self.rows.remove(&value);
                self.exact.retract_batch(&[values[0].slice(row, 1)])?;
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        Err(DataFusionError::Internal("the frames of a window are not merged".to_string()))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.exact.evaluate()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Err(DataFusionError::Internal("the frames of a window are not merged".to_string()))
    }

    fn size(&self) -> usize {
        let values = self.rows.capacity() * size_of::<(ScalarValue, u64)>();
        size_of_val(self) + values + self.exact.size()
    }
}
