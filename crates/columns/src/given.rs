//! Rows that came along with a program, as a table.

use crate::builder::TableBuilder;
use crate::table::Table;
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BinaryViewArray, BooleanArray, Float32Array, Float64Array, PrimitiveArray,
    RecordBatch, RecordBatchOptions, StringViewArray,
};
use arrow_schema::{DataType, SchemaRef};
use farpool_memory::Pool;
use farpool_model::cast::u64_from;
use farpool_model::{Error, GivenRows, Result, TenantName, Value, with_integer};
use std::sync::Arc;

/// Makes a table of rows whose columns are those of `schema`, in the memory of a tenant's tables.
///
/// # Errors
/// `OverLimit` if `pool` has no room; `Invalid` if the schema is not canonical; `Internal` if the rows were made for
/// another one.
pub fn table_of(rows: &GivenRows, schema: &SchemaRef, pool: Arc<Pool>, tenant: TenantName) -> Result<Table> {
    let mut table = TableBuilder::new(pool, tenant, schema, Some(u64_from(rows.rows())))?;
    table.push(&batch_of(schema, rows)?)?;
    table.finish()
}

fn batch_of(schema: &SchemaRef, rows: &GivenRows) -> Result<RecordBatch> {
    let columns = schema.fields().iter().zip(rows.columns());
    let columns =
        columns.map(|(field, values)| array_of(field.data_type(), values)).collect::<Result<_>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.rows()));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
        .map_err(|error| Error::internal(error.to_string()))
}

fn array_of(data_type: &DataType, values: &[Value]) -> Result<ArrayRef> {
    fn floats(values: &[Value]) -> impl Iterator<Item = Option<f64>> {
        values.iter().map(|value| if let Value::Float(float) = value { Some(*float) } else { None })
    }
    Ok(match data_type {
        DataType::Boolean => {
            let flags =
                values.iter().map(|value| if let Value::Bool(flag) = value { Some(*flag) } else { None });
            Arc::new(flags.collect::<BooleanArray>())
        }
        DataType::Float32 => {
            Arc::new(floats(values).map(|float| float.map(|float| float as f32)).collect::<Float32Array>())
        }
        DataType::Float64 => Arc::new(floats(values).collect::<Float64Array>()),
        DataType::Utf8View => {
            let texts =
                values.iter().map(|value| if let Value::Text(text) = value { Some(text) } else { None });
            Arc::new(texts.collect::<StringViewArray>())
        }
        DataType::BinaryView => {
            let bytes =
                values.iter().map(|value| if let Value::Bytes(bytes) = value { Some(bytes) } else { None });
            Arc::new(bytes.collect::<BinaryViewArray>())
        }
        other => with_integer!(
            other,
            T => {
                type Native = <T as ArrowPrimitiveType>::Native;
                let integer = |value: &Value| if let Value::Int(n) = value { Some(*n as Native) } else { None };
                let array: PrimitiveArray<T> = values.iter().map(integer).collect();
                Arc::new(array.with_data_type(other.clone()))
            },
            return Err(Error::internal(format!("{other} is not canonical")))
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Date32Type, Decimal128Type};
    use arrow_schema::{Field, Schema};

    #[test]
    fn each_type_holds_its_values() {
        let types = [
            DataType::Boolean,
            DataType::Date32,
            DataType::Decimal128(38, 3),
            DataType::Float32,
            DataType::Utf8View,
            DataType::BinaryView,
        ];
        let fields = types.iter().enumerate().map(|(i, t)| Field::new(format!("c{i}"), t.clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let values = [
            Value::Bool(true),
            Value::Int(-7),
            Value::Int(1 << 100),
            Value::Float(-0.0),
            Value::Text("a text with more than twelve bytes".into()),
            Value::Bytes(vec![0, 255]),
        ];
        let columns = values.iter().map(|value| vec![Value::Null, value.clone()]).collect();
        let batch = batch_of(&schema, &GivenRows::new(&schema, 2, columns).unwrap()).unwrap();
        assert!(batch.columns().iter().all(|column| column.is_null(0) && column.is_valid(1)));
        assert!(batch.column(0).as_boolean().value(1));
        assert_eq!(batch.column(1).as_primitive::<Date32Type>().value(1), -7);
        assert_eq!(batch.column(2).as_primitive::<Decimal128Type>().value(1), 1 << 100);
        assert_eq!(batch.column(2).data_type(), &types[2]);
        assert_eq!(batch.column(4).as_string_view().value(1), "a text with more than twelve bytes");
        assert_eq!(batch.column(5).as_binary_view().value(1), [0, 255]);
    }
}
