//! Views: queries that stand under a name beside the tables of a tenant.

use crate::{Error, Result, TableInfo, TableName, limits};

/// A view: a name, and the text of the query that it stands for. Only engines know what the text means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    name: TableName,
    text: String,
}

impl View {
    /// The view of this name and text.
    ///
    /// # Errors
    /// `Invalid` without text; `OverLimit` when it has more than [`limits::VIEW_BYTES_MAX`] bytes.
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

    /// Its name, which no table of the tenant has.
    pub fn name(&self) -> &TableName {
        &self.name
    }

    /// The query, as it was written; of a view that comes from a peer, whatever the peer says.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The tables and views of a tenant, each by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// The tables, without how their columns are spread.
    pub tables: Vec<TableInfo>,
    /// The names of the views.
    pub views: Vec<TableName>,
}

/// What a name among the tables and views of a tenant stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum Relation {
    /// A table, as it is now.
    Table(TableInfo),
    /// A view.
    View(View),
}
