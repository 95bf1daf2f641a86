//! Changes of the rows of a table (UPDATE and DELETE): programs that return no rows and make a new version of their
//! table.
//!
//! A change has an id, as a load has (`crate::outcomes`), so that a client that lost the answer can ask for the
//! outcome.

use super::connection::{Connection, RequestCancel};
use super::load::{ended_by_asking, made};
use super::plans::PlanMemory;
use super::programs::{ProgramStart, RequestedResult};
use crate::Caller;
use crate::outcomes::{LoadRegistration, OutcomeRecorder};
use crate::queries::ListedQuery;
use arrow_array::RecordBatch;
use farpool_catalog::Commit;
use farpool_columns::RowGroup;
use farpool_model::{ErrorKind, LoadId, LoadOutcome, Receipt, Result, TableInfo};
use farpool_pipeline::{BoundProgram, Run, Sink};
use farpool_wire::Response;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// The request of a client to change rows.
pub(super) struct ChangeRequest {
    pub connection: Arc<Connection>,
    pub stream: u32,
    pub program: Arc<BoundProgram>,
    /// Number of rows that the client expects the change to affect; with another number, the change fails.
    pub rows: u64,
}

/// A change of rows (UPDATE or DELETE) in progress: what is needed to publish it and to answer the client.
pub(super) struct Change {
    request: ChangeRequest,
    /// The caller on whose behalf the change is made.
    caller: Caller,
    id: LoadId,
    recording: OutcomeRecorder,
}

/// The sink of the run of a change; publishes the new version of the table when the run ends.
pub(super) struct ChangeSink {
    run: Weak<Run>,
    open: Mutex<Option<(Change, ListedQuery)>>,
}

impl ChangeRequest {
    /// Starts the change, or answers with the outcome of an earlier change with the same id.
    ///
    /// # Errors
    /// Mistakes in the change; errors of [`ProgramStart::begin`].
    pub fn begin(
        self,
        caller: &Caller,
        id: LoadId,
        cancel_signal: &RequestCancel,
        memory: &mut PlanMemory,
    ) -> Result<()> {
        let run = caller.start_change(&self.program)?;
        // Everything that may have to wait, and so make the request start again, happens before the id is registered.
        let held = memory.keep(run.need()?.program)?;
        memory.find_place(held.bytes(), &caller.places())?;
        // The change needs nothing more from its client, so a request for the outcome does not end it and waits for its
        // end.
        let recording = match caller.record_load(id, None, Box::new(|| {}))? {
            LoadRegistration::New(recording) => recording,
            LoadRegistration::Known(first) => {
                let caller = caller.clone();
                return first.wait(Box::new(move |outcome| self.repeat(&caller, outcome)));
            }
        };
        let (connection, stream) = (self.connection.clone(), self.stream);
        let wanted = RequestedResult::Change(Change { request: self, caller: caller.clone(), id, recording });
        ProgramStart { connection, stream, run, wanted }.begin(caller, cancel_signal, memory, held)
    }

    /// Answers with the outcome of the first change with the same id.
    fn repeat(&self, caller: &Caller, outcome: &LoadOutcome) {
        match outcome {
            LoadOutcome::Loaded(made) => {
                let name = &self.program.prepared().effective.table;
                let table = caller.loaded(name, &self.program.table().schema, *made);
                self.connection.answer(self.stream, &Response::Loaded(table));
            }
            LoadOutcome::Failed(error) => self.connection.fail(self.stream, error.clone()),
            LoadOutcome::NotLoaded => self.connection.fail(self.stream, ended_by_asking()),
        }
    }
}

impl ChangeSink {
    pub fn new(change: Change, run: &Arc<Run>, listed: ListedQuery) -> Self {
        ChangeSink { run: Arc::downgrade(run), open: Mutex::new(Some((change, listed))) }
    }
}

impl Change {
    /// Publishes the row groups that `run` has made as the new version of the table.
    fn publish(&self, run: &Run) -> Result<Commit<TableInfo>> {
        let ChangeRequest { program, rows, .. } = &self.request;
        self.caller.publish_change(program, run, *rows, Some(self.id))
    }

    /// Sends the outcome to the client, and records it for requests for the outcome of the change.
    fn end(&self, outcome: Result<TableInfo>) {
        let ChangeRequest { connection, stream, .. } = &self.request;
        self.recording.settle(match &outcome {
            Ok(table) => LoadOutcome::Loaded(made(table)),
            // A change that ends because its client is gone is not recorded as a failure.
            Err(error) if error.kind == ErrorKind::Cancelled => LoadOutcome::NotLoaded,
            Err(error) => LoadOutcome::Failed(error.clone()),
        });
        match outcome {
            Ok(table) => connection.answer(*stream, &Response::Loaded(table)),
            Err(error) => connection.fail(*stream, error),
        }
    }
}

impl Sink for ChangeSink {
    fn ready(&self) -> bool {
        true
    }

    fn batch(&self, _batch: RecordBatch) {
        debug_assert!(false, "rows leave a change");
    }

    fn encoded(&self, _group: RowGroup) {
        debug_assert!(false, "rows leave a change");
    }

    fn fetched(&self, _place: usize, _group: RowGroup) {
        debug_assert!(false, "chunks leave a change");
    }

    fn finish(&self, outcome: Result<Receipt>) {
        let Some((change, listed)) = self.open.lock().take() else { return };
        let run = outcome.and_then(|_| {
            let run = self.run.upgrade();
            run.ok_or_else(|| farpool_model::Error::internal("the run of a change is gone before its end"))
        });
        let run = match run {
            Ok(run) => run,
            Err(error) => {
                drop(listed);
                return change.end(Err(error));
            }
        };
        let (caller, change) = (change.caller.clone(), Arc::new(change));
        let published = {
            let change = change.clone();
            move |made: Result<Commit<TableInfo>>| {
                drop(listed);
                match made {
                    Ok(made) => made.then(move |durable| change.end(durable)),
                    Err(error) => change.end(Err(error)),
                }
            }
        };
        if Caller::is_of_keys(&change.request.program) {
            caller.apart(move |_| change.publish(&run), published);
        } else {
            // Runs on a thread that may block on the disk, because re-encoded row groups may have to be written to disk
            // first.
            caller.write(move || published(change.publish(&run)));
        }
    }
}
