//! Rows that a client sends: values for parameters, or rows for a table.

use arrow_array::RecordBatch;
use arrow_flight::{FlightData, FlightDescriptor};
use arrow_schema::SchemaRef;
use farpool_memory::Reservation;
use farpool_model::{Error, ErrorKind, Result, limits};
use farpool_wire::flight::FlightReader;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::yield_now;
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};

/// Maximum time between two messages of a client.
const STALL: Duration = Duration::from_millis(limits::POSTGRES_STALL_MS_MAX);

/// A stream of rows from a client.
pub(super) struct Upload {
    stream: Streaming<FlightData>,
    /// A message that has come and is not read.
    next: Option<FlightData>,
    reader: Option<FlightReader>,
    /// The memory for the rows that were read last.
    memory: Reservation,
    _permit: OwnedSemaphorePermit,
}

impl Upload {
    /// Waits for the first message; returns the description of what is to be done with the rows.
    ///
    /// # Errors
    /// `Invalid` if there is no message, or none with a description.
    pub async fn open(
        stream: Streaming<FlightData>,
        memory: Reservation,
        permit: OwnedSemaphorePermit,
    ) -> Result<(FlightDescriptor, Self)> {
        let mut upload = Upload { stream, next: None, reader: None, memory, _permit: permit };
        let mut first =
            upload.message().await?.ok_or_else(|| Error::invalid("a request without a message"))?;
        let descriptor = first.flight_descriptor.take();
        let descriptor =
            descriptor.ok_or_else(|| Error::invalid("the first message does not say what is to be done"))?;
        upload.next = Some(first);
        Ok((descriptor, upload))
    }

    async fn message(&mut self) -> Result<Option<FlightData>> {
        if let Some(message) = self.next.take() {
            return Ok(Some(message));
        }
        match timeout(STALL, self.stream.message()).await {
            Ok(Ok(Some(message))) => Ok(Some(message)),
            // tonic ends the stream of a request that its client has cancelled like one that is complete. The server of
            // HTTP/2 drops a cancelled request when it yields, so that only a complete one goes on behind this:
            // otherwise the rows before the cancellation would be loaded.
            Ok(Ok(None)) => {
                yield_now().await;
                Ok(None)
            }
            Ok(Err(status)) => Err(broken(&status)),
            Err(_) => Err(Error::new(ErrorKind::TimedOut, "no rows have come for too long")),
        }
    }

    /// Waits for the schema of the rows; returns `None` if the stream ends without one.
    ///
    /// # Errors
    /// Errors of [`FlightReader::open`]; `Cancelled` or `Unavailable` if the stream breaks.
    pub async fn schema(&mut self) -> Result<Option<SchemaRef>> {
        while self.reader.is_none() {
            let Some(message) = self.message().await? else { return Ok(None) };
            // A message without metadata only describes the stream, or carries data of the application.
            if !message.data_header.is_empty() {
                self.reader = Some(FlightReader::open(&message.data_header)?);
            }
        }
        Ok(self.reader.as_ref().map(|reader| reader.schema().clone()))
    }

    /// Waits for the next rows. Returns `None` if there are no more.
    ///
    /// # Errors
    /// Errors of [`FlightReader::read`]; `OverLimit` if there is no memory for them; `Cancelled` or `Unavailable` if the
    /// stream breaks.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        self.memory.set(0);
        if self.schema().await?.is_none() {
            return Ok(None);
        }
        while let Some(message) = self.message().await? {
            let Some(reader) = self.reader.as_mut().filter(|_| !message.data_header.is_empty()) else {
                continue;
            };
            self.memory.try_grow(message.data_body.len())?;
            if let Some(batch) = reader.read(&message.data_header, &message.data_body)? {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }
}

/// Returns the error of a stream that has broken.
fn broken(status: &Status) -> Error {
    match status.code() {
        Code::OutOfRange | Code::ResourceExhausted => {
            let most = limits::FLIGHT_MESSAGE_BYTES_MAX;
            Error::over_limit(format!("a message may have {most} bytes: {}", status.message()))
                .advise("send fewer rows in a message")
        }
        Code::Cancelled | Code::Unknown => Error::cancelled(),
        _ => Error::unavailable(format!("the rows have ended early: {}", status.message())),
    }
}
