//! The schemas that clients send. Arrow's own conversion is not used, because it panics on types that it does not know.

use crate::batch::field_type;
use arrow_schema::{
    DECIMAL32_MAX_PRECISION, DECIMAL64_MAX_PRECISION, DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION,
    DataType, Field, IntervalUnit, TimeUnit,
};
use farpool_model::{Error, Result, limits};

/// A column as it is sent.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// The name, the type of the values, and whether there may be NULLs.
    pub field: Field,
    /// The type of the keys and the id of the dictionary, if the values are in one.
    pub dictionary: Option<(DataType, i64)>,
}

impl Column {
    /// Returns the field of what batches have of the column: its keys, if there is a dictionary.
    pub fn sent(&self) -> Field {
        match &self.dictionary {
            Some((keys, _)) => self.field.clone().with_data_type(keys.clone()),
            None => self.field.clone(),
        }
    }
}

/// Decodes the columns of the metadata of a schema message.
pub(super) fn columns(header: &[u8]) -> Result<Vec<Column>> {
    let message = super::reader::message(header)?;
    let schema = message.header_as_schema().ok_or_else(|| {
        Error::invalid("rows come before their schema").advise("send the schema in the first message")
    })?;
    if schema.endianness() != arrow_ipc::Endianness::Little {
        return Err(Error::invalid("the values are big-endian").advise("send them little-endian"));
    }
    let fields = schema.fields().ok_or_else(|| Error::corrupt("a schema without its list of fields"))?;
    if fields.len() > limits::COLUMNS_MAX {
        let (most, count) = (limits::COLUMNS_MAX, fields.len());
        return Err(Error::over_limit(format!("a schema may have {most} columns, this one has {count}")));
    }
    // Offsets may point many fields to the same bytes, so that a small message could expand to a large schema.
    let mut spare_bytes = header.len();
    let column = |field: arrow_ipc::Field<'_>| {
        let name = field.name().unwrap_or_default();
        let left = spare_bytes.checked_sub(name.len());
        spare_bytes = left.ok_or_else(|| Error::corrupt("a schema whose fields share their bytes"))?;
        let refused = || {
            let what = field.type_type().variant_name().unwrap_or("an unknown type");
            Error::invalid(format!("column {name:?} has the type {what}, which is not accepted"))
                .advise("send columns of numbers, texts, bytes, dates and times")
        };
        let data_type = data_type(&field).ok_or_else(refused)?;
        let dictionary = match field.dictionary() {
            None => None,
            Some(dictionary) => {
                let keys = dictionary.indexType().and_then(|keys| integer(&keys)).ok_or_else(refused)?;
                let can_share = !matches!(data_type, DataType::Null | DataType::FixedSizeBinary(_));
                Some((can_share.then_some(keys).ok_or_else(refused)?, dictionary.id()))
            }
        };
        Ok(Column { field: Field::new(name, data_type, field.nullable()), dictionary })
    };
    fields.iter().map(column).collect()
}

fn integer(int: &arrow_ipc::Int<'_>) -> Option<DataType> {
    crate::batch::integer_type(int.bitWidth(), int.is_signed())
}

/// Returns the type of a field; `None` if it is nested or unknown.
fn data_type(field: &arrow_ipc::Field<'_>) -> Option<DataType> {
    Some(match field.type_type() {
        arrow_ipc::Type::Null => DataType::Null,
        arrow_ipc::Type::FloatingPoint
            if field.type_as_floating_point()?.precision() == arrow_ipc::Precision::HALF =>
        {
            DataType::Float16
        }
        arrow_ipc::Type::Decimal => {
            let decimal = field.type_as_decimal()?;
            let (precision, scale) = (decimal.precision().try_into().ok()?, decimal.scale().try_into().ok()?);
            let (decimal, precision_max) = match decimal.bitWidth() {
                32 => (DataType::Decimal32(precision, scale), DECIMAL32_MAX_PRECISION),
                64 => (DataType::Decimal64(precision, scale), DECIMAL64_MAX_PRECISION),
                128 => (DataType::Decimal128(precision, scale), DECIMAL128_MAX_PRECISION),
                256 => (DataType::Decimal256(precision, scale), DECIMAL256_MAX_PRECISION),
                _ => return None,
            };
            let digits = i16::from(precision);
            let fits = (1..=precision_max).contains(&precision) && i16::from(scale).abs() <= digits;
            fits.then_some(decimal)?
        }
        arrow_ipc::Type::Date if field.type_as_date()?.unit() == arrow_ipc::DateUnit::MILLISECOND => {
            DataType::Date64
        }
        arrow_ipc::Type::Time => {
            let time = field.type_as_time()?;
            match (time.bitWidth(), unit(time.unit())?) {
                (32, unit @ (TimeUnit::Second | TimeUnit::Millisecond)) => DataType::Time32(unit),
                (64, unit @ (TimeUnit::Microsecond | TimeUnit::Nanosecond)) => DataType::Time64(unit),
                _ => return None,
            }
        }
        arrow_ipc::Type::Duration => DataType::Duration(unit(field.type_as_duration()?.unit())?),
        arrow_ipc::Type::Interval => DataType::Interval(match field.type_as_interval()?.unit() {
            arrow_ipc::IntervalUnit::YEAR_MONTH => IntervalUnit::YearMonth,
            arrow_ipc::IntervalUnit::DAY_TIME => IntervalUnit::DayTime,
            arrow_ipc::IntervalUnit::MONTH_DAY_NANO => IntervalUnit::MonthDayNano,
            _ => return None,
        }),
        arrow_ipc::Type::Utf8 => DataType::Utf8,
        arrow_ipc::Type::LargeUtf8 => DataType::LargeUtf8,
        arrow_ipc::Type::Binary => DataType::Binary,
        arrow_ipc::Type::LargeBinary => DataType::LargeBinary,
        arrow_ipc::Type::FixedSizeBinary => {
            let bytes = field.type_as_fixed_size_binary()?.byteWidth();
            (1..=limits::FLIGHT_FIXED_BYTES_MAX)
                .contains(&bytes)
                .then_some(DataType::FixedSizeBinary(bytes))?
        }
        _ => field_type(field)?,
    })
}

fn unit(unit: arrow_ipc::TimeUnit) -> Option<TimeUnit> {
    crate::batch::time_unit(unit)
}
