//! Computes moments (sums and sums of products of pairs of columns) row by row and pair by pair. Tests compare
//! the fast kernels with this code, which also processes the few blocks that the kernels do not support.

use super::layout::{Layout, pair_at, triangle};
use super::mean::Mean;
use super::pair::Odd;
use super::split::{ExactSums, FloatSums, Split};
use super::values::for_exact;
use super::wide::Wide;
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

/// The values of a column: `None` for NULL.
pub(crate) enum Values {
    Exact(Vec<Option<i128>>),
    Float(Vec<Option<f64>>),
}

impl Values {
    pub(crate) fn of(array: &ArrayRef) -> Values {
        match array.data_type() {
            DataType::Float32 => {
                Values::Float(array.as_primitive::<Float32Type>().iter().map(|v| v.map(f64::from)).collect())
            }
            DataType::Float64 => Values::Float(array.as_primitive::<Float64Type>().iter().collect()),
            data_type => Values::Exact(for_exact!(data_type, T => {
                array.as_primitive::<T>().iter().map(|value| value.map(i128::from)).collect()
            })),
        }
    }

    /// Returns a base value, and the values at `rows` that are not NULL, minus that base.
    fn apart(&self, rows: &[usize]) -> (Mean, Vec<f64>) {
        match self {
            Values::Exact(values) => {
                let mut values = rows.iter().filter_map(|row| values[*row]).peekable();
                let first = values.peek().copied().unwrap_or(0);
                (Mean::of(first), values.map(|value| distance(value, first)).collect())
            }
            Values::Float(values) => (Mean::default(), rows.iter().filter_map(|row| values[*row]).collect()),
        }
    }

    fn is_valid(&self, row: usize) -> bool {
        match self {
            Values::Exact(values) => values[row].is_some(),
            Values::Float(values) => values[row].is_some(),
        }
    }

    fn exact(&self, row: usize) -> Option<i128> {
        match self {
            Values::Exact(values) => values[row],
            Values::Float(_) => None,
        }
    }
}

/// Returns `value` - `from` as the nearest float; approximate if the difference does not fit 128 bits.
pub(crate) fn distance(value: i128, from: i128) -> f64 {
    value.checked_sub(from).map_or_else(|| value as f64 - from as f64, |distance| distance as f64)
}

/// Returns the sums of all pairs of columns over the first `rows` rows.
pub(crate) fn split(layout: &Layout, columns: &[ArrayRef], rows: usize) -> Split {
    let values: Vec<Values> = layout.at.iter().map(|column| Values::of(&columns[*column])).collect();
    let whole = |row: &usize| columns.iter().all(|column| column.is_valid(*row));
    let kept: Vec<usize> = match layout.nulls {
        farpool_model::NullHandling::Listwise => (0..rows).filter(whole).collect(),
        farpool_model::NullHandling::Pairwise => (0..rows).collect(),
    };
    let mut split = Split::new(layout);
    for p in 0..values.len() {
        for q in 0..=p {
            let pair = pair_at(p, q);
            match pair.checked_sub(triangle(layout.exact)) {
                None => split.add_exact(pair, &exact(&values[p], &values[q], &kept)),
                Some(float) => split.floats[float].merge(&floats(&values[p], &values[q], &kept)),
            }
        }
    }
    split
}

fn exact(p: &Values, q: &Values, rows: &[usize]) -> ExactSums {
    let mut sums = ExactSums::default();
    for row in rows {
        let (Some(a), Some(b)) = (p.exact(*row), q.exact(*row)) else { continue };
        sums.count += 1;
        let terms = [a.into(), b.into(), Wide::product(a, a), Wide::product(b, b), Wide::product(a, b)];
        sums.of.iter_mut().zip(terms).for_each(|(sum, term)| *sum = *sum + term);
    }
    sums
}

/// Returns the sums of a pair with a float column, over those of `rows` in which neither column is NULL.
pub(crate) fn floats(p: &Values, q: &Values, rows: &[usize]) -> FloatSums {
    let valid = |row: &usize| p.is_valid(*row) && q.is_valid(*row);
    let rows: Vec<usize> = rows.iter().copied().filter(valid).collect();
    let [(x, x_mean, x_odd), (y, y_mean, y_odd)] = [p, q].map(|values| centered(values.apart(&rows)));
    let sum = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    FloatSums {
        count: x.len() as u64,
        mean: [x_mean, y_mean],
        squares: [sum(&x, &x), sum(&y, &y)],
        products: sum(&x, &y),
        odd: [x_odd, y_odd],
    }
}

/// Subtracts the mean twice: the second time removes rounding errors of the first. NaN and infinities are replaced by
/// the first finite value.
fn centered((base, mut values): (Mean, Vec<f64>)) -> (Vec<f64>, Mean, Odd) {
    let mut odd = Odd::default();
    values.iter().for_each(|value| odd.add(Odd::of(*value)));
    let first = values.iter().copied().find(|value| value.is_finite()).unwrap_or(0.0);
    values.iter_mut().filter(|value| !value.is_finite()).for_each(|value| *value = first);
    let mut mean = base.plus(first);
    values.iter_mut().for_each(|value| *value -= first);
    for _ in 0..if values.is_empty() { 0 } else { 2 } {
        let shift = values.iter().sum::<f64>() / values.len() as f64;
        values.iter_mut().for_each(|value| *value -= shift);
        mean = mean.plus(shift);
    }
    (values, mean, odd)
}
