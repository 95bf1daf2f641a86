//! Changes inside of a transaction: rows of INSERT and COPY, and one CREATE TABLE, are kept here until COMMIT, and loaded
//! as one version of their table then. The session's own statements see them before.
//!
//! Invariant: nothing of a transaction is visible to others before its COMMIT, and after a ROLLBACK nothing is left. A
//! change that cannot be kept in this way is refused.

use super::engine::placed;
use super::{Outcome, Place, Session, Started};
use crate::postgres::commands::Kind;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use farpool_datafusion::{Parameters, Statement};
use farpool_memory::Reservation;
use farpool_model::{LoadMode, TableName, cast, limits};
use farpool_postgres::failure::{Failure, code};
use futures::{StreamExt, stream};
use std::sync::Arc;

/// The table that a transaction changes, and the rows that are not loaded yet.
#[derive(Debug)]
pub(super) struct Staged {
    pub table: TableName,
    pub schema: SchemaRef,
    /// Whether the table is created.
    creates: bool,
    batches: Vec<RecordBatch>,
    memory: Reservation,
}

impl Staged {
    /// Returns a table that a transaction begins to change.
    pub fn new(table: TableName, schema: SchemaRef, creates: bool, memory: Reservation) -> Self {
        Staged { table, schema, creates, batches: Vec::new(), memory }
    }

    /// Returns whether there is nothing to load.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty() && !self.creates
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
        match self.creates {
            true => statement.with_table(self.table.table(), schema, batches),
            false if self.batches.is_empty() => statement,
            false => statement.with_rows_behind(self.table.table(), schema, batches),
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
            return Err(not_kept().into());
        }
        let statement = self.entry.running.begin();
        let deadline = self.deadline();
        let session = self.engine_session();
        let text = self.transaction.shown_to(Statement::from(place.text).with_parameters(values));
        let snapshot = self.transaction.snapshot().cloned();
        let planned = async move { session.stage(&text, snapshot.as_ref()).await };
        let change = self.guarded(&statement, deadline, planned).await.map_err(|stop| placed(stop, place))?;
        let change = change.ok_or_else(not_kept)?;
        // Asked for first, since it may fail.
        let mut rows = change.rows()?;
        let mut staged = self.staged(&change.table, &change.schema, change.creates)?;
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

    /// Takes what the transaction has kept for a table, or begins with it.
    pub(super) fn staged(
        &mut self,
        table: &TableName,
        schema: &SchemaRef,
        creates: bool,
    ) -> Result<Staged, Failure> {
        let unsupported =
            |message: String, hint: &str| Err(Failure::new(code::FEATURE_NOT_SUPPORTED, message).hint(hint));
        if !table.is_public() {
            let message = format!("changes of {} inside of a transaction block are not done", table.as_str());
            return unsupported(message, "only tables of the schema public can be changed there");
        }
        match self.transaction.take_staged() {
            Some(staged) if staged.table == *table && !creates => Ok(staged),
            Some(staged) => {
                let (first, second) = (staged.table.as_str().to_string(), table.as_str());
                self.transaction.set_staged(staged);
                let message = format!("a transaction that changes {first} cannot change {second}, too");
                unsupported(message, "a transaction becomes one version of one table: commit in between")
            }
            None => {
                let memory = self.engine.work.empty();
                Ok(Staged::new(table.clone(), Arc::clone(schema), creates, memory))
            }
        }
    }

    /// Loads what the transaction has kept.
    pub(super) async fn commit_staged(&mut self) -> Outcome {
        let Some(staged) = self.transaction.take_staged() else { return Ok(()) };
        let Staged { table, schema, creates, batches, memory } = staged;
        let rows = batches.iter().map(|batch| cast::u64_from(batch.num_rows())).sum();
        let mode = if creates { LoadMode::Create } else { LoadMode::Append };
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
    Failure::new(code::FEATURE_NOT_SUPPORTED, message)
        .hint("INSERT, COPY and one CREATE TABLE are; let other statements be transactions of their own")
}
