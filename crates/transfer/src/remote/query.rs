//! A program that runs at the node: first its answers, then its rows, last its receipt.

use super::connection::Channel;
use super::memory::{Reading, Results};
use crate::{BatchStream, ReceiptHandle};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use farpool_columns::{Parcel, ResultBuffer};
use farpool_model::{Error, Prepared, Receipt, Result, limits};
use farpool_wire::sealed::{Digest, Opener};
use farpool_wire::{FrameKind, Grants, Message, Response};
use futures::Stream;
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};

/// Receives the answers, which come before any row.
///
/// # Errors
/// Errors of the node; `Unavailable` when it goes away.
pub(super) async fn answers(channel: &mut Channel) -> Result<Prepared> {
    read_answers(&channel.receive().await?)
}

/// Receives answers as [`answers`] does, with the digest that sealed answers of later runs of the program are bound to.
///
/// # Errors
/// As [`answers`].
pub(super) async fn bound_answers(channel: &mut Channel) -> Result<(Prepared, Option<Digest>)> {
    let message = channel.receive().await?;
    let bound = channel.opener().map(|opener| opener.bind(&message));
    read_answers(&message).map(|prepared| (prepared, bound))
}

fn read_answers(message: &Message) -> Result<Prepared> {
    match Response::decode(message, None)? {
        Response::Prepared { prepared, .. } => Ok(prepared),
        Response::Error(error) => Err(error),
        other => Err(unexpected(other.kind())),
    }
}

/// Returns the messages after the answers on `channel` as `count` streams (at least one): whichever stream is
/// polled takes the next message and decodes it.
///
/// Messages that are taken are returned to the node as credit, so that a result that is not read stalls only
/// its own program. The channel is dropped with the last of the streams, which cancels the program if it
/// still runs.
pub(super) fn streams(
    channel: Channel,
    schema: SchemaRef,
    receipt: ReceiptHandle,
    results: &Arc<Results>,
    count: usize,
) -> Vec<BatchStream> {
    let opener = channel.opener().cloned();
    let turn = Mutex::new(Turn::Open(Box::new(Open { channel, grants: Grants::new() })));
    let reading = results.begin();
    let rows = Arc::new(Rows { turn, waiting: Arc::default(), schema, receipt, reading, opener });
    let stream = |_| {
        let (rows, room) = (rows.clone(), rows.reading.room());
        Box::pin(Reader { rows, room, rest: None, ended: false }) as BatchStream
    };
    (0..count.max(1)).map(stream).collect()
}

/// The shared state of the streams of one result.
struct Rows {
    turn: Mutex<Turn>,
    waiting: Arc<Waiting>,
    schema: SchemaRef,
    receipt: ReceiptHandle,
    reading: Reading,
    /// Opens the messages with rows, if they are sealed: in parallel, when they are read.
    opener: Option<Arc<Opener>>,
}

enum Turn {
    Open(Box<Open>),
    /// The receipt has come.
    Ended,
    /// All streams return the same error.
    Failed(Error),
}

struct Open {
    channel: Channel,
    grants: Grants,
}

/// The streams that wait for a message. A message wakes all of them, since some may no longer be polled, and
/// the first one takes it.
#[derive(Default)]
struct Waiting(Mutex<Vec<Waker>>);

impl Waiting {
    fn add(&self, waker: &Waker) {
        let mut wakers = self.0.lock();
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }

    /// Wakes all streams but the one of the waker `awake`.
    fn wake_others(&self, awake: &Waker) {
        let wakers = std::mem::take(&mut *self.0.lock());
        wakers.into_iter().filter(|waker| !waker.will_wake(awake)).for_each(Waker::wake);
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let wakers = std::mem::take(&mut *self.0.lock());
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Rows {
    /// Polls for the next message with rows; `None` after the last.
    fn poll_message(&self, context: &mut Context<'_>) -> Poll<Result<Option<Message>>> {
        let mut turn = self.turn.lock();
        let open = match &mut *turn {
            Turn::Open(open) => open,
            Turn::Ended => return Poll::Ready(Ok(None)),
            Turn::Failed(error) => return Poll::Ready(Err(error.clone())),
        };
        // Registered before polling: a message that comes right after must wake a stream.
        self.waiting.add(context.waker());
        let everybody = Waker::from(self.waiting.clone());
        let next = open.poll_next(&self.receipt, &mut Context::from_waker(&everybody));
        match &next {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(Some(_))) => {}
            Poll::Ready(Ok(None)) => *turn = Turn::Ended,
            Poll::Ready(Err(error)) => *turn = Turn::Failed(error.clone()),
        }
        drop(turn);
        // There may be more messages, or the end, for which nothing else would wake the other streams.
        self.waiting.wake_others(context.waker());
        next
    }

    /// Ends the result with `error` for all streams.
    fn fail(&self, error: Error, awake: &Waker) -> Error {
        *self.turn.lock() = Turn::Failed(error.clone());
        self.waiting.wake_others(awake);
        error
    }
}

impl Open {
    fn poll_next(
        &mut self,
        receipt: &ReceiptHandle,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Message>>> {
        let message = ready!(self.channel.poll_receive(context))?;
        Poll::Ready(self.take(message, receipt))
    }

    fn take(&mut self, message: Message, receipt: &ReceiptHandle) -> Result<Option<Message>> {
        if matches!(message.kind, FrameKind::Batch | FrameKind::Parcel) {
            if let Some(bytes) = self.grants.taken(message.bytes_on_wire) {
                self.channel.grant(bytes)?;
            }
            return Ok(Some(message));
        }
        match Response::decode(&message, None)? {
            Response::Receipt(came) => {
                let bytes_on_wire = self.channel.bytes_on_wire();
                let encrypted = self.channel.opener().is_some();
                receipt.set(Receipt { bytes_on_wire, encrypted, ..came });
                Ok(None)
            }
            Response::Error(error) => Err(error),
            other => Err(unexpected(other.kind())),
        }
    }
}

/// One of the streams.
struct Reader {
    rows: Arc<Rows>,
    /// Memory that rows are decoded into.
    room: ResultBuffer,
    /// A parcel with rows left. It is decoded a batch at a time, which stays in the CPU caches and whose
    /// memory can be reused for the next; in larger pieces if results are kept.
    rest: Option<Parcel>,
    ended: bool,
}

impl Reader {
    fn poll_batch(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<RecordBatch>>> {
        loop {
            if let Some(batch) = self.decode_next(context.waker())? {
                return Poll::Ready(Ok(Some(batch)));
            }
            let Some(message) = ready!(self.rows.poll_message(context))? else {
                return Poll::Ready(Ok(None));
            };
            match self.read(message) {
                Ok(Some(batch)) => return Poll::Ready(Ok(Some(batch))),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(self.rows.fail(error, context.waker()))),
            }
        }
    }

    /// Decodes the next rows of the current parcel, if there is one.
    fn decode_next(&mut self, awake: &Waker) -> Result<Option<RecordBatch>> {
        let Some(mut parcel) = self.rest.take() else { return Ok(None) };
        let rows_max = if self.room.is_kept() { limits::ROW_GROUP_ROWS } else { limits::BATCH_ROWS };
        let batch = parcel.next(rows_max, &mut self.room);
        let batch = batch.map_err(|error| self.rows.fail(error, awake))?;
        self.rest = Some(parcel).filter(|parcel| parcel.rows_left() > 0);
        Ok(Some(batch))
    }

    /// Reads a message: returns the rows of a batch, or keeps a parcel to be decoded.
    fn read(&mut self, message: Message) -> Result<Option<RecordBatch>> {
        let message = match &self.rows.opener {
            Some(opener) => opener.open(message)?,
            None => message,
        };
        match Response::decode(&message, Some(&self.rows.schema))? {
            Response::Batch(batch) => Ok(Some(batch)),
            Response::Parcel(parcel) => {
                let parcel =
                    Parcel::read(&parcel, &self.rows.schema).map_err(|e| e.at(message.kind.name()))?;
                self.rest = Some(parcel);
                Ok(None)
            }
            other => Err(unexpected(other.kind())),
        }
    }
}

impl Stream for Reader {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let next = ready!(self.poll_batch(context)).transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        Poll::Ready(next)
    }
}

/// Returns the error for a message that is not expected here.
pub(super) fn unexpected(kind: FrameKind) -> Error {
    Error::corrupt(format!("the pool answered with {}, which does not belong here", kind.name()))
        .advise("client and pool may be of different versions: upgrade the older one")
}
