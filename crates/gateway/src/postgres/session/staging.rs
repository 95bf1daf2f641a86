//! Changes inside of a transaction. Rows of INSERT and COPY, one CREATE TABLE and one TRUNCATE are kept here until COMMIT, and
//! loaded as one version of their table then. The session's own statements see them before. Any other change is carried out
//! as a whole at COMMIT, and is the only one of its transaction; what it changes cannot be read before.
//!
//! Invariant: nothing of a transaction is visible to others before its COMMIT, and after a ROLLBACK nothing is left. A
//! change that cannot be kept in this way is refused.

use super::engine::placed;
use super::{Outcome, Place, Session, Started};
use crate::postgres::commands::Kind;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use farpool_datafusion::{Held, HeldChange, Parameters, Statement};
use farpool_memory::Reservation;
use farpool_model::{LoadMode, TableName, cast, limits};
use farpool_postgres::failure::{Failure, code};
use futures::{StreamExt, stream};
use std::sync::Arc;

const ONE_VERSION: &str = "a transaction becomes one version of one table: commit in between";

/// The table that a transaction changes, and the rows that are not loaded yet.
#[derive(Debug)]
pub(super) struct Staged {
    pub table: TableName,
    pub schema: SchemaRef,
    /// The mode in which the rows are loaded.
    mode: LoadMode,
    batches: Vec<RecordBatch>,
    memory: Reservation,
}

impl Staged {
    /// Returns a table that a transaction begins to change.
    pub fn new(table: TableName, schema: SchemaRef, mode: LoadMode, memory: Reservation) -> Self {
        Staged { table, schema, mode, batches: Vec::new(), memory }
    }

    /// Returns whether there is nothing to load.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.mode == LoadMode::Append
    }

    /// Returns the number of batches, to which a rollback to a savepoint returns.
    pub fn mark(&self) -> usize {
        self.batches.len()
    }

    /// Drops the batches behind a mark.
    pub fn truncate(&mut self, mark: usize) {
        self.batches.truncate(mark);
        self.memory.set(self.batches.iter().map(RecordBatch::get_array_memory_size).sum());
    }

    /// Adds rows.
    ///
    /// # Errors
    /// A failure if there are too many.
    pub fn push(&mut self, batch: RecordBatch) -> Result<(), Failure> {
        let bytes = batch.get_array_memory_size();
        if self.memory.bytes() + bytes > limits::POSTGRES_STAGED_BYTES_MAX {
            let most = limits::POSTGRES_STAGED_BYTES_MAX;
            let message = format!("a transaction may have {most} bytes of rows that are not committed");
            return Err(Failure::new(code::PROGRAM_LIMIT_EXCEEDED, message).hint("commit more often"));
        }
        self.memory.try_grow(bytes)?;
        self.batches.push(batch);
        Ok(())
    }

    /// Lets a statement see the rows.
    pub fn shown_to(&self, statement: Statement) -> Statement {
        let (schema, batches) = (Arc::clone(&self.schema), self.batches.clone());
        match self.mode {
            LoadMode::Append if self.batches.is_empty() => statement,
            LoadMode::Append => statement.with_rows_behind(self.table.table(), schema, batches),
            LoadMode::Create | LoadMode::Replace | LoadMode::ReplaceVersion(_) => {
                statement.with_table(self.table.table(), schema, batches)
            }
        }
    }
}

impl Session {
    /// Carries out a change inside of a transaction. Returns the tag.
    pub(super) async fn stage(
        &mut self,
        kind: Kind,
        place: Place<'_>,
        values: Parameters,
    ) -> Outcome<Started> {
        let can_be_kept =
            matches!(kind, Kind::Changes("INSERT 0") | Kind::CreateTableAs | Kind::Other("CREATE TABLE"));
        if !can_be_kept {
            return self.hold(kind, place, values).await;
        }
        let statement = self.entry.running.begin();
        let deadline = self.deadline();
        let session = self.engine_session();
        let text = self.transaction.shown_to(Statement::from(place.text).with_parameters(values));
        let snapshot = self.transaction.snapshot().cloned();
        let dropped = self.transaction.held().filter(|held| held.drops).and_then(|held| held.table.clone());
        let planned = async move { session.stage(&text, snapshot.as_ref(), dropped.as_ref()).await };
        let change = self.guarded(&statement, deadline, planned).await.map_err(|stop| placed(stop, place))?;
        let change = change.ok_or_else(not_kept)?;
        if !Arc::ptr_eq(&change.pool, self.engine.catalog.pool()) {
            let message = "changes of another database inside of a transaction block are not done";
            let failure = Failure::new(code::FEATURE_NOT_SUPPORTED, message);
            return Err(failure
                .hint("connect to that database, or change it outside of a transaction")
                .into());
        }
        // Asked for first, since it may fail.
        let mut rows = change.rows()?;
        let mut staged = self.staged(&change.table, &change.schema, change.mode)?;
        let before = staged.mark();
        let mut count = 0;
        let outcome = loop {
            match self.guarded(&statement, deadline, async { rows.next().await.transpose() }).await {
                Ok(Some(batch)) => {
                    count += cast::u64_from(batch.num_rows());
                    if let Err(failure) = staged.push(batch) {
                        break Err(failure.into());
                    }
                }
                Ok(None) => break Ok(()),
                Err(stop) => break Err(placed(stop, place)),
            }
        };
        self.entry.running.end();
        if outcome.is_err() {
            // The rows before the one that failed.
            staged.truncate(before);
        }
        self.transaction.set_staged(staged);
        outcome?;
        Ok(Started::Done(match kind {
            Kind::Changes(tag) => format!("{tag} {count}"),
            Kind::CreateTableAs => format!("SELECT {count}"),
            _ => "CREATE TABLE".to_string(),
        }))
    }

    /// Plans a change that is carried out at COMMIT. Returns the tag.
    async fn hold(&mut self, kind: Kind, place: Place<'_>, values: Parameters) -> Outcome<Started> {
        self.is_first_change()?;
        let statement = self.entry.running.begin();
        let deadline = self.deadline();
        let session = self.engine_session();
        let text = Statement::from(place.text).with_parameters(values);
        let snapshot = self.transaction.snapshot().cloned();
        let planned = async move { session.hold(&text, snapshot.as_ref()).await };
        let held = self.guarded(&statement, deadline, planned).await.map_err(|stop| placed(stop, place));
        self.entry.running.end();
        let rows = match held?.ok_or_else(not_kept)? {
            Held::Nothing => 0,
            Held::Emptied { change, rows } => {
                let staged = self.staged(&change.table, &change.schema, change.mode)?;
                self.transaction.set_staged(staged);
                rows
            }
            Held::Change(change) => {
                let rows = change.rows;
                self.transaction.hold(change);
                rows
            }
        };
        Ok(Started::Done(match kind {
            Kind::Changes(tag) => format!("{tag} {rows}"),
            Kind::Other(tag) => tag.to_string(),
            _ => "OK".to_string(),
        }))
    }

    /// Checks that the transaction has changed nothing so far.
    fn is_first_change(&self) -> Result<(), Failure> {
        let message = match (self.transaction.changed(), self.transaction.held()) {
            (None, None) => return Ok(()),
            (Some(table), _) => format!("a transaction that changes {} cannot do this, too", table.as_str()),
            (None, Some(_)) => "a transaction can carry out one UPDATE, DELETE, DROP or ALTER".to_string(),
        };
        Err(Failure::new(code::FEATURE_NOT_SUPPORTED, message).hint(ONE_VERSION))
    }

    /// Refuses a statement that reads what the transaction has changed and not carried out.
    pub(super) async fn check_held(&mut self, text: &str) -> Outcome {
        // Rows that take the place of a dropped table are seen.
        let held = self.transaction.held().filter(|_| self.transaction.changed().is_none());
        let Some(held) = held else { return Ok(()) };
        let (asked, text) = (Arc::clone(held), Statement::from(text));
        let statement = self.entry.running.begin();
        let reads =
            self.guarded(&statement, self.deadline(), async move { asked.is_read_by(&text).await }).await;
        self.entry.running.end();
        if reads? {
            let message = "a table that an UPDATE, DELETE, DROP or ALTER of this transaction changes cannot be read in it";
            return Err(Failure::new(code::FEATURE_NOT_SUPPORTED, message).hint("commit before").into());
        }
        Ok(())
    }

    /// Takes what the transaction has kept for a table, or begins with it.
    pub(super) fn staged(
        &mut self,
        table: &TableName,
        schema: &SchemaRef,
        mode: LoadMode,
    ) -> Result<Staged, Failure> {
        let unsupported =
            |message: String, hint: &str| Err(Failure::new(code::FEATURE_NOT_SUPPORTED, message).hint(hint));
        if !table.is_public() {
            let message = format!("changes of {} inside of a transaction block are not done", table.as_str());
            return unsupported(message, "only tables of the schema public can be changed there");
        }
        let is_replaced = |held: &HeldChange| held.drops && held.table.as_ref() == Some(table);
        if self.transaction.held().is_some_and(|held| !is_replaced(held)) {
            return unsupported(
                "a transaction with an UPDATE, DELETE, DROP or ALTER cannot change more".into(),
                ONE_VERSION,
            );
        }
        match self.transaction.take_staged() {
            Some(staged) if staged.table == *table && mode == LoadMode::Append => Ok(staged),
            Some(staged) => {
                let (first, second) = (staged.table.as_str().to_string(), table.as_str());
                self.transaction.set_staged(staged);
                let message = format!("a transaction that changes {first} cannot change {second}, too");
                unsupported(message, ONE_VERSION)
            }
            None => {
                let memory = self.engine.work.empty();
                Ok(Staged::new(table.clone(), Arc::clone(schema), mode, memory))
            }
        }
    }

    /// Loads what the transaction has kept, or carries out its change.
    pub(super) async fn commit_changes(&mut self) -> Outcome {
        let (staged, held) = (self.transaction.take_staged(), self.transaction.take_held());
        let Some(staged) = staged else {
            let Some(held) = held else { return Ok(()) };
            let statement = self.entry.running.begin();
            let done = self.guarded(&statement, self.deadline(), async move { held.run().await }).await;
            self.entry.running.end();
            self.engine.catalog.forget();
            return done;
        };
        // A table that was dropped is replaced by the one that was created.
        let Staged { table, schema, mode, batches, memory } = staged;
        let rows = batches.iter().map(|batch| cast::u64_from(batch.num_rows())).sum();
        let pool = Arc::clone(self.engine.catalog.pool());
        let batches = stream::iter(batches.into_iter().map(Ok)).boxed();
        let statement = self.entry.running.begin();
        let load = async move { pool.load(&table, mode.into(), schema, Some(rows), batches).await };
        let loaded = self.guarded(&statement, self.deadline(), load).await;
        self.entry.running.end();
        self.engine.catalog.forget();
        drop(memory);
        loaded.map(drop)
    }
}

fn not_kept() -> Failure {
    let message = "this change inside of a transaction block is not done";
    Failure::new(code::FEATURE_NOT_SUPPORTED, message).hint("let it be a transaction of its own")
}
