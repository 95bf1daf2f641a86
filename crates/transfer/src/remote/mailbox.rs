//! The mailboxes of the streams of a connection: queues of received messages that wait to be read. All of them together
//! are limited.
//!
//! Invariant: the messages that wait, complete or not, on all connections to one node take at most
//! [`limits::UNREAD_BYTES_MAX`] bytes, each counted with its overhead.

use super::conversation::Conversation;
use farpool_model::{Error, Result, cast, limits};
use farpool_wire::{FrameKind, Message, Response};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;

/// Bytes counted for a message in addition to those of its body: for its queue entry and the allocation.
const MESSAGE_OVERHEAD_BYTES: u64 = 128;

/// Total bytes of the unread messages from one node, on all connections to it.
#[derive(Debug, Default)]
pub(super) struct Unread(AtomicU64);

/// The bytes of one mailbox in [`Unread`]; dropping it subtracts them.
#[derive(Debug)]
pub(super) struct Share {
    unread: Arc<Unread>,
    bytes: u64,
}

impl Share {
    /// Creates a share of 0 bytes of `unread`.
    pub fn new(unread: Arc<Unread>) -> Self {
        Share { unread, bytes: 0 }
    }

    /// Sets the share (the bytes of this mailbox's unread messages) to `bytes` bytes.
    ///
    /// # Errors
    /// `OverLimit` if all shares together would be too large; the share then stays as it was.
    pub fn resize(&mut self, bytes: u64) -> Result<()> {
        let total = &self.unread.0;
        if bytes <= self.bytes {
            total.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        } else {
            let more = bytes - self.bytes;
            let before = total.fetch_add(more, Ordering::Relaxed);
            if before.saturating_add(more) > cast::u64_from(limits::UNREAD_BYTES_MAX) {
                total.fetch_sub(more, Ordering::Relaxed);
                return Err(too_much());
            }
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.unread.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn too_much() -> Error {
    Error::over_limit(format!("results of more than {} MiB wait to be read", limits::UNREAD_BYTES_MAX >> 20))
        .advise("read results as they come, or run fewer queries at once")
}

/// The queue of received messages of one stream, and its protocol state.
#[derive(Debug)]
pub(super) struct Mailbox(Mutex<State>);

#[derive(Debug)]
struct State {
    conversation: Conversation,
    messages: VecDeque<Message>,
    share: Share,
    is_closed: bool,
    reader: Option<Waker>,
    /// The time since which the reader has waited for the next message; `None` if it does not wait.
    waiting_since: Option<Instant>,
}

impl State {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl Mailbox {
    /// Creates the mailbox of a stream on which a request of kind `request` is being sent.
    pub fn new(request: FrameKind, unread: Arc<Unread>) -> Self {
        Mailbox(Mutex::new(State {
            conversation: Conversation::new(request),
            messages: VecDeque::new(),
            share: Share::new(unread),
            is_closed: false,
            reader: None,
            waiting_since: None,
        }))
    }

    /// Checks that the node may send a frame of this kind now (see [`Conversation::check`]).
    pub fn check(&self, kind: FrameKind) -> Result<()> {
        self.0.lock().conversation.check(kind)
    }

    /// Adds a message that has come. Credit for a load only changes the protocol state, and is not queued.
    ///
    /// # Errors
    /// Fails if the node may not send the message now, or if too many bytes wait to be read.
    pub fn put(&self, message: Message) -> Result<()> {
        let mut state = self.0.lock();
        state.conversation.check(message.kind)?;
        state.conversation.received(message.kind, message.bytes_on_wire);
        state.waiting_since = None;
        if message.kind == FrameKind::Credit {
            if let Response::Credit { bytes } = Response::decode(&message, None)? {
                state.conversation.granted(bytes)?;
            }
        } else {
            let bytes = state.share.bytes + size(&message);
            state.share.resize(bytes)?;
            state.messages.push_back(message);
        }
        state.wake();
        Ok(())
    }

    /// Closes the mailbox: no more messages will come, and waiting tasks are woken.
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        state.wake();
    }

    /// Polls for the next message; returns `None` if no more will come.
    pub fn poll_take(&self, context: &mut Context<'_>) -> Poll<Option<Message>> {
        let mut state = self.0.lock();
        if let Some(message) = state.messages.pop_front() {
            let bytes = state.share.bytes - size(&message);
            // The result is ignored, because reducing a share never fails.
            drop(state.share.resize(bytes));
            return Poll::Ready(Some(message));
        }
        if state.is_closed {
            return Poll::Ready(None);
        }
        state.waiting_since.get_or_insert_with(Instant::now);
        state.reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// Returns for how long the reader has waited for the next message; zero if no reader waits.
    pub fn waited(&self) -> Duration {
        self.0.lock().waiting_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Polls until the node's credit allows the client to send rows of a load; returns false if the load has ended.
    pub fn poll_may_send(&self, context: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.0.lock();
        if state.is_closed || state.conversation.has_ended() {
            return Poll::Ready(false);
        }
        if state.conversation.may_send() {
            return Poll::Ready(true);
        }
        state.waiting_since.get_or_insert_with(Instant::now);
        state.reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// Records a message that the client has sent (see [`Conversation::sent`]).
    pub fn sent(&self, kind: FrameKind, bytes_on_wire: u64) {
        self.0.lock().conversation.sent(kind, bytes_on_wire);
    }

    /// Records credit that the client is about to grant (see [`Conversation::granting`]).
    pub fn granting(&self, bytes: u64) -> Result<()> {
        self.0.lock().conversation.granting(bytes)
    }

    /// Returns whether the node has sent its last message on the stream.
    pub fn has_ended(&self) -> bool {
        self.0.lock().conversation.has_ended()
    }
}

fn size(message: &Message) -> u64 {
    cast::u64_from(message.body.len()) + MESSAGE_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use farpool_model::ErrorKind;

    fn message(kind: FrameKind, bytes: usize) -> Message {
        let body = Bytes::from(vec![0; bytes]);
        Message { kind, stream: 1, bytes_on_wire: cast::u64_from(bytes), body }
    }

    fn result(unread: &Arc<Unread>) -> Mailbox {
        let mailbox = Mailbox::new(FrameKind::Execute, unread.clone());
        mailbox.put(message(FrameKind::Prepared, 10)).unwrap();
        mailbox
    }

    #[test]
    fn what_waits_on_all_streams_is_bounded_and_given_back() {
        let unread = Arc::new(Unread::default());
        // Each stream may have one unread message more than its credit allows; for all streams together, these exceed
        // the limit.
        let batch = message(FrameKind::Batch, 64 << 20);
        let mut streams = Vec::new();
        let error = loop {
            let stream = result(&unread);
            let outcome = stream.put(batch.clone());
            streams.push(stream);
            if let Err(error) = outcome {
                break error;
            }
        };
        assert_eq!(error.kind, ErrorKind::OverLimit);
        assert_eq!(streams.len(), limits::UNREAD_BYTES_MAX >> 26);
        let mut context = Context::from_waker(Waker::noop());
        let before = unread.0.load(Ordering::Relaxed);
        assert!(matches!(streams[0].poll_take(&mut context), Poll::Ready(Some(_))));
        assert!(unread.0.load(Ordering::Relaxed) < before);
        drop(streams);
        assert_eq!(unread.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn small_messages_count_with_what_they_take_beside_their_bytes() {
        let unread = Arc::new(Unread::default());
        let stream = result(&unread);
        stream.put(message(FrameKind::Batch, 1)).unwrap();
        assert!(unread.0.load(Ordering::Relaxed) > 2 * MESSAGE_OVERHEAD_BYTES);
    }
}
