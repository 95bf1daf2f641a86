//! Functions over the system catalog whose results are lists.

use super::facts::parts_of;
use super::functions::{OID, TEXT};
use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int64Array, ListArray, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType, Field};
use farpool_datafusion::SystemFunction;
use farpool_model::{Error, Result};
use std::sync::Arc;

/// Returns all of them.
pub(super) fn all() -> Vec<SystemFunction> {
    let list = |element: DataType| DataType::List(Arc::new(Field::new_list_field(element, true)));
    vec![
        SystemFunction {
            name: "current_schemas",
            arguments: vec![vec![DataType::Boolean]],
            returns: list(TEXT),
            compute: Arc::new(schemas),
        },
        SystemFunction {
            name: "parse_ident",
            arguments: vec![vec![TEXT], vec![TEXT, DataType::Boolean]],
            returns: list(TEXT),
            compute: Arc::new(parts),
        },
        SystemFunction {
            name: "_pg_expandarray",
            arguments: vec![vec![list(OID)]],
            returns: list(numbered()),
            compute: Arc::new(expanded),
        },
    ]
}

/// The schemas in which names are looked for; with PostgreSQL's own one if the argument is true.
fn schemas(columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
    let with_own = columns[0].as_boolean();
    let mut lists = ListBuilder::new(StringBuilder::new());
    for row in 0..rows {
        if with_own.is_valid(row) && with_own.value(row) {
            lists.values().append_value("pg_catalog");
        }
        lists.values().append_value("public");
        lists.append(with_own.is_valid(row));
    }
    Ok(Arc::new(lists.finish()))
}

/// The parts of a qualified name.
fn parts(columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
    let names = columns[0].as_string::<i32>();
    let mut lists = ListBuilder::new(StringBuilder::new());
    for row in 0..rows {
        let is_valid = names.is_valid(row);
        if is_valid {
            let name = names.value(row);
            let parts = parts_of(name)
                .ok_or_else(|| Error::invalid(format!("string is not a valid identifier: \"{name}\"")))?;
            parts.iter().for_each(|part| lists.values().append_value(part));
        }
        lists.append(is_valid);
    }
    Ok(Arc::new(lists.finish()))
}

/// The type of an element of a list with its place.
fn numbered() -> DataType {
    DataType::Struct([Field::new("x", OID, true), Field::new("n", OID, true)].into_iter().collect())
}

/// The elements of lists with their places.
fn expanded(columns: &[ArrayRef], _rows: usize) -> Result<ArrayRef> {
    let list = columns[0].as_list::<i32>();
    let lengths = || list.offsets().windows(2).map(|pair| pair[1] - pair[0]);
    let places: Int64Array = lengths().flat_map(|length| 1..=i64::from(length)).collect();
    let failed = |error: ArrowError| Error::internal(format!("elements with their places: {error}"));
    let first = list.offsets().first().and_then(|first| usize::try_from(*first).ok()).unwrap_or(0);
    let elements = list.values().slice(first, places.len());
    let fields = [Field::new("x", OID, true), Field::new("n", OID, true)].into_iter().collect();
    let elements = StructArray::try_new(fields, vec![elements, Arc::new(places)], None).map_err(failed)?;
    let lengths = lengths().filter_map(|length| usize::try_from(length).ok());
    let element = Arc::new(Field::new_list_field(numbered(), true));
    let offsets = OffsetBuffer::from_lengths(lengths);
    let list = ListArray::try_new(element, offsets, Arc::new(elements), list.nulls().cloned());
    Ok(Arc::new(list.map_err(failed)?))
}
