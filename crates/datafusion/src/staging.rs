//! Changes whose rows are computed now and loaded later: those of a transaction, which take effect at its end.

use crate::catalog;
use crate::changes;
use crate::describe::{Snapshot, Unfilled};
use crate::pins::Pins;
use crate::rows::Rows;
use crate::session::Session;
use arrow_array::RecordBatch;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{Schema, SchemaRef};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{DdlStatement, LogicalPlan, WriteOp};
use farpool_model::schema::canonical_schema;
use farpool_model::{Error, ErrorKind, Result, TableName};
use farpool_sql::{Statement, dialect, error};
use farpool_transfer::BatchStream;
use futures::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;

/// An INSERT or a CREATE TABLE whose rows are not loaded yet.
pub struct StagedChange {
    /// The table that the rows go into.
    pub table: TableName,
    /// The columns of the table.
    pub schema: SchemaRef,
    /// Whether the table is created.
    pub creates: bool,
    /// The plan of the rows; `None` if there are none.
    rows: Option<Rows>,
}

impl StagedChange {
    /// Computes the rows, in the types of the table.
    ///
    /// # Errors
    /// Errors that occur before the first row; later ones are those of the stream.
    pub fn rows(&self) -> Result<BatchStream> {
        let Some(rows) = &self.rows else { return Ok(stream::empty().boxed()) };
        let schema = Arc::clone(&self.schema);
        Ok(rows.start()?.and_then(move |batch| std::future::ready(fitted(&batch, &schema))).boxed())
    }
}

/// Returns a batch with the columns of a table.
fn fitted(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let fitted = batch.columns().iter().zip(schema.fields());
    let fitted = fitted.map(|(column, field)| cast_with_options(column, field.data_type(), &options));
    let columns = fitted.collect::<Result<Vec<_>, _>>().map_err(|error| Error::invalid(error.to_string()))?;
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(|error| Error::invalid(error.to_string()))
}

impl Session {
    /// Plans an INSERT or a CREATE TABLE, of which the rows are to be loaded later; `None` for any other statement. The
    /// rows are read as `snapshot` has them.
    ///
    /// # Errors
    /// The errors of [`Session::sql`].
    pub async fn stage(
        &self,
        statement: &Statement,
        snapshot: Option<&Snapshot>,
    ) -> Result<Option<StagedChange>> {
        let scope = self.scope();
        scope
            .keep(async {
                let staged = self.staged(statement, snapshot).await;
                self.explained(staged, statement).await
            })
            .await
    }

    async fn staged(
        &self,
        statement: &Statement,
        snapshot: Option<&Snapshot>,
    ) -> Result<Option<StagedChange>, DataFusionError> {
        self.home.forget();
        let mut state = self.context().state();
        let pins = Pins::of_last_attempt(snapshot.map(Snapshot::versions));
        state.config_mut().set_extension(Arc::new(pins));
        if !statement.tables.is_empty() {
            let catalogs = catalog::with_tables(&**state.catalog_list(), &self.home, &statement.tables)?;
            state.register_catalog_list(catalogs);
        }
        let parsed = dialect::parse(&state, &statement.text)?.statement;
        catalog::check_given(self, &state, &parsed, &statement.tables).await?;
        let Unfilled { state, plan, used, .. } = self.unfilled(state, parsed, &statement.parameters).await?;
        match statement.parameters.fill_in(plan, &used)? {
            LogicalPlan::Dml(dml) if matches!(dml.op, WriteOp::Insert(InsertOp::Append)) => {
                let table = self.table_name(&dml.table_name)?;
                let schema = dml.target.schema();
                let rows = Some(Rows::plan(&state, &dml.input).await?);
                Ok(Some(StagedChange { table, schema, creates: false, rows }))
            }
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) if !create.or_replace => {
                let table = self.table_name(&create.name)?;
                let Some(pool) = self.pool_for(&create.name)? else { return Ok(None) };
                changes::check_create(&create)?;
                match pool.pool().table(&table).await {
                    Err(error) if error.kind == ErrorKind::NotFound => {}
                    Err(error) => return Err(error::wrap(error)),
                    Ok(info) if create.if_not_exists => {
                        let schema = Arc::clone(&info.schema);
                        return Ok(Some(StagedChange { table, schema, creates: false, rows: None }));
                    }
                    Ok(_) => {
                        let message = format!("there is a table {:?} already", table.as_str());
                        return Err(error::wrap(Error::new(ErrorKind::Exists, message)));
                    }
                }
                let is_empty = matches!(*create.input, LogicalPlan::EmptyRelation(_));
                let schema = create.input.schema().as_arrow();
                let fields = schema.fields().iter().map(|field| match is_empty {
                    true => field.as_ref().clone(),
                    // As in a CREATE TABLE that is not staged, values of a query may be set to NULL later.
                    false => field.as_ref().clone().with_nullable(true),
                });
                let schema =
                    canonical_schema(&Schema::new(fields.collect::<Vec<_>>())).map_err(error::wrap)?;
                let rows = if is_empty { None } else { Some(Rows::plan(&state, &create.input).await?) };
                Ok(Some(StagedChange { table, schema, creates: true, rows }))
            }
            _ => Ok(None),
        }
    }
}
