//! Receives the result of a program that runs at the node: first the node's answers for each operator, then the rows,
//! last the receipt (execution statistics).

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

/// Waits for and returns the node's answers for the program's operators, which come before any row.
///
/// # Errors
/// Errors of the node; `Unavailable` if it goes away.
pub(super) async fn answers(channel: &mut Channel) -> Result<Prepared> {
    read_answers(&channel.receive().await?)
}

/// Does the same as [`answers`], and also returns the digest that encrypted answers of later executions of the program
/// must be bound to; `None` if answers are not encrypted.
///
/// # Errors
/// Errors of [`answers`].
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

/// Returns the rows that come after the answers on `channel`, as `count` streams (at least one). Whichever stream is
/// polled takes the next message and decodes it.
///
/// When a message is taken, its bytes are granted to the node as new credit (flow control). A result that is not read
/// therefore stalls only its own program. The channel is dropped with the last of the streams, which cancels the
/// program if it still runs.
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

/// The state that the streams of one result share.
struct Rows {
    turn: Mutex<Turn>,
    waiting: Arc<Waiting>,
    schema: SchemaRef,
    receipt: ReceiptHandle,
    reading: Reading,
    /// Decrypts messages with rows when they are read, so that several streams can decrypt in parallel; `None` if they
    /// are not encrypted.
    opener: Option<Arc<Opener>>,
}

enum Turn {
    Open(Box<Open>),
    /// The receipt (execution statistics), the last message, has arrived.
    Ended,
    /// The result has failed; all streams return this error.
    Failed(Error),
}

struct Open {
    channel: Channel,
    grants: Grants,
}

/// The wakers of the streams that wait for a message. A message wakes all of them, since some may no longer be polled;
/// the first one that is polled takes it.
#[derive(Default)]
struct Waiting(Mutex<Vec<Waker>>);

impl Waiting {
    fn add(&self, waker: &Waker) {
        let mut wakers = self.0.lock();
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }

    /// Wakes all waiting streams but the one whose waker is `awake`.
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
    /// Polls for the next message with rows; returns `None` after the last one.
    fn poll_message(&self, context: &mut Context<'_>) -> Poll<Result<Option<Message>>> {
        let mut turn = self.turn.lock();
        let open = match &mut *turn {
            Turn::Open(open) => open,
            Turn::Ended => return Poll::Ready(Ok(None)),
            Turn::Failed(error) => return Poll::Ready(Err(error.clone())),
        };
        // The waker is registered before polling, so that a message that comes in between wakes this stream.
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
        // More messages, or the end, may have come already, for which nothing else would wake the other streams.
        self.waiting.wake_others(context.waker());
        next
    }

    /// Ends the result: all streams return `error`.
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

/// One of the streams of a result.
struct Reader {
    rows: Arc<Rows>,
    /// The buffer into which rows are decoded.
    room: ResultBuffer,
    /// A parcel (rows as encoded column chunks) that has not been decoded completely. Rows are decoded a batch at a
    /// time, because a batch stays in the CPU caches and its memory can be reused for the next; in larger pieces if the
    /// caller keeps results.
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

    /// Decodes the next rows of the current parcel; returns `None` if there is none.
    fn decode_next(&mut self, awake: &Waker) -> Result<Option<RecordBatch>> {
        let Some(mut parcel) = self.rest.take() else { return Ok(None) };
        let rows_max = if self.room.is_kept() { limits::ROW_GROUP_ROWS } else { limits::BATCH_ROWS };
        let batch = parcel.next(rows_max, &mut self.room);
        let batch = batch.map_err(|error| self.rows.fail(error, awake))?;
        self.rest = Some(parcel).filter(|parcel| parcel.rows_left() > 0);
        Ok(Some(batch))
    }

    /// Decodes a message: returns the rows of a batch; or keeps a parcel, whose rows are decoded later, and returns
    /// `None`.
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

/// Returns the error for a message that the node may not send here.
pub(super) fn unexpected(kind: FrameKind) -> Error {
    Error::corrupt(format!("the pool answered with {}, which does not belong here", kind.name()))
        .advise("client and pool may be of different versions: upgrade the older one")
}
