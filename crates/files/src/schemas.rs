//! The columns of several files that are read as one table.

use super::{InputFile, Opened};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use farpool_model::{Error, ReadOptions, Result, brief, limits, schema, sql_name};
use std::path::Path;
use std::sync::Arc;

/// Returns the columns of a table of several files. The files must have the same columns in the same order or, if
/// columns are matched by name, the table has all columns that any file has. If types differ, the column has a type
/// that holds the values of both ([`common_type`]).
pub(super) fn agreed(files: &mut [InputFile], options: &ReadOptions) -> Result<SchemaRef> {
    let by_name = options.union_by_name || files.iter().all(|file| matches!(file.format, Opened::Json(..)));
    let (first, rest) = files.split_first().expect("a source has a file");
    let mut agreed = first.schema.clone();
    for other in rest {
        agreed = match by_name {
            true => merge(&first.place.path, &agreed, other)?,
            false => agree(&first.place.path, &agreed, other)?,
        };
    }
    bounded(&first.place.path, agreed.fields().len())?;
    let agreed = settled(&agreed);
    let is_missing =
        |(name, _): &&(String, DataType)| options.union_by_name && agreed.index_of(name).is_err();
    if let Some((name, _)) = options.types.iter().find(is_missing) {
        return Err(Error::not_found(format!(
            "no file has a column {:?}, which a type is given for",
            brief(name)
        )));
    }
    let width = agreed.fields().len();
    for file in files.iter_mut() {
        file.stored = match by_name {
            true => agreed.fields().iter().map(|field| file.schema.index_of(field.name()).ok()).collect(),
            false => (0..width).map(Some).collect(),
        };
        if file.format.is_text() {
            file.schema = typed(&file.schema, &agreed, &file.stored);
        }
    }
    let lacks = |i: usize| files.iter().any(|file| file.stored[i].is_none());
    let field = |(i, field): (usize, &Arc<Field>)| match lacks(i) && !field.is_nullable() {
        true => Arc::new(field.as_ref().clone().with_nullable(true)),
        false => field.clone(),
    };
    let fields: Fields = agreed.fields().iter().enumerate().map(field).collect();
    Ok(Arc::new(Schema::new_with_metadata(fields, agreed.metadata().clone())))
}

/// Returns the columns of a text file with the types of the table's columns, with which the file is read.
fn typed(file: &Schema, agreed: &Schema, stored: &[Option<usize>]) -> SchemaRef {
    let field = |(i, field): (usize, &Arc<Field>)| {
        let found = stored.iter().position(|at| *at == Some(i)).and_then(|at| agreed.fields().get(at));
        found.unwrap_or(field).clone()
    };
    Arc::new(Schema::new(file.fields().iter().enumerate().map(field).collect::<Fields>()))
}

/// Checks that a file has no more columns than a table may have, because planning time grows with the square of their
/// number.
pub(super) fn bounded(path: &Path, columns: usize) -> Result<()> {
    if columns <= limits::COLUMNS_MAX {
        return Ok(());
    }
    let most = limits::COLUMNS_MAX;
    Err(Error::over_limit(format!("{} has {columns} columns, and a table may have {most}", path.display()))
        .advise("turn it, so that columns become rows, or split it into files of fewer columns"))
}

/// Replaces the type Null, which columns without values have, by the string type.
pub(super) fn settled(schema: &Schema) -> SchemaRef {
    let settle = |field: &Arc<Field>| match field.data_type() {
        DataType::Null => Arc::new(Field::new(field.name(), DataType::Utf8View, true)),
        _ => field.clone(),
    };
    Arc::new(Schema::new(schema.fields().iter().map(settle).collect::<Fields>()))
}

fn agree(first_path: &Path, first: &SchemaRef, other: &InputFile) -> Result<SchemaRef> {
    let rule = "files of one table have the same columns in the same order";
    let union = |function: &str| {
        format!("{rule}; {function}(…, union_by_name = true) takes all columns of all files by their names")
    };
    let advice = match &other.format {
        Opened::Csv(..) => union("read_csv"),
        Opened::Json(..) => union("read_json"),
        Opened::Parquet(_) => union("read_parquet"),
        Opened::Ipc(_) => format!("{rule}: load these as two tables"),
    };
    let shape = |what: String| differ_with(first_path, other, &what, &advice);
    let differ = |what: String| differ(first_path, other, &what);
    let (left, right) = (first.fields(), other.schema.fields());
    if left.len() != right.len() {
        return Err(shape(format!("{} columns against {}", left.len(), right.len())));
    }
    let guessed = other.format.is_text();
    let fields = left.iter().zip(right).map(|(l, r)| {
        if l.name() != r.name() {
            return Err(shape(format!("column {:?} against {:?}", l.name(), r.name())));
        }
        let data_type = common_type(l.data_type(), r.data_type(), guessed).ok_or_else(|| {
            differ(format!(
                "column {:?} has type {} against {}",
                l.name(),
                sql_name(l.data_type()),
                sql_name(r.data_type())
            ))
        })?;
        Ok(Field::new(l.name(), data_type, l.is_nullable() || r.is_nullable()))
    });
    Ok(Arc::new(Schema::new(fields.collect::<Result<Fields>>()?)))
}

fn differ(first_path: &Path, other: &InputFile, what: &str) -> Error {
    let advice = match &other.format {
        Opened::Csv(..) | Opened::Json(..) => "say a type that holds both, as in types = {'name': 'text'}",
        Opened::Parquet(_) | Opened::Ipc(_) => {
            "read them apart and bring the columns to one type: SELECT CAST(…) FROM … UNION ALL SELECT …"
        }
    };
    differ_with(first_path, other, what, advice)
}

fn differ_with(first_path: &Path, other: &InputFile, what: &str, advice: &str) -> Error {
    Error::invalid(format!("{} and {} differ: {what}", first_path.display(), other.place.path.display()))
        .advise(advice)
}

/// Returns the union of the columns of both files, matched by name.
fn merge(first_path: &Path, first: &SchemaRef, other: &InputFile) -> Result<SchemaRef> {
    let mut fields: Vec<Field> = first.fields().iter().map(|field| field.as_ref().clone()).collect();
    for field in other.schema.fields() {
        let Some(known) = fields.iter_mut().find(|known| known.name() == field.name()) else {
            fields.push(field.as_ref().clone());
            continue;
        };
        let (left, right) = (known.data_type(), field.data_type());
        let data_type = common_type(left, right, other.format.is_text()).ok_or_else(|| {
            let (left, right) = (sql_name(left), sql_name(right));
            let what = format!("column {:?} has type {left} against {right}", field.name());
            differ(first_path, other, &what)
        })?;
        known.set_data_type(data_type);
        known.set_nullable(known.is_nullable() || field.is_nullable());
    }
    Ok(Arc::new(Schema::new(fields)))
}

/// Returns a type that holds the values of both types without loss; `None` if there is none. For integers and
/// fractional numbers that were guessed in text (`guessed`) it is a double, as if all values were in one file.
fn common_type(left: &DataType, right: &DataType, guessed: bool) -> Option<DataType> {
    use DataType::{Date32, Date64, Float32, Float64, Int64, Null, Timestamp, Utf8View};
    let found = match (left, right) {
        _ if left == right => left.clone(),
        (Null, other) | (other, Null) => other.clone(),
        (Int64, Float64) | (Float64, Int64) if guessed => Float64,
        (Float32, Float64) | (Float64, Float32) => Float64,
        (Date32, Date64) | (Date64, Date32) => Date32,
        (Date32, Timestamp(unit, None)) | (Timestamp(unit, None), Date32) => Timestamp(*unit, None),
        (Timestamp(a, left), Timestamp(b, right)) if left.is_some() == right.is_some() => {
            let zone = if left == right { left.clone() } else { Some("UTC".into()) };
            Timestamp((*a).max(*b), zone)
        }
        _ if is_text(left) && is_text(right) => Utf8View,
        _ if is_binary(left) && is_binary(right) => DataType::BinaryView,
        _ => return common_integer(left, right).or_else(|| common_number(left, right)),
    };
    Some(found)
}

fn is_text(of: &DataType) -> bool {
    match of {
        DataType::Dictionary(_, of) => is_text(of),
        other => other.is_string(),
    }
}

fn is_binary(of: &DataType) -> bool {
    matches!(of, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// Returns the bits of an integer type and whether it is signed; `None` for other types.
fn integer(of: &DataType) -> Option<(usize, bool)> {
    let bytes = of.primitive_width().filter(|_| of.is_integer())?;
    Some((8 * bytes, of.is_signed_integer()))
}

fn common_integer(left: &DataType, right: &DataType) -> Option<DataType> {
    let ((a, a_signed), (b, b_signed)) = (integer(left)?, integer(right)?);
    // One more bit holds the values without sign next to those with.
    let bits = match (a_signed, b_signed) {
        (true, false) => a.max(2 * b),
        (false, true) => b.max(2 * a),
        (true, true) | (false, false) => a.max(b),
    };
    match (bits, a_signed || b_signed) {
        (16, true) => Some(DataType::Int16),
        (32, true) => Some(DataType::Int32),
        (64, true) => Some(DataType::Int64),
        (16, false) => Some(DataType::UInt16),
        (32, false) => Some(DataType::UInt32),
        (64, false) => Some(DataType::UInt64),
        _ => None,
    }
}

/// Returns the common type of two numeric types of which one is a float or a decimal: a float if it holds the integers
/// exactly (24 or 53 bits), or a decimal. `None` if there is none.
fn common_number(left: &DataType, right: &DataType) -> Option<DataType> {
    match (left, right) {
        (DataType::Float32 | DataType::Float64, other) | (other, DataType::Float32 | DataType::Float64) => {
            let is_single = *left == DataType::Float32 || *right == DataType::Float32;
            match integer(other)?.0 {
                8 | 16 if is_single => Some(DataType::Float32),
                8 | 16 | 32 => Some(DataType::Float64),
                _ => None,
            }
        }
        _ => {
            let ((a, a_scale), (b, b_scale)) = (digits(left)?, digits(right)?);
            let scale = a_scale.max(b_scale);
            schema::decimal((a - a_scale).max(b - b_scale) + scale, scale)
        }
    }
}

/// Returns the precision and scale of a decimal type, or of the decimal type that holds an integer type; `None` for
/// other types.
fn digits(of: &DataType) -> Option<(i16, i16)> {
    match of {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale) => Some((i16::from(*precision), i16::from(*scale))),
        other => match integer(other)? {
            (8, _) => Some((3, 0)),
            (16, _) => Some((5, 0)),
            (32, _) => Some((10, 0)),
            (64, true) => Some((19, 0)),
            _ => Some((20, 0)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DataType::*;
    use arrow_schema::TimeUnit;

    #[test]
    fn a_common_type_holds_the_values_of_both() {
        let micros = |zone: Option<&str>| Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
        let nanos = Timestamp(TimeUnit::Nanosecond, None);
        let cases = [
            (Int32, Int64, Some(Int64)),
            (Int8, Int16, Some(Int16)),
            (UInt8, Int8, Some(Int16)),
            (UInt32, Int32, Some(Int64)),
            (UInt32, Int64, Some(Int64)),
            (UInt8, UInt32, Some(UInt32)),
            (UInt64, Int64, Some(Decimal128(20, 0))),
            (Int32, Float64, Some(Float64)),
            (Int16, Float32, Some(Float32)),
            (Int32, Float32, Some(Float64)),
            (Int64, Float64, None),
            (Float32, Float64, Some(Float64)),
            (Decimal128(10, 2), Decimal128(8, 4), Some(Decimal128(12, 4))),
            (Decimal128(38, 0), Decimal128(4, 2), None),
            (Decimal128(10, 2), Int32, Some(Decimal128(12, 2))),
            (Decimal128(10, 2), Float64, None),
            (Date32, micros(None), Some(micros(None))),
            (Date32, micros(Some("UTC")), None),
            (nanos.clone(), micros(None), Some(nanos)),
            (micros(Some("Europe/Oslo")), micros(Some("UTC")), Some(micros(Some("UTC")))),
            (micros(None), micros(Some("UTC")), None),
            (Utf8View, LargeUtf8, Some(Utf8View)),
            (Utf8View, Int64, None),
            (Boolean, Int64, None),
            (Null, Boolean, Some(Boolean)),
        ];
        for (left, right, expected) in cases {
            assert_eq!(common_type(&left, &right, false), expected, "{left} and {right}");
            assert_eq!(common_type(&right, &left, false), expected, "{right} and {left}");
        }
        assert_eq!(common_type(&Int64, &Float64, true), Some(Float64));
    }
}
