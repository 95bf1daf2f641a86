//! Sends the rows of a load to the node: as fast as it grants credit, until all are sent or it refuses.
//!
//! A load whose connection breaks may or may not have been loaded. It has an id, with which the client asks
//! for its outcome on another connection; asking also ends the load at the node if it is still incomplete. If
//! nothing was loaded, the load is sent again with another id, as long as the client still has all rows that
//! were sent.
//!
//! Invariant: rows are sent again only when the node has confirmed that none of them were loaded, nor will
//! be.

use super::connection::{Channel, Greeting};
use super::query::unexpected;
use super::{Kept, RemotePool, ask, come_back};
use crate::{BatchStream, Handle};
use arrow_array::RecordBatch;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, SchemaRef};
use farpool_model::{
    ColumnStatistics, Error, ErrorKind, LoadId, LoadMode, LoadOptions, LoadOutcome, LoadedVersion, Relation,
    Residency, Result, TableInfo, TableName, Version, cast, limits,
};
use farpool_wire::{Outgoing, Request, Response};
use futures::StreamExt;
use futures::stream::Fuse;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Generates the ids of loads: hashes of a counter, with a key that no other client has.
#[derive(Debug)]
pub(super) struct LoadIds {
    key: [u64; 2],
    count: AtomicU64,
}

impl LoadIds {
    /// Creates the generator of this process, whose key comes from the system's random numbers.
    pub fn new() -> Self {
        let state = RandomState::new();
        LoadIds { key: [0, 1].map(|part| state.hash_one(part)), count: AtomicU64::new(0) }
    }

    /// Creates the generator of a simulation: all ids follow from the seed.
    pub fn seeded(seed: u64) -> Self {
        LoadIds { key: [seed, 0], count: AtomicU64::new(0) }
    }

    fn next(&self) -> LoadId {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let half = |half: u64| {
            let mut hasher = DefaultHasher::new();
            (self.key, count, half).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        LoadId(half(0) << 64 | half(1))
    }
}

/// The parameters of a load.
pub(super) struct Task<'a> {
    pub table: &'a TableName,
    pub options: LoadOptions,
    /// The canonical schema.
    pub schema: SchemaRef,
    pub rows_hint: Option<u64>,
}

/// Why a load did not complete.
enum Failure {
    /// The rows or the node reported an error: nothing was loaded.
    Ended(Error),
    /// The connection broke.
    Lost(Error),
}

/// The rows of a load: those already sent, as long as they are few, and those still to come.
struct Rows {
    batches: Fuse<BatchStream>,
    sent: Vec<Outgoing>,
    sent_bytes: u64,
    /// Whether `sent` has all messages that were sent.
    can_repeat: bool,
    /// Whether the end of the rows was sent on the current connection.
    is_complete: bool,
}

impl RemotePool {
    /// Loads `batches`, with retries if the connection breaks.
    ///
    /// # Errors
    /// Errors of the batches, after which the node discards the load; errors of the node, as soon as it reports
    /// them. `Unavailable` when the connection broke and the load failed or its outcome is not known.
    pub(super) async fn load_once(&self, task: Task<'_>, batches: BatchStream) -> Result<TableInfo> {
        let mut rows = Rows::new(batches);
        let mut attempts = 1;
        loop {
            let (connection, id) = (self.connection().await?, self.load_ids.next());
            let before = connection.node();
            let Task { table, options, schema, rows_hint } = &task;
            let request = Request::LoadBegin {
                table: (*table).clone(),
                options: *options,
                schema: schema.clone(),
                rows_hint: *rows_hint,
                id: Some(id),
            };
            // The connection may have broken since it was chosen.
            let sent = match connection.open(&request, "a table was being loaded") {
                Ok(channel) => rows.send(channel, schema).await,
                Err(error) => Err(rows.not_begun(error)),
            };
            let lost = match sent {
                Ok(table) => {
                    connection.saw(table.version);
                    return Ok(table);
                }
                Err(Failure::Ended(error)) => return Err(error),
                // One of the sides was at fault, and would be so again.
                Err(Failure::Lost(error)) if error.kind != ErrorKind::Unavailable && !rows.is_complete => {
                    return Err(error);
                }
                Err(Failure::Lost(error)) => error,
            };
            // The broken connection is of no use, even if other tasks hold it.
            drop(connection);
            match self.outcome_of_lost(id, before, rows.is_complete, &lost).await? {
                Some(made) => return Ok(self.describe_loaded(&task, made).await),
                None if !rows.can_repeat || attempts == limits::LOAD_ATTEMPTS_MAX => {
                    return Err(nothing_loaded(&lost));
                }
                None => attempts += 1,
            }
        }
    }

    /// Asks the node to change rows by a program that it keeps.
    ///
    /// # Errors
    /// Errors of the node; `Stale` when it has lost the program, or the connection broke and nothing was
    /// changed; `Unavailable` when it is not known whether rows were changed.
    pub(super) async fn change_once(&self, handle: &Handle, kept: &Kept, rows: u64) -> Result<TableInfo> {
        let (name, schema) = (&handle.effective.table, kept.schema.clone());
        let task = Task {
            table: name,
            options: LoadMode::ReplaceVersion(handle.version).into(),
            schema,
            rows_hint: None,
        };
        let before = kept.connection.node();
        let mut comebacks = 0;
        loop {
            let id = self.load_ids.next();
            let request = Request::ChangeRows { handle: kept.stream, rows, id };
            let channel = kept.open(&request, "rows of a table were being changed");
            let is_sent = channel.is_ok();
            let answered = match channel {
                Ok(mut channel) => answer(&mut channel).await,
                Err(error) if error.kind == ErrorKind::Unavailable => Err(Failure::Lost(error)),
                Err(error) => Err(Failure::Ended(error)),
            };
            match answered {
                Ok(table) => {
                    kept.connection.saw(table.version);
                    return Ok(table);
                }
                Err(Failure::Ended(error)) => come_back(error, &mut comebacks).await?,
                Err(Failure::Lost(lost)) => {
                    return match self.outcome_of_lost(id, before, is_sent, &lost).await? {
                        Some(made) => Ok(self.describe_loaded(&task, made).await),
                        None => Err(Error::stale(format!("{}; nothing was changed", lost.message))),
                    };
                }
            }
        }
    }

    /// Returns the outcome of a load whose connection to the node `before` broke; `is_complete` if its end
    /// had been sent. `None` when nothing of it was loaded, nor will be.
    async fn outcome_of_lost(
        &self,
        id: LoadId,
        before: Greeting,
        is_complete: bool,
        lost: &Error,
    ) -> Result<Option<LoadedVersion>> {
        let (now, outcome, forgotten) = match self.ask_again_for(id, before).await {
            Ok(Some(answer)) => answer,
            // Without its end the load cannot have succeeded, whatever the node answers.
            _ if !is_complete => return Err(lost.clone()),
            Ok(None) => return Err(unknown(lost, "what answers there now is another process")),
            Err(error) => return Err(unknown(lost, &error.message)),
        };
        debug_assert_eq!(now.instance, before.instance);
        match outcome {
            LoadOutcome::Loaded(made) => Ok(Some(made)),
            LoadOutcome::Failed(error) => Err(error),
            LoadOutcome::NotLoaded if is_complete && forgotten > before.newest => {
                Err(unknown(lost, "the pool does not remember the load any more, if it has come"))
            }
            LoadOutcome::NotLoaded => Ok(None),
        }
    }

    /// Asks for the outcome of a load, on further connections if those break too. `None` when another process
    /// answers at the node's address.
    async fn ask_again_for(
        &self,
        id: LoadId,
        before: Greeting,
    ) -> Result<Option<(Greeting, LoadOutcome, Version)>> {
        let mut attempts = 1;
        loop {
            let asked = async {
                let connection = self.connection().await?;
                let now = connection.node();
                if now.instance != before.instance || now.instance == 0 {
                    return Ok(None);
                }
                match ask(&connection, &Request::LoadOutcome { id }, "it told the outcome of a load").await? {
                    Response::LoadEnded { outcome, forgotten } => Ok(Some((now, outcome, forgotten))),
                    other => Err(unexpected(other.kind())),
                }
            };
            match asked.await {
                Err(error)
                    if error.kind == ErrorKind::Unavailable && attempts < limits::LOAD_ATTEMPTS_MAX =>
                {
                    attempts += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Returns the outcome of the load `id` of the client's tenant. Asking ends a load whose rows have not
    /// all arrived, and keeps one that has not arrived at all from beginning later.
    ///
    /// # Errors
    /// `Busy` when too many requests for it wait at once; `Denied`.
    pub async fn load_outcome(&self, id: LoadId) -> Result<LoadOutcome> {
        let connection = self.connection().await?;
        match ask(&connection, &Request::LoadOutcome { id }, "it told the outcome of a load").await? {
            Response::LoadEnded { outcome, .. } => Ok(outcome),
            other => Err(unexpected(other.kind())),
        }
    }

    /// Describes the table as the load made it, without statistics of its columns if it has another version
    /// by now.
    async fn describe_loaded(&self, task: &Task<'_>, made: LoadedVersion) -> TableInfo {
        match self.describe(task.table, false).await {
            Ok(Relation::Table(info)) if info.version == made.version => info,
            _ => TableInfo {
                name: task.table.clone(),
                version: made.version,
                schema: task.schema.clone(),
                rows: made.rows,
                bytes_plain: made.bytes_plain,
                bytes_encoded: made.bytes_encoded,
                columns: vec![ColumnStatistics::default(); task.schema.fields().len()],
                rows_profiled: None,
                encryption: task.options.encryption,
                bytes_resident: None,
                is_pinned: task.options.residency == Residency::Pinned,
            },
        }
    }
}

/// Returns the error of a load whose outcome cannot be determined.
fn unknown(lost: &Error, why: &str) -> Error {
    Error::unavailable(format!(
        "{}; all rows had been sent, and whether they were loaded is not known: {why}",
        lost.message
    ))
    .advise("look whether the table has the rows before you load them again")
}

fn nothing_loaded(lost: &Error) -> Error {
    Error::unavailable(format!("{}; nothing of it was loaded", lost.message)).advise("load it again")
}

impl Rows {
    fn new(batches: BatchStream) -> Self {
        let sent = Vec::new();
        Rows { batches: batches.fuse(), sent, sent_bytes: 0, can_repeat: true, is_complete: false }
    }

    /// Returns the failure of a load whose request could not be sent.
    fn not_begun(&mut self, error: Error) -> Failure {
        self.is_complete = false;
        Failure::Lost(error)
    }

    /// Sends all rows on `channel`, on which the load has begun; first those that were sent before.
    async fn send(&mut self, mut channel: Channel, schema: &SchemaRef) -> Result<TableInfo, Failure> {
        self.is_complete = false;
        for message in &self.sent {
            if channel.may_send().await {
                channel.send(message.clone());
            }
        }
        loop {
            tokio::select! {
                biased;
                answer = answer(&mut channel) => return answer,
                batch = self.batches.next() => match batch {
                    Some(Ok(batch)) => self.send_batch(&mut channel, schema, &batch).await?,
                    Some(Err(error)) => return Err(Failure::Ended(error)),
                    None => break,
                },
            }
        }
        let end = Request::LoadEnd.encode().map_err(Failure::Ended)?;
        end.into_iter().for_each(|message| channel.send(message));
        self.is_complete = true;
        answer(&mut channel).await
    }

    /// Sends one batch, in parts of at most a row group, waiting for credit as needed. If the node has refused the load
    /// or is unreachable, rows are no longer sent, but kept for a retry if all earlier ones were kept.
    async fn send_batch(
        &mut self,
        channel: &mut Channel,
        schema: &SchemaRef,
        batch: &RecordBatch,
    ) -> Result<(), Failure> {
        for start in (0..batch.num_rows()).step_by(limits::ROW_GROUP_ROWS) {
            let rows = limits::ROW_GROUP_ROWS.min(batch.num_rows() - start);
            let part = canonical(&batch.slice(start, rows), schema).map_err(Failure::Ended)?;
            for message in Request::LoadBatch(part).encode().map_err(Failure::Ended)? {
                self.keep(&message);
                if channel.may_send().await {
                    channel.send(message);
                } else if !self.can_repeat {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Keeps a message that is about to be sent, as long as the messages of the load are few bytes.
    fn keep(&mut self, message: &Outgoing) {
        self.sent_bytes += message.bytes_on_wire();
        self.can_repeat &= self.sent_bytes <= cast::u64_from(limits::LOAD_REPEAT_BYTES_MAX);
        match self.can_repeat {
            true => self.sent.push(message.clone()),
            false => self.sent = Vec::new(),
        }
    }
}

/// Receives the node's answer to the load: before all rows are sent, this can only be a refusal.
async fn answer(channel: &mut Channel) -> Result<TableInfo, Failure> {
    let message = channel.receive().await.map_err(Failure::Lost)?;
    match Response::decode(&message, None).map_err(Failure::Ended)? {
        Response::Loaded(table) => Ok(table),
        Response::Error(error) => Err(Failure::Ended(error)),
        other => Err(Failure::Ended(unexpected(other.kind()))),
    }
}

/// Converts the batch to the schema under which the pool stores it.
fn canonical(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.num_columns() != schema.fields().len() {
        return Err(Error::invalid(format!(
            "a batch has {} columns, its schema {}",
            batch.num_columns(),
            schema.fields().len()
        )));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| {
        // Arrow has no direct cast from binaries of fixed size to views.
        let column = match column.data_type() {
            DataType::FixedSizeBinary(_) => cast_with_options(column, &DataType::Binary, &options),
            _ => Ok(column.clone()),
        };
        column
            .and_then(|column| match column.data_type() == field.data_type() {
                true => Ok(column),
                false => cast_with_options(&column, field.data_type(), &options),
            })
            .map_err(|error| Error::invalid(error.to_string()).at(format!("column {:?}", field.name())))
    });
    RecordBatch::try_new(schema.clone(), columns.collect::<Result<_>>()?)
        .map_err(|error| Error::invalid(error.to_string()))
}
