//! COPY to and from the client.

use super::staging::Staged;
use super::{Outcome, Place, Session, Started, Stop, columns};
use crate::postgres::commands::Kind;
use crate::postgres::link::Gone;
use arrow_array::{ArrayRef, BinaryArray, RecordBatch, StringArray, new_null_array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, FieldRef, SchemaRef};
use arrow_select::concat::concat;
use bytes::{Bytes, BytesMut};
use farpool_datafusion::{Interrupt, Parameters};
use farpool_model::{LoadMode, TableName, limits};
use farpool_postgres::copies::{CopyOptions, CopyReader, CopyValue, row_bytes};
use farpool_postgres::failure::{Failure, code};
use farpool_postgres::messages::{Format, Message};
use farpool_postgres::output::TransactionStatus;
use farpool_postgres::types::PostgresType;
use farpool_postgres::values::{array_of_one, without_offset};
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// Maximum time between two pieces of the rows of a client.
const STALL: Duration = Duration::from_millis(limits::POSTGRES_STALL_MS_MAX);

/// Bytes of rows that are loaded together.
const BATCH_BYTES: u64 = 4 << 20;

/// Bytes that a row takes beside its values, until it is in a batch.
const ROW_BYTES: u64 = 64;

/// The table and the columns that rows of a client go into.
struct Into {
    name: TableName,
    schema: SchemaRef,
    /// The places of the columns that the rows have, in their order.
    places: Vec<usize>,
}

impl Session {
    /// Sends the rows of a query. Returns the tag.
    pub(super) async fn copy_out(&mut self, query: &str, options: &CopyOptions) -> Outcome<String> {
        let place = Place { text: query, offset: 0 };
        let Started::Rows(mut running) = self.run_engine(Kind::Rows, place, Parameters::None).await? else {
            return Err(Failure::new(code::SYNTAX_ERROR, "COPY needs a query that returns rows").into());
        };
        let format = options.values();
        running.set_formats(vec![format]);
        let names: Vec<String> =
            columns(running.schema(), &[]).into_iter().map(|column| column.name).collect();
        self.link.output.copy_out(format, names.len());
        let mut bytes = BytesMut::new();
        options.put_start(names.iter().map(String::as_str), &mut bytes);
        let outcome = self.send_copy(&mut running, options, bytes).await;
        self.entry.running.end();
        outcome?;
        self.link.output.copy_done();
        Ok(format!("COPY {}", running.count()))
    }

    async fn send_copy(
        &mut self,
        running: &mut super::engine::Running,
        options: &CopyOptions,
        mut bytes: BytesMut,
    ) -> Outcome {
        while self.more(running).await? {
            let Some(batch) = running.take_current() else { break };
            for row in 0..batch.rows() {
                options.put_row(&batch, row, &mut bytes)?;
                self.link.output.copy_data(&bytes);
                bytes.clear();
                self.link.send_if_full().await?;
            }
            tokio::task::consume_budget().await;
        }
        options.put_end(&mut bytes);
        if !bytes.is_empty() {
            self.link.output.copy_data(&bytes);
        }
        Ok(())
    }

    /// Loads rows of the client into a table. Returns the tag.
    pub(super) async fn copy_in(
        &mut self,
        (table, columns): (&[String], &[String]),
        options: &CopyOptions,
    ) -> Outcome<String> {
        self.transaction.check_change(&self.settings)?;
        let statement = self.entry.running.begin();
        let outcome = self.load_copy(table, columns, options, &statement).await;
        self.entry.running.end();
        self.engine.catalog.forget();
        outcome.map(|rows| format!("COPY {rows}"))
    }

    async fn load_copy(
        &mut self,
        table: &[String],
        columns: &[String],
        options: &CopyOptions,
        statement: &Interrupt,
    ) -> Outcome<u64> {
        let into = self.copied_into(table, columns).await?;
        if self.transaction.status() != TransactionStatus::Idle {
            return self.stage_copy(into, options, statement).await;
        }
        self.link.output.copy_in(options.values(), into.places.len());
        self.link.flush().await?;
        let (sender, receiver) = mpsc::channel(1);
        let batches = futures::stream::unfold(receiver, |mut receiver: mpsc::Receiver<_>| async {
            receiver.recv().await.map(|batch| (batch, receiver))
        });
        let pool = Arc::clone(self.engine.catalog.pool());
        let (name, schema) = (into.name.clone(), Arc::clone(&into.schema));
        let mut load = std::pin::pin!(async move {
            pool.load(&name, LoadMode::Append.into(), schema, None, batches.boxed()).await
        });
        let mut rows = Rows { into, options, reader: None, values: Vec::new(), bytes: 0, count: 0 };
        let mut sender = Some(sender);
        // The first message comes before a failure is told: the client may have sent a Sync, which a COPY ignores.
        let mut has_begun = false;
        loop {
            let running = Arc::clone(&self.entry.running);
            let message = tokio::select! {
                biased;
                loaded = &mut load, if has_begun => {
                    loaded?;
                    return Ok(rows.count);
                }
                // Dropping the load leaves the table as it was.
                () = running.cancelled(statement) => return Err(canceled()),
                message = timeout(STALL, self.link.next()), if sender.is_some() => message,
            };
            has_begun = true;
            let is_end = match copied(message)? {
                Copied::Bytes(bytes) => {
                    rows.push(&bytes)?;
                    false
                }
                Copied::End => true,
                Copied::Nothing => continue,
            };
            while let (Some(batch), Some(sender)) = (rows.batch(is_end)?, &sender) {
                tokio::select! {
                    loaded = &mut load => {
                        loaded?;
                        return Err(Failure::new(code::INTERNAL_ERROR, "a load ended before its rows").into());
                    }
                    _ = sender.send(Ok(batch)) => {}
                }
            }
            if is_end {
                // The load ends with the channel.
                sender = None;
            }
        }
    }

    /// Keeps the rows of the client until COMMIT.
    async fn stage_copy(&mut self, into: Into, options: &CopyOptions, statement: &Interrupt) -> Outcome<u64> {
        // Before the client is asked for its rows, since it may fail.
        let mut staged = self.staged(&into.name, &into.schema, LoadMode::Append)?;
        self.link.output.copy_in(options.values(), into.places.len());
        let before = staged.mark();
        let mut rows = Rows { into, options, reader: None, values: Vec::new(), bytes: 0, count: 0 };
        let outcome = self.keep_rows(&mut rows, &mut staged, statement).await;
        if outcome.is_err() {
            staged.truncate(before);
        }
        self.transaction.set_staged(staged);
        outcome.map(|()| rows.count)
    }

    async fn keep_rows(
        &mut self,
        rows: &mut Rows<'_>,
        staged: &mut Staged,
        statement: &Interrupt,
    ) -> Outcome {
        loop {
            let running = Arc::clone(&self.entry.running);
            let message = tokio::select! {
                biased;
                () = running.cancelled(statement) => return Err(canceled()),
                message = timeout(STALL, self.link.next()) => message,
            };
            let is_end = match copied(message)? {
                Copied::Bytes(bytes) => {
                    rows.push(&bytes)?;
                    false
                }
                Copied::End => true,
                Copied::Nothing => continue,
            };
            while let Some(batch) = rows.batch(is_end)? {
                staged.push(batch)?;
            }
            if is_end {
                return Ok(());
            }
        }
    }

    /// Finds the table and its columns.
    async fn copied_into(&mut self, table: &[String], columns: &[String]) -> Outcome<Into> {
        let default = self.settings.schema.as_deref().unwrap_or("public");
        let (schema, name) = match table {
            [name] => (default, name),
            [schema, name] => (schema.as_str(), name),
            _ => {
                return Err(Failure::new(
                    code::FEATURE_NOT_SUPPORTED,
                    "COPY into another database is not done",
                )
                .into());
            }
        };
        let name = TableName::in_schema(&farpool_model::SchemaName::new(schema)?, name)?;
        let schema = match self.transaction.created(&name) {
            Some(schema) => schema,
            None => self.engine.catalog.pool().table(&name).await?.schema,
        };
        let place = |column: &String| {
            let place = schema.fields().iter().position(|field| field.name() == column);
            place.ok_or_else(|| {
                let message = format!("column \"{column}\" of relation \"{}\" does not exist", name.as_str());
                Failure::new(code::UNDEFINED_COLUMN, message)
            })
        };
        let places = match columns {
            [] => (0..schema.fields().len()).collect(),
            columns => columns.iter().map(place).collect::<Result<Vec<_>, _>>()?,
        };
        Ok(Into { name, schema: Arc::clone(&schema), places })
    }
}

/// The meaning of a client's message for a COPY.
enum Copied {
    Bytes(Bytes),
    End,
    Nothing,
}

/// Returns what a message is to a COPY.
fn copied(message: Result<Result<Message, Gone>, Elapsed>) -> Outcome<Copied> {
    let message = message.map_err(|_| {
        let message = "COPY from stdin failed: no rows have come for too long";
        Failure::new(code::QUERY_CANCELED, message)
    })?;
    match message? {
        Message::CopyData(bytes) => Ok(Copied::Bytes(bytes)),
        Message::CopyDone => Ok(Copied::End),
        Message::CopyFail(reason) => {
            let message = format!("COPY from stdin failed: {reason}");
            Err(Failure::new(code::QUERY_CANCELED, message).into())
        }
        // PostgreSQL ignores these within a COPY, too.
        Message::Flush | Message::Sync => Ok(Copied::Nothing),
        _ => {
            let message = "unexpected message during COPY from stdin";
            Err(Failure::new(code::PROTOCOL_VIOLATION, message).into())
        }
    }
}

/// Rows that have come, and are not loaded yet.
struct Rows<'a> {
    into: Into,
    options: &'a CopyOptions,
    reader: Option<CopyReader>,
    values: Vec<Vec<CopyValue>>,
    bytes: u64,
    count: u64,
}

impl Rows<'_> {
    /// Adds bytes.
    fn push(&mut self, bytes: &[u8]) -> Outcome {
        let (options, columns) = (self.options, self.into.places.len());
        let reader = self.reader.get_or_insert_with(|| CopyReader::new(options.clone(), columns));
        reader.push(bytes);
        // Bytes of whole rows are read before more come.
        match reader.waiting() > 2 * limits::POSTGRES_MESSAGE_BYTES_MAX {
            true => {
                let message = format!("a row of more than {} bytes", limits::POSTGRES_MESSAGE_BYTES_MAX);
                Err(Failure::new(code::PROGRAM_LIMIT_EXCEEDED, message).into())
            }
            false => Ok(()),
        }
    }

    /// Returns the next rows if there are enough for a batch, or the last ones at the end.
    fn batch(&mut self, is_end: bool) -> Outcome<Option<RecordBatch>> {
        while let Some(reader) = &mut self.reader {
            let Some(row) = reader.row(is_end)? else { break };
            self.bytes += row_bytes(&row) + ROW_BYTES;
            self.values.push(row);
            if self.bytes >= BATCH_BYTES || self.values.len() >= limits::BATCH_ROWS {
                return self.made().map(Some);
            }
        }
        match is_end && !self.values.is_empty() {
            true => self.made().map(Some),
            false => Ok(None),
        }
    }

    fn made(&mut self) -> Outcome<RecordBatch> {
        let rows = std::mem::take(&mut self.values);
        self.bytes = 0;
        let fields = self.into.schema.fields();
        let column =
            |(place, field): (usize, &FieldRef)| match self.into.places.iter().position(|at| *at == place) {
                Some(at) => {
                    let values = rows.iter().map(|row| row[at].as_ref());
                    column_of(field, self.options.values(), values, self.count)
                }
                None => Ok(new_null_array(field.data_type(), rows.len())),
            };
        let columns = fields.iter().enumerate().map(column).collect::<Result<Vec<_>, Failure>>()?;
        self.count += farpool_model::cast::u64_from(rows.len());
        RecordBatch::try_new(Arc::clone(&self.into.schema), columns)
            .map_err(|error| Stop::Failed(Failure::new(code::DATA_EXCEPTION, format!("COPY: {error}"))))
    }
}

fn canceled() -> Stop {
    Failure::new(code::QUERY_CANCELED, "canceling statement due to user request").into()
}

/// Converts the values of a column, which the rows behind the first `before` ones have.
fn column_of<'a>(
    field: &FieldRef,
    format: Format,
    values: impl Iterator<Item = Option<&'a Bytes>> + Clone,
    before: u64,
) -> Result<ArrayRef, Failure> {
    let (name, wanted) = (field.name(), field.data_type());
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let oid = PostgresType::of(wanted).oid;
    // Which of the values is wrong is looked for only if one is.
    let each = |row: u64, value: Option<&Bytes>| {
        let failed = |failure: Failure| {
            let message = format!("{} (COPY, row {}, column {name})", failure.message, before + row + 1);
            Failure { message, ..failure }
        };
        let read = array_of_one(oid, format, value).map_err(failed)?;
        cast_with_options(&read, wanted, &options)
            .map_err(|error| failed(Failure::new(code::NUMERIC_OUT_OF_RANGE, error.to_string())))
    };
    let is_binary = matches!(wanted, DataType::Binary | DataType::BinaryView | DataType::LargeBinary);
    if format == Format::Text && !is_binary {
        let texts: Option<Vec<Option<&str>>> =
            values.clone().map(|value| value.map(|v| std::str::from_utf8(v)).transpose().ok()).collect();
        let is_text = matches!(wanted, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8);
        if let Some(texts) = texts {
            let text = |text: Option<&'a str>| {
                text.map(|text| if is_text { text } else { without_offset(text.trim(), wanted) })
            };
            let trimmed = texts.into_iter().map(text);
            let texts: StringArray = trimmed.collect();
            if let Ok(column) = cast_with_options(&texts, wanted, &options) {
                return Ok(column);
            }
        }
    }
    if format == Format::Binary && is_binary {
        let column: BinaryArray = values.clone().map(|value| value.map(|v| &v[..])).collect();
        return cast_with_options(&column, wanted, &options)
            .map_err(|error| Failure::new(code::DATA_EXCEPTION, error.to_string()));
    }
    let arrays = (0..).zip(values).map(|(row, value)| each(row, value)).collect::<Result<Vec<_>, _>>()?;
    let arrays: Vec<&dyn arrow_array::Array> = arrays.iter().map(|array| &**array).collect();
    concat(&arrays).map_err(|error| Failure::new(code::DATA_EXCEPTION, error.to_string()))
}
