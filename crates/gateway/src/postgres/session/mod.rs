//! A session of PostgreSQL's protocol: carries out the messages of one client, one after the other.
//!
//! Invariant: every statement ends with one tag or one error, and after an error in the extended protocol nothing
//! happens before the next Sync. While a statement waits for the pool, the session notices that its client cancels it or
//! has gone.

mod copy;
mod cursors;
mod engine;
mod explain;
mod extended;
mod own_values;
mod prepared;
mod staging;
mod transaction;

use super::cancels::Entry;
use super::commands::{Command, Discarded, command};
use super::link::{Gone, Link};
use super::settings::{REPORTED, Settings, canonical};
use crate::engines::Engine;
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use engine::Running;
use extended::Portal;
use farpool_datafusion::{Parameters, split_statements};
use farpool_model::{Error, limits};
use farpool_postgres::failure::{Failure, code};
use farpool_postgres::messages::{Format, Message, Target, format_at};
use farpool_postgres::output::{Column, TransactionStatus};
use farpool_postgres::types::PostgresType;
use farpool_sql::error::located;
use prepared::Prepared;
use std::collections::HashMap;
use std::sync::Arc;
use transaction::Transaction;

/// The reason why a statement does not go on.
#[derive(Debug)]
pub(super) enum Stop {
    /// The statement has failed, and the session goes on.
    Failed(Failure),
    /// The session ends.
    Gone(Gone),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Failed(failure)
    }
}

impl From<Gone> for Stop {
    fn from(gone: Gone) -> Self {
        Stop::Gone(gone)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error.into())
    }
}

type Outcome<T = ()> = std::result::Result<T, Stop>;

/// A session of a client that is authenticated.
pub(super) struct Session {
    engine: Arc<Engine>,
    /// The engine with the schema of the search path, if that is another one than `public`.
    in_schema: Option<(String, farpool_datafusion::Session)>,
    link: Link,
    entry: Entry,
    settings: Settings,
    /// The values of reported settings that the client was told last.
    told: Vec<String>,
    statements: HashMap<String, Arc<Prepared>>,
    portals: HashMap<String, Portal>,
    transaction: Transaction,
    /// Whether messages up to the next Sync are ignored, since one before them has failed.
    skips: bool,
}

/// A statement that has begun.
enum Started {
    /// There was nothing to do.
    Empty,
    /// The statement has ended with this tag.
    Done(String),
    /// The statement returns rows.
    Rows(Box<Running>),
    /// The statement goes over rows of a cursor.
    Cursor(cursors::Over),
}

/// The text of a statement, and where it begins in what the client has sent.
#[derive(Clone, Copy)]
struct Place<'a> {
    text: &'a str,
    /// The number of characters before the statement.
    offset: usize,
}

impl Place<'_> {
    /// Returns the failure for an error of the statement, with its position.
    fn failure(self, error: Error) -> Failure {
        let found = located(&error, self.text);
        let failure = Failure::from(error);
        match found {
            Some((message, position)) => {
                Failure { message, position: Some(self.offset + position), ..failure }
            }
            None => failure,
        }
    }
}

impl Session {
    pub fn new(engine: Arc<Engine>, link: Link, entry: Entry, settings: Settings) -> Self {
        Session {
            engine,
            in_schema: None,
            link,
            entry,
            settings,
            told: Vec::new(),
            statements: HashMap::new(),
            portals: HashMap::new(),
            transaction: Transaction::default(),
            skips: false,
        }
    }

    /// Tells the client that its session has begun, and carries out its messages until it leaves.
    pub async fn run(mut self) -> (Gone, Link) {
        self.link.output.authenticated();
        for (name, _) in REPORTED {
            // Settings that are reported are known.
            let value = self.settings.get(name).unwrap_or_default();
            self.link.output.setting(name, value);
            self.told.push(value.to_string());
        }
        self.link.output.cancel_key(self.entry.session, &self.entry.secret);
        self.ready();
        loop {
            let carried_out = match self.link.next().await {
                Ok(Message::Terminate) => Err(Gone::Closed),
                // Boxed, so that a session that waits for its client does not keep the state of a statement's steps.
                Ok(message) => Box::pin(self.carry_out(message)).await,
                Err(gone) => Err(gone),
            };
            if let Err(gone) = carried_out {
                return (gone, self.link);
            }
        }
    }

    fn ready(&mut self) {
        self.link.output.ready(self.transaction.status());
    }

    async fn carry_out(&mut self, message: Message) -> std::result::Result<(), Gone> {
        if self.skips && !matches!(message, Message::Sync) {
            return Ok(());
        }
        let outcome = match message {
            Message::Query(text) => {
                self.query(&text).await?;
                return Ok(());
            }
            Message::Sync => {
                self.skips = false;
                self.end_implicit();
                self.ready();
                return self.link.flush().await;
            }
            Message::Flush => return self.link.flush().await,
            Message::Parse { name, text, types } => self.parse(name, text, &types).await,
            Message::Bind(bind) => self.bind(bind),
            Message::Describe(target) => self.describe(&target),
            Message::Execute { portal, rows_max } => self.execute(&portal, rows_max.into()).await,
            Message::Close(target) => {
                self.close(&target);
                Ok(())
            }
            Message::FunctionCall => {
                let failure = Failure::new(code::FEATURE_NOT_SUPPORTED, "function calls by oid are not done");
                self.fail(&failure.hint("call the function in a SELECT"));
                self.ready();
                return Ok(());
            }
            // What is left of a COPY that has failed, which PostgreSQL ignores, too.
            Message::CopyData(_) | Message::CopyDone | Message::CopyFail(_) => Ok(()),
            Message::Authentication(_) | Message::Terminate => {
                let failure =
                    Failure::new(code::PROTOCOL_VIOLATION, "an authentication that nobody has asked for");
                return Err(Gone::Refused(failure.fatal()));
            }
        };
        match outcome {
            Ok(()) => self.link.send_if_full().await,
            Err(Stop::Gone(gone)) => Err(gone),
            Err(Stop::Failed(failure)) => {
                self.fail(&failure);
                self.skips = true;
                self.link.send_if_full().await
            }
        }
    }

    /// Tells the client of a failure, which ends what it can still do in its transaction.
    fn fail(&mut self, failure: &Failure) {
        self.link.output.failure(failure);
        if self.transaction.status() == TransactionStatus::Open {
            self.transaction.fail();
            self.portals.retain(|_, portal| portal.is_held);
        }
    }

    /// Drops what does not outlive a statement outside of a transaction.
    fn end_implicit(&mut self) {
        if self.transaction.status() == TransactionStatus::Idle {
            self.portals.retain(|_, portal| portal.is_held);
        }
    }

    /// Runs the statements of a text one after the other, up to the first that fails.
    async fn query(&mut self, text: &str) -> std::result::Result<(), Gone> {
        self.portals.remove("");
        match split_statements(text) {
            Err(error) => {
                let failure = Place { text, offset: 0 }.failure(error);
                self.fail(&failure);
            }
            Ok(statements) if statements.is_empty() => self.link.output.empty_query(),
            Ok(statements) => {
                let (mut bytes, mut offset) = (0, 0);
                for statement in statements {
                    // Positions are counted in characters.
                    offset += text.get(bytes..statement.start).map_or(0, |between| between.chars().count());
                    bytes = statement.start;
                    let place = Place { text: &statement.text, offset };
                    match self.simple(place).await {
                        Ok(()) => self.link.send_if_full().await?,
                        Err(Stop::Gone(gone)) => return Err(gone),
                        Err(Stop::Failed(failure)) => {
                            self.fail(&failure);
                            break;
                        }
                    }
                }
            }
        }
        self.end_implicit();
        self.ready();
        Ok(())
    }

    /// Runs one statement of a text, and tells its columns, rows and end.
    async fn simple(&mut self, place: Place<'_>) -> Outcome {
        let command = command(place.text).map_err(|failure| at(failure, place))?;
        match self.start(&command, place, Parameters::None).await? {
            Started::Empty => self.link.output.empty_query(),
            Started::Done(tag) => self.link.output.command_complete(&tag),
            Started::Cursor(over) => {
                if !over.moves() {
                    self.link.output.row_description(&over.columns(self)?);
                }
                let tag = self.go_over(over, &[]).await?;
                self.link.output.command_complete(&tag);
            }
            Started::Rows(mut running) => {
                self.link.output.row_description(&columns(running.schema(), &[]));
                let outcome = self.pump(&mut running, u64::MAX).await;
                self.entry.running.end();
                outcome?;
                self.link.output.command_complete(&running.tag(0));
            }
        }
        Ok(())
    }

    /// Begins a statement.
    async fn start(&mut self, command: &Command, place: Place<'_>, values: Parameters) -> Outcome<Started> {
        self.transaction.check(command)?;
        let done = |tag: &str| Ok(Started::Done(tag.to_string()));
        match command {
            Command::Empty => Ok(Started::Empty),
            Command::Begin(_)
            | Command::Commit
            | Command::Rollback
            | Command::Savepoint(_)
            | Command::Release(_)
            | Command::RollbackTo(_)
            | Command::SetTransaction { .. } => self.transact(command).await.map(Started::Done),
            Command::Set { name, value, is_local } => {
                self.set(name, value.as_deref(), *is_local)?;
                done(if value.is_some() { "SET" } else { "RESET" })
            }
            Command::ResetAll => {
                self.settings.reset();
                self.report_settings();
                done("RESET")
            }
            Command::Show(name) => {
                let value = self.shown(name)?;
                self.rows_of("SHOW", &[&shown_name(name)], &[vec![value]])
            }
            Command::ShowAll => {
                let all = self.settings.all();
                let rows: Vec<_> = all
                    .map(|(name, value)| vec![name.to_string(), value.to_string(), String::new()])
                    .collect();
                self.rows_of("SHOW", &["name", "setting", "description"], &rows)
            }
            Command::Discard(what) => {
                self.discard(*what)?;
                done(match what {
                    Discarded::All => "DISCARD ALL",
                    Discarded::Plans => "DISCARD PLANS",
                    Discarded::Nothing(tag) => tag,
                })
            }
            Command::Deallocate(name) => {
                self.deallocate(name.as_deref())?;
                done(if name.is_some() { "DEALLOCATE" } else { "DEALLOCATE ALL" })
            }
            Command::Prepare { name, types, text } => {
                self.prepare(name, types, text).await?;
                done("PREPARE")
            }
            Command::Execute { name, values } => Box::pin(self.execute_prepared(name, values)).await,
            Command::Declare { name, is_binary, is_held, text } => {
                self.declare(name, (*is_binary, *is_held), text, values).await?;
                done("DECLARE CURSOR")
            }
            Command::Fetch { name, direction } => self.over(name, *direction, false).map(Started::Cursor),
            Command::Move { name, direction } => self.over(name, *direction, true).map(Started::Cursor),
            Command::Close(name) => {
                self.close_cursors(name.as_deref())?;
                done(if name.is_some() { "CLOSE CURSOR" } else { "CLOSE CURSOR ALL" })
            }
            Command::CopyOut { query, options } => self.copy_out(query, options).await.map(Started::Done),
            Command::CopyIn { table, columns, options } => {
                self.copy_in((table, columns), options).await.map(Started::Done)
            }
            Command::Nothing(tag) => done(tag),
            Command::Engine(kind) => self.run_engine(*kind, place, values).await,
        }
    }

    fn set(&mut self, name: &str, value: Option<&str>, is_local: bool) -> Outcome {
        if is_local && self.transaction.status() == TransactionStatus::Idle {
            let message = "SET LOCAL can only be used in transaction blocks";
            self.link.output.failure(&Failure::warning(code::NO_ACTIVE_TRANSACTION, message));
            return Ok(());
        }
        let is_mode = ["transaction_isolation", "transaction_read_only"].contains(&canonical(name).as_str());
        if is_mode && let Some(value) = value {
            return self.set_mode(name, value);
        }
        let before = self.settings.clone();
        self.settings.set(name, value)?;
        if self.settings.bytes() > limits::POSTGRES_SETTINGS_BYTES_MAX {
            self.settings = before;
            let message = format!("settings of more than {} bytes", limits::POSTGRES_SETTINGS_BYTES_MAX);
            return Err(Failure::new(code::PROGRAM_LIMIT_EXCEEDED, message).into());
        }
        match is_local {
            true => self.transaction.set_locally(name, before.own(name)),
            false => self.transaction.keep(name),
        }
        self.report_settings();
        Ok(())
    }

    /// Tells the client the settings that it knows of.
    fn report_settings(&mut self) {
        for ((name, _), told) in REPORTED.iter().zip(&mut self.told) {
            let value = self.settings.get(name).unwrap_or_default();
            if told != value {
                self.link.output.setting(name, value);
                *told = value.to_string();
            }
        }
    }

    fn shown(&self, name: &str) -> std::result::Result<String, Failure> {
        match canonical(name).as_str() {
            "transaction_isolation" => Ok(self.transaction.isolation(&self.settings)),
            "transaction_read_only" => {
                Ok(if self.transaction.is_read_only(&self.settings) { "on" } else { "off" }.to_string())
            }
            name => self.settings.get(name).map(str::to_string),
        }
    }

    fn discard(&mut self, what: Discarded) -> Outcome {
        if what == Discarded::All {
            if self.transaction.status() != TransactionStatus::Idle {
                let message = "DISCARD ALL cannot run inside a transaction block";
                return Err(Failure::new(code::ACTIVE_TRANSACTION, message).into());
            }
            self.portals.clear();
            self.statements.clear();
            self.settings.reset();
            self.report_settings();
        }
        Ok(())
    }

    /// Returns rows of texts as the result of a statement with this tag.
    fn rows_of(&self, tag: &'static str, names: &[&str], rows: &[Vec<String>]) -> Outcome<Started> {
        let schema = texts_schema(names);
        let column = |place: usize| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row[place].as_str())))
        };
        let columns = (0..names.len()).map(column).collect();
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns)
            .map_err(|error| Error::internal(format!("rows of texts: {error}")))?;
        let statement = self.entry.running.begin();
        let running = Running::of_batch(batch, tag, statement, self.settings.style.clone());
        Ok(Started::Rows(Box::new(running)))
    }
}

/// Returns the name of a setting as PostgreSQL writes it.
fn shown_name(name: &str) -> String {
    let name = canonical(name);
    let reported = REPORTED.iter().find(|(_, known)| *known == name);
    reported.map_or_else(|| name.clone(), |(shown, _)| (*shown).to_string())
}

/// Returns the schema of columns of text.
fn texts_schema(names: &[&str]) -> SchemaRef {
    Arc::new(Schema::new(
        names.iter().map(|name| Field::new(*name, DataType::Utf8, false)).collect::<Vec<_>>(),
    ))
}

/// Returns the columns of a result in these formats, as the client is told of them.
fn columns(schema: &Schema, formats: &[Format]) -> Vec<Column> {
    let column = |(place, field): (usize, &Arc<Field>)| Column {
        name: field.name().clone(),
        data_type: PostgresType::of(field.data_type()),
        format: format_at(formats, place),
    };
    schema.fields().iter().enumerate().map(column).collect()
}

/// Moves the position of a failure, which counts from the beginning of the statement.
fn at(failure: Failure, place: Place<'_>) -> Failure {
    Failure { position: failure.position.map(|position| position + place.offset), ..failure }
}

/// Returns the name of a statement or a portal.
fn named(target: &Target) -> &str {
    match target {
        Target::Statement(name) | Target::Portal(name) => name,
    }
}
