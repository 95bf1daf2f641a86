//! Converts nested columns (lists, structs and maps), which pools (stores of tables) do not support, to text: the JSON
//! of their values.

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use farpool_files::{Task, Tasks};
use farpool_model::{Error, Result};
use farpool_sql::json_texts;
use std::sync::Arc;

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
            true => json_texts(column, field),
            false => Ok(column.clone()),
        }
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    RecordBatch::try_new(texts_schema(&schema), columns).map_err(|error| Error::internal(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, AsArray, StructArray};
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
