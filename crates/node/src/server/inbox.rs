//! The rows of one load that have come and wait to be decoded.
//!
//! Invariant: a client that keeps to its credit has at most a window and one message in here; one that
//! does not is cut off. The memory of a window is the load's; what is beyond is reserved here.

use farpool_memory::{Account, Reservation};
use farpool_model::{Error, Result, limits};
use farpool_pipeline::TaskId;
use farpool_store::Claim;
use farpool_wire::{FrameKind, Message, Window};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// See the file's comment.
pub(crate) struct Inbox {
    state: Mutex<State>,
}

struct State {
    /// The task that takes the rows, once it was submitted.
    task: Option<TaskId>,
    /// Of a create, its claim to the name of the table.
    claim: Weak<Claim>,
    window: Window,
    rows: VecDeque<Message>,
    /// For what waits beyond a window.
    held: Reservation,
    /// What has come of waiting for memory.
    memory: Option<Result<Reservation>>,
    /// Looks at which there were no more rows than at the one before.
    looks_silent: u32,
    messages: u64,
    is_complete: bool,
    is_closed: bool,
}

impl State {
    /// Accounts for the rows that wait.
    fn hold(&mut self) {
        let bytes: usize = self.rows.iter().map(|message| message.body.len()).sum();
        self.held.set(bytes.saturating_sub(limits::STREAM_WINDOW_BYTES));
    }
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Taken {
    /// A message with rows.
    Rows(Message),
    /// Nothing yet.
    Nothing,
    /// All rows have come.
    Complete,
    /// The client cancelled or is gone.
    Gone,
}

impl Inbox {
    /// That of a new load.
    pub fn new(account: &Account) -> Self {
        let state = State {
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

    /// Says which task takes the rows.
    pub fn set_task(&self, task: TaskId) {
        self.state.lock().task = Some(task);
    }

    /// Takes in rows, or their end. The task that is to be woken for it.
    ///
    /// # Errors
    /// When the client sends more than it has credit for, or goes on after the end.
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

    /// Says which name the load is about to make a table of, so that others can have it as soon as the client is gone,
    /// whenever a worker comes to see that.
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

    /// The client is gone.
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

    /// Rows that were taken have been dealt with and make place for others.
    pub fn grant(&self, bytes: u64) -> Result<()> {
        self.state.lock().window.granted(bytes)
    }

    /// Whether [`Inbox::take`] has something.
    pub fn has_news(&self) -> bool {
        let state = self.state.lock();
        state.is_closed || state.is_complete || !state.rows.is_empty()
    }

    /// What comes next.
    pub fn take(&self) -> Taken {
        let mut state = self.state.lock();
        if state.is_closed {
            return Taken::Gone;
        }
        match state.rows.pop_front() {
            Some(message) => {
                state.hold();
                Taken::Rows(message)
            }
            None if state.is_complete => Taken::Complete,
            None => Taken::Nothing,
        }
    }

    /// The load waited for memory, which it has now, or not.
    pub fn put_memory(&self, memory: Result<Reservation>) -> Option<TaskId> {
        let mut state = self.state.lock();
        if !state.is_closed {
            state.memory = Some(memory);
        }
        state.task
    }

    /// What came of waiting for memory.
    pub fn take_memory(&self) -> Option<Result<Reservation>> {
        self.state.lock().memory.take()
    }

    /// Whether [`Inbox::take_memory`] has something.
    pub fn has_memory(&self) -> bool {
        self.state.lock().memory.is_some()
    }

    /// Called every so often: whether nothing has come for `looks` such calls, with nothing left to take.
    pub fn is_silent(&self, looks: u32) -> bool {
        let mut state = self.state.lock();
        let messages = std::mem::take(&mut state.messages);
        let waits = messages == 0 && state.rows.is_empty() && !state.is_complete && state.memory.is_none();
        state.looks_silent = if waits { state.looks_silent + 1 } else { 0 };
        state.looks_silent >= looks
    }

    /// Whether all rows have come.
    pub fn is_complete(&self) -> bool {
        self.state.lock().is_complete
    }

    /// Whether the client cancelled or is gone.
    pub fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }
}
