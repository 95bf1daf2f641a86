//! Tables as JSON, for programs.

use crate::literals;
use farpool_model::{TableInfo, Tier, sql_name};
use serde_json::{Value, json};

/// Describes a table: an object with its size, and for each column its type and statistics. Unknown values are null.
pub fn table_json(table: &TableInfo) -> Value {
    let fields = table.schema.fields().iter().zip(&table.columns);
    let columns = fields.map(|(field, column)| {
        json!({
            "name": field.name(),
            "type": sql_name(field.data_type()),
            "null_count": column.null_count,
            "distinct_count": column.distinct_count,
            "distinct_estimate": column.distinct_estimate,
            "min": column.min.as_ref().map(literals::json),
            "max": column.max.as_ref().map(literals::json),
            "bytes_encoded": column.bytes_encoded,
        })
    });
    json!({
        "schema": table.name.schema(),
        "name": table.name.table(),
        "version": table.version,
        "rows": table.rows,
        "bytes_plain": table.bytes_plain,
        "bytes_encoded": table.bytes_encoded,
        "encryption": table.encryption.map(Tier::name),
        "bytes_resident": table.bytes_resident,
        "pinned": table.is_pinned,
        "columns": columns.collect::<Vec<_>>(),
    })
}
