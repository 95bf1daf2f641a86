//! Statements that change tables of a pool (the store that holds the tables): CREATE TABLE, UPDATE, DELETE and
//! TRUNCATE.
//!
//! A change reads one version of its table. If the pool can make the change itself, it does (`in_place.rs`), and rows
//! that are appended meanwhile are kept. Otherwise this process reads all rows and loads them again as a new version,
//! and the load succeeds only if the table is still at the version that was read (optimistic concurrency control). If
//! another change came first, the statement is planned again on the new version.
//!
//! Invariant: every row of the version is either changed or kept. Changed and kept rows are read by separate programs
//! (parts of a plan that the pool runs), so that the condition must give the same result in both: its subqueries are
//! evaluated once, in advance, and conditions with volatile functions such as `random()` are refused.

mod in_place;
mod subqueries;

use crate::pins::Pins;
use crate::rows::Rows;
use crate::table::PoolTable;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, RecordBatch, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion::common::not_impl_err;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{
    CreateMemoryTable, DmlStatement, Expr, Filter, LogicalPlan, Projection, WriteOp,
};
use farpool_model::{Error, ErrorKind, LoadMode, TableName, Version, cast};
use farpool_sql::error;
use farpool_transfer::{BatchStream, Pool};
use futures::{StreamExt, TryStreamExt, stream};
use in_place::{InPlace, counted};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A planned change of a table.
#[derive(Clone)]
pub(crate) enum Change {
    /// CREATE TABLE: creates a table, or replaces one.
    Create { pool: Arc<dyn Pool>, name: TableName, schema: SchemaRef, mode: LoadMode, rows: Rows },
    /// A change that has nothing to do, such as CREATE TABLE IF NOT EXISTS of an existing table.
    Nothing,
    /// TRUNCATE, or DELETE without a condition: removes all rows of a table.
    Empty(PoolTable),
    /// Replaces a table version by one in which some rows are changed or removed.
    Rewrite(Box<Rewrite>),
}

/// The plan of [`Change::Rewrite`].
#[derive(Clone)]
pub(crate) struct Rewrite {
    table: PoolTable,
    /// The version of the table that the change reads, and that must still be the newest when the new version is
    /// loaded.
    version: Version,
    changed: Changed,
    /// Reads the rows that do not satisfy the condition and stay as they are; `None` if every row is changed.
    kept: Option<Rows>,
    /// Plan by which the pool makes the change itself; `None` if it cannot.
    in_place: Option<InPlace>,
}

/// Reads the rows that satisfy the condition.
#[derive(Clone)]
enum Changed {
    /// UPDATE: the rows with their new values.
    Updated(Rows),
    /// DELETE: only the number of the rows.
    Deleted(Rows),
}

/// Refuses a CREATE TABLE of what tables of pools do not have.
pub(crate) fn check_create(create: &CreateMemoryTable) -> Result<()> {
    if create.temporary {
        return not_impl_err!("temporary tables");
    }
    if create.constraints.iter().next().is_some() {
        return not_impl_err!("constraints on the tables of a pool, such as PRIMARY KEY");
    }
    if !create.column_defaults.is_empty() {
        return not_impl_err!("defaults of columns of the tables of a pool");
    }
    Ok(())
}

/// Plans CREATE TABLE of the table `name` in `pool`.
pub(crate) async fn create(
    state: &Arc<SessionState>,
    pool: Arc<dyn Pool>,
    name: TableName,
    create: &CreateMemoryTable,
) -> Result<Change> {
    check_create(create)?;
    let exists = match pool.table(&name).await {
        Ok(_) => true,
        Err(error) if error.kind == ErrorKind::NotFound => false,
        Err(error) => return Err(error::wrap(error)),
    };
    if exists && create.if_not_exists {
        return Ok(Change::Nothing);
    }
    let mode = if create.or_replace { LoadMode::Replace } else { LoadMode::Create };
    let schema = create.input.schema().as_arrow();
    // All columns are nullable if the table is created from a query: values that the query cannot make NULL may be set
    // to NULL later.
    let schema = match &*create.input {
        LogicalPlan::EmptyRelation(_) => schema.clone(),
        _ => Schema::new(
            schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect::<Vec<_>>(),
        ),
    };
    farpool_model::schema::canonical_schema(&schema).map_err(error::wrap)?;
    let rows = Rows::plan(state, &create.input).await?;
    Ok(Change::Create { pool, name, schema: Arc::new(schema), mode, rows })
}

/// Plans UPDATE, DELETE or TRUNCATE of `table`.
pub(crate) async fn change(
    state: &Arc<SessionState>,
    dml: &DmlStatement,
    table: PoolTable,
) -> Result<Change> {
    match (&dml.op, &*dml.input) {
        (WriteOp::Truncate, _) => Ok(Change::Empty(table)),
        (WriteOp::Delete, input) if is_table(input) => Ok(Change::Empty(table)),
        (WriteOp::Delete, LogicalPlan::Filter(filter)) if is_table(&filter.input) => {
            let filter = settled(state, filter).await?;
            let kept = others(filter.clone())?;
            let filtered = LogicalPlan::Filter(filter);
            let in_place = InPlace::delete(state, &table, &filtered).await?;
            let deleted = Rows::plan(state, &counted(filtered)?).await?;
            rewrite(state, table, Changed::Deleted(deleted), Some(kept), in_place).await
        }
        (WriteOp::Update, LogicalPlan::Projection(new)) => match &*new.input {
            input if is_table(input) => {
                let in_place = InPlace::update(state, &table, input, new).await?;
                let changed = Changed::Updated(Rows::plan(state, &dml.input).await?);
                rewrite(state, table, changed, None, in_place).await
            }
            LogicalPlan::Filter(filter) if is_table(&filter.input) => {
                let filter = settled(state, filter).await?;
                let kept = others(filter.clone())?;
                let filtered = Arc::new(LogicalPlan::Filter(filter));
                let in_place = InPlace::update(state, &table, &filtered, new).await?;
                let updated = LogicalPlan::Projection(Projection::try_new(new.expr.clone(), filtered)?);
                let changed = Changed::Updated(Rows::plan(state, &updated).await?);
                rewrite(state, table, changed, Some(kept), in_place).await
            }
            _ => not_impl_err!("UPDATE with FROM"),
        },
        (WriteOp::Delete, LogicalPlan::Limit(_)) => not_impl_err!("DELETE with LIMIT"),
        (op, _) => not_impl_err!("{} of a table of a pool in this form", op.name()),
    }
}

/// Returns whether the plan is a table scan alone, perhaps with an alias.
fn is_table(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(_) => true,
        LogicalPlan::SubqueryAlias(alias) => matches!(&*alias.input, LogicalPlan::TableScan(_)),
        _ => false,
    }
}

/// Returns the filter with its subqueries replaced by their values, so that it gives the same result in the program
/// that reads the changed rows and in that which reads the kept rows. Fails for volatile filters, which could give
/// different results.
async fn settled(state: &Arc<SessionState>, filter: &Filter) -> Result<Filter> {
    let predicate = subqueries::computed(state, filter.predicate.clone()).await?;
    if predicate.is_volatile() {
        return not_impl_err!("a condition of UPDATE or DELETE that gives something else each time");
    }
    Filter::try_new(predicate, Arc::clone(&filter.input))
}

/// Returns the plan of the rows that do not pass `filter`: the condition is false or NULL.
fn others(filter: Filter) -> Result<LogicalPlan> {
    let predicate = Expr::IsNotTrue(Box::new(filter.predicate));
    Ok(LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?))
}

async fn rewrite(
    state: &Arc<SessionState>,
    table: PoolTable,
    changed: Changed,
    kept: Option<LogicalPlan>,
    in_place: Option<InPlace>,
) -> Result<Change> {
    if in_place.is_none() && table.info().version.is_moment() {
        return Err(error::wrap(only_in_place(&table)));
    }
    let kept = match kept {
        Some(kept) => Some(Rows::plan(state, &kept).await?),
        None => None,
    };
    // If no program has been prepared for the table (for instance because the condition is always false), no version is
    // pinned, and the described version is as good as any.
    let pins = state.config().get_extension::<Pins>();
    let version = pins.and_then(|pins| pins.version(&table)).unwrap_or(table.info().version);
    Ok(Change::Rewrite(Box::new(Rewrite { table, version, changed, kept, in_place })))
}

/// Returns the error for a change of key-value entries (of a keyspace that statements use as a table) which the pool
/// cannot make itself: entries are never read and loaded again, because other clients write them concurrently.
fn only_in_place(table: &PoolTable) -> Error {
    let name = table.info().name.as_str();
    let message = format!(
        "this change of space {name:?} has a condition or a value that the pool does not carry out itself"
    );
    Error::invalid(message).advise("use comparisons, LIKE, regular expressions and arithmetic; EXPLAIN of a SELECT with them tells what the pool carries out")
}

impl Change {
    /// Returns the schema of the statement's result: one column with the number of changed rows, or no columns.
    pub fn schema(&self) -> SchemaRef {
        match self {
            Change::Create { .. } | Change::Nothing => Arc::new(Schema::empty()),
            Change::Empty(_) | Change::Rewrite(_) => {
                Arc::new(Schema::new(vec![Field::new("count", DataType::UInt64, false)]))
            }
        }
    }

    /// Returns the plans by which the change reads rows.
    pub fn rows(&self) -> Vec<&Rows> {
        match self {
            Change::Create { rows, .. } => vec![rows],
            Change::Nothing | Change::Empty(_) => Vec::new(),
            Change::Rewrite(rewrite) => rewrite.rows(),
        }
    }

    /// Describes, as an indented block for EXPLAIN, what the pool does in addition to the programs of [`Change::rows`].
    pub fn explain(&self) -> Option<String> {
        match self {
            Change::Rewrite(rewrite) => rewrite.in_place.as_ref().map(InPlace::explain),
            Change::Create { .. } | Change::Nothing | Change::Empty(_) => None,
        }
    }

    /// Carries out the change.
    ///
    /// # Errors
    /// `Stale` if another change of the table came first.
    pub async fn run(&self) -> farpool_model::Result<BatchStream> {
        let count = match self {
            Change::Create { pool, name, schema, mode, rows } => {
                pool.load(name, (*mode).into(), Arc::clone(schema), None, rows.start()?).await?;
                None
            }
            Change::Nothing => None,
            Change::Empty(table) => Some(empty(table).await?),
            Change::Rewrite(rewrite) => Some(rewrite.run().await?),
        };
        let batch = count.map(|count| {
            let counts: ArrayRef = Arc::new(UInt64Array::from(vec![count]));
            RecordBatch::try_new(self.schema(), vec![counts]).map_err(|e| Error::internal(e.to_string()))
        });
        Ok(stream::iter(batch).boxed())
    }
}

/// Removes all rows of a table, and returns their number.
async fn empty(table: &PoolTable) -> farpool_model::Result<u64> {
    let info = table.pool().table(&table.info().name).await?;
    if info.rows > 0 {
        replace(table, info.version, stream::empty().boxed()).await?;
    }
    Ok(info.rows)
}

/// Loads `rows` as the new version of the table, in place of `version`.
async fn replace(table: &PoolTable, version: Version, rows: BatchStream) -> farpool_model::Result<()> {
    let (name, schema) = (&table.info().name, Arc::clone(&table.info().schema));
    table.pool().load(name, LoadMode::ReplaceVersion(version).into(), schema, None, rows).await.map(|_| ())
}

impl Rewrite {
    fn rows(&self) -> Vec<&Rows> {
        if let Some(in_place) = &self.in_place {
            return vec![in_place.rows()];
        }
        let (Changed::Updated(changed) | Changed::Deleted(changed)) = &self.changed;
        self.kept.iter().chain([changed]).collect()
    }

    /// Returns the name of the table.
    pub fn table(&self) -> &TableName {
        &self.table.info().name
    }

    /// Counts the rows that will be changed. The change can be carried out afterwards.
    pub async fn count(&self) -> farpool_model::Result<u64> {
        let add = |count, batch: RecordBatch| async move { Ok(count + cast::u64_from(batch.num_rows())) };
        let count = match (&self.in_place, &self.changed) {
            (Some(in_place), _) => sum(in_place.rows().start()?).await?,
            (None, Changed::Deleted(rows)) => sum(rows.start()?).await?,
            (None, Changed::Updated(rows)) => rows.start()?.try_fold(0, add).await?,
        };
        // A plan that has started cannot run again.
        for rows in self.rows() {
            rows.renew().await.map_err(error::unwrap)?;
        }
        Ok(count)
    }

    async fn run(&self) -> farpool_model::Result<u64> {
        if let Some(in_place) = &self.in_place {
            match in_place.run().await {
                // The pool refuses a change in place if a row group would become too large. Loading the rows again
                // splits such row groups, so that it may still succeed.
                Err(error) if error.kind == ErrorKind::OverLimit && !self.version.is_moment() => {}
                outcome => return outcome,
            }
        }
        self.load().await
    }

    /// Loads the changed and the kept rows as a new version; returns the number of changed rows.
    async fn load(&self) -> farpool_model::Result<u64> {
        let rows_before = self.rows_before().await?;
        let (changed, kept) = <(Count, Count)>::default();
        let new = match &self.changed {
            Changed::Deleted(rows) => {
                changed.add(sum(rows.start()?).await?);
                stream::empty().boxed()
            }
            Changed::Updated(rows) => {
                let mut rows = rows.start()?;
                // If no row is changed, nothing is loaded and the version stays.
                let first = first_with_rows(&mut rows).await?;
                first.iter().for_each(|batch| changed.add(cast::u64_from(batch.num_rows())));
                stream::iter(first.map(Ok)).chain(changed.of(rows)).boxed()
            }
        };
        if changed.get() == 0 {
            return Ok(0);
        }
        let old = match &self.kept {
            // The kept rows are requested only after all changed rows have been read: a result that is waiting to be
            // read holds memory.
            Some(rows) => {
                let rows = rows.clone();
                kept.of(stream::once(async move { rows.start() }).try_flatten().boxed())
            }
            None => stream::empty().boxed(),
        };
        let (all_changed, all_kept) = (changed.clone(), kept);
        let checked = stream::once(async move {
            let rows = all_changed.get() + all_kept.get();
            match rows == rows_before {
                true => None,
                false => Some(Err(Error::internal(format!(
                    "a change would make {rows} rows of {rows_before}; nothing was changed"
                )))),
            }
        });
        let rows = new.chain(old).chain(checked.filter_map(std::future::ready));
        replace(&self.table, self.version, rows.boxed()).await?;
        Ok(changed.get())
    }

    /// Returns the number of rows of the version that the change reads.
    async fn rows_before(&self) -> farpool_model::Result<u64> {
        let info = self.table.pool().table(&self.table.info().name).await?;
        match info.version == self.version {
            true => Ok(info.rows),
            false => {
                let (name, read) = (info.name.as_str(), self.version);
                Err(Error::stale(format!("table {name:?} is at version {}, not {read}", info.version)))
            }
        }
    }
}

/// Counts rows that pass through a stream.
#[derive(Clone, Default)]
struct Count(Arc<AtomicU64>);

impl Count {
    fn add(&self, rows: u64) {
        self.0.fetch_add(rows, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts the rows of `batches` as they pass.
    fn of(&self, batches: BatchStream) -> BatchStream {
        let count = self.clone();
        batches.inspect_ok(move |batch| count.add(cast::u64_from(batch.num_rows()))).boxed()
    }
}

async fn first_with_rows(batches: &mut BatchStream) -> farpool_model::Result<Option<RecordBatch>> {
    while let Some(batch) = batches.try_next().await? {
        if batch.num_rows() > 0 {
            return Ok(Some(batch));
        }
    }
    Ok(None)
}

/// Adds up the values of a stream with one column of counts.
async fn sum(batches: BatchStream) -> farpool_model::Result<u64> {
    let add = |so_far: u64, batch: RecordBatch| async move {
        let counts = batch.column(0).as_primitive_opt::<Int64Type>();
        let counts = counts.ok_or_else(|| Error::internal("a count of rows is of another type"))?;
        let more = counts.values().iter().map(|count| u64::try_from(*count).unwrap_or(0)).sum::<u64>();
        Ok(so_far + more)
    };
    batches.try_fold(0, add).await
}
