//! The statistics aggregates: which state (sketch or moments) each call computes, and which value it reads from the
//! state.
//!
//! Invariant: if calls with the same arguments need different sketches of one column, or different values of one pair
//! of columns, a single state can serve all of them.

use super::values;
use arrow_schema::DataType;
use datafusion::common::ScalarValue;
use farpool_model::{Counters, Error, NullHandling, Result, SketchParameters, StateFunction, limits, schema};
use farpool_planner::reading::{PairReading, Reading};
use farpool_statistics::StateForm;

/// Binary logarithm of the number of HyperLogLog registers, for distinct counts: 16,384 registers give a standard error
/// of 0.8 %, in 12 KiB.
const DISTINCT: u8 = 14;
/// Size of the Count-Min and the Fast-AGMS sketch: 6 rows of 2^13 counters. Reason: it is the size of the FPGA
/// implementation in the thesis by M. Chiosa (ETH Zurich) that these sketches follow.
const COUNTERS: Counters = Counters { rows: 6, precision: 13 };
/// Size of the highest level of a KLL sketch, for quantiles: with 256 values, the error of ranks is less than 1 % of
/// the rows.
const QUANTILES: u16 = 256;
/// Number of most frequent values that a sketch keeps, unless a call asks for more.
const TOP: u32 = 64;

/// The sketches for frequencies of single values. They include those that tell whether such an estimate can be trusted.
const ALL: SketchParameters = SketchParameters {
    distinct: Some(DISTINCT),
    frequency: Some(COUNTERS),
    second_moment: Some(COUNTERS),
    top: 0,
    quantiles: None,
};

/// Kind of a statistics aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Distinct,
    Frequency,
    Top,
    Quantile,
    SecondMoment,
    /// The sketch itself, as an encoded state.
    Sketch,
    SketchMerge,
    /// A value about one column, such as its variance.
    One(PairReading),
    /// A value about two columns, such as their correlation.
    Two(PairReading),
    Correlations,
    /// The moments themselves, as an encoded state.
    Moments,
    MomentsMerge,
}

/// The names of all statistics aggregates.
pub(super) const FUNCTIONS: &[(&str, Kind)] = &[
    ("approx_distinct", Kind::Distinct),
    ("approx_count", Kind::Frequency),
    ("approx_top_k", Kind::Top),
    ("approx_quantile", Kind::Quantile),
    ("approx_f2", Kind::SecondMoment),
    ("sketch", Kind::Sketch),
    ("sketch_merge", Kind::SketchMerge),
    ("var", Kind::One(PairReading::CovarianceSample)),
    ("var_pop", Kind::One(PairReading::CovariancePopulation)),
    ("stddev", Kind::One(PairReading::DeviationSample)),
    ("stddev_pop", Kind::One(PairReading::DeviationPopulation)),
    ("corr", Kind::Two(PairReading::Correlation)),
    ("covar_samp", Kind::Two(PairReading::CovarianceSample)),
    ("covar_pop", Kind::Two(PairReading::CovariancePopulation)),
    ("cosine_similarity", Kind::Two(PairReading::Cosine)),
    ("regr_slope", Kind::Two(PairReading::Slope)),
    ("regr_intercept", Kind::Two(PairReading::Intercept)),
    ("regr_count", Kind::Two(PairReading::Count)),
    ("regr_r2", Kind::Two(PairReading::R2)),
    ("regr_avgx", Kind::Two(PairReading::AverageX)),
    ("regr_avgy", Kind::Two(PairReading::AverageY)),
    ("regr_sxx", Kind::Two(PairReading::SquaresX)),
    ("regr_syy", Kind::Two(PairReading::SquaresY)),
    ("regr_sxy", Kind::Two(PairReading::Products)),
    ("corr_matrix", Kind::Correlations),
    ("moments", Kind::Moments),
    ("moments_merge", Kind::MomentsMerge),
];

/// Result of a call: a state, and a value that is read from it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Statistic {
    /// The function that computes the state from the first `columns` arguments of the call; the others are constants.
    pub function: StateFunction,
    pub columns: usize,
    pub reading: Reading,
}

impl Kind {
    /// If the function merges states, returns their form; `None` if it computes states from columns.
    pub(super) fn merges(self) -> Option<StateForm> {
        match self {
            Kind::SketchMerge => Some(StateForm::Sketch),
            Kind::MomentsMerge => Some(StateForm::Moments),
            _ => None,
        }
    }

    /// Returns the types to which the arguments are coerced.
    ///
    /// # Errors
    /// `Invalid` if the function does not take arguments of these types.
    pub(super) fn coerced(self, types: &[DataType]) -> Result<Vec<DataType>> {
        let column = |data_type: &DataType| column_type(data_type);
        let numbers = || types.iter().map(number_type).collect();
        match (self, types) {
            (Kind::Distinct | Kind::SecondMoment | Kind::Sketch, [of]) => Ok(vec![column(of)?]),
            (Kind::Frequency, [of, _]) => Ok(vec![column(of)?, column(of)?]),
            (Kind::Top, [of, _]) => Ok(vec![column(of)?, DataType::Int64]),
            (Kind::Quantile, [of, _]) => Ok(vec![column(of)?, DataType::Float64]),
            (Kind::Sketch, [of, _]) => Ok(vec![column(of)?, DataType::Utf8]),
            (Kind::SketchMerge | Kind::MomentsMerge, [of]) => state_type(of).map(|of| vec![of]),
            (Kind::One(_), [_]) | (Kind::Two(_), [_, _]) => numbers(),
            (Kind::Correlations, [_, ..]) => numbers(),
            (Kind::Moments, [first, ..]) if !is_text(first) => {
                let of = |t: &DataType| if is_text(t) { Ok(DataType::Utf8) } else { number_type(t) };
                let (last, columns) = types.split_last().unwrap_or((first, &[]));
                let columns = columns.iter().map(number_type);
                columns.chain([of(last)]).collect()
            }
            _ => Err(Error::invalid(format!("{} takes {}", self.name(), self.usage()))),
        }
    }

    fn usage(self) -> &'static str {
        match self {
            Kind::Distinct | Kind::SecondMoment => "one column",
            Kind::Frequency => "a column and a constant value",
            Kind::Top => "a column and how many values",
            Kind::Quantile => "a column and a share from 0 to 1",
            Kind::Sketch => {
                "a column and perhaps parameters, as 'distinct=14 frequency=6x13 second_moment=6x13'"
            }
            Kind::SketchMerge | Kind::MomentsMerge => "one column of states",
            Kind::One(_) => "one column of numbers",
            Kind::Two(_) => "two columns of numbers",
            Kind::Correlations => "columns of numbers",
            Kind::Moments => "columns of numbers and perhaps 'listwise' or 'pairwise'",
        }
    }

    fn name(self) -> &'static str {
        FUNCTIONS.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// Returns the type of the result, for arguments of these types.
    pub(super) fn data_type(self, types: &[DataType]) -> DataType {
        match self {
            Kind::Distinct | Kind::Frequency => DataType::UInt64,
            Kind::Top => Reading::Top(0, types.first().cloned().unwrap_or(DataType::Null)).data_type(),
            Kind::Quantile => types.first().cloned().unwrap_or(DataType::Null),
            Kind::SecondMoment => DataType::Float64,
            Kind::Sketch | Kind::SketchMerge | Kind::Moments | Kind::MomentsMerge => DataType::BinaryView,
            Kind::One(what) | Kind::Two(what) => Reading::Pair(what, 0, 0).data_type(),
            Kind::Correlations => Reading::Correlations.data_type(),
        }
    }

    /// Returns what a call computes. `types` are the types of its arguments; `constants` the values of its constant
    /// arguments, by position.
    ///
    /// # Errors
    /// `Invalid` if an argument that must be constant is not, or has an unsuitable value.
    pub(crate) fn statistic(
        self,
        types: &[DataType],
        constants: &[Option<ScalarValue>],
    ) -> Result<Statistic> {
        let listwise = StateFunction::Moments(NullHandling::Listwise);
        let constant = |place: usize, what: &str| {
            constants.get(place).cloned().flatten().ok_or_else(|| {
                Error::invalid(format!("{what} of {} is not a constant", self.name()))
                    .advise("write it out in the query")
            })
        };
        let of = |function, columns, reading| Ok(Statistic { function, columns, reading });
        let sketch = |parameters, reading| of(StateFunction::Sketch(parameters), 1, reading);
        match self {
            Kind::Distinct => sketch(
                SketchParameters { distinct: Some(DISTINCT), ..SketchParameters::NONE },
                Reading::Distinct,
            ),
            Kind::Frequency => {
                let of = column_type(types.first().unwrap_or(&DataType::Null))?;
                let value = values::constant(&constant(1, "the value")?, &of)?;
                sketch(ALL, Reading::Frequency(value))
            }
            Kind::Top => {
                let most = i64::from(limits::SKETCH_TOP_MAX);
                let count = match constant(1, "the number of values")? {
                    ScalarValue::Int64(Some(count)) if (1..=most).contains(&count) => count as u32,
                    other => {
                        let message = format!("approx_top_k gives 1 to {most} values, not {other}");
                        return Err(Error::invalid(message));
                    }
                };
                let data_type = types.first().cloned().unwrap_or(DataType::Null);
                let parameters = SketchParameters { top: count.max(TOP), ..ALL };
                sketch(parameters, Reading::Top(count as usize, data_type))
            }
            Kind::Quantile => {
                let share = match constant(1, "the share")? {
                    ScalarValue::Float64(Some(share)) if (0.0..=1.0).contains(&share) => share,
                    other => {
                        let message = format!("a quantile is of a share from 0 to 1, not {other}");
                        return Err(Error::invalid(message));
                    }
                };
                let of = column_type(types.first().unwrap_or(&DataType::Null))?;
                let parameters = SketchParameters { quantiles: Some(QUANTILES), ..SketchParameters::NONE };
                // Fails for types that have no quantiles, with a message that names the type.
                farpool_statistics::Sketch::new(parameters, &of)?;
                let share =
                    farpool_model::Literal::new(farpool_model::Value::Float(share), DataType::Float64)?;
                sketch(parameters, Reading::Quantile(share, of))
            }
            Kind::SecondMoment => {
                let parameters = SketchParameters { second_moment: Some(COUNTERS), ..SketchParameters::NONE };
                sketch(parameters, Reading::SecondMoment)
            }
            Kind::Sketch if types.len() == 1 => sketch(SketchParameters { top: TOP, ..ALL }, Reading::State),
            Kind::Sketch => {
                let parameters: SketchParameters = text(&constant(1, "the parameters")?)?.parse()?;
                parameters.check()?;
                sketch(parameters, Reading::State)
            }
            Kind::One(what) => of(listwise, 1, Reading::Pair(what, 0, 0)),
            Kind::Two(what) => of(listwise, 2, Reading::Pair(what, 0, 1)),
            Kind::Correlations => {
                let pairwise = StateFunction::Moments(NullHandling::Pairwise);
                of(pairwise, types.len(), Reading::Correlations)
            }
            Kind::Moments => {
                let told = types.last() == Some(&DataType::Utf8);
                let nulls = match told {
                    true => text(&constant(types.len() - 1, "the handling of NULLs")?)?.parse()?,
                    false => NullHandling::Pairwise,
                };
                of(StateFunction::Moments(nulls), types.len() - usize::from(told), Reading::State)
            }
            Kind::SketchMerge | Kind::MomentsMerge => {
                Err(Error::internal("what merges states makes none of columns"))
            }
        }
    }
}

fn text(constant: &ScalarValue) -> Result<String> {
    let text = constant.try_as_str().flatten();
    text.map(str::to_string).ok_or_else(|| Error::invalid(format!("{constant} is no text")))
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Returns whether farpool has sketches for values of this type.
pub(super) fn is_sketched(data_type: &DataType) -> bool {
    column_type(data_type).is_ok()
}

/// Returns the type to which values of this type are converted before they are sketched.
fn column_type(data_type: &DataType) -> Result<DataType> {
    match data_type {
        DataType::Null => Ok(DataType::Int64),
        DataType::Time32(_) => Ok(DataType::Int32),
        DataType::Time64(_) => Ok(DataType::Int64),
        other => schema::canonical_type(other)
            .ok_or_else(|| Error::invalid(format!("there are no sketches of values of type {other}"))),
    }
}

/// Returns the type to which numbers of this type are converted before their moments are computed.
fn number_type(data_type: &DataType) -> Result<DataType> {
    match schema::canonical_type(data_type) {
        Some(known) if schema::is_numeric(&known) => Ok(known),
        _ if matches!(data_type, DataType::Null | DataType::Decimal256(..)) => Ok(DataType::Float64),
        _ => Err(Error::invalid(format!("there are no moments of values of type {data_type}"))
            .advise("cast them to a number")),
    }
}

/// Returns the type to which encoded states are converted before they are read; fails unless the type is binary.
pub(super) fn state_type(data_type: &DataType) -> Result<DataType> {
    match data_type {
        DataType::Null => Ok(DataType::BinaryView),
        other => schema::canonical_type(other)
            .filter(|known| *known == DataType::BinaryView)
            .ok_or_else(|| Error::invalid(format!("a state is a binary, not a {other}"))),
    }
}
