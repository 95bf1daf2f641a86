//! Statements that change something, with values for their parameters in one or more rows.

use super::convert::rows as count_of;
use super::options::Options;
use super::prepared::Prepared;
use super::running::Running;
use super::statements::{Asked, plan};
use super::uploads::Upload;
use super::users::User;
use crate::postgres::commands::Kind;
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use farpool_datafusion::{Parameters, Statement};
use farpool_memory::Reservation;
use farpool_model::{Error, LoadMode, Result, TableName, limits};
use farpool_transfer::Pool;
use futures::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;

/// Rows of single values that are put together.
const ROWS_TOGETHER: usize = 1024;

/// Runs a statement that changes something; returns the number of rows that it has changed.
pub(super) async fn update(user: &User, asked: &Asked, options: &Options, values: Parameters) -> Result<u64> {
    check(asked)?;
    let running = user.executions.begin(rand::random(), options.timeout);
    run(user, asked, values, &running).await
}

/// Runs a prepared statement that changes something, once for each row of values. The rows of an INSERT appear at once,
/// or none does; another statement is carried out row by row.
pub(super) async fn update_prepared(
    user: &User,
    prepared: &Prepared,
    options: &Options,
    mut upload: Upload,
) -> Result<u64> {
    let asked = &prepared.asked;
    check(asked)?;
    let running = user.executions.begin(rand::random(), options.timeout);
    let mut changes = Changes::new(user, prepared, &running);
    while let Some(batch) = upload.next().await? {
        changes.add(&batch).await?;
    }
    // Some clients give the values first, and ask for the change without any.
    if !changes.has_values {
        for batch in prepared.binding().rows {
            changes.add(&batch).await?;
        }
    }
    changes.end().await
}

/// A statement that is carried out for rows of values.
struct Changes<'a> {
    user: &'a User,
    prepared: &'a Prepared,
    running: &'a Running,
    has_values: bool,
    /// The first row of an INSERT, as long as it is the only one.
    first: Option<Parameters>,
    inserted: Inserted,
    count: u64,
}

impl<'a> Changes<'a> {
    fn new(user: &'a User, prepared: &'a Prepared, running: &'a Running) -> Self {
        let inserted = Inserted::new(user.engine.work.empty());
        Changes { user, prepared, running, has_values: false, first: None, inserted, count: 0 }
    }

    /// Carries out the statement for the rows of a batch. Those of an INSERT are only computed.
    async fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let Changes { user, prepared, running, .. } = *self;
        let is_insert = matches!(prepared.asked.kind, Kind::Changes(tag) if tag.starts_with("INSERT"));
        // A batch without columns has no values: drivers send one for a statement without parameters.
        let rows = if batch.num_columns() == 0 { 0 } else { batch.num_rows() };
        for row in 0..rows {
            let values = prepared.values(batch, row);
            if !is_insert {
                self.count += run(user, &prepared.asked, values, running).await?;
            } else if !self.has_values {
                self.first = Some(values);
            } else {
                if let Some(first) = self.first.take() {
                    self.inserted.add(user, &prepared.asked, first, running).await?;
                }
                self.inserted.add(user, &prepared.asked, values, running).await?;
            }
            self.has_values = true;
        }
        Ok(())
    }

    /// Carries out what is left; returns the number of rows that were changed.
    async fn end(self) -> Result<u64> {
        let Changes { user, prepared, running, .. } = self;
        match (self.has_values, self.first) {
            (false, _) => run(user, &prepared.asked, Parameters::None, running).await,
            (true, Some(values)) => run(user, &prepared.asked, values, running).await,
            (true, None) => Ok(self.count + self.inserted.load(user, running).await?),
        }
    }
}

fn check(asked: &Asked) -> Result<()> {
    match asked.returns_rows() {
        true => Err(Error::invalid("the statement returns rows, and changes nothing")
            .advise("run it as a query rather than as an update")),
        false => Ok(()),
    }
}

async fn run(user: &User, asked: &Asked, values: Parameters, running: &Running) -> Result<u64> {
    let query = plan(user, asked, values, running).await?;
    let counted = running
        .guard(async move {
            let batches: Vec<RecordBatch> = query.execute().await?.try_collect().await?;
            let count = |batch: &RecordBatch| {
                let column = batch.columns().first()?.as_primitive_opt::<UInt64Type>()?;
                Some(column.values().iter().sum::<u64>())
            };
            Ok(batches.iter().filter_map(count).sum())
        })
        .await;
    user.engine.catalog.forget();
    counted
}

/// The rows of an INSERT that is carried out for several rows of values.
struct Inserted {
    into: Option<(TableName, SchemaRef, Arc<dyn Pool>)>,
    /// Rows that were put together, and those that were not yet.
    batches: Vec<RecordBatch>,
    single: Vec<RecordBatch>,
    memory: Reservation,
}

impl Inserted {
    fn new(memory: Reservation) -> Self {
        Inserted { into: None, batches: Vec::new(), single: Vec::new(), memory }
    }

    /// Computes the rows for these values.
    async fn add(&mut self, user: &User, asked: &Asked, values: Parameters, running: &Running) -> Result<()> {
        let session = user.session_in(asked.in_schema.as_deref());
        let statement = Statement::from(asked.text.as_str()).with_parameters(values);
        let staged = running.guard(async move {
            let change = session.stage(&statement, None, None).await?;
            let change = change.ok_or_else(|| {
                Error::invalid("an INSERT in this form is not done for several rows of values")
                    .advise("run it once for each row")
            })?;
            let rows: Vec<RecordBatch> = change.rows()?.try_collect().await?;
            Ok((change.table.clone(), Arc::clone(&change.schema), Arc::clone(&change.pool), rows))
        });
        let (table, schema, pool, rows) = staged.await?;
        match &self.into {
            None => self.into = Some((table, schema, pool)),
            Some((known, columns, _)) if *known == table && *columns == schema => {}
            Some(_) => return Err(Error::stale("the table has changed while rows were inserted")),
        }
        self.single.extend(rows.into_iter().filter(|rows| rows.num_rows() > 0));
        match self.single.len() < ROWS_TOGETHER {
            true => Ok(()),
            false => self.put_together(),
        }
    }

    fn put_together(&mut self) -> Result<()> {
        let Some((_, schema, _)) = self.into.as_ref().filter(|_| !self.single.is_empty()) else {
            return Ok(());
        };
        let rows = concat_batches(schema, &std::mem::take(&mut self.single))
            .map_err(|error| Error::internal(format!("rows that do not go together: {error}")))?;
        let bytes = rows.get_array_memory_size();
        if self.memory.bytes() + bytes > limits::POSTGRES_STAGED_BYTES_MAX {
            let most = limits::POSTGRES_STAGED_BYTES_MAX;
            return Err(Error::over_limit(format!("the rows of one request may have {most} bytes"))
                .advise("send them in several requests, or load them by bulk ingestion"));
        }
        self.memory.try_grow(bytes)?;
        self.batches.push(rows);
        Ok(())
    }

    /// Loads the rows; returns their number.
    async fn load(mut self, user: &User, running: &Running) -> Result<u64> {
        self.put_together()?;
        let Some((table, schema, pool)) = self.into else { return Ok(0) };
        let rows = count_of(&self.batches);
        let batches = stream::iter(self.batches.into_iter().map(Ok)).boxed();
        let load =
            async move { pool.load(&table, LoadMode::Append.into(), schema, Some(rows), batches).await };
        let loaded = running.guard(load).await;
        user.engine.catalog.forget();
        loaded.map(|_| rows)
    }
}
