//! What tables, views and files look like: their columns, and the statements that make them.

use super::words::{quoted, unquoted};
use crate::cli::stop::Outcome;
use arrow::datatypes::Schema;
use datafusion::common::TableReference;
use farpool::model::{Listing, Relation, sql_name};
use farpool::{Pool, Session, TableName};
use std::fmt::Write;

/// Returns the statement that lists the columns of what has this name: of a table, a view, or a file without quotes, too.
pub fn columns(name: &str) -> String {
    let is_quoted = name.starts_with(['\'', '"']) || name.contains('(');
    match name.contains(['/', '*', '\\']) || std::path::Path::new(name).is_file() {
        true if !is_quoted => format!("DESCRIBE '{}'", name.replace('\'', "''")),
        _ => format!("DESCRIBE {name}"),
    }
}

/// Returns the statements that make the table or view of this name, or all that the pool has.
pub async fn schema(session: &Session, pool: &dyn Pool, name: Option<&str>) -> Outcome<String> {
    let names: Vec<String> = match name {
        Some(name) => vec![unquoted(name)],
        None => {
            let Listing { tables, views } = pool.list(None).await?;
            let tables = tables.into_iter().map(|table| table.name.into());
            let mut names: Vec<String> = tables.chain(views.into_iter().map(Into::into)).collect();
            names.sort_unstable();
            names
        }
    };
    let mut text = String::new();
    for name in names {
        text += &statement(session, pool, &name).await?;
    }
    Ok(text)
}

async fn statement(session: &Session, pool: &dyn Pool, name: &str) -> Outcome<String> {
    let relation = match TableName::new(name) {
        Ok(name) => pool.relation(&name).await,
        Err(error) => Err(error),
    };
    match relation {
        Ok(Relation::View(view)) => Ok(format!("CREATE VIEW {} AS {};\n", quoted(name), view.text())),
        Ok(Relation::Table(table)) => Ok(create_table(name, &table.schema)),
        // It may be a table or view of the session, or a file.
        Err(missing) => {
            let table = session.context().table_provider(TableReference::bare(name)).await;
            match table {
                Ok(table) => Ok(create_table(name, &table.schema())),
                Err(_) => Err(missing.into()),
            }
        }
    }
}

fn create_table(name: &str, schema: &Schema) -> String {
    let mut text = format!("CREATE TABLE {} (", quoted(name));
    for (place, field) in schema.fields().iter().enumerate() {
        let comma = if place > 0 { "," } else { "" };
        let not_null = if field.is_nullable() { "" } else { " NOT NULL" };
        let _ = write!(text, "{comma}\n  {} {}{not_null}", quoted(field.name()), sql_name(field.data_type()));
    }
    text + "\n);\n"
}
