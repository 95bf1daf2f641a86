//! Reads answers (such as a quantile or a correlation) from states: encoded sketches and moments. All answers are read
//! here, so that an answer is the same whether the pool or the engine computed the state.
//!
//! An answer is NULL if there are too few rows for it, such as one row for a correlation or for a sample's variance. It
//! is NaN if there are enough rows but no answer, as for the correlation of a constant column.

use arrow_schema::{DataType, Field, Fields};
use farpool_model::{Error, Literal, Result, Value};
use farpool_statistics::{Estimate, Form, Moments, Quantile, Sketch, State};
use std::sync::Arc;

/// Value that is read from a state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reading {
    /// The encoded state itself, unread.
    State,
    /// Estimated number of distinct values.
    Distinct,
    /// Estimated number of rows that have this value, which must have the sketch's type.
    Frequency(Literal),
    /// The most frequent values: at most this many, of this type.
    Top(usize, DataType),
    /// The quantile: the value (of this type) at or below which this fraction of the values is. The fraction is a float
    /// from 0 to 1.
    Quantile(Literal, DataType),
    /// Second frequency moment: the sum of the squares of the values' frequencies.
    SecondMoment,
    /// A statistic of the two columns at these positions in the moments.
    Pair(PairReading, usize, usize),
    /// Correlation of each pair of columns.
    Correlations,
}

/// A statistic of a pair of columns: y is the first of the pair, x the second. If both are the same column, it is a
/// statistic of this column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PairReading {
    /// Number of rows in which neither of the two is NULL.
    Count,
    /// Mean of x, over the rows in which neither is NULL.
    Mean,
    /// Covariance, taking the rows as the whole population.
    CovariancePopulation,
    /// Covariance, taking the rows as a sample.
    CovarianceSample,
    /// Standard deviation, taking the rows as the whole population.
    DeviationPopulation,
    /// Standard deviation, taking the rows as a sample.
    DeviationSample,
    /// Pearson's correlation.
    Correlation,
    /// Cosine similarity.
    Cosine,
    /// Slope of the least-squares line of y over x.
    Slope,
    /// Intercept of the least-squares line.
    Intercept,
    /// Square of the correlation: the goodness of fit of the line.
    R2,
    /// Mean of x.
    AverageX,
    /// Mean of y.
    AverageY,
    /// Sum of the squared deviations of x from its mean.
    SquaresX,
    /// Sum of the squared deviations of y from its mean.
    SquaresY,
    /// Sum of the products of the deviations of x and y.
    Products,
}

/// An answer that was read from a state. Its type is that of [`Reading::data_type`].
#[derive(Clone, Debug, PartialEq)]
pub enum ReadValue {
    /// An encoded state.
    State(Vec<u8>),
    /// A number of rows or values.
    Count(u64),
    /// A number, or NULL.
    Number(Option<f64>),
    /// A value, or NULL.
    Value(Option<Literal>),
    /// Frequent values, the most frequent first, each with the number of its rows.
    Top(Vec<(Literal, u64)>),
    /// A number for each pair of columns, row by row.
    Matrix(Vec<Vec<Option<f64>>>),
}

impl Reading {
    /// Returns the type of the answer.
    pub fn data_type(&self) -> DataType {
        match self {
            Reading::State => DataType::BinaryView,
            Reading::Distinct | Reading::Frequency(_) | Reading::Pair(PairReading::Count, ..) => {
                DataType::UInt64
            }
            Reading::Top(_, of) => DataType::List(Arc::new(Field::new_list_field(
                DataType::Struct(frequent_fields(of.clone())),
                true,
            ))),
            Reading::Quantile(_, of) => of.clone(),
            Reading::SecondMoment | Reading::Pair(..) => DataType::Float64,
            Reading::Correlations => {
                let row = DataType::List(Arc::new(Field::new_list_field(DataType::Float64, true)));
                DataType::List(Arc::new(Field::new_list_field(row, true)))
            }
        }
    }

    /// Adapts the reading to moments whose columns have another order: the column at position `i` is at position
    /// `place[i]` there.
    #[must_use]
    pub fn moved(self, place: &[usize]) -> Reading {
        match self {
            Reading::Pair(what, i, j) => Reading::Pair(what, place[i], place[j]),
            other => other,
        }
    }

    /// Reads the answer from `state`.
    ///
    /// # Errors
    /// `Invalid` if the state does not contain this answer.
    pub fn read(&self, state: &State) -> Result<ReadValue> {
        Ok(match (self, state) {
            (Reading::State, state) => ReadValue::State(state.to_bytes()),
            (Reading::Distinct, State::Sketch(sketch)) => ReadValue::Count(rounded(&distinct(sketch)?)),
            (Reading::Frequency(value), State::Sketch(sketch)) => {
                ReadValue::Count(rounded(&frequency(sketch, value)?))
            }
            (Reading::Top(count, _), State::Sketch(sketch)) => {
                let top = sketch.top(*count).into_iter();
                ReadValue::Top(top.map(|(value, estimate)| (value, rounded(&estimate))).collect())
            }
            (Reading::Quantile(share, _), State::Sketch(sketch)) => {
                ReadValue::Value(quantile(sketch, share)?.map(|quantile| quantile.value))
            }
            (Reading::SecondMoment, State::Sketch(sketch)) => {
                ReadValue::Number(Some(second_moment(sketch)?.value))
            }
            (Reading::Pair(PairReading::Count, i, j), State::Moments(moments)) => {
                check_columns(moments, *i, *j)?;
                ReadValue::Count(moments.count(*i, *j))
            }
            (Reading::Pair(what, i, j), State::Moments(moments)) => {
                check_columns(moments, *i, *j)?;
                ReadValue::Number(what.read(moments, *i, *j))
            }
            (Reading::Correlations, State::Moments(moments)) => {
                let columns = moments.columns();
                let row = |i| (0..columns).map(|j| PairReading::Correlation.read(moments, i, j)).collect();
                ReadValue::Matrix((0..columns).map(row).collect())
            }
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
    fn read(self, moments: &Moments, i: usize, j: usize) -> Option<f64> {
        let count = moments.count(i, j);
        let covariance = |form| moments.covariance(i, j, form);
        let line = || moments.regression(i, j);
        // A least-squares line needs at least two rows, and two distinct values of x.
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
        known.then_some(value)
    }
}

fn check_columns(moments: &Moments, i: usize, j: usize) -> Result<()> {
    let columns = moments.columns();
    if i < columns && j < columns {
        return Ok(());
    }
    let most = i.max(j) + 1;
    Err(Error::invalid(format!("there is no column {most}: the moments are of {columns}"))
        .advise("columns of moments count from 1"))
}

/// Returns the estimated number of distinct values.
///
/// # Errors
/// `Invalid` if the sketch has no HyperLogLog.
pub fn distinct(sketch: &Sketch) -> Result<Estimate> {
    sketch.distinct().ok_or_else(|| without("HyperLogLog", "distinct=14"))
}

/// Returns the estimated number of rows that have `value`, which must have the sketch's type.
///
/// # Errors
/// `Invalid` if the sketch has no Count-Min, or is of another type.
pub fn frequency(sketch: &Sketch, value: &Literal) -> Result<Estimate> {
    sketch.frequency(value)?.ok_or_else(|| without("Count-Min", "frequency=6x13"))
}

/// Returns the estimated second frequency moment.
///
/// # Errors
/// `Invalid` if the sketch has no Fast-AGMS.
pub fn second_moment(sketch: &Sketch) -> Result<Estimate> {
    sketch.second_moment().ok_or_else(|| without("Fast-AGMS", "second_moment=6x13"))
}

/// Returns the estimated value at or below which the fraction `share` of the values is, a float from 0 to 1; `None` if
/// there are no values.
///
/// # Errors
/// `Invalid` if the sketch has no KLL, or the fraction is not in this range.
pub fn quantile(sketch: &Sketch, share: &Literal) -> Result<Option<Quantile>> {
    let share = float(share).filter(|share| (0.0..=1.0).contains(share));
    let share = share.ok_or_else(|| Error::invalid("a quantile is of a share from 0 to 1"))?;
    let found = sketch.quantiles(&[share]).ok_or_else(|| without("KLL", "quantiles=256"))?;
    Ok(found.into_iter().next())
}

fn float(literal: &Literal) -> Option<f64> {
    match literal.value() {
        Value::Float(value) => Some(*value),
        _ => None,
    }
}

fn without(what: &str, parameter: &str) -> Error {
    Error::invalid(format!("this state has no {what}"))
        .advise(format!("make it with the parameter, as in sketch(x, '{parameter}')"))
}

fn rounded(estimate: &Estimate) -> u64 {
    estimate.value.round().max(0.0) as u64
}

/// Returns the fields of the struct that holds a frequent value of type `of` and its count.
pub fn frequent_fields(of: DataType) -> Fields {
    let of = Field::new("value", of, true);
    Fields::from(vec![of, Field::new("count", DataType::UInt64, true)])
}
