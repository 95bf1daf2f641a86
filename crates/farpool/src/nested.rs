//! Converts nested columns (lists, structs and maps), which pools (stores of tables) do not support, to text: the JSON
//! of their values.

use crate::json::{check_json, json_writer};
use arrow::array::{Array, ArrayRef, RecordBatch, StringViewBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::json::writer::LineDelimited;
use farpool_files::{Task, Tasks};
use farpool_model::{Error, Result, sql_name};
use std::sync::Arc;

/// Bytes that the JSON writer puts before and after a value.
const AROUND: (&[u8], &[u8]) = (b"{\"v\":", b"}");

/// Returns `schema` with strings in place of nested columns.
pub(crate) fn texts_schema(schema: &Schema) -> SchemaRef {
    let field = |field: &Arc<Field>| match field.data_type().is_nested() {
        true => Arc::new(Field::new(field.name(), DataType::Utf8View, field.is_nullable())),
        false => field.clone(),
    };
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
}

/// Wraps `tasks` so that nested columns of their batches are converted to text.
pub(crate) fn texts_tasks(tasks: Tasks) -> Tasks {
    Box::new(tasks.map(|task| -> Task { Box::new(|| Box::new(task().map(|batch| texts(&batch?)))) }))
}

fn texts(batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = batch.schema();
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| {
        match column.data_type().is_nested() {
            true => text(column, field),
            false => Ok(column.clone()),
        }
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    RecordBatch::try_new(texts_schema(&schema), columns).map_err(|error| Error::internal(error.to_string()))
}

/// Returns each value of `column` as JSON; NULL stays NULL.
fn text(column: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    let failed = |error: arrow::error::ArrowError| {
        let (name, kind) = (field.name(), sql_name(field.data_type()));
        Error::invalid(format!("column {name:?} of type {kind} has no form in JSON: {error}"))
            .advise("leave it out (farpool load --columns)")
    };
    let alone = Arc::new(Schema::new(vec![field.clone().with_name("v")]));
    let batch = RecordBatch::try_new(alone, vec![column.clone()]).map_err(failed)?;
    check_json(&batch)?;
    let mut writer = json_writer().build::<_, LineDelimited>(Vec::new());
    writer.write(&batch).map_err(failed)?;
    let bytes = writer.into_inner();
    let mut texts = StringViewBuilder::with_capacity(column.len());
    // Splitting at line breaks is safe: the writer escapes those within strings as `\n`.
    for (row, line) in bytes.split(|byte| *byte == b'\n').take(column.len()).enumerate() {
        let value = line.strip_prefix(AROUND.0).and_then(|line| line.strip_suffix(AROUND.1));
        let value = value.and_then(|value| std::str::from_utf8(value).ok());
        texts.append_option(value.filter(|_| column.is_valid(row)));
    }
    Ok(Arc::new(texts.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{AsArray, StructArray};
    use arrow::datatypes::Int64Type;

    #[test]
    fn lists_and_structs_are_what_json_says() {
        let list = arrow::array::ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1), None]),
            None,
            Some(vec![]),
        ]);
        let names: ArrayRef = Arc::new(arrow::array::StringArray::from(vec!["a\nb", "\"q\"}", "é"]));
        let field = Arc::new(Field::new("name", DataType::Utf8, true));
        let structs = StructArray::from(vec![(field, names)]);
        let batch = RecordBatch::try_from_iter([
            ("n", Arc::new(arrow::array::Int64Array::from(vec![1, 2, 3])) as ArrayRef),
            ("list", Arc::new(list)),
            ("row", Arc::new(structs)),
        ]);
        let batch = texts(&batch.unwrap()).unwrap();
        assert_eq!(batch.schema(), texts_schema(&batch.schema()));
        let of = |column: usize| batch.column(column).as_string_view().iter().collect::<Vec<_>>();
        assert_eq!(of(1), [Some("[1,null]"), None, Some("[]")]);
        assert_eq!(of(2), [r#"{"name":"a\nb"}"#, r#"{"name":"\"q\"}"}"#, r#"{"name":"é"}"#].map(Some),);
    }
}
