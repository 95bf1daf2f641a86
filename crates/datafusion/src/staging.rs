//! Changes of a transaction, which take effect at its end: rows that are computed now and loaded later, and statements that
//! are carried out as a whole later.

use crate::catalog::{self, Found};
use crate::changes::{self, Change};
use crate::describe::{Snapshot, Unfilled};
use crate::pins::Pins;
use crate::query::{Command, Planned};
use crate::rows::Rows;
use crate::session::Session;
use arrow_array::RecordBatch;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{Schema, SchemaRef};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{DdlStatement, LogicalPlan, WriteOp};
use farpool_model::schema::canonical_schema;
use farpool_model::{Error, ErrorKind, LoadMode, Result, TableName};
use farpool_sql::{Statement, dialect, error};
use farpool_transfer::{BatchStream, Pool};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use std::fmt;
use std::sync::Arc;

/// An INSERT or a CREATE TABLE whose rows are not loaded yet.
pub struct StagedChange {
    /// The pool that the rows go to.
    pub pool: Arc<dyn Pool>,
    /// The table that the rows go into.
    pub table: TableName,
    /// The columns of the table.
    pub schema: SchemaRef,
    /// The mode in which the rows are loaded.
    pub mode: LoadMode,
    /// The plan of the rows; `None` if there are none.
    rows: Option<Rows>,
}

/// A statement that a transaction carries out at its end.
pub enum Held {
    /// Nothing is to be done.
    Nothing,
    /// The removal of all rows of a table, in place of which others may be loaded.
    Emptied {
        /// Loads nothing in place of the version that was read.
        change: StagedChange,
        /// The number of rows that are removed.
        rows: u64,
    },
    /// Any other one.
    Change(Arc<HeldChange>),
}

/// An UPDATE or a DELETE, or a change of tables, views or schemas, that is not carried out yet.
pub struct HeldChange {
    session: Session,
    planned: Planned,
    /// The table or view that is changed; `None` for a schema.
    pub table: Option<TableName>,
    /// Whether the table is dropped.
    pub drops: bool,
    /// The number of rows that are changed.
    pub rows: u64,
}

impl fmt::Debug for HeldChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldChange").field("table", &self.table).finish_non_exhaustive()
    }
}

impl HeldChange {
    /// Carries out the change.
    ///
    /// # Errors
    /// `Stale` if another change of the rows came first; nothing is changed then.
    pub fn run(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let carried_out = async { self.planned.start().await?.try_for_each(|_| async { Ok(()) }).await };
            self.session.scope().keep(carried_out).await
        }
        .boxed()
    }

    /// Returns whether a statement reads what is changed, perhaps by way of a view. It would see what was before.
    ///
    /// # Errors
    /// Errors of a pool that cannot be asked.
    pub fn is_read_by<'a>(&'a self, statement: &'a Statement) -> BoxFuture<'a, Result<bool>> {
        self.is_named_in(statement).boxed()
    }

    async fn is_named_in(&self, statement: &Statement) -> Result<bool> {
        let state = self.session.context().state();
        let Ok(parsed) = dialect::parse(&state, &statement.text) else { return Ok(false) };
        let Ok(references) = state.resolve_table_references(&parsed.statement) else { return Ok(false) };
        for reference in &references {
            match self.session.find(reference).await {
                Ok(Some((_, Found::View(_)))) => return Ok(true),
                Ok(Some((_, Found::Table(table)))) if Some(&table.info().name) == self.table.as_ref() => {
                    return Ok(true);
                }
                // What is not there is told when the statement is planned.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(false)
    }
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
    /// Plans a statement that is to be carried out as a whole later; `None` for any other statement. The rows that it changes
    /// are those that `snapshot` has.
    ///
    /// # Errors
    /// The errors of [`Session::sql`].
    pub fn hold<'a>(
        &'a self,
        statement: &'a Statement,
        snapshot: Option<&'a Snapshot>,
    ) -> BoxFuture<'a, Result<Option<Held>>> {
        async move {
            let held = async {
                let planned = self.plan_again(statement, snapshot.map(Snapshot::versions)).await?;
                self.held(planned, snapshot).await
            };
            self.scope().keep(held).await
        }
        .boxed()
    }

    async fn held(&self, planned: Planned, snapshot: Option<&Snapshot>) -> Result<Option<Held>> {
        let mut rows = 0;
        let (table, drops) = match &planned {
            Planned::Command(Command::Change(Change::Nothing)) => return Ok(Some(Held::Nothing)),
            Planned::Command(Command::Change(Change::Empty(table))) => {
                let info = table.pool().table(&table.info().name).await?;
                let read = snapshot.and_then(|snapshot| snapshot.versions().version(table));
                if read.is_some_and(|read| read != info.version) {
                    // Rows that came since would go, too.
                    let message = format!("table {:?} was changed since the snapshot", info.name.as_str());
                    return Err(Error::new(ErrorKind::Stale, message).advise("run the transaction again"));
                }
                let mode = LoadMode::ReplaceVersion(info.version);
                let pool = Arc::clone(table.pool());
                let change = StagedChange { pool, table: info.name, schema: info.schema, mode, rows: None };
                return Ok(Some(Held::Emptied { change, rows: info.rows }));
            }
            Planned::Command(Command::Change(Change::Rewrite(rewrite))) => {
                rows = rewrite.count().await?;
                (Some(rewrite.table().clone()), false)
            }
            Planned::Command(Command::Change(Change::Create { .. })) => return Ok(None),
            Planned::Command(Command::DropTable(_, table)) => (Some(table.clone()), true),
            Planned::Command(Command::AlterTable(_, table, _) | Command::DropView(_, table)) => {
                (Some(table.clone()), false)
            }
            Planned::Command(Command::CreateView(_, view, _)) => (Some(view.name().clone()), false),
            Planned::Command(Command::ChangeSchema(..)) => (None, false),
            Planned::Command(Command::Plan(..) | Command::Copy(_)) | Planned::Rows(_) => return Ok(None),
        };
        let session = self.clone();
        Ok(Some(Held::Change(Arc::new(HeldChange { session, planned, table, drops, rows }))))
    }

    /// Plans an INSERT or a CREATE TABLE, of which the rows are to be loaded later; `None` for any other statement. The
    /// rows are read as `snapshot` has them. `dropped` is a table that counts as dropped.
    ///
    /// # Errors
    /// The errors of [`Session::sql`].
    pub fn stage<'a>(
        &'a self,
        statement: &'a Statement,
        snapshot: Option<&'a Snapshot>,
        dropped: Option<&'a TableName>,
    ) -> BoxFuture<'a, Result<Option<StagedChange>>> {
        async move {
            let staged = async {
                let staged = self.staged(statement, snapshot, dropped).await;
                self.explained(staged, statement).await
            };
            self.scope().keep(staged).await
        }
        .boxed()
    }

    async fn staged(
        &self,
        statement: &Statement,
        snapshot: Option<&Snapshot>,
        dropped: Option<&TableName>,
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
                // A table of the transaction is in no pool yet.
                let pool = match self.find(&dml.table_name).await? {
                    Some((pool, _)) => Some(pool),
                    None => self.pool_for(&dml.table_name)?,
                };
                let Some(pool) = pool else { return Ok(None) };
                let rows = Some(Rows::plan(&state, &dml.input).await?);
                let pool = Arc::clone(pool.pool());
                Ok(Some(StagedChange { pool, table, schema, mode: LoadMode::Append, rows }))
            }
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) if !create.or_replace => {
                let table = self.table_name(&create.name)?;
                let Some(pool) = self.pool_for(&create.name)? else { return Ok(None) };
                let pool = Arc::clone(pool.pool());
                changes::check_create(&create)?;
                let mut mode = LoadMode::Create;
                match pool.table(&table).await {
                    Ok(_) if dropped == Some(&table) => mode = LoadMode::Replace,
                    Err(error) if error.kind == ErrorKind::NotFound => {}
                    Err(error) => return Err(error::wrap(error)),
                    Ok(info) if create.if_not_exists => {
                        let schema = Arc::clone(&info.schema);
                        let mode = LoadMode::Append;
                        return Ok(Some(StagedChange { pool, table, schema, mode, rows: None }));
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
                Ok(Some(StagedChange { pool, table, schema, mode, rows }))
            }
            _ => Ok(None),
        }
    }
}
