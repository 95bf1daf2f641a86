//! Transactions: which statements are accepted, which versions of tables they read, and which settings return to what
//! they were.
//!
//! Invariant: with the isolation level REPEATABLE READ or SERIALIZABLE, all statements of a transaction read one version
//! of each table.

use super::staging::Staged;
use super::{Outcome, Session};
use crate::postgres::commands::{Command, Modes};
use crate::postgres::settings::{LEVELS, Settings, canonical};
use arrow_schema::SchemaRef;
use farpool_datafusion::{HeldChange, Snapshot, Statement};
use farpool_model::{TableName, limits};
use farpool_postgres::failure::{Failure, code};
use farpool_postgres::output::TransactionStatus;
use std::sync::Arc;

/// The state of a session's transaction.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    status: TransactionStatus,
    modes: Modes,
    /// The versions that the statements read, if the isolation level asks for that.
    snapshot: Option<Snapshot>,
    /// The settings at the beginning, to which a rollback returns.
    before: Option<Settings>,
    /// The settings that were set for the transaction only, with the values that they had before.
    locals: Vec<(String, Option<String>)>,
    savepoints: Vec<Savepoint>,
    /// The rows that are loaded at COMMIT.
    staged: Option<Staged>,
    /// The change that is carried out at COMMIT; if it drops the table of the staged rows, these take its place.
    held: Option<Arc<HeldChange>>,
}

/// A place that a transaction can return to.
#[derive(Debug)]
struct Savepoint {
    name: String,
    settings: Settings,
    /// The number of batches of rows that were kept; `None` if there were no changes.
    staged: Option<usize>,
    /// Whether there was a change that is carried out at COMMIT.
    has_held: bool,
    /// The settings that were set for the transaction only.
    locals: Vec<(String, Option<String>)>,
}

impl Transaction {
    pub fn status(&self) -> TransactionStatus {
        self.status
    }

    /// Returns the versions that statements read; `None` for the newest.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_ref()
    }

    /// Records that a statement has failed.
    pub fn fail(&mut self) {
        self.status = TransactionStatus::Failed;
    }

    /// Returns the isolation level, in lower case.
    pub fn isolation(&self, settings: &Settings) -> String {
        let default = || settings.get("default_transaction_isolation").unwrap_or_default().to_string();
        self.modes.isolation.clone().unwrap_or_else(default)
    }

    /// Returns whether statements may only read.
    pub fn is_read_only(&self, settings: &Settings) -> bool {
        let default = || settings.get("default_transaction_read_only").unwrap_or_default() == "on";
        self.modes.read_only.unwrap_or_else(default)
    }

    /// Checks that a statement is accepted after one has failed.
    pub fn check(&self, command: &Command) -> Result<(), Failure> {
        let ends = matches!(command, Command::Commit | Command::Rollback | Command::RollbackTo(_));
        match self.status == TransactionStatus::Failed && !ends {
            true => {
                let message =
                    "current transaction is aborted, commands ignored until end of transaction block";
                Err(Failure::new(code::FAILED_TRANSACTION, message))
            }
            false => Ok(()),
        }
    }

    /// Checks that a statement that changes something is accepted.
    pub fn check_change(&self, settings: &Settings) -> Result<(), Failure> {
        if self.is_read_only(settings) {
            let message = "cannot execute a statement that changes something in a read-only transaction";
            return Err(Failure::new(code::READ_ONLY_TRANSACTION, message));
        }
        Ok(())
    }

    /// Takes the rows that are loaded at COMMIT.
    pub fn take_staged(&mut self) -> Option<Staged> {
        self.staged.take()
    }

    /// Sets the rows that are loaded at COMMIT.
    pub fn set_staged(&mut self, staged: Staged) {
        self.staged = Some(staged).filter(|staged| !staged.is_empty());
    }

    /// Returns the table of the rows that are loaded at COMMIT.
    pub fn changed(&self) -> Option<&TableName> {
        self.staged.as_ref().map(|staged| &staged.table)
    }

    /// Returns the change that is carried out at COMMIT.
    pub fn held(&self) -> Option<&Arc<HeldChange>> {
        self.held.as_ref()
    }

    /// Sets the change that is carried out at COMMIT.
    pub fn hold(&mut self, change: Arc<HeldChange>) {
        self.held = Some(change);
    }

    /// Takes the change that is carried out at COMMIT.
    pub fn take_held(&mut self) -> Option<Arc<HeldChange>> {
        self.held.take()
    }

    /// Returns the columns of a table that the transaction creates.
    pub fn created(&self, table: &TableName) -> Option<SchemaRef> {
        let staged = self.staged.as_ref().filter(|staged| staged.table == *table)?;
        Some(Arc::clone(&staged.schema))
    }

    /// Lets a statement see the rows that are loaded at COMMIT.
    pub fn shown_to(&self, statement: Statement) -> Statement {
        match &self.staged {
            Some(staged) => staged.shown_to(statement),
            None => statement,
        }
    }

    /// Records that a setting with the value `before` is another one until the end of the transaction.
    pub fn set_locally(&mut self, name: &str, before: Option<String>) {
        let name = canonical(name);
        if !self.locals.iter().any(|(known, _)| *known == name) {
            self.locals.push((name, before));
        }
    }

    /// Records that a setting keeps its value at the end of the transaction.
    pub fn keep(&mut self, name: &str) {
        let name = canonical(name);
        self.locals.retain(|(known, _)| *known != name);
    }

    fn begin(&mut self, modes: Modes, settings: &Settings) {
        *self = Transaction { status: TransactionStatus::Open, modes, ..Transaction::default() };
        self.before = Some(settings.clone());
        self.snapshot = self.is_repeatable(settings).then(Snapshot::default);
    }

    fn is_repeatable(&self, settings: &Settings) -> bool {
        matches!(self.isolation(settings).as_str(), "repeatable read" | "serializable")
    }
}

impl Session {
    /// Carries out a statement about transactions. Returns its tag.
    pub(super) async fn transact(&mut self, command: &Command) -> Outcome<String> {
        let is_open = self.transaction.status != TransactionStatus::Idle;
        let tag = match command {
            Command::Begin(modes) => {
                match is_open {
                    true => self.warn(code::ACTIVE_TRANSACTION, "there is already a transaction in progress"),
                    false => self.transaction.begin(modes.clone(), &self.settings),
                }
                "BEGIN"
            }
            Command::Commit if self.transaction.status == TransactionStatus::Failed => {
                self.end_transaction(false);
                "ROLLBACK"
            }
            Command::Commit | Command::Rollback => {
                let commits = *command == Command::Commit;
                if !is_open {
                    self.warn(code::NO_ACTIVE_TRANSACTION, "there is no transaction in progress");
                }
                if commits && let Err(stop) = self.commit_changes().await {
                    self.end_transaction(false);
                    return Err(stop);
                }
                self.end_transaction(commits);
                if commits { "COMMIT" } else { "ROLLBACK" }
            }
            Command::Savepoint(name) => {
                self.needs_transaction(is_open, "SAVEPOINT")?;
                if self.transaction.savepoints.len() >= limits::POSTGRES_SAVEPOINTS_MAX {
                    let message =
                        format!("a transaction may have {} savepoints", limits::POSTGRES_SAVEPOINTS_MAX);
                    return Err(Failure::new(code::PROGRAM_LIMIT_EXCEEDED, message).into());
                }
                let (name, settings) = (name.clone(), self.settings.clone());
                let staged = self.transaction.staged.as_ref().map(Staged::mark);
                let (locals, has_held) = (self.transaction.locals.clone(), self.transaction.held.is_some());
                self.transaction.savepoints.push(Savepoint { name, settings, staged, has_held, locals });
                "SAVEPOINT"
            }
            Command::Release(name) => {
                self.needs_transaction(is_open, "RELEASE SAVEPOINT")?;
                let at = self.savepoint(name)?;
                self.transaction.savepoints.truncate(at);
                "RELEASE"
            }
            Command::RollbackTo(name) => {
                self.needs_transaction(is_open, "ROLLBACK TO SAVEPOINT")?;
                let at = self.savepoint(name)?;
                self.transaction.savepoints.truncate(at + 1);
                let Savepoint { settings, staged, has_held, locals, .. } = &self.transaction.savepoints[at];
                if !has_held {
                    self.transaction.held = None;
                }
                (self.settings, self.transaction.locals) = (settings.clone(), locals.clone());
                match (staged, &mut self.transaction.staged) {
                    (Some(mark), Some(kept)) => kept.truncate(*mark),
                    (None, kept) => *kept = None,
                    (Some(_), None) => {}
                }
                self.transaction.status = TransactionStatus::Open;
                self.report_settings();
                "ROLLBACK"
            }
            Command::SetTransaction { modes, of_session } => {
                self.set_modes(modes, *of_session, is_open)?;
                "SET"
            }
            _ => return Err(Failure::new(code::INTERNAL_ERROR, "not a statement about transactions").into()),
        };
        Ok(tag.to_string())
    }

    /// Sets a mode of the transaction that is written as a setting.
    pub(super) fn set_mode(&mut self, name: &str, value: &str) -> Outcome {
        let invalid = || {
            let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
            Failure::new(code::INVALID_PARAMETER_VALUE, message)
        };
        let mut modes = Modes::default();
        match canonical(name).as_str() {
            "transaction_isolation" => modes.isolation = Some(isolation_level(value).ok_or_else(invalid)?),
            _ => {
                let value = value.to_lowercase();
                let is_on = ["on", "true", "yes", "1"].contains(&value.as_str());
                let is_off = ["off", "false", "no", "0"].contains(&value.as_str());
                modes.read_only = Some((is_on || is_off).then_some(is_on).ok_or_else(invalid)?);
            }
        }
        let is_open = self.transaction.status != TransactionStatus::Idle;
        self.set_modes(&modes, false, is_open)
    }

    fn warn(&mut self, code: &'static str, message: &str) {
        self.link.output.failure(&Failure::warning(code, message));
    }

    fn needs_transaction(&self, is_open: bool, what: &str) -> Outcome {
        match is_open {
            true => Ok(()),
            false => {
                let message = format!("{what} can only be used in transaction blocks");
                Err(Failure::new(code::NO_ACTIVE_TRANSACTION, message).into())
            }
        }
    }

    /// Returns the place of the newest savepoint of this name.
    fn savepoint(&self, name: &str) -> Result<usize, Failure> {
        let at = self.transaction.savepoints.iter().rposition(|known| known.name == name);
        at.ok_or_else(|| {
            Failure::new(code::INVALID_SAVEPOINT, format!("savepoint \"{name}\" does not exist"))
        })
    }

    fn set_modes(&mut self, modes: &Modes, of_session: bool, is_open: bool) -> Outcome {
        if of_session {
            if let Some(isolation) = &modes.isolation {
                self.settings.set("default_transaction_isolation", Some(isolation))?;
            }
            if let Some(read_only) = modes.read_only {
                let value = if read_only { "on" } else { "off" };
                self.settings.set("default_transaction_read_only", Some(value))?;
            }
            self.report_settings();
            return Ok(());
        }
        if !is_open {
            self.warn(code::NO_ACTIVE_TRANSACTION, "SET TRANSACTION can only be used in transaction blocks");
            return Ok(());
        }
        let transaction = &mut self.transaction;
        transaction.modes.isolation = modes.isolation.clone().or(transaction.modes.isolation.take());
        transaction.modes.read_only = modes.read_only.or(transaction.modes.read_only);
        if transaction.snapshot.is_none() && transaction.is_repeatable(&self.settings) {
            transaction.snapshot = Some(Snapshot::default());
        }
        Ok(())
    }

    /// Ends the transaction: drops its cursors, and returns settings to what they were.
    fn end_transaction(&mut self, commits: bool) {
        let ended = std::mem::take(&mut self.transaction);
        self.portals.retain(|_, portal| portal.is_held);
        match (commits, ended.before) {
            (false, Some(before)) => self.settings = before,
            // The first value counts if a setting was set twice.
            _ => ended.locals.into_iter().rev().for_each(|(name, before)| {
                // It was accepted before.
                drop(self.settings.set(&name, before.as_deref()));
            }),
        }
        self.report_settings();
    }
}

/// Returns an isolation level as it is stored; `None` if there is no such level.
pub(super) fn isolation_level(written: &str) -> Option<String> {
    let level = written.trim().to_lowercase();
    LEVELS.contains(&level.as_str()).then_some(level)
}
