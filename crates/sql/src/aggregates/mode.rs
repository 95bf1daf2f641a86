//! MODE: the most frequent value, which neither DataFusion nor the pool computes. Of equally frequent values it returns
//! the least, so that the result does not depend on the order of rows.
//!
//! The state consists of the distinct values and their counts, as two lists. Memory: an entry for each distinct value
//! of a group.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::ScalarValue;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::mem::size_of;
use std::sync::Arc;

/// Creates the aggregate function `mode`.
pub(super) fn mode() -> AggregateUDF {
    AggregateUDF::from(Mode { signature: Signature::any(1, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Mode {
    signature: Signature,
}

impl AggregateUDFImpl for Mode {
    fn name(&self) -> &str {
        "mode"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let list = |name: &str, item: DataType| {
            Arc::new(Field::new_list(
                format_state_name(arguments.name, name),
                Field::new_list_field(item, true),
                true,
            ))
        };
        Ok(vec![
            list("values", arguments.input_fields[0].data_type().clone()),
            list("counts", DataType::Int64),
        ])
    }

    /// Accepts PostgreSQL's form, `mode() WITHIN GROUP (ORDER BY x)`.
    fn supports_within_group_clause(&self) -> bool {
        true
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if arguments.order_bys.iter().any(|order| order.options.descending) {
            let text =
                "of equally frequent values mode gives the least: write mode() WITHIN GROUP (ORDER BY x)";
            return Err(DataFusionError::Plan(text.to_string()));
        }
        let data_type = arguments.expr_fields[0].data_type().clone();
        let rows = RowConverter::new(vec![SortField::new(data_type.clone())])?;
        Ok(Box::new(Counts { data_type, rows, counts: HashMap::new(), bytes: 0 }))
    }
}

/// The number of rows for each value of a group. Values are encoded as sortable bytes.
#[derive(Debug)]
struct Counts {
    data_type: DataType,
    rows: RowConverter,
    counts: HashMap<Box<[u8]>, i64>,
    /// Total bytes of the encoded values.
    bytes: usize,
}

impl Counts {
    /// Adds `times(row)` to the count of each row's value, except NULLs.
    fn add(&mut self, values: &ArrayRef, times: impl Fn(usize) -> i64) -> Result<()> {
        let values = one_zero(values)?;
        let rows = self.rows.convert_columns(&[Arc::clone(&values)])?;
        let nulls = values.logical_nulls();
        for (place, row) in rows.iter().enumerate() {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(place)) {
                continue;
            }
            match self.counts.get_mut(row.data()) {
                Some(count) => *count += times(place),
                None => {
                    self.bytes += row.data().len();
                    self.counts.insert(row.data().into(), times(place));
                }
            }
        }
        Ok(())
    }

    fn values<'a>(&self, encoded: impl Iterator<Item = &'a Box<[u8]>>) -> Result<ArrayRef> {
        let parser = self.rows.parser();
        let arrays = self.rows.convert_rows(encoded.map(|row| parser.parse(row)))?;
        Ok(Arc::clone(&arrays[0]))
    }
}

/// Replaces -0.0 by 0.0, because the two are one value in SQL.
fn one_zero(values: &ArrayRef) -> Result<ArrayRef> {
    match values.data_type() {
        found if found.is_floating() => {
            let zero = ScalarValue::new_zero(found)?.to_scalar()?;
            Ok(datafusion::arrow::compute::kernels::numeric::add(values, &zero)?)
        }
        _ => Ok(Arc::clone(values)),
    }
}

impl Accumulator for Counts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0], |_| 1)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0], |_| -1)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (values, counts) = (states[0].as_list::<i32>(), states[1].as_list::<i32>());
        for group in (0..values.len()).filter(|group| values.is_valid(*group)) {
            let counts = counts.value(group);
            let counts = counts.as_primitive::<Int64Type>();
            self.add(&values.value(group), |place| counts.value(place))?;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let counted = self.counts.iter().filter(|(_, count)| **count > 0);
        match counted.max_by_key(|(value, count)| (**count, Reverse(*value))) {
            Some((value, _)) => ScalarValue::try_from_array(&self.values(std::iter::once(value))?, 0),
            None => ScalarValue::try_from(&self.data_type),
        }
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let counted = || self.counts.iter().filter(|(_, count)| **count > 0);
        let counts: Int64Array = counted().map(|(_, count)| *count).collect();
        let list = |array: ArrayRef| SingleRowListArrayBuilder::new(array).build_list_scalar();
        Ok(vec![list(self.values(counted().map(|(value, _)| value))?), list(Arc::new(counts))])
    }

    fn size(&self) -> usize {
        size_of_val(self)
            + self.bytes
            + self.counts.capacity() * size_of::<(Box<[u8]>, i64)>()
            + self.rows.size()
    }
}
