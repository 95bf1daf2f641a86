//! Scalar functions that read values from states: from the sketches that `sketch` and `sketch_merge` return, and from
//! the moments that `moments` and `moments_merge` return. Columns of moments are numbered from 1. The result for a NULL
//! state is NULL.

use super::statistic::state_type;
use super::values::{frequency_of, read, struct_of};
use arrow_array::{Array, ArrayRef, cast::AsArray, new_empty_array};
use arrow_schema::{DataType, Field, Fields};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use farpool_model::{Error, Literal, Value};
use farpool_planner::reading::{self, PairReading, Reading, distinct, second_moment};
use farpool_statistics::{Estimate, Sketch, State, StateForm};
use std::sync::Arc;

/// The names of all functions that read states.
const FUNCTIONS: &[(&str, Kind)] = &[
    ("sketch_distinct", Kind::Distinct),
    ("sketch_count", Kind::Frequency),
    ("sketch_top_k", Kind::Top),
    ("sketch_quantile", Kind::Quantile),
    ("sketch_f2", Kind::SecondMoment),
    ("sketch_join_size", Kind::JoinSize),
    ("sketch_summary", Kind::Summary),
    ("moments_count", Kind::Pair(PairReading::Count)),
    ("moments_mean", Kind::One(PairReading::Mean)),
    ("moments_stddev", Kind::One(PairReading::DeviationSample)),
    ("moments_stddev_pop", Kind::One(PairReading::DeviationPopulation)),
    ("moments_covar_samp", Kind::Pair(PairReading::CovarianceSample)),
    ("moments_covar_pop", Kind::Pair(PairReading::CovariancePopulation)),
    ("moments_corr", Kind::Pair(PairReading::Correlation)),
    ("moments_corr_matrix", Kind::Correlations),
    ("moments_cosine_similarity", Kind::Pair(PairReading::Cosine)),
    ("moments_regr_slope", Kind::Pair(PairReading::Slope)),
    ("moments_regr_intercept", Kind::Pair(PairReading::Intercept)),
    ("moments_regr_r2", Kind::Pair(PairReading::R2)),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Distinct,
    Frequency,
    Top,
    Quantile,
    SecondMoment,
    /// Reads two states: the estimated size of the join of two columns.
    JoinSize,
    Summary,
    One(PairReading),
    Pair(PairReading),
    Correlations,
}

/// Creates all the functions.
pub(super) fn all() -> Vec<ScalarUDF> {
    let of = |(name, kind): &(&'static str, Kind)| {
        ScalarUDF::from(Reader {
            name,
            kind: *kind,
            signature: Signature::user_defined(Volatility::Immutable),
        })
    };
    FUNCTIONS.iter().map(of).collect()
}

/// One of the functions of this file.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Reader {
    name: &'static str,
    kind: Kind,
    signature: Signature,
}

fn estimate_fields() -> Fields {
    let names = ["value", "low", "high", "confidence"];
    names.map(|name| Field::new(name, DataType::Float64, true)).into_iter().collect()
}

fn quantile_fields() -> Fields {
    let texts = ["value", "low", "high"].map(|name| Field::new(name, DataType::Utf8, true));
    texts.into_iter().chain([Field::new("confidence", DataType::Float64, true)]).collect()
}

fn frequent_fields() -> Fields {
    let text = Field::new("value", DataType::Utf8, true);
    let numbers = ["count", "low", "high"].map(|name| Field::new(name, DataType::Float64, true));
    std::iter::once(text).chain(numbers).collect()
}

fn summary_fields() -> Fields {
    let count = |name: &str| Field::new(name, DataType::UInt64, true);
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    Fields::from(vec![
        count("rows"),
        count("nulls"),
        text("minimum"),
        text("maximum"),
        Field::new("sum", DataType::Float64, true),
        Field::new("counts_trusted", DataType::Boolean, true),
        text("because"),
    ])
}

fn estimate_of(estimate: &Estimate) -> farpool_model::Result<ScalarValue> {
    let Estimate { value, low, high, confidence } = *estimate;
    let values = [value, low, high, confidence].map(|v| ScalarValue::Float64(Some(v)));
    struct_of(&estimate_fields(), values.to_vec())
}

fn text_of(literal: Option<&farpool_model::Literal>) -> ScalarValue {
    let scalar = literal.and_then(farpool_sql::literal::to_scalar);
    ScalarValue::Utf8(scalar.map(|scalar| scalar.to_string()))
}

fn summary(sketch: &Sketch) -> farpool_model::Result<ScalarValue> {
    let trust = sketch.count_min_trust();
    let values = vec![
        ScalarValue::UInt64(Some(sketch.rows())),
        ScalarValue::UInt64(Some(sketch.nulls())),
        text_of(sketch.minimum()),
        text_of(sketch.maximum()),
        ScalarValue::Float64(sum_of(sketch)),
        ScalarValue::Boolean(Some(trust.trusted)),
        ScalarValue::Utf8(Some(trust.reason)),
    ];
    struct_of(&summary_fields(), values)
}

fn sum_of(sketch: &Sketch) -> Option<f64> {
    let sum = sketch.sum()?.as_f64();
    match sketch.data_type() {
        DataType::Decimal128(_, scale) => Some(sum / 10_f64.powi(i32::from(*scale))),
        _ => Some(sum),
    }
}

fn quantile(sketch: &Sketch, share: f64) -> farpool_model::Result<ScalarValue> {
    let share = Literal::new(Value::Float(share), DataType::Float64)?;
    let Some(found) = reading::quantile(sketch, &share)? else {
        return ScalarValue::try_from(&DataType::Struct(quantile_fields()))
            .map_err(farpool_sql::error::unwrap);
    };
    let texts = [&found.value, &found.low, &found.high].map(|value| text_of(Some(value)));
    let confidence = ScalarValue::Float64(Some(found.confidence));
    struct_of(&quantile_fields(), texts.into_iter().chain([confidence]).collect())
}

fn top(sketch: &Sketch, count: usize) -> farpool_model::Result<ScalarValue> {
    let fields = frequent_fields();
    let entries = sketch.top(count).into_iter().map(|(value, estimate)| {
        let numbers = [estimate.value, estimate.low, estimate.high].map(|v| ScalarValue::Float64(Some(v)));
        struct_of(&fields, [vec![text_of(Some(&value))], numbers.to_vec()].concat())
    });
    let entries = entries.collect::<farpool_model::Result<Vec<_>>>()?;
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(&entries, &DataType::Struct(fields))))
}

impl Kind {
    fn form(self) -> StateForm {
        match self {
            Kind::One(_) | Kind::Pair(_) | Kind::Correlations => StateForm::Moments,
            _ => StateForm::Sketch,
        }
    }

    /// Returns the types of the arguments after the state.
    fn arguments(self) -> &'static [DataType] {
        match self {
            Kind::Distinct | Kind::SecondMoment | Kind::Summary | Kind::Correlations => &[],
            Kind::Top | Kind::One(_) => &[DataType::Int64],
            Kind::Quantile => &[DataType::Float64],
            Kind::Pair(_) => &[DataType::Int64, DataType::Int64],
            Kind::JoinSize => &[DataType::BinaryView],
            // The value whose frequency is wanted. NULL stands for any type.
            Kind::Frequency => &[DataType::Null],
        }
    }

    fn data_type(self) -> DataType {
        let list = |of: DataType| DataType::List(Arc::new(Field::new_list_field(of, true)));
        match self {
            Kind::Distinct | Kind::Frequency | Kind::SecondMoment | Kind::JoinSize => {
                DataType::Struct(estimate_fields())
            }
            Kind::Top => list(DataType::Struct(frequent_fields())),
            Kind::Quantile => DataType::Struct(quantile_fields()),
            Kind::Summary => DataType::Struct(summary_fields()),
            Kind::One(what) | Kind::Pair(what) => Reading::Pair(what, 0, 0).data_type(),
            Kind::Correlations => Reading::Correlations.data_type(),
        }
    }

    fn read(self, bytes: &[u8], arguments: &[ScalarValue]) -> farpool_model::Result<ScalarValue> {
        let state = self.form().read(bytes)?;
        let sketch = || match &state {
            State::Sketch(sketch) => Ok(&**sketch),
            State::Moments(_) => Err(Error::internal("a sketch was read as moments")),
        };
        match (self, arguments) {
            (Kind::Distinct, []) => estimate_of(&distinct(sketch()?)?),
            (Kind::SecondMoment, []) => estimate_of(&second_moment(sketch()?)?),
            (Kind::Frequency, [value]) => estimate_of(&frequency_of(sketch()?, value)?),
            (Kind::Summary, []) => summary(sketch()?),
            (Kind::Top, [ScalarValue::Int64(Some(count))]) => {
                top(sketch()?, usize::try_from(*count).unwrap_or(0))
            }
            (Kind::Quantile, [ScalarValue::Float64(Some(share))]) => quantile(sketch()?, *share),
            (Kind::JoinSize, [ScalarValue::BinaryView(Some(other))]) => {
                let other = Sketch::from_bytes(other)?;
                let size = sketch()?.join_size(&other)?;
                let size = size.ok_or_else(|| Error::invalid("one of the states has no Fast-AGMS"))?;
                estimate_of(&size)
            }
            (Kind::One(what), [i]) => read(&Reading::Pair(what, column(i)?, column(i)?), &state),
            (Kind::Pair(what), [i, j]) => read(&Reading::Pair(what, column(i)?, column(j)?), &state),
            (Kind::Correlations, []) => read(&Reading::Correlations, &state),
            _ => Err(Error::invalid("an argument is NULL where a state or a number is wanted")),
        }
    }
}

/// Converts a column number, from 1, to an index.
fn column(number: &ScalarValue) -> farpool_model::Result<usize> {
    match number {
        ScalarValue::Int64(Some(number)) if *number >= 1 => Ok((*number - 1) as usize),
        other => Err(Error::invalid(format!("there is no column {other}: columns of moments count from 1"))),
    }
}

impl ScalarUDFImpl for Reader {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let wanted = self.kind.arguments();
        let [state, given @ ..] = types else { return Err(self.usage()) };
        if given.len() != wanted.len() {
            return Err(self.usage());
        }
        let coerced = wanted.iter().zip(given).map(|(wanted, given)| match wanted {
            DataType::Null => Ok(given.clone()),
            DataType::BinaryView => state_type(given),
            wanted => Ok(wanted.clone()),
        });
        let all = std::iter::once(state_type(state)).chain(coerced);
        all.collect::<farpool_model::Result<_>>().map_err(farpool_sql::error::wrap)
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.kind.data_type())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let data_type = self.kind.data_type();
        let null = ScalarValue::try_from(&data_type)?;
        let states = arrays[0].as_binary_view();
        let of = |row: usize| {
            let rest = arrays[1..].iter().map(|array: &ArrayRef| ScalarValue::try_from_array(array, row));
            let rest = rest.collect::<Result<Vec<ScalarValue>>>()?;
            if states.is_null(row) || rest.iter().any(ScalarValue::is_null) {
                return Ok(null.clone());
            }
            self.kind.read(states.value(row), &rest).map_err(farpool_sql::error::wrap)
        };
        let values = (0..states.len()).map(of).collect::<Result<Vec<ScalarValue>>>()?;
        Ok(ColumnarValue::Array(match values.is_empty() {
            true => new_empty_array(&data_type),
            false => ScalarValue::iter_to_array(values)?,
        }))
    }
}

impl Reader {
    fn usage(&self) -> datafusion::error::DataFusionError {
        let usage = match self.kind {
            Kind::Frequency => "a state and a value",
            Kind::Top => "a state and how many values",
            Kind::Quantile => "a state and a share from 0 to 1",
            Kind::JoinSize => "two states",
            Kind::One(_) => "a state and the number of a column",
            Kind::Pair(_) => "a state and the numbers of two columns",
            _ => "a state",
        };
        farpool_sql::error::wrap(Error::invalid(format!("{} takes {usage}", self.name)))
    }
}
