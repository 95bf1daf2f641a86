//! Canonical data types as bytes: a type number, followed by the parameters of the type, if it has any.

use crate::bytes::Reader;
use arrow_schema::DataType;
use farpool_model::limits::NAME_BYTES_MAX;
use farpool_model::{
    Error, Result, TYPE_NUMBERS, numbered_type, numbered_unit, schema, type_number, unit_number,
};

/// Type numbers of types with parameters.
const DECIMAL: u8 = 64;
const TIMESTAMP: u8 = 65;
const _: () = assert!(TYPE_NUMBERS <= DECIMAL);

/// Encodes a canonical type for [`type_from_bytes`].
pub fn type_to_bytes(data_type: &DataType) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(data_type, &mut bytes);
    bytes
}

/// Decodes a canonical type. All bytes must belong to it.
///
/// # Errors
/// `Corrupt` when the bytes are not exactly a canonical type.
pub fn type_from_bytes(bytes: &[u8]) -> Result<DataType> {
    let mut reader = Reader::new(bytes);
    let data_type = read(&mut reader)?;
    match reader.is_empty() {
        true => Ok(data_type),
        false => Err(Error::corrupt("a type with more than its parts")),
    }
}

/// Appends a canonical type.
pub(crate) fn write(data_type: &DataType, out: &mut Vec<u8>) {
    match data_type {
        DataType::Decimal128(precision, scale) => out.extend([DECIMAL, *precision, scale.cast_unsigned()]),
        DataType::Timestamp(unit, zone) => {
            let zone = zone.as_deref().unwrap_or_default();
            out.extend([TIMESTAMP, unit_number(*unit)]);
            out.extend_from_slice(&(zone.len() as u64).to_le_bytes());
            out.extend_from_slice(zone.as_bytes());
        }
        other => out.push(type_number(other).expect("a chunk has a canonical type")),
    }
}

/// Reads a canonical type.
///
/// # Errors
/// `Corrupt` when the bytes do not encode a canonical type.
pub(crate) fn read(reader: &mut Reader<'_>) -> Result<DataType> {
    let unknown = || Error::corrupt("a chunk of an unknown type");
    match reader.byte()? {
        DECIMAL => {
            let [precision, scale] = reader.array()?;
            schema::decimal(i16::from(precision), i16::from(scale.cast_signed())).ok_or_else(unknown)
        }
        TIMESTAMP => {
            let unit = numbered_unit(reader.byte()?).ok_or_else(unknown)?;
            let zone = std::str::from_utf8(reader.text()?).map_err(|_| unknown())?;
            match zone.len() {
                0 => Ok(DataType::Timestamp(unit, None)),
                1..=NAME_BYTES_MAX => Ok(DataType::Timestamp(unit, Some(zone.into()))),
                _ => Err(unknown()),
            }
        }
        number => numbered_type(number).ok_or_else(unknown),
    }
}
