//! The report of a profile (statistics of the columns of a file or table), column by column: the data of every output
//! format. The keys of its JSON form are stable.

mod html;
pub mod text;

use crate::literals::{float, json};
use arrow::datatypes::{DataType, TimeUnit};
use farpool_model::{Literal, TableInfo, Value as Held};
use farpool_statistics::{self as statistics, ColumnMoments, Estimate, Form, Histogram, Profile, Sketch};
use serde::Serialize;
use serde_json::Value;

/// Maximum number of bins of a histogram.
const BINS: usize = 32;

/// Maximum number of frequent values that are listed.
const TOP: usize = 10;

/// Source of the profiled rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Files.
    File,
    /// A stream, such as standard input.
    Stream,
    /// A table of a pool.
    Pool,
}

/// The report: the profile of a file, a stream or a table.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The name of the file or table.
    pub name: String,
    /// The source of the rows.
    pub source: Source,
    /// Number of profiled rows.
    pub rows: u64,
    /// The requested columns, in order.
    pub columns: Vec<Column>,
    /// Correlations of the numeric columns; `None` if there are fewer than two.
    pub correlation: Option<Correlation>,
}

/// Statistics of one column. A field is `None` if it is unknown, or has no meaning for the column's type.
#[derive(Debug, Serialize)]
pub struct Column {
    /// The column's name.
    pub name: String,
    /// A short name of the column's type.
    #[serde(rename = "type")]
    pub data_type: String,
    /// Number of rows in which the column is NULL.
    pub nulls: u64,
    /// The column's least value.
    pub min: Value,
    /// The column's greatest value.
    pub max: Value,
    /// The sum of the column's values.
    pub sum: Option<f64>,
    /// The mean of the column's values.
    pub mean: Option<f64>,
    /// The sample standard deviation of the column's values.
    pub stddev: Option<f64>,
    /// Number of distinct values, without NULL.
    pub distinct: Option<Distinct>,
    /// Sum of the squares of the frequencies of all values.
    pub second_moment: Option<Range>,
    /// Ratio of the second moment to its value if all values were equally frequent.
    pub skew: Option<f64>,
    /// Whether the counts of the frequent values are nearly exact.
    pub counts_trusted: Option<bool>,
    /// The most frequent values, the most frequent first.
    pub top: Vec<Frequent>,
    /// The quartiles of the column's values.
    pub quantiles: Option<Quantiles>,
    /// The histogram, in the order of the values.
    pub histogram: Vec<Bin>,
}

/// The estimated number of distinct values of a column, with its bounds.
#[derive(Debug, Serialize)]
pub struct Distinct {
    /// The estimated number of distinct values.
    pub value: u64,
    /// Lower bound of the true number.
    pub low: u64,
    /// Upper bound of the true number.
    pub high: u64,
    /// The probability that the true value is within the bounds.
    pub confidence: f64,
    /// Whether `value` is exact.
    pub exact: bool,
}

/// An estimate with its bounds.
#[derive(Debug, Serialize)]
pub struct Range {
    /// The estimated value.
    pub value: f64,
    /// Lower bound of the true value.
    pub low: f64,
    /// Upper bound of the true value; `None` if there is none.
    pub high: Option<f64>,
    /// The probability that the true value is within the bounds.
    pub confidence: f64,
}

/// A frequent value of a column, with its number of rows.
#[derive(Debug, Serialize)]
pub struct Frequent {
    /// The value.
    pub value: Value,
    /// The estimated number of rows with the value.
    pub count: u64,
    /// Lower bound of the true number of rows with the value.
    pub low: u64,
    /// Upper bound of the true number of rows with the value.
    pub high: u64,
}

/// The quartiles of a column: values at or below which a quarter, half and three quarters of the column's values are.
#[derive(Debug, Serialize)]
pub struct Quantiles {
    /// The lower quartile (25 % of the values are at or below it).
    pub p25: Quantile,
    /// The median.
    pub p50: Quantile,
    /// The upper quartile (75 % of the values are at or below it).
    pub p75: Quantile,
}

/// An estimated quantile, which is one of the column's values, with bounds of the true quantile.
#[derive(Debug, Serialize)]
pub struct Quantile {
    /// The estimated quantile.
    pub value: Value,
    /// Lower bound of the true quantile.
    pub low: Value,
    /// Upper bound of the true quantile.
    pub high: Value,
    /// The probability that the true value is within the bounds.
    pub confidence: f64,
}

/// A bin of a histogram: the values from `low` to below `high`.
#[derive(Debug, Serialize)]
pub struct Bin {
    /// The inclusive lower bound of the bin.
    pub low: Value,
    /// The exclusive upper bound of the bin.
    pub high: Value,
    /// Number of the column's values in the bin.
    pub count: u64,
}

/// Pearson's correlation coefficients of all pairs of columns; `None` for pairs with a constant column.
#[derive(Debug, Serialize)]
pub struct Correlation {
    /// The names of the correlated columns.
    pub columns: Vec<String>,
    /// A row per column, with the coefficient for each column.
    pub matrix: Vec<Vec<Option<f64>>>,
}

impl Report {
    /// Creates a report of the columns at the indexes `positions` of `profile`, or of all columns. Numbers of distinct
    /// values in `info` are shown as exact.
    pub fn new(
        name: &str,
        source: Source,
        profile: &Profile,
        positions: Option<&[usize]>,
        info: Option<&TableInfo>,
    ) -> Self {
        let every: Vec<usize> = (0..profile.columns().len()).collect();
        let positions = positions.unwrap_or(&every);
        let exact = |name: &str| {
            let info = info?;
            let position = info.schema.index_of(name).ok()?;
            info.columns.get(position)?.distinct_count
        };
        let columns = positions.iter().map(|&i| {
            let name = profile.schema().field(i).name();
            Column::new(profile, i, exact(name))
        });
        Report {
            name: name.to_string(),
            source,
            rows: profile.rows(),
            columns: columns.collect(),
            correlation: profile.moments().and_then(|moments| Correlation::new(profile, moments, positions)),
        }
    }

    /// Returns the report as one self-contained HTML page.
    pub fn to_html(&self) -> String {
        html::render(self)
    }

    /// Returns the report as one JSON object on several lines.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).map_or_else(|error| error.to_string(), |text| text + "\n")
    }
}

impl Column {
    fn new(profile: &Profile, position: usize, distinct_exact: Option<u64>) -> Self {
        let (field, column) = (profile.schema().field(position), &profile.columns()[position]);
        let (sketch, data_type) = (&column.sketch, field.data_type());
        let values = sketch.rows() - sketch.nulls();
        let sum = sketch.sum().map(|sum| sum.as_f64() / scale(data_type)).filter(|sum| sum.is_finite());
        let moments = profile.moments().and_then(|m| Some((&m.moments, m.place(position)?)));
        let mean = match moments {
            Some((moments, place)) => finite(moments.mean(place)),
            None => sum.filter(|_| values > 0).map(|sum| sum / values as f64),
        };
        let distinct = distinct(sketch.distinct(), distinct_exact, values);
        let second_moment = sketch.second_moment();
        let skew = second_moment.zip(distinct.as_ref()).filter(|_| values > 0).map(|(moment, distinct)| {
            (moment.value * distinct.value as f64 / (values as f64 * values as f64)).max(1.0)
        });
        let histogram = column.histogram.as_ref().filter(|histogram| histogram.count() > 0);
        Column {
            name: field.name().clone(),
            data_type: text::type_name(data_type),
            nulls: sketch.nulls(),
            min: sketch.minimum().map_or(Value::Null, json),
            max: sketch.maximum().map_or(Value::Null, json),
            sum,
            mean,
            stddev: moments.and_then(|(moments, place)| finite(moments.variance(place, Form::Sample).sqrt())),
            top: top(sketch.top(TOP), distinct.as_ref()),
            distinct,
            second_moment: second_moment.map(Range::new),
            skew,
            counts_trusted: sketch.parameters().frequency.map(|_| sketch.count_min_trust().trusted),
            quantiles: Quantiles::new(sketch),
            histogram: histogram.map_or_else(Vec::new, |histogram| bins(histogram, data_type)),
        }
    }
}

fn distinct(estimate: Option<Estimate>, exact: Option<u64>, values: u64) -> Option<Distinct> {
    let exact = exact.or_else(|| (values <= 1).then_some(values));
    if let Some(value) = exact {
        return Some(Distinct { value, low: value, high: value, confidence: 1.0, exact: true });
    }
    let estimate = estimate?;
    let (low, high) = (estimate.low.floor() as u64, estimate.high.ceil() as u64);
    let value = estimate.value as u64;
    Some(Distinct { value, low, high, confidence: estimate.confidence, exact: false })
}

/// Returns the values that occur more than once, or all values if there are few.
fn top(found: Vec<(Literal, Estimate)>, distinct: Option<&Distinct>) -> Vec<Frequent> {
    let few = distinct.is_some_and(|distinct| distinct.value <= TOP as u64);
    let kept = found.into_iter().filter(|(_, estimate)| few || estimate.low >= 2.0);
    kept.map(|(value, estimate)| Frequent {
        value: json(&value),
        count: estimate.value as u64,
        low: estimate.low.max(0.0) as u64,
        high: estimate.high as u64,
    })
    .collect()
}

fn bins(histogram: &Histogram, data_type: &DataType) -> Vec<Bin> {
    let edge = |value: f64| number(value, data_type);
    let bin =
        |bin: farpool_statistics::Bin| Bin { low: edge(bin.low), high: edge(bin.high), count: bin.count };
    histogram.bins(BINS).into_iter().map(bin).collect()
}

/// Converts a number of the histogram to a value of the column's type. Timestamps are rounded down to a whole second.
fn number(value: f64, data_type: &DataType) -> Value {
    let held = match data_type {
        DataType::Date32 => value as i128,
        DataType::Timestamp(unit, _) => {
            let second = match unit {
                TimeUnit::Second => 1,
                TimeUnit::Millisecond => 1_000,
                TimeUnit::Microsecond => 1_000_000,
                TimeUnit::Nanosecond => 1_000_000_000,
            };
            (value as i128).div_euclid(second) * second
        }
        _ => return float(value / scale(data_type)),
    };
    Literal::new(Held::Int(held), data_type.clone()).map_or(Value::Null, |v| json(&v))
}

/// Returns the divisor that converts the unscaled integers of a decimal type to numbers; 1 for other types.
fn scale(data_type: &DataType) -> f64 {
    match data_type {
        DataType::Decimal128(_, scale) => 10_f64.powi((*scale).into()),
        _ => 1.0,
    }
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

impl Range {
    fn new(estimate: Estimate) -> Self {
        let Estimate { value, low, high, confidence } = estimate;
        Range { value, low, high: finite(high), confidence }
    }
}

impl Quantiles {
    fn new(sketch: &Sketch) -> Option<Self> {
        let mut found = sketch.quantiles(&[0.25, 0.5, 0.75])?.into_iter().map(Quantile::new);
        Some(Quantiles { p25: found.next()?, p50: found.next()?, p75: found.next()? })
    }
}

impl Quantile {
    fn new(quantile: statistics::Quantile) -> Self {
        let statistics::Quantile { value, low, high, confidence } = quantile;
        Quantile { value: json(&value), low: json(&low), high: json(&high), confidence }
    }
}

impl Correlation {
    fn new(profile: &Profile, moments: &ColumnMoments, positions: &[usize]) -> Option<Self> {
        let places: Vec<(usize, usize)> =
            positions.iter().filter_map(|&i| Some((i, moments.place(i)?))).collect();
        if places.len() < 2 {
            return None;
        }
        let of = |a: usize| places.iter().map(|(_, b)| finite(moments.moments.correlation(a, *b))).collect();
        Some(Correlation {
            columns: places.iter().map(|(i, _)| profile.schema().field(*i).name().clone()).collect(),
            matrix: places.iter().map(|(_, a)| of(*a)).collect(),
        })
    }
}
