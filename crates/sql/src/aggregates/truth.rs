//! BOOL_AND and BOOL_OR in a window whose frame moves: counts the true and the false rows of the frame.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Accumulator;

/// The condition that the rows of the frame which are not NULL must meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Truth {
    /// All of these rows are true (BOOL_AND).
    All,
    /// At least one of these rows is true (BOOL_OR).
    Some,
}

/// Counts the true and the false rows of the frame.
#[derive(Debug)]
pub(super) struct SlidingTruth {
    truth: Truth,
    trues: usize,
    falses: usize,
}

impl SlidingTruth {
    pub(super) fn new(truth: Truth) -> Self {
        SlidingTruth { truth, trues: 0, falses: 0 }
    }
}

fn counts(values: &[ArrayRef]) -> (usize, usize) {
    let conditions = values[0].as_boolean();
    let trues = conditions.true_count();
    (trues, conditions.len() - conditions.null_count() - trues)
}

impl Accumulator for SlidingTruth {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (trues, falses) = counts(values);
        self.trues += trues;
        self.falses += falses;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (trues, falses) = counts(values);
        self.trues -= trues;
        self.falses -= falses;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        Err(DataFusionError::Internal("the frames of a window are not merged".to_string()))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let is_known = self.trues + self.falses > 0;
        let answer = match self.truth {
            Truth::All => self.falses == 0,
            Truth::Some => self.trues > 0,
        };
        Ok(ScalarValue::Boolean(is_known.then_some(answer)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Err(DataFusionError::Internal("the frames of a window are not merged".to_string()))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}
