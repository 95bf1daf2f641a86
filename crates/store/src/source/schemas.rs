//! The common columns of several files that are read as one table.

use super::{InputFile, Opened};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use farpool_model::{Error, Result, limits, sql_name};
use std::path::Path;
use std::sync::Arc;

/// Returns the columns on which all files agree. CSV files, whose types are guessed, may differ in whole and
/// fractional numbers and in columns that are empty in one of them.
pub(super) fn agreed(files: &mut [InputFile]) -> Result<SchemaRef> {
    let (first, rest) = files.split_first().expect("a source has a file");
    let mut agreed = first.schema.clone();
    let by_name = files.iter().all(|file| matches!(file.format, Opened::Json(..)));
    for other in rest {
        agreed = match by_name {
            true => merge(&first.place.path, &agreed, other)?,
            false => agree(&first.place.path, &agreed, other)?,
        };
    }
    let agreed = settled(&agreed);
    for file in files.iter_mut().filter(|file| file.format.is_text()) {
        file.schema = agreed.clone();
    }
    Ok(agreed)
}

/// Checks that a file has no more columns than a table may have: planning time grows with the square of their
/// number.
pub(super) fn bounded(path: &Path, columns: usize) -> Result<()> {
    if columns <= limits::COLUMNS_MAX {
        return Ok(());
    }
    let most = limits::COLUMNS_MAX;
    Err(Error::over_limit(format!("{} has {columns} columns, and a table may have {most}", path.display()))
        .advise("turn it, so that columns become rows, or split it into files of fewer columns"))
}

/// Gives columns without any value the type string.
pub(super) fn settled(schema: &Schema) -> SchemaRef {
    let settle = |field: &Arc<Field>| match field.data_type() {
        DataType::Null => Arc::new(Field::new(field.name(), DataType::Utf8View, true)),
        _ => field.clone(),
    };
    Arc::new(Schema::new(schema.fields().iter().map(settle).collect::<Fields>()))
}

fn agree(first_path: &Path, first: &SchemaRef, other: &InputFile) -> Result<SchemaRef> {
    let differ = |what: String| differ(first_path, other, &what);
    let (left, right) = (first.fields(), other.schema.fields());
    if left.len() != right.len() {
        return Err(differ(format!("{} columns against {}", left.len(), right.len())));
    }
    let guessed = other.format.is_text();
    let fields = left.iter().zip(right).map(|(l, r)| {
        if l.name() != r.name() {
            return Err(differ(format!("column {:?} against {:?}", l.name(), r.name())));
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
    Error::invalid(format!("{} and {} differ: {what}", first_path.display(), other.place.path.display())).advise(
        "files of one table need the same columns in the same order; say the types (types = {'name': 'text'}), or load \
         these as two tables",
    )
}

/// Returns the union of the columns of JSON files, whose rows name their columns.
fn merge(first_path: &Path, first: &SchemaRef, other: &InputFile) -> Result<SchemaRef> {
    let mut fields: Vec<Field> = first.fields().iter().map(|field| field.as_ref().clone()).collect();
    for field in other.schema.fields() {
        let Some(known) = fields.iter_mut().find(|known| known.name() == field.name()) else {
            fields.push(field.as_ref().clone());
            continue;
        };
        let (left, right) = (known.data_type(), field.data_type());
        let data_type = common_type(left, right, true).ok_or_else(|| {
            let (left, right) = (sql_name(left), sql_name(right));
            let what = format!("column {:?} has type {left} against {right}", field.name());
            differ(first_path, other, &what)
        })?;
        known.set_data_type(data_type);
    }
    Ok(Arc::new(Schema::new(fields)))
}

fn common_type(left: &DataType, right: &DataType, guessed: bool) -> Option<DataType> {
    use DataType::{Float64, Int64, Null};
    match (left, right) {
        _ if left == right => Some(left.clone()),
        (Null, other) | (other, Null) if guessed => Some(other.clone()),
        (Int64, Float64) | (Float64, Int64) if guessed => Some(Float64),
        _ => None,
    }
}
