//! A program that runs at the node: its answers first, then its rows as they come, its receipt last.

use super::connection::Channel;
use crate::{BatchStream, ReceiptHandle};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use farpool_columns::Parcel;
use farpool_model::{Error, Prepared, Receipt, Result, limits};
use farpool_wire::{FrameKind, Grants, Message, Response};
use futures::StreamExt;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Waits for the answers, which come before any row.
///
/// # Errors
/// Those of the node; `Unavailable` when it goes away.
pub(super) async fn prepared(channel: &mut Channel) -> Result<Prepared> {
    let message = channel.receive().await?;
    match Response::decode(&message, None)? {
        Response::Prepared { prepared, .. } => Ok(prepared),
        Response::Error(error) => Err(error),
        other => Err(unexpected(other.kind())),
    }
}

/// What follows the answers on `channel`, as `count` streams (at least one) that take turns: whoever polls
/// next gets the next message and decodes it.
///
/// What has been taken is given back to the node as credit, so that a result that nobody reads stops its
/// program and nothing else. The channel goes with the last of the streams, and with it, if need be, the
/// program.
pub(super) fn streams(
    channel: Channel,
    schema: SchemaRef,
    receipt: ReceiptHandle,
    count: usize,
) -> Vec<BatchStream> {
    let open = Turn::Open(Box::new(Open { channel, grants: Grants::new() }));
    let rows = Arc::new(Rows { turn: Mutex::new(open), schema, receipt });
    let stream = |_| {
        let reader = Reader { rows: rows.clone(), rest: None };
        futures::stream::try_unfold(reader, Reader::next).boxed()
    };
    (0..count.max(1)).map(stream).collect()
}

/// What the streams of one result have in common.
struct Rows {
    turn: Mutex<Turn>,
    schema: SchemaRef,
    receipt: ReceiptHandle,
}

enum Turn {
    Open(Box<Open>),
    /// The receipt has come.
    Ended,
    /// Every stream meets the same error.
    Failed(Error),
}

struct Open {
    channel: Channel,
    grants: Grants,
}

impl Rows {
    /// The next message with rows; `None` after the last.
    async fn message(&self) -> Result<Option<Message>> {
        let mut turn = self.turn.lock().await;
        let open = match &mut *turn {
            Turn::Open(open) => open,
            Turn::Ended => return Ok(None),
            Turn::Failed(error) => return Err(error.clone()),
        };
        match open.next(&self.receipt).await {
            Ok(Some(message)) => Ok(Some(message)),
            Ok(None) => {
                *turn = Turn::Ended;
                Ok(None)
            }
            Err(error) => {
                *turn = Turn::Failed(error.clone());
                Err(error)
            }
        }
    }

    /// Ends the result for all streams.
    async fn fail(&self, error: Error) -> Error {
        *self.turn.lock().await = Turn::Failed(error.clone());
        error
    }
}

impl Open {
    async fn next(&mut self, receipt: &ReceiptHandle) -> Result<Option<Message>> {
        let message = self.channel.receive().await?;
        if matches!(message.kind, FrameKind::Batch | FrameKind::Parcel) {
            if let Some(bytes) = self.grants.taken(message.bytes_on_wire) {
                self.channel.grant(bytes)?;
            }
            return Ok(Some(message));
        }
        match Response::decode(&message, None)? {
            Response::Receipt(came) => {
                self.channel.end();
                receipt.set(Receipt { bytes_on_wire: self.channel.bytes_on_wire(), ..came });
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
    /// A parcel whose rows from this one on are not decoded yet. A batch at a time stays in the CPU caches,
    /// and its memory can be used again for the next.
    rest: Option<(Parcel, usize)>,
}

impl Reader {
    async fn next(mut self) -> Result<Option<(RecordBatch, Self)>> {
        loop {
            if let Some((parcel, start)) = self.rest.take() {
                let end = parcel.rows().min(start + limits::BATCH_ROWS);
                let batch = match parcel.decode(start..end) {
                    Ok(batch) => batch,
                    Err(error) => return Err(self.rows.fail(error).await),
                };
                self.rest = (end < parcel.rows()).then_some((parcel, end));
                return Ok(Some((batch, self)));
            }
            let Some(message) = self.rows.message().await? else { return Ok(None) };
            match self.read(&message) {
                Ok(Some(batch)) => return Ok(Some((batch, self))),
                Ok(None) => {}
                Err(error) => return Err(self.rows.fail(error).await),
            }
        }
    }

    /// The rows of a message: a batch, or a parcel that is left to be decoded.
    fn read(&mut self, message: &Message) -> Result<Option<RecordBatch>> {
        match Response::decode(message, Some(&self.rows.schema))? {
            Response::Batch(batch) => Ok(Some(batch)),
            Response::Parcel(parcel) => {
                let parcel =
                    Parcel::read(&parcel, &self.rows.schema).map_err(|e| e.at(message.kind.name()))?;
                self.rest = Some((parcel, 0));
                Ok(None)
            }
            other => Err(unexpected(other.kind())),
        }
    }
}

/// The error for a message that does not belong here.
pub(super) fn unexpected(kind: FrameKind) -> Error {
    Error::corrupt(format!("the pool answered with {}, which does not belong here", kind.name()))
        .advise("client and pool may be of different versions: upgrade the older one")
}
