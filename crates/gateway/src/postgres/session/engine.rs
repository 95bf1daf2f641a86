//! Statements of the engine: planning, running, and the rows that come.

use super::super::commands::Kind;
use super::explain::{Explained, QUERY_PLAN};
use super::{Outcome, Place, Session, Started, Stop};
use crate::postgres::catalog::names_objects;
use crate::postgres::link::Gone;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{Schema, SchemaRef};
use farpool_datafusion::{Interrupt, Parameters, Statement};
use farpool_model::{Error, ErrorKind, Result};
use farpool_postgres::failure::{Failure, code};
use farpool_postgres::messages::{Format, format_at};
use farpool_postgres::output::TransactionStatus;
use farpool_postgres::types::is_json;
use farpool_postgres::values::{Columns, Style};
use farpool_sql::json_texts;
use farpool_transfer::BatchStream;
use futures::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A statement whose rows are being read.
pub(super) struct Running {
    rows: BatchStream,
    schema: SchemaRef,
    formats: Vec<Format>,
    style: Style,
    /// The rows that have come and are not all sent.
    current: Option<Current>,
    /// The number of rows that were sent.
    count: u64,
    tag: &'static str,
    pub statement: Interrupt,
    deadline: Option<(Instant, Duration)>,
}

/// A batch of rows, and the number of those that are sent.
struct Current {
    batch: RecordBatch,
    columns: Columns,
    sent: usize,
}

impl Running {
    /// Returns a statement whose rows are there.
    pub fn of_batch(batch: RecordBatch, tag: &'static str, statement: Interrupt, style: Style) -> Self {
        let schema = batch.schema();
        Running::new((stream::iter([Ok(batch)]).boxed(), schema), tag, statement, style)
    }

    /// Returns a statement whose rows, with these columns, are being computed.
    fn new(
        (rows, schema): (BatchStream, SchemaRef),
        tag: &'static str,
        statement: Interrupt,
        style: Style,
    ) -> Self {
        let (formats, current, count, deadline) = Default::default();
        Running { rows, schema, formats, style, current, count, tag, statement, deadline }
    }

    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Sets the formats of the columns.
    pub fn set_formats(&mut self, formats: Vec<Format>) {
        self.formats = formats;
    }

    /// Sets the formats of the rows that are not sent yet, and when sending some of them must have ended.
    pub fn go_on(&mut self, formats: &[Format], deadline: Option<(Instant, Duration)>) -> Result<()> {
        self.deadline = deadline;
        if self.formats == formats {
            return Ok(());
        }
        self.formats = formats.to_vec();
        if let Some(current) = &mut self.current {
            let style = self.style.clone();
            current.columns = Columns::new(&current.batch, |place| format_at(formats, place), style)?;
        }
        Ok(())
    }

    /// Returns the number of rows that were sent.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Takes the rows that have come, which count as sent.
    pub fn take_current(&mut self) -> Option<Columns> {
        let Current { columns, sent, .. } = self.current.take()?;
        self.count += farpool_model::cast::u64_from(columns.rows() - sent);
        Some(columns)
    }

    /// Returns the tag that tells the end of the statement, of which `before` rows were sent earlier.
    pub fn tag(&self, before: u64) -> String {
        match self.tag {
            "SELECT" => format!("SELECT {}", self.count - before),
            tag => tag.to_string(),
        }
    }
}

impl Session {
    /// Runs a statement of the engine. One that returns rows has begun when this returns, and any other has ended.
    pub(super) async fn run_engine(
        &mut self,
        kind: Kind,
        place: Place<'_>,
        values: Parameters,
    ) -> Outcome<Started> {
        if kind == Kind::Refused {
            let failure = Failure::new(code::FEATURE_NOT_SUPPORTED, "this statement is not done");
            return Err(failure
                .hint("tables, views and schemas can be made, and plans shown of queries")
                .into());
        }
        let text = self.with_own_values(place.text, true)?;
        let place = Place { text: &text, ..place };
        if names_objects(place.text) {
            self.refresh_catalog().await?;
        }
        let explained = match kind {
            Kind::Explain => Explained::of(place.text)?,
            _ => None,
        };
        if let Some(explained) = explained.as_ref().filter(|explained| !explained.is_carried_out) {
            return self.explain(explained, place, values).await;
        }
        let changes = !kind.returns_rows();
        match changes {
            false => self.check_held(place.text).await?,
            true => {
                self.transaction.check_change(&self.settings)?;
                if self.transaction.status() != TransactionStatus::Idle {
                    return self.stage(kind, place, values).await;
                }
            }
        }
        let statement = self.entry.running.begin();
        let deadline = self.deadline();
        let session = self.engine_session();
        let text = match explained {
            Some(explained) => Statement::from(format!("EXPLAIN ANALYZE {}", explained.text).as_str()),
            None => Statement::from(place.text),
        };
        let text = self.transaction.shown_to(text.with_parameters(values));
        let snapshot = self.transaction.snapshot().cloned();
        let planned = async move {
            match snapshot {
                Some(snapshot) => session.sql_at(text, &snapshot).await,
                None => session.sql(text).await,
            }
        };
        let query = self.guarded(&statement, deadline, planned).await.map_err(|stop| placed(stop, place))?;
        if query.is_command() && !changes {
            // Such as SELECT … INTO: what it changes would not be that of a transaction.
            let failure = Failure::new(code::FEATURE_NOT_SUPPORTED, "a change in this form is not done");
            return Err(failure.hint("write CREATE TABLE … AS, or INSERT").into());
        }
        let schema = Arc::clone(query.schema());
        let executed = async move {
            let rows = query.execute().await?;
            // What a statement that changes something returns is the number of rows; it has ended when that is read.
            match query.is_command() {
                true => counted(rows).await.map(|count| (stream::empty().boxed(), Some(count))),
                false => Ok((rows, None)),
            }
        };
        let executed = self.guarded(&statement, deadline, executed).await;
        let (rows, count) = executed.map_err(|stop| placed(stop, place))?;
        if let Some(count) = count {
            self.engine.catalog.forget();
            self.entry.running.end();
            return Ok(Started::Done(match kind {
                Kind::Changes(tag) => format!("{tag} {count}"),
                Kind::CreateTableAs => format!("SELECT {count}"),
                Kind::Other(tag) => tag.to_string(),
                Kind::Rows | Kind::Explain | Kind::Refused => "OK".to_string(),
            }));
        }
        let style = self.settings.style.clone();
        let mut running = Running::new((rows, schema), "SELECT", statement, style);
        running.deadline = deadline;
        if kind != Kind::Explain {
            return Ok(Started::Rows(Box::new(running)));
        }
        let (statement, rows) = (running.statement.clone(), running.rows);
        let plan = self.guarded(&statement, deadline, rows.try_collect::<Vec<_>>()).await;
        let plan = told(&plan.map_err(|stop| placed(stop, place))?)?;
        let running = Running::of_batch(plan, "EXPLAIN", statement, self.settings.style.clone());
        Ok(Started::Rows(Box::new(running)))
    }

    /// Asks the pool for its tables, which functions of the catalog name.
    pub(super) async fn refresh_catalog(&mut self) -> Outcome {
        let catalog = Arc::clone(&self.engine.catalog);
        let statement = self.entry.running.begin();
        let asked = self.guarded(&statement, self.deadline(), async move { catalog.refresh().await }).await;
        self.entry.running.end();
        asked
    }

    /// Returns when a statement that begins now must have ended, and its time limit.
    pub(super) fn deadline(&self) -> Option<(Instant, Duration)> {
        self.settings.statement_timeout.map(|limit| (Instant::now() + limit, limit))
    }

    /// Returns the engine with the session's settings.
    pub(super) fn engine_session(&mut self) -> farpool_datafusion::Session {
        let Some(schema) = &self.settings.schema else { return self.engine.for_postgres.clone() };
        match &self.in_schema {
            Some((known, session)) if known == schema => session.clone(),
            _ => {
                let session = self.engine.for_postgres.in_schema(schema);
                self.in_schema = Some((schema.clone(), session.clone()));
                session
            }
        }
    }

    /// Sends up to `rows_max` rows of a statement. Returns whether it has no more.
    pub(super) async fn pump(&mut self, running: &mut Running, rows_max: u64) -> Outcome<bool> {
        self.go_through(running, rows_max, true).await
    }

    /// Goes through up to `rows_max` rows of a statement, and sends them if `is_sent`. Returns whether it has no more.
    pub(super) async fn go_through(
        &mut self,
        running: &mut Running,
        rows_max: u64,
        is_sent: bool,
    ) -> Outcome<bool> {
        let mut left = rows_max;
        loop {
            if let Some(Current { columns, sent, .. }) = &mut running.current {
                while *sent < columns.rows() && left > 0 {
                    if is_sent {
                        columns.put_row(*sent, &mut self.link.output)?;
                    }
                    *sent += 1;
                    running.count += 1;
                    left -= 1;
                    if is_sent {
                        self.link.send_if_full().await?;
                    }
                }
                if *sent < columns.rows() {
                    return Ok(false);
                }
                running.current = None;
            }
            if left == 0 {
                return Ok(false);
            }
            if !self.more(running).await? {
                return Ok(true);
            }
            // Other sessions get their turn, even if rows come and go without waiting.
            tokio::task::consume_budget().await;
        }
    }

    /// Waits for the next rows. Returns whether there are any.
    pub(super) async fn more(&mut self, running: &mut Running) -> Outcome<bool> {
        let Running { rows, statement, deadline, .. } = running;
        let next = self.guarded(statement, *deadline, async { rows.next().await.transpose() }).await?;
        let Some(batch) = next else { return Ok(false) };
        let (batch, formats) = (with_json(&batch)?, &running.formats);
        let columns = Columns::new(&batch, |place| format_at(formats, place), running.style.clone())?;
        running.current = Some(Current { batch, columns, sent: 0 });
        Ok(true)
    }

    /// Does work of a statement, until it ends, the client cancels it or goes, or its time is over.
    pub(super) async fn guarded<T>(
        &mut self,
        statement: &Interrupt,
        deadline: Option<(Instant, Duration)>,
        work: impl Future<Output = Result<T>>,
    ) -> Outcome<T> {
        let expired = async {
            match deadline {
                Some((end, _)) => sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        let outcome = tokio::select! {
            biased;
            // First, since what has been done must not be reported as cancelled.
            outcome = statement.run(work) => match outcome {
                Err(error) if error.kind == ErrorKind::Cancelled => Err(canceled("user request")),
                outcome => return outcome.map_err(Stop::from),
            },
            () = self.entry.running.cancelled(statement) => Err(canceled("user request")),
            () = self.link.watch() => {
                statement.stop();
                return Err(Stop::Gone(Gone::Closed));
            }
            () = expired => Err(canceled("statement timeout")),
        };
        statement.stop();
        outcome
    }
}

/// Returns the failure of a statement that was stopped.
fn canceled(by: &str) -> Stop {
    Failure::new(code::QUERY_CANCELED, format!("canceling statement due to {by}")).into()
}

/// Adds the position to a failure that has it in its message.
pub(super) fn placed(stop: Stop, place: Place<'_>) -> Stop {
    let Stop::Failed(failure) = stop else { return stop };
    let error = Error::invalid(failure.message.clone());
    let Failure { message, position, .. } = place.failure(error);
    Stop::Failed(Failure { message, position, ..failure })
}

/// Returns the columns of a statement as the client gets them, from those that the engine returns.
pub(super) fn shown_schema(kind: Kind, schema: &SchemaRef) -> SchemaRef {
    match kind {
        Kind::Explain => super::texts_schema(&[QUERY_PLAN]),
        _ => Arc::clone(schema),
    }
}

/// Returns the number of rows that a statement has changed.
async fn counted(rows: BatchStream) -> Result<u64> {
    let batches: Vec<RecordBatch> = rows.try_collect().await?;
    let count = |batch: &RecordBatch| {
        let column = batch.columns().first()?.as_primitive_opt::<UInt64Type>()?;
        Some(column.values().iter().sum::<u64>())
    };
    Ok(batches.iter().filter_map(count).sum())
}

/// Returns a batch with the texts of their JSON in place of nested columns that PostgreSQL has no type for.
fn with_json(batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = batch.schema();
    if !schema.fields().iter().any(|field| is_json(field.data_type())) {
        return Ok(batch.clone());
    }
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (column, field) in batch.columns().iter().zip(schema.fields()) {
        let column = match is_json(field.data_type()) {
            true => json_texts(column, field)?,
            false => Arc::clone(column),
        };
        fields.push(field.as_ref().clone().with_data_type(column.data_type().clone()));
        columns.push(column);
    }
    let schema = Arc::new(Schema::new(fields));
    RecordBatch::try_new(schema, columns)
        .map_err(|error| Error::internal(format!("columns of JSON: {error}")))
}

/// Returns the lines of an EXPLAIN ANALYZE.
fn told(plans: &[RecordBatch]) -> Result<RecordBatch> {
    let mut all = Vec::new();
    for batch in plans {
        let columns: Vec<ArrayRef> = batch
            .columns()
            .iter()
            .map(|column| arrow_cast::cast(column, &arrow_schema::DataType::Utf8))
            .collect::<std::result::Result<_, _>>()
            .map_err(|error| Error::internal(format!("a plan that is no text: {error}")))?;
        let [kinds, plans] = &columns[..] else { return Err(Error::internal("a plan without two columns")) };
        for (kind, plan) in kinds.as_string::<i32>().iter().zip(plans.as_string::<i32>()) {
            all.push(format!("{}:", kind.unwrap_or_default()));
            all.extend(plan.unwrap_or_default().lines().map(|line| format!("  {line}")));
        }
    }
    lines(all)
}

/// Returns the lines of a plan as rows, under the name that PostgreSQL gives them.
pub(super) fn lines(lines: Vec<String>) -> Result<RecordBatch> {
    let column: ArrayRef = Arc::new(StringArray::from(lines));
    RecordBatch::try_from_iter([(QUERY_PLAN, column)]).map_err(|error| Error::internal(error.to_string()))
}
