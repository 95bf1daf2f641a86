//! Results on their way to the client: rows are computed and encoded as fast as the client reads them, and no faster.

use super::convert::{sent_batches, sent_schema};
use super::running::Running;
use super::status::{defect, status};
use arrow_array::RecordBatch;
use arrow_flight::{FlightData, SchemaAsIpc};
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_schema::{Schema, SchemaRef};
use farpool_model::{Error, ErrorKind, Result, limits};
use farpool_transfer::BatchStream;
use futures::{Stream, StreamExt, stream};
use sha2::{Digest, Sha256};
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Status;

/// Messages that are ready before the client takes them. Reason: encoding goes on while the previous one is sent.
const AHEAD: usize = 2;

/// Maximum time that a client may take to read what waits for it.
const STALL: Duration = Duration::from_millis(limits::POSTGRES_STALL_MS_MAX);

/// The messages of a result.
pub(super) type DataStream = Pin<Box<dyn Stream<Item = std::result::Result<FlightData, Status>> + Send>>;

/// Rows for a client.
pub(super) struct Sent {
    /// The columns as they are sent.
    pub schema: SchemaRef,
    pub rows: BatchStream,
    /// The statement that computes the rows; `None` if they are there.
    pub running: Option<Running>,
}

impl Sent {
    /// Returns rows that are there.
    pub fn of_batch(batch: RecordBatch) -> Self {
        let schema = sent_schema(&batch.schema());
        Sent { schema, rows: stream::iter([Ok(batch)]).boxed(), running: None }
    }

    /// Returns the messages. Their computation ends when the stream is dropped.
    pub fn into_stream(self) -> DataStream {
        let (sender, receiver) = mpsc::channel(AHEAD);
        tokio::spawn(async move {
            let Sent { schema, rows, running } = self;
            let work = send(&schema, rows, &sender);
            let outcome = tokio::select! {
                biased;
                // The client has gone, or wants no more rows.
                () = sender.closed() => return,
                outcome = async {
                    match &running {
                        Some(running) => running.guard(work).await,
                        None => work.await,
                    }
                } => outcome,
            };
            // What the statement holds is freed before its end is told.
            drop(running);
            if let Err(error) = outcome {
                drop(timeout(STALL, sender.send(Err(status(&error)))).await);
            }
        });
        let messages = stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|message| (message, receiver))
        });
        Box::pin(messages)
    }
}

type MessageSender = mpsc::Sender<std::result::Result<FlightData, Status>>;

/// Waits until the client takes a message.
async fn deliver(sender: &MessageSender, message: FlightData) -> Result<()> {
    match timeout(STALL, sender.send(Ok(message))).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(Error::cancelled()),
        Err(_) => Err(Error::new(ErrorKind::TimedOut, "the rows were not read for too long")
            .advise("read them as they come, or ask for fewer")),
    }
}

/// Encodes rows and delivers them.
async fn send(schema: &SchemaRef, mut rows: BatchStream, sender: &MessageSender) -> Result<()> {
    let options = IpcWriteOptions::default();
    deliver(sender, SchemaAsIpc::new(schema, &options).into()).await?;
    // There are no dictionaries among the types that are sent.
    let (generator, mut tracker) = (IpcDataGenerator::default(), DictionaryTracker::new(true));
    let mut context = IpcWriteContext::default();
    while let Some(batch) = rows.next().await {
        for piece in sent_batches(&batch?, schema)? {
            let encoded = generator.encode(&piece, &mut tracker, &options, &mut context);
            let (_, encoded) =
                encoded.map_err(|error| Error::internal(format!("rows cannot be encoded: {error}")))?;
            deliver(sender, encoded.into()).await?;
        }
        // Other statements get their turn, even if rows come and go without waiting.
        tokio::task::consume_budget().await;
    }
    Ok(())
}

/// Returns a schema as the fields of messages have it.
pub(super) fn schema_bytes(schema: &Schema) -> std::result::Result<bytes::Bytes, Status> {
    let options = IpcWriteOptions::default();
    let message: std::result::Result<arrow_flight::IpcMessage, _> =
        SchemaAsIpc::new(schema, &options).try_into();
    message.map(|message| message.0).map_err(defect)
}

/// Returns a number by which schemas are told apart.
pub(super) fn schema_fingerprint(schema: &Schema) -> u64 {
    let mut hasher = Sha256::new();
    for field in schema.fields() {
        // Names are told apart from types by their lengths.
        hasher.update(field.name().len().to_be_bytes());
        hasher.update(field.name());
        hasher.update([u8::from(field.is_nullable())]);
        hasher.update(format!("{:?};", field.data_type()));
    }
    let digest: [u8; 32] = hasher.finalize().into();
    digest.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}
