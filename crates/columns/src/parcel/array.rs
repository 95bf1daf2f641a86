//! Encodes arrays that were computed or decoded as columns of a parcel (the form in which result rows are sent), as
//! fast as possible rather than as small as possible.

use crate::body::Body;
use crate::chunk::Chunk;
use crate::encode::{fixed_bytes_plain, integers_of, validity_of};
use crate::strings;
use crate::zone::ZoneMap;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use farpool_model::limits::ROW_GROUP_ROWS;
use farpool_model::{Error, Result};

/// Packs the values of `array`: integer-like values as distances from the minimum, strings that repeat as a dictionary,
/// and everything else plain. The chunk has no minimum and maximum.
///
/// # Errors
/// `OverLimit` when there are more than [`ROW_GROUP_ROWS`] rows or strings are too long; `Invalid` when the
/// type is not canonical.
pub fn pack_array(array: &ArrayRef) -> Result<Chunk> {
    let rows = array.len();
    if rows > ROW_GROUP_ROWS {
        return Err(Error::over_limit(format!("a parcel may have {ROW_GROUP_ROWS} rows, not {rows}")));
    }
    let data_type = array.data_type();
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    let null_count = nulls.map_or(0, NullBuffer::null_count);
    let zone = ZoneMap { null_count, ..ZoneMap::default() };
    let mut bytes_plain = fixed_bytes_plain(array);
    if null_count == rows {
        let body = Body::nulls(data_type);
        return Ok(Chunk::new(data_type.clone(), rows, None, zone, body, bytes_plain));
    }
    let body = match data_type {
        DataType::Boolean => Body::Plain { values: array.as_boolean().values().sliced() },
        DataType::Float32 => {
            Body::Plain { values: array.as_primitive::<Float32Type>().values().inner().clone() }
        }
        DataType::Float64 => {
            Body::Plain { values: array.as_primitive::<Float64Type>().values().inner().clone() }
        }
        DataType::Utf8View | DataType::BinaryView => {
            let (body, bytes) = strings::pack(array, nulls)?;
            bytes_plain += bytes;
            body
        }
        other => match integers_of(array, nulls) {
            Some((body, _)) => body,
            None => return Err(Error::invalid(format!("a column of type {other} cannot be packed"))),
        },
    };
    Ok(Chunk::new(data_type.clone(), rows, validity_of(array, nulls), zone, body, bytes_plain))
}
