//! Views: named queries that stand beside the tables of a tenant.

use crate::{Error, Result, SchemaName, TableInfo, TableName, limits};

/// A view: a name, and the text of the query that it stands for. Only engines interpret the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    name: TableName,
    text: String,
}

impl View {
    /// Creates a view of this name and text.
    ///
    /// # Errors
    /// `Invalid` when the text is empty; `OverLimit` when it has more than [`limits::VIEW_BYTES_MAX`] bytes.
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

    /// Returns the view's name, which no table of the tenant has.
    pub fn name(&self) -> &TableName {
        &self.name
    }

    /// Returns the text of the query as it was written. In a view that a peer sent it is untrusted.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The tables, views and schemas of a tenant, each by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// The tables, without the spreads of their columns.
    pub tables: Vec<TableInfo>,
    /// The names of the views.
    pub views: Vec<TableName>,
    /// The schemas besides `public`, which every tenant has.
    pub schemas: Vec<SchemaName>,
}

/// The table or view that a name stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum Relation {
    /// A table in its current version.
    Table(TableInfo),
    /// A view.
    View(View),
}
