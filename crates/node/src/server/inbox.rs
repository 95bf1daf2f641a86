//! The rows of one load that have come and wait to be encoded.
//!
//! Invariant: a client that keeps to its credit has at most a window and one message in here; one that
//! does not is cut off.

use farpool_model::{Error, Result};
use farpool_wire::{FrameKind, Message, Window};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// See the file's comment.
pub(crate) struct Inbox {
    state: Mutex<State>,
    news: Notify,
}

struct State {
    window: Window,
    rows: Vec<Message>,
    complete: bool,
    closed: bool,
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Taken {
    /// Messages with rows, at least one.
    Rows(Vec<Message>),
    /// All rows have come.
    Complete,
    /// The client cancelled or is gone.
    Gone,
}

impl Inbox {
    /// That of a new load.
    pub fn new() -> Self {
        let state = State { window: Window::new(), rows: Vec::new(), complete: false, closed: false };
        Inbox { state: Mutex::new(state), news: Notify::new() }
    }

    /// Takes in rows, or their end.
    ///
    /// # Errors
    /// When the client sends more than it has credit for, or goes on after the end.
    pub fn put(&self, message: Message) -> Result<()> {
        let mut state = self.state.lock();
        if state.complete {
            return Err(Error::corrupt(format!("{} after LoadEnd", message.kind.name())));
        }
        if message.kind == FrameKind::LoadEnd {
            state.complete = true;
        } else {
            if !state.window.is_open() {
                return Err(Error::corrupt("rows to load beyond the credit of their stream"));
            }
            state.window.sent(message.bytes_on_wire);
            state.rows.push(message);
        }
        drop(state);
        self.news.notify_one();
        Ok(())
    }

    /// The client is gone.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.rows.clear();
        drop(state);
        self.news.notify_one();
    }

    /// Rows that were taken have been dealt with and make place for others.
    pub fn grant(&self, bytes: u64) -> Result<()> {
        self.state.lock().window.granted(bytes)
    }

    /// Waits for what comes next.
    pub async fn take(&self) -> Taken {
        loop {
            if let Some(taken) = self.try_take() {
                return taken;
            }
            self.news.notified().await;
        }
    }

    fn try_take(&self) -> Option<Taken> {
        let mut state = self.state.lock();
        match () {
            () if state.closed => Some(Taken::Gone),
            () if !state.rows.is_empty() => Some(Taken::Rows(std::mem::take(&mut state.rows))),
            () if state.complete => Some(Taken::Complete),
            () => None,
        }
    }
}
