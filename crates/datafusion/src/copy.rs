//! COPY TO: passes the rows of a query, wherever its parts run, to a file writer.

use crate::rows::Rows;
use arrow_array::{RecordBatch, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::common::Result;
use datafusion::sql::parser::{CopyToSource, CopyToStatement, Statement};
use datafusion::sql::sqlparser::ast::{Statement as SqlStatement, Value};
use farpool_model::Error;
use farpool_sql::dialect::{STDOUT, without_prefix};
use farpool_sql::error;
use farpool_transfer::BatchStream;
use futures::StreamExt;
use std::sync::Arc;

/// The destination of COPY TO, as written in the statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyTarget {
    /// Path of the file; standard output if `None`.
    pub path: Option<String>,
    /// The format, if the statement specifies one.
    pub format: Option<String>,
    /// The options of the statement: names in lower case, values as strings.
    pub options: Vec<(String, String)>,
}

/// Writes the rows of COPY TO to files. The program that embeds the engine provides it, because it knows the formats.
#[async_trait]
pub trait FileWriter: Send + Sync {
    /// Checks, before the statement runs, that the writer can write to `target`.
    ///
    /// # Errors
    /// `Invalid` for an unknown format or option, and if the file cannot be created.
    fn check(&self, target: &CopyTarget) -> farpool_model::Result<()>;

    /// Writes the rows and returns their number. On failure no new file is created, and an existing one is
    /// unchanged.
    ///
    /// # Errors
    /// Fails if the file cannot be written; otherwise the first error of `batches`.
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

/// Returns the target of a statement, and the query whose rows are written.
///
/// # Errors
/// Fails only on a bug in this crate: the parser turns a table name into a query.
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
    /// Creates a plan that writes `rows` to `target` with `writer`, which has checked the target.
    pub fn new(writer: Arc<dyn FileWriter>, target: CopyTarget, rows: Rows) -> Self {
        Copy { writer, target, rows }
    }

    /// Returns the plan of the rows that are written.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Returns the schema of the result: the number of rows, or no columns if the rows are written to standard output.
    pub fn schema(&self) -> SchemaRef {
        Arc::new(match self.target.path {
            Some(_) => Schema::new(vec![Field::new("count", DataType::UInt64, false)]),
            None => Schema::empty(),
        })
    }

    /// Writes the rows.
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
