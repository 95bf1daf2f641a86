//! COPY TO: the rows of a query, handed to whoever writes files.

use crate::dialect::{STDOUT, without_prefix};
use crate::error;
use crate::rows::Rows;
use arrow_array::{RecordBatch, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::common::Result;
use datafusion::sql::parser::{CopyToSource, CopyToStatement, Statement};
use datafusion::sql::sqlparser::ast::{Statement as SqlStatement, Value};
use farpool_model::Error;
use farpool_transfer::BatchStream;
use futures::StreamExt;
use std::sync::Arc;

/// Where rows go, as the statement says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyTarget {
    /// The file; standard output if `None`.
    pub path: Option<String>,
    /// The format, if it was said.
    pub format: Option<String>,
    /// Names in lower case, and values as text.
    pub options: Vec<(String, String)>,
}

/// Writes files.
#[async_trait]
pub trait FileWriter: Send + Sync {
    /// Whether `target` can be written, before anything runs for it.
    ///
    /// # Errors
    /// `Invalid` for an unknown format or option, and when there cannot be such a file.
    fn check(&self, target: &CopyTarget) -> farpool_model::Result<()>;

    /// Writes the rows and says how many there were. Unless it succeeds there is no new file, and an old one is as it was.
    ///
    /// # Errors
    /// What keeps the file from being written, and the first error of `batches`.
    async fn write(
        &self,
        target: &CopyTarget,
        schema: SchemaRef,
        batches: BatchStream,
    ) -> farpool_model::Result<u64>;
}

/// A planned COPY TO.
#[derive(Clone)]
pub(crate) struct Copy {
    writer: Arc<dyn FileWriter>,
    target: CopyTarget,
    rows: Rows,
}

/// The target of a statement, and the query whose rows go there.
///
/// # Errors
/// Only on a defect: the parser makes a query of a name.
pub(crate) fn taken_apart(copy: &CopyToStatement) -> Result<(CopyTarget, Statement)> {
    let mut target = CopyTarget { path: None, format: copy.stored_as.clone(), options: Vec::new() };
    target.path = (copy.target != STDOUT).then(|| copy.target.clone());
    for (name, value) in &copy.options {
        let value = match value {
            Value::SingleQuotedString(text) => text.clone(),
            other => other.to_string(),
        };
        match without_prefix(name) {
            "format" => target.format = Some(value),
            name => target.options.push((name.to_string(), value)),
        }
    }
    let CopyToSource::Query(query) = &copy.source else {
        return Err(error::wrap(Error::internal("COPY of a name that was not made a query")));
    };
    Ok((target, Statement::Statement(Box::new(SqlStatement::Query(query.clone())))))
}

impl Copy {
    /// Writes `rows` to `target` by `writer`, which has checked it.
    pub fn new(writer: Arc<dyn FileWriter>, target: CopyTarget, rows: Rows) -> Self {
        Copy { writer, target, rows }
    }

    /// The plan for the rows that are written.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The number of rows, or nothing where these go to standard output themselves.
    pub fn schema(&self) -> SchemaRef {
        Arc::new(match self.target.path {
            Some(_) => Schema::new(vec![Field::new("count", DataType::UInt64, false)]),
            None => Schema::empty(),
        })
    }

    /// Writes them.
    pub async fn run(&self) -> farpool_model::Result<BatchStream> {
        let batches = self.rows.start()?;
        let rows = self.writer.write(&self.target, self.rows.schema(), batches).await?;
        if self.target.path.is_none() {
            return Ok(futures::stream::empty().boxed());
        }
        let counted = RecordBatch::try_new(self.schema(), vec![Arc::new(UInt64Array::from(vec![rows]))]);
        let counted = counted.map_err(|error| Error::internal(error.to_string()))?;
        Ok(futures::stream::iter([Ok(counted)]).boxed())
    }
}
