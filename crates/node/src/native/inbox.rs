//! The inbox of a load: a queue of received messages with rows that wait to be decoded.
//!
//! Invariant: the inbox has at most a window (the bytes that the client has credit for) and one message. A client that
//! sends more than its credit is disconnected. The memory of one window is reserved by the load; the inbox reserves
//! what exceeds it.

use farpool_catalog::Claim;
use farpool_memory::{Account, Reservation};
use farpool_model::{Error, Result, limits};
use farpool_pipeline::TaskId;
use farpool_wire::{FrameKind, Message, Window};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// The queue of rows between a connection and one of its loads.
pub(crate) struct Inbox {
    state: Mutex<InboxState>,
}

struct InboxState {
    /// Id of the task that decodes the rows; `None` until it is submitted.
    task: Option<TaskId>,
    /// The claim to the name of the table (no other load may create it), if the load creates the table.
    claim: Weak<Claim>,
    window: Window,
    rows: VecDeque<Message>,
    /// Reservation of memory for queued rows beyond a window.
    held: Reservation,
    /// Result of the load's wait for memory, until it is taken.
    memory: Option<Result<Reservation>>,
    /// Number of calls of [`Inbox::is_silent`] since rows last arrived.
    looks_silent: u32,
    messages: u64,
    is_complete: bool,
    is_closed: bool,
}

impl InboxState {
    /// Grows or shrinks the reservation `held` to the bytes of the queued rows beyond a window.
    fn hold(&mut self) {
        let bytes: usize = self.rows.iter().map(|message| message.body.len()).sum();
        self.held.set(bytes.saturating_sub(limits::STREAM_WINDOW_BYTES));
    }
}

/// The next thing in an inbox, as [`Inbox::take`] returns it.
#[derive(Debug)]
pub(crate) enum InboxItem {
    /// A received message with rows to decode.
    Rows(Message),
    /// No message is queued, and more may arrive.
    Nothing,
    /// All rows have arrived and were taken.
    Complete,
    /// The client cancelled the load or disconnected.
    Gone,
}

impl Inbox {
    /// Creates the inbox of a new load, with memory from `account`.
    pub fn new(account: &Account) -> Self {
        let state = InboxState {
            task: None,
            claim: Weak::new(),
            window: Window::new(),
            rows: VecDeque::new(),
            held: account.empty(),
            memory: None,
            looks_silent: 0,
            messages: 0,
            is_complete: false,
            is_closed: false,
        };
        Inbox { state: Mutex::new(state) }
    }

    /// Sets the task that decodes the rows.
    pub fn set_task(&self, task: TaskId) {
        self.state.lock().task = Some(task);
    }

    /// Adds a message with rows, or the end of the rows. Returns the task to wake, if there is one.
    ///
    /// # Errors
    /// Violations of the protocol: more rows than the client has credit for, or rows after the end.
    pub fn put(&self, message: Message) -> Result<Option<TaskId>> {
        let mut state = self.state.lock();
        if state.is_complete {
            return Err(Error::corrupt(format!("{} after LoadEnd", message.kind.name())));
        }
        if message.kind == FrameKind::LoadEnd {
            state.is_complete = true;
        } else {
            if !state.window.is_open() {
                return Err(Error::corrupt("rows to load beyond the credit of their stream"));
            }
            state.window.sent(message.bytes_on_wire);
            state.rows.push_back(message);
            state.messages += 1;
            state.hold();
        }
        Ok(state.task)
    }

    /// Sets the load's claim to the name of a new table, so that closing the inbox frees the name at once, before a
    /// worker ends the load.
    pub fn set_claim(&self, claim: &Arc<Claim>) {
        let is_closed = {
            let mut state = self.state.lock();
            state.claim = Arc::downgrade(claim);
            state.is_closed
        };
        if is_closed {
            claim.give_up();
        }
    }

    /// Closes the inbox, because the client cancelled the load or disconnected.
    pub fn close(&self) {
        let claim = {
            let mut state = self.state.lock();
            state.is_closed = true;
            state.rows.clear();
            state.memory = None;
            state.hold();
            state.claim.upgrade()
        };
        claim.into_iter().for_each(|claim| claim.give_up());
    }

    /// Adds `bytes` to the client's credit, for rows that were taken and encoded.
    pub fn grant(&self, bytes: u64) -> Result<()> {
        self.state.lock().window.granted(bytes)
    }

    /// Returns whether [`Inbox::take`] would return something other than [`InboxItem::Nothing`].
    pub fn has_news(&self) -> bool {
        let state = self.state.lock();
        state.is_closed || state.is_complete || !state.rows.is_empty()
    }

    /// Takes the next message with rows out of the queue, or returns why there is none. Does not block.
    pub fn take(&self) -> InboxItem {
        let mut state = self.state.lock();
        if state.is_closed {
            return InboxItem::Gone;
        }
        match state.rows.pop_front() {
            Some(message) => {
                state.hold();
                InboxItem::Rows(message)
            }
            None if state.is_complete => InboxItem::Complete,
            None => InboxItem::Nothing,
        }
    }

    /// Stores the result of the load's wait for memory. Returns the task to wake, if there is one.
    pub fn put_memory(&self, memory: Result<Reservation>) -> Option<TaskId> {
        let mut state = self.state.lock();
        if !state.is_closed {
            state.memory = Some(memory);
        }
        state.task
    }

    /// Takes the result of the load's wait for memory; `None` if there is none.
    pub fn take_memory(&self) -> Option<Result<Reservation>> {
        self.state.lock().memory.take()
    }

    /// Returns whether [`Inbox::take_memory`] has a result.
    pub fn has_memory(&self) -> bool {
        self.state.lock().memory.is_some()
    }

    /// Returns whether nothing has arrived since `looks` calls of this function and nothing is queued. Called once per
    /// tick.
    pub fn is_silent(&self, looks: u32) -> bool {
        let mut state = self.state.lock();
        let messages = std::mem::take(&mut state.messages);
        let waits = messages == 0 && state.rows.is_empty() && !state.is_complete && state.memory.is_none();
        state.looks_silent = if waits { state.looks_silent + 1 } else { 0 };
        state.looks_silent >= looks
    }

    /// Returns whether all rows have arrived.
    pub fn is_complete(&self) -> bool {
        self.state.lock().is_complete
    }

    /// Returns whether the client cancelled the load or disconnected.
    pub fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }
}
