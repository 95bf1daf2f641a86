//! A program that runs at the node: its answers first, then its batches as they come, its receipt last.

use super::connection::Channel;
use crate::ReceiptHandle;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use farpool_model::{Error, Prepared, Receipt, Result};
use farpool_wire::{FrameKind, Grants, Message, Response};
use futures::Stream;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The batches of a result. Whoever polls decodes; what has been taken is given back to the node as
/// credit, so that a stream that nobody reads stops its program and nothing else.
#[derive(Debug)]
pub(super) struct Rows {
    channel: Option<Channel>,
    schema: SchemaRef,
    grants: Grants,
    receipt: ReceiptHandle,
}

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

impl Rows {
    /// What follows the answers on `channel`.
    pub fn new(channel: Channel, schema: SchemaRef, receipt: ReceiptHandle) -> Self {
        Rows { channel: Some(channel), schema, grants: Grants::new(), receipt }
    }

    /// The batch in `message`; `None` when it is the last message.
    fn take(&mut self, channel: &mut Channel, message: &Message) -> Result<Option<RecordBatch>> {
        match Response::decode(message, Some(&self.schema))? {
            Response::Batch(batch) => {
                if let Some(bytes) = self.grants.taken(message.bytes_on_wire) {
                    channel.grant(bytes)?;
                }
                Ok(Some(batch))
            }
            Response::Receipt(receipt) => {
                channel.end();
                self.receipt.set(Receipt { bytes_on_wire: channel.bytes_on_wire(), ..receipt });
                Ok(None)
            }
            Response::Error(error) => Err(error),
            other => Err(unexpected(other.kind())),
        }
    }
}

impl Stream for Rows {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(mut channel) = self.channel.take() else { return Poll::Ready(None) };
        let Poll::Ready(received) = channel.poll_receive(context) else {
            self.channel = Some(channel);
            return Poll::Pending;
        };
        let next = received.and_then(|message| self.take(&mut channel, &message)).transpose();
        // After the end or an error the channel goes, and with it, if need be, the program.
        if matches!(next, Some(Ok(_))) {
            self.channel = Some(channel);
        }
        Poll::Ready(next)
    }
}

/// The error for a message that does not belong here.
pub(super) fn unexpected(kind: FrameKind) -> Error {
    Error::corrupt(format!("the pool answered with {}, which does not belong here", kind.name()))
        .advise("client and pool may be of different versions: upgrade the older one")
}
