//! Encodes and decodes views (named SQL queries), and names of schemas, in messages of the native protocol.
//!
//! Invariant: the name and the text of a decoded view are within the limits. The text is not parsed here.

use crate::proto;
use crate::request::{body, read};
use bytes::Bytes;
use farpool_model::{Error, Result, SchemaName, TableName, View, limits};

/// Encodes the body of a `CreateView` message.
pub(crate) fn write_create(view: &View, replace: bool) -> Bytes {
    body(&proto::CreateView { name: view.name().encoded(), text: view.text().to_string(), replace })
}

/// Decodes the body of a `CreateView` message; returns the view, and whether it may replace another one.
pub(crate) fn read_create(bytes: &Bytes) -> Result<(View, bool)> {
    let proto::CreateView { name, text, replace } = read(bytes)?;
    Ok((View::new(TableName::decode(name)?, text)?, replace))
}

/// Encodes the body of a `ViewInfo` message.
pub(crate) fn write_view(view: &View) -> Bytes {
    body(&proto::ViewInfo { name: view.name().encoded(), text: view.text().to_string() })
}

/// Decodes the body of a `ViewInfo` message.
pub(crate) fn read_view(bytes: &Bytes) -> Result<View> {
    let proto::ViewInfo { name, text } = read(bytes)?;
    View::new(TableName::decode(name)?, text)
}

/// Checks the names of the schemas in a `TableList` message.
pub(crate) fn read_schemas(names: Vec<String>) -> Result<Vec<SchemaName>> {
    if names.len() > limits::SCHEMAS_PER_TENANT_MAX {
        let (count, most) = (names.len(), limits::SCHEMAS_PER_TENANT_MAX);
        return Err(Error::over_limit(format!("there may be {most} schemas, here are {count}")));
    }
    names.into_iter().map(SchemaName::new).collect()
}

/// Checks the names of the views in a `TableList` message.
pub(crate) fn read_names(names: Vec<String>) -> Result<Vec<TableName>> {
    if names.len() > limits::VIEWS_PER_TENANT_MAX {
        let (count, most) = (names.len(), limits::VIEWS_PER_TENANT_MAX);
        return Err(Error::over_limit(format!("there may be {most} views, here are {count}")));
    }
    names.into_iter().map(TableName::decode).collect()
}
