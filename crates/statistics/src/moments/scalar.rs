//! The plain twin: row by row, pair by pair.

use super::layout::{Layout, pair_at, triangle};
use super::pair::Odd;
use super::split::{ExactSums, FloatSums, Split};
use super::values::for_exact;
use super::wide::Wide;
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

/// The values of a column: `None` for NULL.
enum Values {
    Exact(Vec<Option<i128>>),
    Float(Vec<Option<f64>>),
}

impl Values {
    fn of(array: &ArrayRef) -> Values {
        macro_rules! exact {
            ($t:ty) => {
                array.as_primitive::<$t>().iter().map(|value| value.map(i128::from)).collect()
            };
        }
        match array.data_type() {
            DataType::Float32 => {
                Values::Float(array.as_primitive::<Float32Type>().iter().map(|v| v.map(f64::from)).collect())
            }
            DataType::Float64 => Values::Float(array.as_primitive::<Float64Type>().iter().collect()),
            data_type => Values::Exact(for_exact!(data_type, exact)),
        }
    }

    fn float(&self, row: usize) -> Option<f64> {
        match self {
            Values::Exact(values) => values[row].map(|value| value as f64),
            Values::Float(values) => values[row],
        }
    }

    fn exact(&self, row: usize) -> Option<i128> {
        match self {
            Values::Exact(values) => values[row],
            Values::Float(_) => None,
        }
    }
}

/// The sums of all pairs over the rows.
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

fn floats(p: &Values, q: &Values, rows: &[usize]) -> FloatSums {
    let mut sums = FloatSums::default();
    for row in rows {
        let (Some(a), Some(b)) = (p.float(*row), q.float(*row)) else { continue };
        let odd = [Odd::of(a), Odd::of(b)];
        let usable = |value: f64| if value.is_finite() { value } else { 0.0 };
        sums.merge(&FloatSums { count: 1, mean: [usable(a), usable(b)], odd, ..FloatSums::default() });
    }
    sums
}
