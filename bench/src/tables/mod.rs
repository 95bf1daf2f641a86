//! Tables as data in definitions, and as Arrow batches that the suites load into all sides.

mod make;
pub mod parquet;

pub use make::{batches, batches_between, file, read};

use serde::Deserialize;

/// The definition of a table of random values.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableDefinition {
    pub name: String,
    /// Numbers of rows, the largest last; empty if another setting determines the size.
    #[serde(default)]
    pub sizes: Vec<u64>,
    pub columns: Vec<ColumnDefinition>,
}

/// One or more columns with the same kind of content.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnDefinition {
    names: Vec<String>,
    count: Option<usize>,
    uniform: Option<u64>,
    #[serde(default)]
    twice: bool,
    #[serde(default)]
    serial: bool,
    bytes: Option<usize>,
}

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Random integers from 0 to below this bound.
    Uniform(u64),
    /// The row's number, from 0.
    Serial,
    /// Each number below half of the number of rows, twice.
    Twice,
    /// Random floats from 0 to below 1.
    Float,
    /// Strings of this many bytes.
    Text(usize),
}

impl TableDefinition {
    /// Returns the largest size.
    pub fn largest(&self) -> u64 {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    /// Returns names and contents of all columns.
    pub fn columns(&self) -> Vec<(String, Content)> {
        self.columns.iter().flat_map(ColumnDefinition::expand).collect()
    }
}

impl ColumnDefinition {
    fn expand(&self) -> Vec<(String, Content)> {
        let content = match (self.uniform, self.bytes) {
            (Some(values), _) => Content::Uniform(values),
            (None, Some(bytes)) => Content::Text(bytes),
            (None, None) if self.twice => Content::Twice,
            (None, None) if self.serial => Content::Serial,
            (None, None) => Content::Float,
        };
        let named = |name: &String| match self.count {
            Some(count) => (0..count).map(|number| format!("{name}{number}")).collect(),
            None => vec![name.clone()],
        };
        self.names.iter().flat_map(named).map(|name| (name, content)).collect()
    }
}
