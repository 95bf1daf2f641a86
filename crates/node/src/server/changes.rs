//! Changes of the rows of a table: programs whose rows stay, and which end with a new version of their table.
//!
//! A change has an id, as a load has (`crate::outcomes`): a client that does not hear of its end can ask for it.

use super::connection::{Asked, Connection};
use super::load::{ended_by_asking, made};
use super::programs::{Starting, Wanted};
use super::queries::Listed;
use crate::Caller;
use crate::outcomes::{Begun, Recording};
use arrow_array::RecordBatch;
use farpool_columns::RowGroup;
use farpool_memory::Reservation;
use farpool_model::{ErrorKind, LoadId, LoadOutcome, Receipt, Result, TableInfo};
use farpool_pipeline::{BoundProgram, Run, Sink};
use farpool_wire::Response;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// A change that a client asks for.
pub(super) struct ChangeRequest {
    pub connection: Arc<Connection>,
    pub stream: u32,
    pub program: Arc<BoundProgram>,
    /// How many rows it is to change.
    pub rows: u64,
}

/// A change that was begun.
pub(super) struct Change {
    request: ChangeRequest,
    /// Of the client's request.
    caller: Caller,
    recording: Recording,
}

/// The end of a change.
pub(super) struct ChangeSink {
    run: Weak<Run>,
    open: Mutex<Option<(Change, Listed)>>,
}

impl ChangeRequest {
    /// Has it carried out, or answered as the one that had its id before. `held` is what the request has.
    ///
    /// # Errors
    /// What is wrong with it; those of [`Starting::begin`].
    pub fn begin(self, caller: &Caller, id: LoadId, asked: &Asked, held: &mut Reservation) -> Result<()> {
        let run = caller.start_change(&self.program)?;
        // It needs no more of its client: who asks for its outcome waits for its end.
        let recording = match caller.record_load(id, Box::new(|| {}))? {
            Begun::New(recording) => recording,
            Begun::Known(first) => {
                let caller = caller.clone();
                return first.wait(Box::new(move |outcome| self.repeat(&caller, outcome)));
            }
        };
        let (connection, stream) = (self.connection.clone(), self.stream);
        let wanted = Wanted::Change(Change { request: self, caller: caller.clone(), recording });
        Starting { connection, stream, run, wanted }.begin(caller, asked, held)
    }

    /// Answers as the first change with the same id.
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
    pub fn new(change: Change, run: &Arc<Run>, listed: Listed) -> Self {
        ChangeSink { run: Arc::downgrade(run), open: Mutex::new(Some((change, listed))) }
    }
}

impl Change {
    /// Makes what came of `run` visible.
    fn publish(&self, run: &Run) -> Result<TableInfo> {
        self.caller.publish_change(&self.request.program, run.take_changed(), self.request.rows)
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

    fn finish(&self, outcome: Result<Receipt>) {
        let Some((change, listed)) = self.open.lock().take() else { return };
        let made_version = outcome.and_then(|_| match self.run.upgrade() {
            Some(run) => change.publish(&run),
            None => Err(farpool_model::Error::internal("the run of a change is gone before its end")),
        });
        drop(listed);
        let ChangeRequest { connection, stream, .. } = &change.request;
        change.recording.settle(match &made_version {
            Ok(table) => LoadOutcome::Loaded(made(table)),
            // What ends because its client is gone is nobody's failure.
            Err(error) if error.kind == ErrorKind::Cancelled => LoadOutcome::NotLoaded,
            Err(error) => LoadOutcome::Failed(error.clone()),
        });
        match made_version {
            Ok(table) => connection.answer(*stream, &Response::Loaded(table)),
            Err(error) => connection.fail(*stream, error),
        }
    }
}
