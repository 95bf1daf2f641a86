//! Sends the rows of a load to the node, as fast as the node grants credit (flow control), until all have been sent or
//! the node refuses the load.
//!
//! If the connection breaks, the client does not know whether the rows were loaded. Therefore each load has an id, with
//! which the client asks for the outcome on another connection; asking also ends the load at the node if it is still
//! incomplete. If nothing was loaded, the load is sent again with another id, as long as the client still has all rows
//! that it had sent.
//!
//! Invariant: rows are sent again only after the node has confirmed that none of them were loaded, nor will be.

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

/// Generates the ids of loads: keyed hashes of a counter. Each client generates a random hash key of its own, so that
/// the ids of different clients do not collide.
#[derive(Debug)]
pub(super) struct LoadIds {
    key: [u64; 2],
    count: AtomicU64,
}

impl LoadIds {
    /// Creates the generator of one client, with a hash key from the system's random numbers.
    pub fn new() -> Self {
        let state = RandomState::new();
        LoadIds { key: [0, 1].map(|part| state.hash_one(part)), count: AtomicU64::new(0) }
    }

    /// Creates a generator for simulations, whose ids follow from `seed` alone.
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

/// Description of a load: the name of the table, the mode (create, append, replace) and the schema of the rows.
pub(super) struct Task<'a> {
    pub table: &'a TableName,
    pub options: LoadOptions,
    /// The schema under which the pool stores the rows (see `canonical_schema` of the model crate).
    pub schema: SchemaRef,
    pub rows_hint: Option<u64>,
}

/// The reason why a load did not complete.
enum Failure {
    /// The batches or the node reported an error, so that nothing was loaded.
    Ended(Error),
    /// The connection broke, so that the outcome is not known.
    Lost(Error),
}

/// The rows of a load: the messages already sent (as long as they are few bytes), and the batches still to come.
struct Rows {
    batches: Fuse<BatchStream>,
    sent: Vec<Outgoing>,
    sent_bytes: u64,
    /// Whether `sent` has all messages that were sent, so that the load can be repeated.
    can_repeat: bool,
    /// Whether the message that ends the rows was sent on the current connection.
    is_complete: bool,
}

impl RemotePool {
    /// Loads `batches`. If the connection breaks and nothing was loaded, repeats the load.
    ///
    /// # Errors
    /// Errors of `batches`, after which the node discards the load; errors of the node, as soon as it reports them;
    /// `Unavailable` if the connection broke and either the load failed or its outcome is not known.
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
            // The connection may have broken since it was chosen; then nothing has been sent.
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
                // The client or the node violated the protocol, and would do so again.
                Err(Failure::Lost(error)) if error.kind != ErrorKind::Unavailable && !rows.is_complete => {
                    return Err(error);
                }
                Err(Failure::Lost(error)) => error,
            };
            // Drops the broken connection, so that the next request opens a new one.
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

    /// Asks the node to change rows by a prepared program that it keeps ([`crate::Pool::change_rows`]).
    ///
    /// # Errors
    /// Errors of the node; `Stale` if it has lost the program, or if the connection broke and nothing was changed;
    /// `Unavailable` if it is not known whether rows were changed.
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

    /// Returns the outcome of a load after the connection to the node `before` broke; `is_complete` tells whether the
    /// message that ends the rows had been sent. Returns `None` if nothing was loaded, nor will be.
    async fn outcome_of_lost(
        &self,
        id: LoadId,
        before: Greeting,
        is_complete: bool,
        lost: &Error,
    ) -> Result<Option<LoadedVersion>> {
        let (now, outcome, forgotten) = match self.ask_again_for(id, before).await {
            Ok(Some(answer)) => answer,
            // A load without the message that ends its rows cannot have succeeded, whatever the node answers.
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

    /// Asks for the outcome of a load on another connection, and on further ones if those break, too. Returns `None` if
    /// another process answers at the node's address, which knows nothing of the load.
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

    /// Returns the outcome of the load `id` of the client's tenant. If the load is incomplete, asking ends it; if its
    /// request has not arrived at the node yet, asking prevents it from beginning later.
    ///
    /// # Errors
    /// `Busy` if too many requests wait for this outcome at once; `Denied` if the client's right does not include
    /// loads; errors of the connection.
    pub async fn load_outcome(&self, id: LoadId) -> Result<LoadOutcome> {
        let connection = self.connection().await?;
        match ask(&connection, &Request::LoadOutcome { id }, "it told the outcome of a load").await? {
            Response::LoadEnded { outcome, .. } => Ok(outcome),
            other => Err(unexpected(other.kind())),
        }
    }

    /// Returns the description of the table after the load. If the table has another version by now, the description is
    /// made from `made`, without statistics of the columns.
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

/// Returns the error of a load whose outcome cannot be found out.
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

    /// Returns `error` as the failure of a load whose request could not be sent, so that nothing was loaded.
    fn not_begun(&mut self, error: Error) -> Failure {
        self.is_complete = false;
        Failure::Lost(error)
    }

    /// Sends all rows on `channel`, on which the load has begun: first those that were sent on an earlier connection,
    /// then the others. Returns the node's answer.
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

    /// Sends one batch, in parts of at most a row group, and waits for credit as needed. If the node has refused the
    /// load or is unreachable, sends nothing more, but keeps the rows for a repetition if all earlier ones were kept.
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

    /// Keeps a message that is about to be sent, for a repetition of the load. If the messages of the load become too
    /// many bytes, drops them all, and the load can no longer be repeated.
    fn keep(&mut self, message: &Outgoing) {
        self.sent_bytes += message.bytes_on_wire();
        self.can_repeat &= self.sent_bytes <= cast::u64_from(limits::LOAD_REPEAT_BYTES_MAX);
        match self.can_repeat {
            true => self.sent.push(message.clone()),
            false => self.sent = Vec::new(),
        }
    }
}

/// Waits for the node's answer to the load. Before all rows have been sent, this can only be a refusal.
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
        // Arrow has no direct cast from binaries of fixed size to binary views.
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
