//! Rank correlations (Spearman, Kendall). They need all values in sorted order, so that both columns are kept in memory
//! and nothing is pushed down.

use arrow_array::{Array, ArrayRef, cast::AsArray, new_empty_array};
use arrow_schema::{DataType, Field, FieldRef};
use arrow_select::concat::concat;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};
use farpool_model::schema;
use std::sync::Arc;

/// Computes the correlation coefficient of two columns.
type Coefficient = fn(&dyn Array, &dyn Array) -> farpool_model::Result<f64>;

/// Creates the aggregates `spearman` and `kendall`.
pub(super) fn all() -> Vec<AggregateUDF> {
    let of = |name, coefficient| {
        let signature = Signature::user_defined(Volatility::Immutable);
        AggregateUDF::from(RankCorrelation { name, coefficient, signature })
    };
    vec![
        of("spearman", farpool_statistics::spearman as Coefficient),
        of("kendall", farpool_statistics::kendall as Coefficient),
    ]
}

/// The aggregate `spearman` or `kendall`.
#[derive(Debug)]
struct RankCorrelation {
    name: &'static str,
    coefficient: Coefficient,
    signature: Signature,
}

impl PartialEq for RankCorrelation {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for RankCorrelation {}

impl std::hash::Hash for RankCorrelation {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl AggregateUDFImpl for RankCorrelation {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let number = |data_type: &DataType| match schema::canonical_type(data_type) {
            Some(known) if schema::is_numeric(&known) => known,
            _ => DataType::Float64,
        };
        match types {
            [_, _] => Ok(types.iter().map(number).collect()),
            _ => Err(DataFusionError::Plan(format!("{} takes two columns of numbers", self.name))),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let field = |(i, input): (usize, &FieldRef)| -> FieldRef {
            let values = Arc::new(Field::new_list_field(input.data_type().clone(), true));
            Arc::new(Field::new(format!("{}[{i}]", arguments.name), DataType::List(values), true))
        };
        Ok(arguments.input_fields.iter().enumerate().map(field).collect())
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if arguments.is_distinct {
            return Err(DataFusionError::NotImplemented(format!(
                "{}(DISTINCT …) is not supported",
                self.name
            )));
        }
        let types = arguments.expr_fields.iter().map(|field| field.data_type().clone()).collect();
        Ok(Box::new(Columns { coefficient: self.coefficient, types, parts: [Vec::new(), Vec::new()] }))
    }
}

/// The values of both columns, as batches in the order of arrival.
#[derive(Debug)]
struct Columns {
    coefficient: Coefficient,
    types: Vec<DataType>,
    parts: [Vec<ArrayRef>; 2],
}

impl Columns {
    fn whole(&self, column: usize) -> Result<ArrayRef> {
        let parts: Vec<&dyn Array> = self.parts[column].iter().map(|part| &**part).collect();
        Ok(if parts.is_empty() { new_empty_array(&self.types[column]) } else { concat(&parts)? })
    }
}

impl Accumulator for Columns {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for (parts, values) in self.parts.iter_mut().zip(values) {
            parts.push(Arc::clone(values));
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for (parts, lists) in self.parts.iter_mut().zip(states) {
            parts.extend(lists.as_list::<i32>().iter().flatten());
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let (x, y) = (self.whole(0)?, self.whole(1)?);
        let pairs = (0..x.len()).any(|row| x.is_valid(row) && y.is_valid(row));
        let coefficient = (self.coefficient)(&x, &y).map_err(farpool_sql::error::wrap)?;
        Ok(ScalarValue::Float64(pairs.then_some(coefficient)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let list = |column: usize| {
            let whole = self.whole(column)?;
            let field = Arc::new(Field::new_list_field(self.types[column].clone(), true));
            let offsets = arrow_buffer::OffsetBuffer::from_lengths([whole.len()]);
            let list = arrow_array::ListArray::try_new(field, offsets, whole, None)?;
            Ok(ScalarValue::List(Arc::new(list)))
        };
        [0, 1].into_iter().map(list).collect()
    }

    fn size(&self) -> usize {
        let parts = self.parts.iter().flatten();
        size_of::<Columns>() + parts.map(|part| part.get_array_memory_size()).sum::<usize>()
    }
}
