//! Partial aggregation: an aggregation at the node whose groups may be returned in several rows, which the host (the
//! query engine at the client) merges. Partial groups are those of a worker's hash table when it was full, and single
//! rows that bypassed it (Woods et al., *Ibex*, PVLDB 2014, section 6.2.1).
//!
//! Invariant: merging the partial groups of each group as [`Merge`] says gives exactly the result of the aggregation,
//! however the rows were divided.

use crate::{Accumulation, Aggregate, AggregateFunction, Fold, Result, StateFunction};
use arrow_schema::{DECIMAL128_MAX_PRECISION, DataType, Schema};

/// The partial form of an aggregation: the aggregates that the node computes, and how the host merges them.
#[derive(Clone, Debug, PartialEq)]
pub struct PartialForm {
    /// The aggregates that the node returns, after the group keys. The partial form of these aggregates is the same
    /// again.
    pub aggregates: Vec<Aggregate>,
    /// For each aggregate of the original aggregation the operation that computes it from `aggregates`.
    pub merges: Vec<Merge>,
}

/// Operation by which the host merges partial groups. The numbers are indexes into [`PartialForm::aggregates`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// Adds counts.
    Count(usize),
    /// Adds sums, ignoring NULLs.
    Sum(usize),
    /// Divides the sum of the sums by the sum of the counts; NULL if the sum of the counts is 0.
    Mean {
        /// Index of the sums.
        sum: usize,
        /// Index of the counts.
        count: usize,
    },
    /// Combines values with the function, ignoring NULLs.
    Fold(Fold, usize),
    /// Merges the states of a statistic.
    State(StateFunction, usize),
}

impl PartialForm {
    /// Returns the partial form of `aggregates` over a table with `table_schema`. Sums of integers and decimals become
    /// decimals of 38 digits, so that no partial sum overflows if the total does not. A mean becomes a sum and a count.
    ///
    /// # Errors
    /// `Invalid` if an argument is not well typed.
    pub fn of(aggregates: &[Aggregate], table_schema: &Schema) -> Result<PartialForm> {
        let mut form = PartialForm { aggregates: Vec::new(), merges: Vec::new() };
        for aggregate in aggregates {
            let merge = form.add(aggregate, table_schema)?;
            form.merges.push(merge);
        }
        Ok(form)
    }

    fn add(&mut self, aggregate: &Aggregate, table_schema: &Schema) -> Result<Merge> {
        let place = self.aggregates.len();
        let part = |function, data_type: DataType| Aggregate { function, data_type, ..aggregate.clone() };
        let sum = || Ok(part(AggregateFunction::Sum, sum_type(aggregate, table_schema)?));
        match aggregate.function.accumulation() {
            Accumulation::Count => {
                self.aggregates.push(aggregate.clone());
                Ok(Merge::Count(place))
            }
            Accumulation::Sum => {
                self.aggregates.push(sum()?);
                Ok(Merge::Sum(place))
            }
            Accumulation::Mean => {
                self.aggregates.push(sum()?);
                self.aggregates.push(part(AggregateFunction::Count, DataType::Int64));
                Ok(Merge::Mean { sum: place, count: place + 1 })
            }
            Accumulation::Fold(fold) => {
                self.aggregates.push(aggregate.clone());
                Ok(Merge::Fold(fold, place))
            }
            Accumulation::State(state) => {
                self.aggregates.push(aggregate.clone());
                Ok(Merge::State(state, place))
            }
        }
    }
}

fn sum_type(aggregate: &Aggregate, table_schema: &Schema) -> Result<DataType> {
    let argument = aggregate.arguments.first().map(|a| a.data_type(table_schema)).transpose()?;
    Ok(match argument {
        Some(DataType::Decimal128(_, scale)) => DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale),
        Some(t) if t.is_integer() => DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0),
        _ => DataType::Float64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Expr, Pick};
    use arrow_schema::Field;

    fn aggregate(function: AggregateFunction, data_type: DataType) -> Aggregate {
        let name = function.name().to_string();
        Aggregate { name, function, arguments: vec![Expr::Column(0)], filter: None, data_type }
    }

    #[test]
    fn means_travel_as_sums_and_counts_and_the_form_is_its_own_form() {
        let schema = Schema::new(vec![Field::new("a", DataType::Int64, true)]);
        let aggregates = [
            aggregate(AggregateFunction::Avg, DataType::Float64),
            aggregate(AggregateFunction::Sum, DataType::Int64),
            aggregate(AggregateFunction::Max, DataType::Int64),
        ];
        let form = PartialForm::of(&aggregates, &schema).unwrap();
        assert_eq!(
            form.merges,
            [Merge::Mean { sum: 0, count: 1 }, Merge::Sum(2), Merge::Fold(Fold::Pick(Pick::Greatest), 3)]
        );
        let types: Vec<_> = form.aggregates.iter().map(|a| a.data_type.clone()).collect();
        let wide = DataType::Decimal128(38, 0);
        assert_eq!(types, [wide.clone(), DataType::Int64, wide, DataType::Int64]);
        assert_eq!(PartialForm::of(&form.aggregates, &schema).unwrap().aggregates, form.aggregates);
    }
}
