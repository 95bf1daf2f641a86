//! Layout of a state of moments: the types of the columns, and where the numbers of each pair of columns are.
//!
//! In a state, columns are reordered: integers and decimals (exact columns) come before floats. So the pairs of exact
//! columns are the first part of the triangle of all pairs, and the pairs with a float column are the rest.

use arrow_schema::DataType;
use farpool_model::{Error, NullHandling, Result, limits};

/// The types of the columns and their order in a state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layout {
    pub(crate) types: Vec<DataType>,
    pub(crate) nulls: NullHandling,
    /// Place of each column in the state.
    pub(crate) places: Vec<usize>,
    /// Column at each place.
    pub(crate) at: Vec<usize>,
    /// Number of exact columns, which have the first places.
    pub(crate) exact: usize,
    /// Number of 64-bit words of a sum of products of exact columns.
    pub(crate) words: usize,
}

impl Layout {
    pub(crate) fn new(types: &[DataType], nulls: NullHandling) -> Result<Layout> {
        if types.len() > limits::MOMENT_COLUMNS_MAX {
            return Err(Error::over_limit(format!(
                "moments may be over {} columns, these are {}",
                limits::MOMENT_COLUMNS_MAX,
                types.len()
            ))
            .advise("choose fewer columns"));
        }
        let words = types.iter().map(words).collect::<Result<Vec<_>>>()?;
        let (exact, floats): (Vec<usize>, Vec<usize>) = (0..types.len()).partition(|i| words[*i] > 0);
        let count = exact.len();
        let at = [exact, floats].concat();
        let mut places = vec![0; types.len()];
        at.iter().enumerate().for_each(|(place, column)| places[*column] = place);
        let words = words.into_iter().max().unwrap_or(0).max(2);
        Ok(Layout { types: types.to_vec(), nulls, places, at, exact: count, words })
    }

    pub(crate) fn columns(&self) -> usize {
        self.types.len()
    }

    /// Returns the scale of the decimals at a place (number of decimal digits after the point); 0 for integers.
    pub(crate) fn scale(&self, place: usize) -> i32 {
        match self.types[self.at[place]] {
            DataType::Decimal128(_, scale) => i32::from(scale),
            _ => 0,
        }
    }
}

/// Returns the index of a pair in the triangle of all pairs. The two places may be in any order.
pub(crate) fn pair_at(p: usize, q: usize) -> usize {
    let (p, q) = (p.max(q), p.min(q));
    triangle(p) + q
}

/// Returns the number of pairs of `count` columns, including each column with itself.
pub(crate) fn triangle(count: usize) -> usize {
    count * (count + 1) / 2
}

/// Returns the number of words for the sum of 2^62 products of values of the type; 0 for floats.
fn words(data_type: &DataType) -> Result<usize> {
    use DataType::*;
    match data_type {
        Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32 => Ok(2),
        Int64 | UInt64 => Ok(4),
        Decimal128(..) => Ok(6),
        Float32 | Float64 => Ok(0),
        other => Err(Error::invalid(format!("there are no moments of a column of type {other}"))
            .advise("choose columns of integers, decimals or floats, or cast this one")),
    }
}
