//! Encodes the batches of a program's result as messages of the native protocol, on the worker thread that made them,
//! and queues them to be sent.

use super::connection::Connection;
use super::packing::ResultPacker;
use crate::queries::ListedQuery;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use farpool_columns::RowGroup;
use farpool_memory::size_text;
use farpool_model::{Error, Receipt, Result, ResultForm};
use farpool_pipeline::{Run, Sink};
use farpool_wire::{Outgoing, Response};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// The sink of a running program, which sends its result on a stream.
pub(super) struct StreamSink {
    connection: Arc<Connection>,
    stream: u32,
    run: Weak<Run>,
    schema: SchemaRef,
    packing: ResultPacker,
    /// Bytes of rows sent so far; `bytes_max` is the maximum for the whole result.
    bytes: AtomicU64,
    bytes_max: u64,
    /// The program's entry in the list of running programs; `None` after the end.
    listed: Mutex<Option<ListedQuery>>,
    /// The error of the first batch that could not be sent, if any.
    failure: Mutex<Option<Error>>,
}

impl StreamSink {
    /// Creates a sink for the result of `run`, which the client requested in `form`.
    pub fn new(
        connection: Arc<Connection>,
        stream: u32,
        run: &Arc<Run>,
        form: ResultForm,
        listed: ListedQuery,
    ) -> Self {
        let packing = ResultPacker::new(form, connection.caller.clock().clone());
        let bytes_max = connection.caller.limits().result_bytes_max.unwrap_or(u64::MAX);
        StreamSink {
            connection,
            stream,
            run: Arc::downgrade(run),
            schema: run.schema().clone(),
            packing,
            bytes: AtomicU64::new(0),
            bytes_max,
            listed: Mutex::new(Some(listed)),
            failure: Mutex::default(),
        }
    }

    /// Calls `make` and sends the messages that it returns; does nothing if the stream was closed. Stops the program if
    /// `make` fails.
    fn send(&self, make: impl FnOnce() -> Result<Vec<Outgoing>>) {
        let outbox = &self.connection.outbox;
        if outbox.with(|lanes| lanes.work(self.stream).is_none()) {
            return;
        }
        let messages = make().and_then(|messages| self.count(messages));
        let push = |messages: Vec<Outgoing>| {
            messages.into_iter().try_for_each(|message| self.connection.push(self.stream, message))
        };
        if let Err(error) = messages.and_then(push) {
            self.fail(error);
        }
    }

    /// Counts the bytes of `messages` and returns the messages.
    ///
    /// # Errors
    /// `OverLimit` when the result exceeds its maximum size.
    fn count(&self, messages: Vec<Outgoing>) -> Result<Vec<Outgoing>> {
        let more: u64 = messages.iter().map(Outgoing::bytes_on_wire).sum();
        let bytes = self.bytes.fetch_add(more, Relaxed) + more;
        if bytes <= self.bytes_max {
            return Ok(messages);
        }
        let (most, tenant) = (size_text(self.bytes_max), self.connection.caller.tenant());
        Err(Error::over_limit(format!("the result of one program may have {most} for tenant {tenant}"))
            .advise("ask for fewer rows or columns, or have the tenant's result_bytes raised"))
    }

    fn fail(&self, error: Error) {
        self.failure.lock().get_or_insert(error);
        if let Some(run) = self.run.upgrade() {
            run.cancel();
        }
    }
}

impl Sink for StreamSink {
    fn ready(&self) -> bool {
        self.connection.outbox.with(|lanes| lanes.has_room(self.stream))
    }

    fn batch(&self, batch: RecordBatch) {
        self.send(|| self.packing.batch(batch, self.connection.outbox.bytes_per_s()));
    }

    fn encoded(&self, group: RowGroup) {
        self.send(|| self.packing.encoded(&group, &self.schema));
    }

    fn fetched(&self, place: usize, group: RowGroup) {
        self.send(|| self.packing.fetched(place, &group));
    }

    fn finish(&self, outcome: Result<Receipt>) {
        drop(self.listed.lock().take());
        // If a batch could not be sent, the result ends with that error even if the program ran to its end.
        let failure = self.failure.lock().take();
        match failure.map_or(outcome, Err) {
            Ok(mut receipt) => {
                self.packing.settle(&mut receipt);
                receipt.bytes_on_wire = self.connection.outbox.with(|lanes| lanes.bytes_total(self.stream));
                self.connection.answer(self.stream, &Response::Receipt(receipt));
            }
            Err(error) => self.connection.fail(self.stream, error),
        }
    }
}
