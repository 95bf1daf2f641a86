//! Zone maps: minimum, maximum and number of NULLs of a chunk, which a scan knows without reading the chunk.

use arrow_schema::DataType;
use farpool_model::{Literal, Value};
use std::cmp::Ordering;

/// Maximum length of a string or binary that is kept as minimum or maximum, in bytes. Reason: zone maps are outside the
/// pool, and with longer ones they could take more memory than the table's data.
const BOUND_BYTES_MAX: usize = 256;

/// Minimum and maximum of a chunk's values that are not NULL. Each is exact, or `None` if there is no such value, if a
/// value is NaN, or if it would be a long string.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ZoneMap {
    /// Minimum; `None` if it is not known.
    pub min: Option<Literal>,
    /// Maximum; `None` if it is not known.
    pub max: Option<Literal>,
    /// Number of NULLs.
    pub null_count: usize,
}

impl ZoneMap {
    /// Creates a zone map from the minimum and maximum; `None` if there are no values, or they are not known.
    pub(crate) fn of(bounds: Option<(Value, Value)>, data_type: &DataType, null_count: usize) -> ZoneMap {
        let literal = |value: Value| {
            let short = match &value {
                Value::Text(text) => text.len() <= BOUND_BYTES_MAX,
                Value::Bytes(bytes) => bytes.len() <= BOUND_BYTES_MAX,
                _ => true,
            };
            Literal::new(value, data_type.clone()).ok().filter(|_| short)
        };
        let (min, max) = bounds.map_or((None, None), |(min, max)| (literal(min), literal(max)));
        ZoneMap { min, max, null_count }
    }

    /// Returns the bytes of heap memory that strings and binaries in the zone map take.
    pub(crate) fn bytes_held(&self) -> usize {
        let bytes = |bound: &Literal| match bound.value() {
            Value::Text(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        self.min.iter().chain(&self.max).map(bytes).sum()
    }
}

/// Converts a string or binary to the value of a literal.
pub(crate) fn bytes_value(bytes: &[u8], data_type: &DataType) -> Value {
    match data_type {
        DataType::Utf8View => Value::Text(String::from_utf8_lossy(bytes).into_owned()),
        _ => Value::Bytes(bytes.to_vec()),
    }
}

/// Returns the rows of the least and the greatest byte string; `None` if there are none. `rows` has the rows with their
/// views, and `value` returns the bytes of a row. Most comparisons need only the first four bytes, which are in the
/// view.
pub(crate) fn bounds_of_views<'a>(
    mut rows: impl Iterator<Item = (usize, u128)>,
    value: impl Fn(usize) -> &'a [u8],
) -> Option<(usize, usize)> {
    let prefix = |view: u128| ((view >> 32) as u32).swap_bytes();
    let first = rows.next()?;
    let (mut min, mut max) = ((first.0, prefix(first.1)), (first.0, prefix(first.1)));
    for (row, view) in rows {
        let prefix = prefix(view);
        if prefix <= min.1 && (prefix < min.1 || value(row) < value(min.0)) {
            min = (row, prefix);
        } else if prefix >= max.1 && (prefix > max.1 || value(row) > value(max.0)) {
            max = (row, prefix);
        }
    }
    Some((min.0, max.0))
}

/// Returns the minimum and maximum of floats in total order; `None` if there are no values, or one is NaN.
pub(crate) fn bounds_of_floats(mut values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let first = values.next().filter(|value| !value.is_nan())?;
    values.try_fold((first, first), |(min, max), value| {
        let min = if value.total_cmp(&min) == Ordering::Less { value } else { min };
        let max = if value.total_cmp(&max) == Ordering::Greater { value } else { max };
        (!value.is_nan()).then_some((min, max))
    })
}
