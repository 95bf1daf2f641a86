//! Encodes and decodes the descriptions and statistics of tables in messages of the native protocol.
//!
//! Invariant: decoded statistics refer only to columns that the table has, and are no larger than the limits allow.

use crate::request::{body, read};
use crate::{batch, proto};
use arrow_schema::DataType;
use bytes::Bytes;
use farpool_model::{
    ColumnStates, ColumnStatistics, Error, Literal, MomentsState, Result, Spread, TableInfo, TableName,
    TableStatistics, Tier, Value, Version, limits,
};
use std::sync::Arc;

pub(crate) fn write_table(table: &TableInfo) -> Result<proto::TableInfo> {
    let write_column = |column: &ColumnStatistics| proto::ColumnStatistics {
        null_count: column.null_count,
        min: column.min.as_ref().and_then(write_value),
        max: column.max.as_ref().and_then(write_value),
        distinct_count: column.distinct_count,
        bytes_encoded: column.bytes_encoded,
        distinct_estimate: column.distinct_estimate,
        spread: column.spread.as_ref().map(|spread| body(&write_spread(spread))),
    };
    Ok(proto::TableInfo {
        name: table.name.encoded(),
        version: table.version.0,
        schema: batch::encode_schema(&table.schema)?.to_vec(),
        rows: table.rows,
        bytes_plain: table.bytes_plain,
        bytes_encoded: table.bytes_encoded,
        columns: table.columns.iter().map(|column| body(&write_column(column))).collect(),
        rows_profiled: table.rows_profiled,
        encryption: write_tier(table.encryption).into(),
        bytes_resident: table.bytes_resident,
        is_pinned: table.is_pinned,
    })
}

pub(crate) fn read_table(table: proto::TableInfo) -> Result<TableInfo> {
    let schema = batch::decode_schema(&table.schema)?;
    if table.columns.len() != schema.fields().len() {
        return Err(Error::corrupt(format!(
            "a table of {} columns came with statistics of {}",
            schema.fields().len(),
            table.columns.len()
        )));
    }
    let columns = table.columns.iter().zip(schema.fields()).map(|(column, field)| {
        let column: proto::ColumnStatistics = read(column)?;
        let value = |value: Option<proto::Value>| match value.and_then(|v| v.kind) {
            Some(kind) => Literal::new(read_value(kind)?, field.data_type().clone()).map(Some),
            None => Ok(None),
        };
        Ok(ColumnStatistics {
            null_count: column.null_count,
            min: value(column.min)?,
            max: value(column.max)?,
            distinct_count: column.distinct_count,
            distinct_estimate: column.distinct_estimate,
            bytes_encoded: column.bytes_encoded,
            spread: column
                .spread
                .map(|bytes| read_spread(&bytes, field.data_type()))
                .transpose()?
                .map(Arc::new),
        })
    });
    let columns = columns.collect::<Result<_>>()?;
    Ok(TableInfo {
        name: TableName::decode(table.name)?,
        version: Version(table.version),
        schema,
        rows: table.rows,
        bytes_plain: table.bytes_plain,
        bytes_encoded: table.bytes_encoded,
        columns,
        rows_profiled: table.rows_profiled,
        encryption: read_tier(table.encryption)?,
        bytes_resident: table.bytes_resident,
        is_pinned: table.is_pinned,
    })
}

/// Returns the number on the wire of an encryption tier.
pub(crate) fn write_tier(tier: Option<Tier>) -> proto::Tier {
    match tier {
        None => proto::Tier::None,
        Some(Tier::Fast) => proto::Tier::Fast,
        Some(Tier::Standard) => proto::Tier::Standard,
        Some(Tier::Strict) => proto::Tier::Strict,
    }
}

/// Returns the encryption tier with this number on the wire; `None` if the table has none.
///
/// # Errors
/// `Invalid` if no tier has this number.
pub(crate) fn read_tier(number: i32) -> Result<Option<Tier>> {
    match proto::Tier::try_from(number) {
        Ok(proto::Tier::None) => Ok(None),
        Ok(proto::Tier::Fast) => Ok(Some(Tier::Fast)),
        Ok(proto::Tier::Standard) => Ok(Some(Tier::Standard)),
        Ok(proto::Tier::Strict) => Ok(Some(Tier::Strict)),
        Err(_) => Err(Error::invalid(format!("tier {number} of encryption does not exist"))),
    }
}

fn write_spread(spread: &Spread) -> proto::Spread {
    let frequent = |(literal, rows): &(Literal, u64)| {
        write_value(literal).map(|value| proto::Frequent { value: Some(value), rows: *rows })
    };
    proto::Spread {
        frequent: spread.frequent.iter().filter_map(frequent).collect(),
        low: spread.low,
        width: spread.width,
        bins: spread.bins.clone(),
        quantiles: spread.quantiles.clone(),
        quantile_error: spread.quantile_error,
    }
}

fn read_spread(bytes: &Bytes, data_type: &DataType) -> Result<Spread> {
    if bytes.len() > limits::SPREAD_BYTES_MAX {
        return Err(Error::corrupt(format!("how a column is spread took {} bytes", bytes.len())));
    }
    let proto::Spread { frequent, low, width, bins, quantiles, quantile_error } = read(bytes)?;
    let few = frequent.len() <= limits::SPREAD_FREQUENT_MAX && bins.len() <= limits::SPREAD_BINS_MAX;
    if !few || !low.is_finite() || !width.is_finite() || width < 0.0 || (width == 0.0 && !bins.is_empty()) {
        let (values, bins) = (frequent.len(), bins.len());
        return Err(Error::corrupt(format!("a spread of {values} values and {bins} bins {width} wide")));
    }
    let are_sound = quantiles.len() <= limits::SPREAD_QUANTILES_MAX
        && quantiles.iter().all(|value| !value.is_nan())
        && quantiles.is_sorted();
    if !are_sound || !(0.0..=1.0).contains(&quantile_error) {
        let values = quantiles.len();
        return Err(Error::corrupt(format!("a spread with {values} quantiles, off by {quantile_error}")));
    }
    let literal = |frequent: proto::Frequent| match frequent.value.and_then(|v| v.kind) {
        Some(kind) => Ok((Literal::new(read_value(kind)?, data_type.clone())?, frequent.rows)),
        None => Err(Error::corrupt("a frequent value that is NULL")),
    };
    let frequent = frequent.into_iter().map(literal).collect::<Result<_>>()?;
    Ok(Spread { frequent, bins, low, width, quantiles, quantile_error })
}

pub(crate) fn write_statistics(statistics: &TableStatistics) -> Result<proto::TableStatistics> {
    let column = |states: &ColumnStates| {
        body(&proto::ColumnStates { sketch: states.sketch.clone(), histogram: states.histogram.clone() })
    };
    let moments = statistics.moments.as_ref();
    Ok(proto::TableStatistics {
        table: body(&write_table(&statistics.table)?),
        columns: statistics.columns.iter().map(column).collect(),
        moments: moments
            .map(|m| body(&proto::MomentsState { columns: m.columns.clone(), state: m.state.clone() })),
    })
}

/// Decodes the statistics of a table. The states (sketches, moments) stay encoded until they are used.
pub(crate) fn read_statistics(statistics: &proto::TableStatistics) -> Result<TableStatistics> {
    let table = read_table(read(&statistics.table)?)?;
    let columns_of_table = table.columns.len();
    if statistics.columns.len() != columns_of_table {
        let states = statistics.columns.len();
        return Err(Error::corrupt(format!(
            "a table of {columns_of_table} columns came with states of {states}"
        )));
    }
    let column = |bytes: &Bytes| -> Result<ColumnStates> {
        let proto::ColumnStates { sketch, histogram } = read(bytes)?;
        Ok(ColumnStates { sketch, histogram })
    };
    let moments = match &statistics.moments {
        Some(bytes) => {
            let proto::MomentsState { columns, state } = read(bytes)?;
            if columns.iter().any(|c| *c as usize >= columns_of_table) {
                return Err(Error::corrupt("moments of a column that the table does not have"));
            }
            Some(MomentsState { columns, state })
        }
        None => None,
    };
    let columns = statistics.columns.iter().map(column).collect::<Result<_>>()?;
    Ok(TableStatistics { table, columns, moments })
}

/// Maximum length in bytes of a least or greatest string or binary that is sent. Longer ones are left out, because they
/// serve estimates only.
const BOUND_BYTES_MAX: usize = 1 << 10;

fn write_value(literal: &Literal) -> Option<proto::Value> {
    use proto::ValueKind;
    let kind = match literal.value() {
        Value::Null => return None,
        Value::Text(v) if v.len() > BOUND_BYTES_MAX => return None,
        Value::Bytes(v) if v.len() > BOUND_BYTES_MAX => return None,
        Value::Bool(v) => ValueKind::Boolean(*v),
        Value::Int(v) => match i64::try_from(*v) {
            Ok(v) => ValueKind::Integer(v),
            Err(_) => ValueKind::WideInteger(v.to_le_bytes().to_vec()),
        },
        Value::Float(v) => ValueKind::Float(*v),
        Value::Text(v) => ValueKind::Text(v.clone()),
        Value::Bytes(v) => ValueKind::Binary(v.clone()),
    };
    Some(proto::Value { kind: Some(kind) })
}

fn read_value(kind: proto::ValueKind) -> Result<Value> {
    use proto::ValueKind;
    Ok(match kind {
        ValueKind::Boolean(v) => Value::Bool(v),
        ValueKind::Integer(v) => Value::Int(v.into()),
        ValueKind::WideInteger(bytes) => match bytes.try_into() {
            Ok(bytes) => Value::Int(i128::from_le_bytes(bytes)),
            Err(_) => return Err(Error::corrupt("a wide integer has 16 bytes")),
        },
        ValueKind::Float(v) => Value::Float(v),
        ValueKind::Text(v) => Value::Text(v),
        ValueKind::Binary(v) => Value::Bytes(v),
    })
}
