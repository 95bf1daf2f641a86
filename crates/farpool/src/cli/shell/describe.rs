//! Descriptions of tables, views and files: their columns, and the statements that create them.

use super::words::{quoted, unquoted};
use crate::cli::stop::Outcome;
use arrow::datatypes::Schema;
use datafusion::common::TableReference;
use farpool::model::{Listing, Relation, sql_name};
use farpool::{Pool, Session, TableName};
use std::fmt::Write;

/// Returns the statement that lists the columns of `name`: a table, a view, or a file, even without quotes.
pub fn columns(name: &str) -> String {
    let is_quoted = name.starts_with(['\'', '"']) || name.contains('(');
    match name.contains(['/', '*', '\\']) || std::path::Path::new(name).is_file() {
        true if !is_quoted => format!("DESCRIBE '{}'", name.replace('\'', "''")),
        _ => format!("DESCRIBE {name}"),
    }
}

/// Returns the statements that create the table or view of this name, or all tables and views of the pool.
pub async fn schema(session: &Session, pool: &dyn Pool, name: Option<&str>) -> Outcome<String> {
    let mut text = String::new();
    let names: Vec<TableName> = match name {
        Some(name) => vec![named(name)?],
        None => {
            let Listing { tables, views, schemas } = pool.list(None).await?;
            for schema in schemas {
                let _ = writeln!(text, "CREATE SCHEMA {};", quoted(schema.as_str()));
            }
            let mut names: Vec<TableName> = tables.into_iter().map(|table| table.name).chain(views).collect();
            names.sort_unstable();
            names
        }
    };
    for name in names {
        text += &statement(session, pool, &name).await?;
    }
    Ok(text)
}

/// Parses the name of a table or view. Parts without quotes are converted to lower case, as in SQL.
fn named(text: &str) -> farpool::Result<TableName> {
    match text.contains('"') {
        true => TableName::parse(text),
        false => TableName::parse(&unquoted(text)),
    }
}

async fn statement(session: &Session, pool: &dyn Pool, name: &TableName) -> Outcome<String> {
    match pool.relation(name).await {
        Ok(Relation::View(view)) => Ok(format!("CREATE VIEW {} AS {};\n", in_sql(name), view.text())),
        Ok(Relation::Table(table)) => Ok(create_table(name, &table.schema)),
        // The name may refer to a table or view of the session, or a file.
        Err(missing) => {
            let table = session.context().table_provider(TableReference::bare(name.as_str())).await;
            match table {
                Ok(table) => Ok(create_table(name, &table.schema())),
                Err(_) => Err(missing.into()),
            }
        }
    }
}

/// Returns the name in SQL, with quotes if it needs them.
fn in_sql(name: &TableName) -> String {
    match name.is_public() {
        true => quoted(name.table()),
        false => format!("{}.{}", quoted(name.schema().as_str()), quoted(name.table())),
    }
}

fn create_table(name: &TableName, schema: &Schema) -> String {
    let mut text = format!("CREATE TABLE {} (", in_sql(name));
    for (place, field) in schema.fields().iter().enumerate() {
        let comma = if place > 0 { "," } else { "" };
        let not_null = if field.is_nullable() { "" } else { " NOT NULL" };
        let _ = write!(text, "{comma}\n  {} {}{not_null}", quoted(field.name()), sql_name(field.data_type()));
    }
    text + "\n);\n"
}
