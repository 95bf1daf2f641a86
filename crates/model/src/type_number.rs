//! Type codes: one table of codes of canonical types, for every encoding that writes a type as a byte.
//!
//! Column chunks, states of sketches and moments, and fingerprints of schemas write a type without parameters as its
//! code. Each of these encodings has its own tags for types with parameters, which are decimals and timestamps.
//!
//! Invariant: a code means the same type for ever, because it is on disk, in the protocol, and in states that users
//! store. Tags are not below [`TYPE_NUMBERS`], which each encoding asserts next to its tags. (Moments are an exception:
//! they have numeric types only, codes 1 to 10, and 11 as the tag of a decimal.)

use arrow_schema::{DataType, TimeUnit};

/// The types, indexed by their codes.
const TYPES: [DataType; 14] = [
    DataType::Boolean,
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::UInt8,
    DataType::UInt16,
    DataType::UInt32,
    DataType::UInt64,
    DataType::Float32,
    DataType::Float64,
    DataType::Date32,
    DataType::Utf8View,
    DataType::BinaryView,
];

/// The units of timestamps, indexed by their codes.
const UNITS: [TimeUnit; 4] =
    [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];

/// The lowest byte that is not a type code. Encodings take their tags from 14 on, so that a type cannot simply be
/// appended to the table.
pub const TYPE_NUMBERS: u8 = TYPES.len() as u8;

/// Returns the code of a canonical type without parameters; `None` for other types.
pub fn type_number(data_type: &DataType) -> Option<u8> {
    let place = TYPES.iter().position(|known| known == data_type)?;
    u8::try_from(place).ok()
}

/// Returns the type with this code; `None` for an unknown code.
pub fn numbered_type(number: u8) -> Option<DataType> {
    TYPES.get(usize::from(number)).cloned()
}

/// Returns the code of a unit of timestamps.
pub fn unit_number(unit: TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    }
}

/// Returns the unit of timestamps with this code; `None` for an unknown code.
pub fn numbered_unit(number: u8) -> Option<TimeUnit> {
    UNITS.get(usize::from(number)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_on_disk_and_in_the_protocol() {
        assert_eq!(type_number(&DataType::Boolean), Some(0));
        assert_eq!(type_number(&DataType::Int8), Some(1));
        assert_eq!(type_number(&DataType::UInt64), Some(8));
        assert_eq!(type_number(&DataType::Float64), Some(10));
        assert_eq!(type_number(&DataType::BinaryView), Some(13));
        assert_eq!(type_number(&DataType::Utf8), None);
        assert_eq!(type_number(&DataType::Decimal128(1, 0)), None);
        for number in 0..=u8::MAX {
            let read = numbered_type(number).map(|data_type| type_number(&data_type));
            assert_eq!(read, (number < TYPE_NUMBERS).then_some(Some(number)), "{number}");
            let read = numbered_unit(number).map(unit_number);
            assert_eq!(read, (number < 4).then_some(number), "{number}");
        }
    }
}
