//! Programs of clients: they get their memory, perhaps after they have waited for it, and then their workers.

use super::connection::{Asked, Connection, Work};
use super::sink::StreamSink;
use crate::Caller;
use crate::admission::cannot_wait;
use farpool_memory::Reservation;
use farpool_model::{Result, ResultForm};
use farpool_pipeline::Run;
use farpool_wire::Response;
use std::sync::Arc;

/// A program that is to run on a stream.
pub(super) struct Starting {
    pub connection: Arc<Connection>,
    pub stream: u32,
    pub run: Arc<Run>,
    /// What is said before its rows.
    pub answer: Response,
    pub results: ResultForm,
}

impl Starting {
    /// Has the run go on if there is memory for it, else when there is; its sink ends the stream. `held` is what the
    /// request has.
    ///
    /// # Errors
    /// `OverLimit` when there is not even memory for it to wait.
    pub fn begin(self, caller: &Caller, asked: &Asked, held: &mut Reservation) -> Result<()> {
        if caller.admit_now(&self.run)? {
            return self.submit(caller);
        }
        // While it waits, there is its program.
        held.try_grow(self.run.need()?.program)?;
        let held = held.split(held.bytes());
        let (caller, gone) = (caller.clone(), asked.gone.clone());
        let runtime = self.connection.runtime.clone().ok_or_else(cannot_wait)?;
        runtime.spawn(async move {
            let admitted = tokio::select! {
                biased;
                () = gone.notified() => return,
                admitted = caller.admit(&self.run) => admitted,
            };
            drop(held);
            let (connection, stream) = (self.connection.clone(), self.stream);
            if let Err(error) = admitted.and_then(|()| self.submit(&caller)) {
                connection.fail(stream, error);
            }
        });
        Ok(())
    }

    fn submit(self, caller: &Caller) -> Result<()> {
        let Starting { connection, stream, run, answer, results } = self;
        let answer = answer.encode()?;
        let open = connection.outbox.with(|lanes| {
            let Some(work) = lanes.work(stream) else { return false };
            *work = Work::Run(run.clone());
            answer.into_iter().all(|message| lanes.push(stream, message))
        });
        if open {
            let sink = Arc::new(StreamSink::new(connection.clone(), stream, &run, results));
            caller.submit(run, sink);
            connection.outbox.flush();
        }
        Ok(())
    }
}
