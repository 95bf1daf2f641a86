//! What is read from a state: the one place where answers are made of sketches and moments, so that they are
//! the same whether the state came from a pool or was made here.
//!
//! NULL where there is nothing to answer from: one row for a correlation or a sample's variance. NaN
//! where there are rows but no answer, as for the correlation of a constant column.

use arrow_schema::{DataType, Field, Fields};
use datafusion::common::ScalarValue;
use datafusion::common::scalar::ScalarStructBuilder;
use farpool_model::{Error, Literal, Result};
use farpool_statistics::{Estimate, Form, Moments, Sketch, State};
use std::sync::Arc;

/// What is read from a state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reading {
    /// The state itself.
    State,
    /// How many values are distinct.
    Distinct,
    /// How often a value occurs.
    Frequency(ScalarValue),
    /// The most frequent values, so many, which are of this type.
    Top(usize, DataType),
    /// The second moment.
    SecondMoment,
    /// Something of a pair of columns.
    Pair(PairReading, usize, usize),
    /// The correlation of each pair of columns.
    Correlations,
}

/// What is read of a pair of columns of moments; of one column, where both are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PairReading {
    Count,
    /// Of the second.
    Mean,
    CovariancePopulation,
    CovarianceSample,
    DeviationPopulation,
    DeviationSample,
    Correlation,
    Cosine,
    /// Of the line that gives the first by the second, as are all that follow.
    Slope,
    Intercept,
    R2,
    AverageX,
    AverageY,
    SquaresX,
    SquaresY,
    Products,
}

impl Reading {
    /// The type of the answer.
    pub(crate) fn data_type(&self) -> DataType {
        match self {
            Reading::State => DataType::BinaryView,
            Reading::Distinct | Reading::Frequency(_) | Reading::Pair(PairReading::Count, ..) => {
                DataType::UInt64
            }
            Reading::Top(_, of) => DataType::List(Arc::new(Field::new_list_field(
                DataType::Struct(frequent_fields(of.clone())),
                true,
            ))),
            Reading::SecondMoment | Reading::Pair(..) => DataType::Float64,
            Reading::Correlations => {
                let row = DataType::List(Arc::new(Field::new_list_field(DataType::Float64, true)));
                DataType::List(Arc::new(Field::new_list_field(row, true)))
            }
        }
    }

    /// What is read of a column pair, the other way around if `place` puts the columns elsewhere.
    pub(crate) fn moved(self, place: &[usize]) -> Reading {
        match self {
            Reading::Pair(what, i, j) => Reading::Pair(what, place[i], place[j]),
            other => other,
        }
    }

    /// The answer.
    ///
    /// # Errors
    /// `Invalid` when the state is not one that answers this.
    pub(crate) fn read(&self, state: &State) -> Result<ScalarValue> {
        Ok(match (self, state) {
            (Reading::State, state) => ScalarValue::BinaryView(Some(state.to_bytes())),
            (Reading::Distinct, State::Sketch(sketch)) => rounded(&distinct(sketch)?),
            (Reading::Frequency(value), State::Sketch(sketch)) => rounded(&frequency(sketch, value)?),
            (Reading::Top(count, of), State::Sketch(sketch)) => top(sketch, *count, of)?,
            (Reading::SecondMoment, State::Sketch(sketch)) => {
                ScalarValue::Float64(Some(second_moment(sketch)?.value))
            }
            (Reading::Pair(what, i, j), State::Moments(moments)) => what.read(moments, *i, *j)?,
            (Reading::Correlations, State::Moments(moments)) => correlations(moments)?,
            (_, State::Sketch(_)) => {
                return Err(Error::invalid("this is a state of sketches, not of moments"));
            }
            (_, State::Moments(_)) => {
                return Err(Error::invalid("this is a state of moments, not of sketches"));
            }
        })
    }
}

impl PairReading {
    fn read(self, moments: &Moments, i: usize, j: usize) -> Result<ScalarValue> {
        let columns = moments.columns();
        if i >= columns || j >= columns {
            let most = i.max(j) + 1;
            return Err(Error::invalid(format!("there is no column {most}: the moments are of {columns}"))
                .advise("columns of moments count from 1"));
        }
        let count = moments.count(i, j);
        if self == PairReading::Count {
            return Ok(ScalarValue::UInt64(Some(count)));
        }
        let covariance = |form| moments.covariance(i, j, form);
        let line = || moments.regression(i, j);
        // A line needs two rows, and two values of x.
        let has_line = || count > 1 && line().sxx != 0.0;
        let (known, value): (bool, f64) = match self {
            PairReading::Count => (true, count as f64),
            PairReading::Mean => (count > 0, line().avgx),
            PairReading::CovariancePopulation => (count > 0, covariance(Form::Population)),
            PairReading::CovarianceSample => (count > 1, covariance(Form::Sample)),
            PairReading::DeviationPopulation => (count > 0, covariance(Form::Population).sqrt()),
            PairReading::DeviationSample => (count > 1, covariance(Form::Sample).sqrt()),
            PairReading::Correlation => (count > 1, moments.correlation(i, j)),
            PairReading::Cosine => (count > 0, moments.cosine_similarity(i, j)),
            PairReading::Slope => (has_line(), line().slope),
            PairReading::Intercept => (has_line(), line().intercept),
            PairReading::R2 => (has_line() && line().syy != 0.0, line().r2),
            PairReading::AverageX => (count > 0, line().avgx),
            PairReading::AverageY => (count > 0, line().avgy),
            PairReading::SquaresX => (count > 0, line().sxx),
            PairReading::SquaresY => (count > 0, line().syy),
            PairReading::Products => (count > 0, line().sxy),
        };
        Ok(ScalarValue::Float64(known.then_some(value)))
    }
}

fn correlations(moments: &Moments) -> Result<ScalarValue> {
    let columns = moments.columns();
    let row = |i: usize| {
        let pairs = (0..columns).map(|j| PairReading::Correlation.read(moments, i, j));
        let pairs = pairs.collect::<Result<Vec<_>>>()?;
        Ok(ScalarValue::List(ScalarValue::new_list_nullable(&pairs, &DataType::Float64)))
    };
    let rows = (0..columns).map(row).collect::<Result<Vec<_>>>()?;
    let of = DataType::List(Arc::new(Field::new_list_field(DataType::Float64, true)));
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(&rows, &of)))
}

/// How many values of the sketch are distinct.
pub(super) fn distinct(sketch: &Sketch) -> Result<Estimate> {
    sketch.distinct().ok_or_else(|| without("HyperLogLog", "distinct=14"))
}

/// How often `value` occurs, which is brought to the sketch's type.
pub(super) fn frequency(sketch: &Sketch, value: &ScalarValue) -> Result<Estimate> {
    let of = sketch.data_type();
    let literal = value.cast_to(of).ok().and_then(|value| crate::literal::from_scalar(&value));
    let literal = literal.ok_or_else(|| {
        Error::invalid(format!("the sketch is of {of}, and {value} is no value of that type"))
    })?;
    sketch.frequency(&literal)?.ok_or_else(|| without("Count-Min", "frequency=6x13"))
}

/// The second moment.
pub(super) fn second_moment(sketch: &Sketch) -> Result<Estimate> {
    sketch.second_moment().ok_or_else(|| without("Fast-AGMS", "second_moment=6x13"))
}

fn without(what: &str, parameter: &str) -> Error {
    Error::invalid(format!("this state has no {what}"))
        .advise(format!("make it with the parameter, as in sketch(x, '{parameter}')"))
}

fn rounded(estimate: &Estimate) -> ScalarValue {
    ScalarValue::UInt64(Some(estimate.value.round().max(0.0) as u64))
}

fn frequent_fields(of: DataType) -> Fields {
    let of = Field::new("value", of, true);
    Fields::from(vec![of, Field::new("count", DataType::UInt64, true)])
}

fn top(sketch: &Sketch, count: usize, of: &DataType) -> Result<ScalarValue> {
    let fields = frequent_fields(of.clone());
    let entry = |(value, estimate): (Literal, Estimate)| {
        let value = crate::literal::to_scalar(&value)
            .ok_or_else(|| Error::internal(format!("a frequent value of type {}", value.data_type())))?;
        struct_of(&fields, vec![value, rounded(&estimate)])
    };
    let entries = sketch.top(count).into_iter().map(entry).collect::<Result<Vec<_>>>()?;
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(&entries, &DataType::Struct(fields))))
}

/// A struct of these values.
pub(super) fn struct_of(fields: &Fields, values: Vec<ScalarValue>) -> Result<ScalarValue> {
    let mut builder = ScalarStructBuilder::new();
    for (field, value) in fields.iter().zip(values) {
        builder = builder.with_scalar(Arc::clone(field), value);
    }
    builder.build().map_err(crate::error::unwrap)
}
