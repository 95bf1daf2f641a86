//! Starts programs of clients. A program first waits for its turn (the number of a tenant's concurrent programs is
//! limited), then for its memory; then the workers execute it.

use super::changes::{Change, ChangeSink};
use super::connection::{Connection, RequestCancel, StreamWork};
use super::delivery::StreamDelivery;
use super::plans::PlanMemory;
use super::sink::StreamSink;
use crate::Caller;
use crate::admission::{self, cannot_wait};
use crate::queries::{ListedQuery, Query};
use crate::turns::Turn;
use farpool_memory::Reservation;
use farpool_model::{QueryState, Result, ResultForm, limits};
use farpool_pipeline::{Run, Sink};
use farpool_wire::Response;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Maximum time that a program waits for its turn.
const PATIENCE: Duration = Duration::from_millis(limits::PROGRAM_WAIT_MS_MAX);

/// A program to be executed, whose result is sent on a stream.
pub(super) struct ProgramStart {
    pub connection: Arc<Connection>,
    pub stream: u32,
    pub run: Arc<Run>,
    pub wanted: RequestedResult,
}

/// Result that the client wants from a program: its rows, or a change of the table.
pub(super) enum RequestedResult {
    /// Rows in the form `results`; the message `answer` is sent before them.
    Rows { answer: Response, results: ResultForm },
    /// The program is a change of the table's rows (UPDATE or DELETE).
    Change(Change),
}

impl ProgramStart {
    /// Starts the program at once if its turn and memory are available, otherwise as soon as they are. Does not block.
    /// The sink of the run closes the stream at the end. `held` is the reservation for the compiled program, `memory`
    /// that of the request.
    ///
    /// # Errors
    /// `Busy` when too many programs of the tenant wait; `OverLimit` when there is no memory in which the program can
    /// wait.
    pub fn begin(
        self,
        caller: &Caller,
        cancel_signal: &RequestCancel,
        memory: &mut PlanMemory,
        mut held: Reservation,
    ) -> Result<()> {
        let queries = caller.node().queries();
        let delivery = StreamDelivery::new(&self.connection, self.stream);
        let listed = queries.add(Query::new(caller, &self.run, delivery));
        let come = Arc::new(Notify::new());
        let notify = come.clone();
        let turn = caller.line_up(Box::new(move || notify.notify_one()))?;
        if turn.has_come() && admission::admit_now(&self.run, &mut held)? {
            return self.submit(caller, turn, listed);
        }
        memory.find_place(held.bytes(), &caller.places())?;
        let place = memory.take_place();
        let (caller, gone) = (caller.clone(), cancel_signal.gone.clone());
        let runtime = self.connection.runtime.clone().ok_or_else(cannot_wait)?;
        runtime.spawn(async move {
            let admitted = tokio::select! {
                biased;
                () = gone.notified() => return,
                admitted = admit(&caller, &self.run, held, &turn, &come, &listed) => admitted,
            };
            drop(place);
            let (connection, stream) = (self.connection.clone(), self.stream);
            if let Err(error) = admitted.and_then(|()| self.submit(&caller, turn, listed)) {
                connection.fail(stream, error);
            }
        });
        Ok(())
    }

    fn submit(self, caller: &Caller, turn: Turn, listed: ListedQuery) -> Result<()> {
        let ProgramStart { connection, stream, run, wanted } = self;
        let answer = match &wanted {
            RequestedResult::Rows { answer, .. } => connection.seal(stream, answer.encode()?)?,
            RequestedResult::Change(_) => Vec::new(),
        };
        let open = connection.outbox.with(|lanes| {
            let Some(work) = lanes.work(stream) else { return false };
            *work = StreamWork::Run(run.clone());
            answer.into_iter().all(|message| lanes.push(stream, message))
        });
        if open {
            listed.set_state(QueryState::Running);
            let sink: Arc<dyn Sink> = match wanted {
                RequestedResult::Rows { results, .. } => {
                    Arc::new(StreamSink::new(connection.clone(), stream, &run, results, listed))
                }
                RequestedResult::Change(change) => Arc::new(ChangeSink::new(change, &run, listed)),
            };
            caller.submit_in_turn(run, sink, Some(turn));
            connection.outbox.flush();
        }
        Ok(())
    }
}

/// Waits for the turn of a program (the number of concurrent programs is limited), then until its memory is reserved.
async fn admit(
    caller: &Caller,
    run: &Run,
    held: Reservation,
    turn: &Turn,
    come: &Notify,
    listed: &ListedQuery,
) -> Result<()> {
    let waiting = async {
        while !turn.has_come() {
            come.notified().await;
        }
    };
    timeout(PATIENCE, waiting).await.map_err(|_| caller.turn_did_not_come())?;
    listed.set_state(QueryState::WaitingForMemory);
    admission::admit(run, held).await
}
