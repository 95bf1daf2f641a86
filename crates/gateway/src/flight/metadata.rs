//! Answers about the catalog: catalogs, schemas, tables, keys, types and facts about the server.

use super::convert::sent_type;
use super::sql_info::{server_facts, types};
use super::status::{defect, status};
use super::users::User;
use arrow_array::RecordBatch;
use arrow_flight::sql::Command;
use arrow_flight::sql::metadata::{GetDbSchemasBuilder, GetTablesBuilder};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use farpool_datafusion::{Session, Statement};
use farpool_model::{Result, SchemaName, TableName, quoted, sql_name};
use farpool_transfer::Pool;
use std::collections::HashMap;
use std::sync::Arc;
use tonic::Status;

/// The kinds of what is listed as tables.
const TABLE: &str = "TABLE";
const VIEW: &str = "VIEW";

/// Returns the schema of the answer to a question about the catalog; `None` if the command is none.
pub(super) fn answer_schema(command: &Command) -> std::result::Result<Option<SchemaRef>, Status> {
    Ok(Some(match command.clone() {
        Command::CommandGetCatalogs(asked) => asked.into_builder().schema(),
        Command::CommandGetDbSchemas(asked) => asked.into_builder().schema(),
        Command::CommandGetTables(asked) => asked.into_builder().schema(),
        Command::CommandGetTableTypes(asked) => asked.into_builder().schema(),
        Command::CommandGetSqlInfo(asked) => asked.into_builder(&server_facts().map_err(defect)?).schema(),
        Command::CommandGetXdbcTypeInfo(asked) => asked.into_builder(&types().map_err(defect)?).schema(),
        Command::CommandGetPrimaryKeys(_) => primary_keys(),
        Command::CommandGetExportedKeys(_)
        | Command::CommandGetImportedKeys(_)
        | Command::CommandGetCrossReference(_) => foreign_keys(),
        _ => return Ok(None),
    }))
}

/// Answers a question about the catalog; `None` if the command is none.
pub(super) async fn answer(
    user: &User,
    command: &Command,
) -> std::result::Result<Option<RecordBatch>, Status> {
    let built = match command.clone() {
        Command::CommandGetCatalogs(asked) => {
            let mut catalogs = asked.into_builder();
            user.engine.pools().into_iter().for_each(|(name, _)| catalogs.append(name));
            catalogs.build()
        }
        Command::CommandGetDbSchemas(asked) => {
            let mut schemas: GetDbSchemasBuilder = asked.into_builder();
            for (catalog, pool) in user.engine.pools() {
                for schema in schema_names(&*pool).await.map_err(|error| status(&error))? {
                    schemas.append(&catalog, schema);
                }
            }
            schemas.build()
        }
        Command::CommandGetTables(asked) => {
            let with_columns = asked.include_schema;
            let mut tables: GetTablesBuilder = asked.into_builder();
            for (catalog, pool) in user.engine.pools() {
                let planner = with_columns.then_some(&user.engine.session);
                for table in listed(&catalog, &*pool, planner).await.map_err(|error| status(&error))? {
                    let name = &table.name;
                    let schema = name.schema();
                    tables
                        .append(&catalog, schema.as_str(), name.table(), table.kind, &table.schema)
                        .map_err(defect)?;
                }
            }
            tables.build()
        }
        Command::CommandGetTableTypes(asked) => {
            let mut types = asked.into_builder();
            types.append(TABLE);
            types.append(VIEW);
            types.build()
        }
        Command::CommandGetSqlInfo(asked) => asked.into_builder(&server_facts().map_err(defect)?).build(),
        Command::CommandGetXdbcTypeInfo(asked) => asked.into_builder(&types().map_err(defect)?).build(),
        Command::CommandGetPrimaryKeys(_) => Ok(RecordBatch::new_empty(primary_keys())),
        Command::CommandGetExportedKeys(_)
        | Command::CommandGetImportedKeys(_)
        | Command::CommandGetCrossReference(_) => Ok(RecordBatch::new_empty(foreign_keys())),
        _ => return Ok(None),
    };
    built.map(Some).map_err(defect)
}

async fn schema_names(pool: &dyn Pool) -> Result<Vec<String>> {
    let listing = pool.list(None).await?;
    let others = listing.schemas.iter().map(|schema| schema.as_str().to_string());
    Ok([SchemaName::PUBLIC.to_string()].into_iter().chain(others).collect())
}

/// A table or a view.
struct Listed {
    name: TableName,
    kind: &'static str,
    schema: Schema,
}

/// Lists the tables and views of a pool, which is `catalog`; the columns of views are those that `planner` finds.
async fn listed(catalog: &str, pool: &dyn Pool, planner: Option<&Session>) -> Result<Vec<Listed>> {
    let listing = pool.list(None).await?;
    let mut tables = Vec::new();
    for table in listing.tables {
        let schema = described(catalog, &table.name, table.schema.fields());
        tables.push(Listed { name: table.name, kind: TABLE, schema });
    }
    for name in listing.views {
        let schema = match planner {
            // A view that cannot be planned, such as one over a table that was dropped, has no columns.
            Some(planner) => view_schema(planner, catalog, &name).await.unwrap_or_else(|_| Schema::empty()),
            None => Schema::empty(),
        };
        tables.push(Listed { name, kind: VIEW, schema });
    }
    Ok(tables)
}

async fn view_schema(session: &Session, catalog: &str, name: &TableName) -> Result<Schema> {
    let (schema, table) = (quoted(name.schema().as_str()), quoted(name.table()));
    let text = format!("SELECT * FROM {}.{schema}.{table}", quoted(catalog));
    let columns = session.describe(&Statement::from(text.as_str()), &[]).await?;
    Ok(described(catalog, name, columns.schema.fields()))
}

/// Returns columns as they are sent, with what drivers look for in the metadata of each.
fn described<'a>(catalog: &str, table: &TableName, fields: impl IntoIterator<Item = &'a FieldRef>) -> Schema {
    let column = |field: &FieldRef| {
        let key = |name: &str| format!("ARROW:FLIGHT:SQL:{name}");
        let mut facts = HashMap::from([
            (key("CATALOG_NAME"), catalog.to_string()),
            (key("SCHEMA_NAME"), table.schema().as_str().to_string()),
            (key("TABLE_NAME"), table.table().to_string()),
            (key("TYPE_NAME"), sql_name(field.data_type())),
            (key("IS_AUTO_INCREMENT"), "0".to_string()),
            (key("IS_CASE_SENSITIVE"), "1".to_string()),
            (key("IS_READ_ONLY"), "0".to_string()),
            (key("IS_SEARCHABLE"), "1".to_string()),
        ]);
        if let DataType::Decimal128(precision, scale) = field.data_type() {
            facts.insert(key("PRECISION"), precision.to_string());
            facts.insert(key("SCALE"), scale.to_string());
        }
        Field::new(field.name(), sent_type(field.data_type()), field.is_nullable()).with_metadata(facts)
    };
    Schema::new(fields.into_iter().map(column).collect::<Vec<_>>())
}

/// Returns the columns of an answer about primary keys, of which there are none.
fn primary_keys() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("catalog_name", DataType::Utf8, true),
        Field::new("db_schema_name", DataType::Utf8, true),
        Field::new("table_name", DataType::Utf8, false),
        Field::new("column_name", DataType::Utf8, false),
        Field::new("key_name", DataType::Utf8, true),
        Field::new("key_sequence", DataType::Int32, false),
    ]))
}

/// Returns the columns of an answer about foreign keys, of which there are none.
fn foreign_keys() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("pk_catalog_name", DataType::Utf8, true),
        Field::new("pk_db_schema_name", DataType::Utf8, true),
        Field::new("pk_table_name", DataType::Utf8, false),
        Field::new("pk_column_name", DataType::Utf8, false),
        Field::new("fk_catalog_name", DataType::Utf8, true),
        Field::new("fk_db_schema_name", DataType::Utf8, true),
        Field::new("fk_table_name", DataType::Utf8, false),
        Field::new("fk_column_name", DataType::Utf8, false),
        Field::new("key_sequence", DataType::Int32, false),
        Field::new("fk_key_name", DataType::Utf8, true),
        Field::new("pk_key_name", DataType::Utf8, true),
        Field::new("update_rule", DataType::UInt8, false),
        Field::new("delete_rule", DataType::UInt8, false),
    ]))
}
