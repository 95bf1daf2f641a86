//! Views: named queries of a tenant.

use crate::{Error, Result, SchemaName, TableInfo, TableName, limits};

/// A view: a name and the SQL text of a query. Only engines interpret the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    name: TableName,
    text: String,
}

impl View {
    /// Creates a view. The text is not parsed.
    ///
    /// # Errors
    /// `Invalid` if the text is empty; `OverLimit` if it has more than [`limits::VIEW_BYTES_MAX`] bytes.
    pub fn new(name: TableName, text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        if text.is_empty() {
            return Err(Error::invalid(format!("view {:?} has no query", name.as_str())));
        }
        if text.len() > limits::VIEW_BYTES_MAX {
            let (name, bytes, most) = (name.as_str(), text.len(), limits::VIEW_BYTES_MAX);
            return Err(Error::over_limit(format!(
                "the query of view {name:?} has {bytes} bytes, of at most {most}"
            ))
            .advise("put parts of it into views of their own"));
        }
        Ok(View { name, text })
    }

    /// Returns the view's name. Tables and views of a tenant share one set of names.
    pub fn name(&self) -> &TableName {
        &self.name
    }

    /// Returns the text of the query as it was written. It is untrusted if a peer sent the view.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The tables, views and schemas of a tenant, each sorted by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// The tables, without the value distributions of their columns
    /// ([`ColumnStatistics::spread`](crate::ColumnStatistics::spread)).
    pub tables: Vec<TableInfo>,
    /// The names of the views.
    pub views: Vec<TableName>,
    /// The schemas without `public`, which every tenant has.
    pub schemas: Vec<SchemaName>,
}

/// The table or view that a name refers to.
#[derive(Clone, Debug, PartialEq)]
pub enum Relation {
    /// A table in its current version.
    Table(TableInfo),
    /// A view.
    View(View),
}
