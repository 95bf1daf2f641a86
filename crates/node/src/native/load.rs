//! Loads: rows arrive on a stream, are decoded and encoded by workers within the caller's share of time, and become a
//! new version of a table when all have arrived.
//!
//! A load is a task of the scheduler. A step of it decodes one message, encodes one column of a row group, places a row
//! group in the pool, writes row groups to disk (a segment), works on earlier profiles (statistics) that are too far
//! behind, or makes the rows visible (those of an append together with other waiting appends). Several workers may
//! encode at the same time; one decodes.
//!
//! Credit (permission to send more rows) is returned to the client when its rows have been encoded. This is the only
//! backpressure, so a silent client occupies no thread. Rows that do not fill a row group cannot be encoded yet; there
//! is one such row group per load, and its bytes are limited.

use super::connection::{Connection, StreamWork};
use super::inbox::{Inbox, InboxItem};
use crate::admission::{PATIENCE, cannot_wait, waited};
use crate::outcomes::{LoadRegistration, OutcomeRecorder, Record};
use crate::profiles::{self, ProfileMemory};
use arrow_schema::SchemaRef;
use farpool_catalog::{Append, AwaitedProfile, Load, Piece};
use farpool_memory::Reservation;
use farpool_model::{
    Clock, Error, ErrorKind, LoadId, LoadOutcome, LoadedVersion, Result, TableInfo, TableName, limits,
};
use farpool_pipeline::{End, Progress, Readiness, Task};
use farpool_wire::{Message, Request, Response, bytes_to_decode};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// Number of copies of a row in memory until its row group is placed in the pool: as received, and encoded.
const FORMS: usize = 2;

/// Opens a stream for the load that `message` begins.
///
/// # Errors
/// Violations of the protocol, when the client may not open the stream; the connection then ends. Errors of the load
/// itself are answered on its stream.
pub(super) fn begin(connection: &Arc<Connection>, message: Message) -> Result<()> {
    let account = connection.caller.account();
    let inbox = Arc::new(Inbox::new(account));
    let stream = message.stream;
    connection.outbox.open(stream, message.bytes_on_wire, StreamWork::Load(inbox.clone()))?;
    // Reserved before a worker reads the request, because the client may send a whole window of rows until then, and
    // because no memory might be left.
    let held = match account.try_reserve(limits::STREAM_WINDOW_BYTES + limits::LOAD_OUTCOME_BYTES) {
        Ok(held) => held,
        Err(error) => {
            connection.fail(stream, error);
            return Ok(());
        }
    };
    let phase = LoadPhase::New(message);
    let (unpaid, recording) = Default::default();
    let state = LoadState { phase, in_hand: 0, unpaid, held, decoding: 0, waits: None, recording };
    let task = LoadTask {
        connection: connection.clone(),
        stream,
        inbox: inbox.clone(),
        state: Mutex::new(state),
        outcome: Mutex::default(),
    };
    // No rows can arrive before the task is set, because this thread puts them into the inbox.
    inbox.set_task(connection.caller.submit_task(Arc::new(task)));
    Ok(())
}

struct LoadTask {
    connection: Arc<Connection>,
    stream: u32,
    inbox: Arc<Inbox>,
    /// Locked for at most the time of buffering the rows of one message.
    state: Mutex<LoadState>,
    /// The result of the load; `None` if the client cancelled the load or disconnected.
    outcome: Mutex<Option<Result<TableInfo>>>,
}

struct LoadState {
    phase: LoadPhase,
    /// Number of steps of this load that workers are executing at the moment.
    in_hand: usize,
    /// Messages whose credit was not returned to the client yet, in order: the number of rows of the load up to the end
    /// of the message, and the bytes of the message.
    unpaid: VecDeque<(u64, u64)>,
    /// Reservation of memory outside the pool for rows, from their arrival until they are placed in the pool.
    held: Reservation,
    /// The part of `held` for the message being decoded.
    decoding: usize,
    /// Handle that aborts the load's wait for memory; `None` if it does not wait.
    waits: Option<AbortHandle>,
    /// Records the outcome, if the load has an id.
    recording: Option<OutcomeRecorder>,
}

enum LoadPhase {
    /// The request that begins the load has not been decoded yet.
    New(Message),
    /// The load has begun, and its rows are arriving or being encoded.
    Open(Box<OpenLoad>),
    /// All rows are encoded, but profiles of earlier versions have to be computed before the rows become visible.
    Behind(Box<OpenLoad>, Arc<ProfileWait>),
    /// The load is an append, which waits in the queue of appends to its table to become part of a version.
    InLine(Arc<Append>),
    /// The version is made and not durable yet; the outcome arrives here when it is.
    Committed(Durable),
    /// A load with the same id was registered before; this load waits for its outcome.
    Again(Arc<RepeatedLoad>),
    /// Placeholder while a worker, which has moved the phase out of the state, changes it.
    Taken,
}

/// A load with the id of an earlier load, which it must not repeat.
struct RepeatedLoad {
    first: Arc<Record>,
    table: TableName,
    /// The schema of this load's rows.
    schema: SchemaRef,
}

/// The outcome of a load whose version is made: `None` until the version is durable.
type Durable = Arc<Mutex<Option<Result<TableInfo>>>>;

/// Profiles of earlier versions that a load waits for.
struct ProfileWait {
    profile: AwaitedProfile,
    memory: ProfileMemory,
}

struct OpenLoad {
    load: Load,
    /// The schema of the rows in the client's messages.
    schema: SchemaRef,
    /// Whether a worker is decoding a message. Later messages wait, because rows are kept in order.
    is_decoding: bool,
    /// A message that waits for memory to be decoded.
    unread: Option<Message>,
    /// Whether the end of the rows was received.
    is_complete: bool,
}

/// The next thing that a worker has to do for a load.
enum Step {
    Begin(Message),
    Decode(Message, SchemaRef),
    Encode(Box<Piece>),
    KeepUp(Arc<ProfileWait>),
    Commit(Box<OpenLoad>),
    Append(Arc<Append>),
    /// Answer the client with this outcome of the load.
    Answer(Result<TableInfo>),
    /// Answer the client with the outcome of the first load with this id.
    Repeat(Arc<RepeatedLoad>),
    /// The client cancelled the load or disconnected: drop what was loaded.
    Abandon(LoadPhase),
    /// Do nothing, because other workers do what is left.
    Nothing,
}

impl Task for LoadTask {
    fn readiness(&self) -> Readiness {
        // If another worker has the lock, it may be about to make more work ready.
        let is_ready = self.state.try_lock().is_none_or(|state| state.has_step(&self.inbox));
        if is_ready { Readiness::Ready } else { Readiness::Waiting }
    }

    fn step(&self, clock: &dyn Clock) -> Progress {
        self.advance(clock).unwrap_or_else(|error| {
            self.outcome.lock().get_or_insert(Err(error));
            Progress::Done
        })
    }

    fn cancel(&self) {
        self.inbox.close();
    }

    fn finish(&self, end: End) {
        // Memory of a failed load is freed before anyone learns of the outcome.
        self.let_go();
        let outcome = self.outcome.lock().take();
        let recording = self.state.lock().recording.take();
        if let Some(recording) = recording {
            recording.settle(match (&outcome, &end.error) {
                (Some(Ok(info)), _) => LoadOutcome::Loaded(made(info)),
                // After the client disconnected, a failure may be a mere consequence of that (another load may have
                // claimed the name of the table), so it is not recorded as a failure.
                _ if self.inbox.is_closed() => LoadOutcome::NotLoaded,
                (Some(Err(error)), _) | (None, Some(error)) => LoadOutcome::Failed(error.clone()),
                (None, None) => LoadOutcome::NotLoaded,
            });
        }
        match (outcome, end.error) {
            (Some(Ok(info)), _) => self.connection.answer(self.stream, &Response::Loaded(info)),
            (Some(Err(error)), _) | (None, Some(error)) => self.connection.fail(self.stream, error),
            (None, None) => {}
        }
    }
}

impl LoadTask {
    /// Frees the load's pages in the pool and its memory outside the pool.
    fn let_go(&self) {
        let mut state = self.state.lock();
        let phase = mem::replace(&mut state.phase, LoadPhase::Taken);
        let held = state.held.split(usize::MAX);
        if let Some(waits) = state.waits.take() {
            waits.abort();
        }
        drop(state);
        drop((phase, held));
    }

    fn advance(&self, clock: &dyn Clock) -> Result<Progress> {
        let step = self.state.lock().take_step(&self.inbox);
        match step {
            Step::Begin(message) => self.open(&message)?,
            Step::Decode(message, schema) => self.decode(message, &schema)?,
            Step::Encode(piece) => {
                let done = piece.run();
                self.settle(|open, _, _| open.load.done(done))?;
            }
            Step::KeepUp(profile_wait) => {
                let ProfileWait { profile, memory } = &*profile_wait;
                match profiles::step(profile, memory, clock, || self.inbox.is_closed()) {
                    // The load continues whether or not the profile succeeds.
                    Ok(Progress::Worked | Progress::Done) => {}
                    Ok(Progress::Busy) => return Ok(Progress::Busy),
                    // A profile that cannot be computed is given up, so that the load does not wait for it forever.
                    Err(error) => profile.give_up(&error),
                }
            }
            Step::Commit(open) => self.commit(open)?,
            Step::Answer(outcome) => {
                *self.outcome.lock() = Some(outcome);
                return Ok(Progress::Done);
            }
            Step::Append(append) => match append.try_commit() {
                Some(outcome) => {
                    *self.outcome.lock() = Some(Ok(outcome?));
                    return Ok(Progress::Done);
                }
                None if append.has_step() => {}
                None => return Ok(Progress::Busy),
            },
            Step::Repeat(again) => match again.first.outcome() {
                Some(outcome) => {
                    *self.outcome.lock() = Some(self.repeated(&again, outcome));
                    return Ok(Progress::Done);
                }
                None => return Ok(Progress::Busy),
            },
            Step::Abandon(phase) => {
                drop(phase);
                return Ok(Progress::Done);
            }
            Step::Nothing => return Ok(Progress::Busy),
        }
        Ok(Progress::Worked)
    }

    /// Continues a load whose rows are all encoded and, if they are on disk, durable: makes them visible, or waits for
    /// what must come first.
    fn commit(&self, open: Box<OpenLoad>) -> Result<()> {
        let wake = || self.connection.caller.waker();
        if let Some(profile) = open.load.profile_before(wake()) {
            self.fall_behind(open, profile);
        } else if open.load.is_detached() {
            let (durable, wake) = (Durable::default(), wake());
            self.state.lock().phase = LoadPhase::Committed(durable.clone());
            self.connection.caller.insert(open.load, move |made| {
                *durable.lock() = Some(made.and_then(farpool_catalog::Commit::wait));
                wake();
            });
        } else if open.load.is_append() {
            // Commits in a later step, so that other appends can join the queue and be part of the same version.
            let append = open.load.append(wake())?;
            self.state.lock().phase = LoadPhase::InLine(Arc::new(append));
        } else {
            let (durable, wake) = (Durable::default(), wake());
            self.state.lock().phase = LoadPhase::Committed(durable.clone());
            open.load.publish()?.then(move |made| {
                *durable.lock() = Some(made);
                wake();
            });
        }
        Ok(())
    }

    /// Makes the load wait for a profile. The profile may wait for memory, so the load releases its own reservation.
    fn fall_behind(&self, open: Box<OpenLoad>, profile: AwaitedProfile) {
        let connection = &self.connection;
        let memory = connection.caller.profile_memory(connection.runtime.clone());
        let mut state = self.state.lock();
        state.phase = LoadPhase::Behind(open, Arc::new(ProfileWait { profile, memory }));
        state.held.set(0);
    }

    fn open(&self, message: &Message) -> Result<()> {
        let Request::LoadBegin { table, options, schema, rows_hint, id } = Request::decode(message, None)?
        else {
            return Err(Error::invalid("not the beginning of a load"));
        };
        if let Some(first) = id.map(|id| self.record(id)).transpose()?.flatten() {
            let again = RepeatedLoad { first: first.clone(), table, schema };
            let mut state = self.state.lock();
            state.in_hand -= 1;
            state.phase = LoadPhase::Again(Arc::new(again));
            drop(state);
            let wake = self.connection.caller.waker();
            return first.wait(Box::new(move |_| wake()));
        }
        let mut load = self.connection.caller.begin_load(&table, &schema, options, rows_hint)?;
        load.set_wake(self.connection.caller.waker().into());
        id.into_iter().for_each(|id| load.set_id(id));
        load.claim().into_iter().for_each(|claim| self.inbox.set_claim(claim));
        let open = OpenLoad { load, schema, is_decoding: false, unread: None, is_complete: false };
        let mut state = self.state.lock();
        state.in_hand -= 1;
        state.phase = LoadPhase::Open(Box::new(open));
        Ok(())
    }

    /// Registers the id for this load and returns `None`, or returns the record of an earlier load with this id.
    fn record(&self, id: LoadId) -> Result<Option<Arc<Record>>> {
        let (connection, stream, inbox) = (Arc::downgrade(&self.connection), self.stream, self.inbox.clone());
        // After a client was told that the load has ended, the remaining rows must not be accepted.
        let end = move || {
            if let Some(connection) = connection.upgrade().filter(|_| !inbox.is_complete()) {
                connection.give_up(stream, ended_by_asking());
            }
        };
        let held = self.state.lock().held.split(limits::LOAD_OUTCOME_BYTES);
        match self.connection.caller.record_load(id, Some(held), Box::new(end))? {
            LoadRegistration::Known(first) => Ok(Some(first)),
            LoadRegistration::New(recording) => {
                self.state.lock().recording = Some(recording);
                Ok(None)
            }
        }
    }

    /// Returns the answer to this load, given the outcome of the first load with its id.
    fn repeated(&self, again: &RepeatedLoad, outcome: LoadOutcome) -> Result<TableInfo> {
        match outcome {
            LoadOutcome::Loaded(made) => Ok(self.connection.caller.loaded(&again.table, &again.schema, made)),
            LoadOutcome::Failed(error) => Err(error),
            LoadOutcome::NotLoaded => Err(ended_by_asking()),
        }
    }

    fn decode(&self, message: Message, schema: &SchemaRef) -> Result<()> {
        let Some(message) = self.reserve_for(message)? else { return Ok(()) };
        let batch = match Request::decode(&message, Some(schema))? {
            Request::LoadBatch(batch) => batch,
            other => return Err(Error::invalid(format!("{} in a load", other.kind().name()))),
        };
        self.settle(|open, unpaid, decoding| {
            open.is_decoding = false;
            *decoding = 0;
            open.load.buffer(&batch)?;
            unpaid.push_back((open.load.rows_buffered(), message.bytes_on_wire));
            Ok(())
        })
    }

    /// Records the result of a step, and grants the client credit (flow control) for rows that were encoded in the
    /// step.
    fn settle(
        &self,
        book: impl FnOnce(&mut OpenLoad, &mut VecDeque<(u64, u64)>, &mut usize) -> Result<()>,
    ) -> Result<()> {
        let bytes = {
            let mut state = self.state.lock();
            let LoadState { phase, in_hand, unpaid, held, decoding, .. } = &mut *state;
            *in_hand -= 1;
            let LoadPhase::Open(open) = phase else { return Ok(()) };
            book(open, unpaid, decoding)?;
            held.set(limits::STREAM_WINDOW_BYTES + FORMS * open.load.bytes_held() + *decoding);
            take_paid(unpaid, &open.load)
        };
        if bytes > 0 { self.grant(bytes) } else { Ok(()) }
    }

    /// Reserves memory to decode a message and for its rows; returns the message. If memory is short, returns `None`;
    /// the message then waits for memory, up to a time limit.
    fn reserve_for(&self, message: Message) -> Result<Option<Message>> {
        let rows = bytes_to_decode(&message.body)?.max(message.body.len());
        let wanted = message.body.len() + FORMS * rows;
        let mut state = self.state.lock();
        match self.inbox.take_memory() {
            Some(memory) => state.held.join(memory?),
            None if state.held.try_grow(wanted).is_ok() => {}
            None => return self.wait_for(wanted, message, &mut state).map(|()| None),
        }
        state.decoding = wanted;
        Ok(Some(message))
    }

    fn wait_for(&self, bytes: usize, message: Message, state: &mut LoadState) -> Result<()> {
        let account = self.connection.caller.account().clone();
        let runtime = self.connection.runtime.as_ref().ok_or_else(cannot_wait)?;
        state.in_hand -= 1;
        if let LoadPhase::Open(open) = &mut state.phase {
            open.unread = Some(message);
        }
        let (inbox, caller) = (self.inbox.clone(), self.connection.caller.clone());
        let wait = runtime.spawn(async move {
            let memory = match timeout(PATIENCE, account.reserve(bytes)).await {
                Ok(memory) => memory,
                Err(_) => Err(waited(&account, bytes)),
            };
            inbox.put_memory(memory).into_iter().for_each(|task| caller.wake_task(task));
        });
        state.waits = Some(wait.abort_handle());
        Ok(())
    }

    fn grant(&self, bytes: u64) -> Result<()> {
        self.inbox.grant(bytes)?;
        for message in (Response::Credit { bytes }).encode()? {
            self.connection.outbox.push(self.stream, message);
        }
        Ok(())
    }
}

/// Returns the error of a load that was ended because its client asked for the outcome.
pub(super) fn ended_by_asking() -> Error {
    Error::new(ErrorKind::Cancelled, "the load with this id was given up before all of its rows had come")
        .advise("nothing of it was loaded; load again, with another id")
}

pub(super) fn made(info: &TableInfo) -> LoadedVersion {
    let TableInfo { version, rows, bytes_plain, bytes_encoded, .. } = *info;
    LoadedVersion { version, rows, bytes_plain, bytes_encoded }
}

/// Removes the messages whose rows were encoded, or only wait for more rows to fill a row group, from `unpaid`; returns
/// their bytes, for which credit is due.
fn take_paid(unpaid: &mut VecDeque<(u64, u64)>, load: &Load) -> u64 {
    let rows = if load.is_encoding() { load.rows_added() } else { load.rows_buffered() };
    let mut bytes = 0;
    while let Some((_, message_bytes)) = unpaid.pop_front_if(|(end, _)| *end <= rows) {
        bytes += message_bytes;
    }
    bytes
}

impl LoadState {
    fn has_step(&self, inbox: &Inbox) -> bool {
        let has_piece = match &self.phase {
            LoadPhase::New(_) => true,
            LoadPhase::Open(open) if open.unread.is_some() => {
                let news = inbox.has_memory() || inbox.is_closed();
                return open.load.has_piece() || self.in_hand > 0 || news;
            }
            // All rows have arrived, and other threads are encoding what is left, so there is no step to do.
            LoadPhase::Open(open) if open.is_complete && open.load.is_waiting() => {
                return open.load.has_piece() || self.in_hand > 0 || inbox.is_closed();
            }
            LoadPhase::Open(open) => open.load.has_piece(),
            LoadPhase::Behind(_, profile_wait) => {
                let ProfileWait { profile, memory } = &**profile_wait;
                return profile.has_step() || memory.has_come() || inbox.is_closed();
            }
            LoadPhase::InLine(append) => {
                return append.has_step() || inbox.is_closed() && append.is_waiting();
            }
            LoadPhase::Committed(durable) => return durable.lock().is_some(),
            LoadPhase::Again(again) => return again.first.has_ended() || inbox.is_closed(),
            LoadPhase::Taken => false,
        };
        has_piece || self.in_hand > 0 || inbox.has_news()
    }

    fn take_step(&mut self, inbox: &Inbox) -> Step {
        // A load that is already part of a version being made is not dropped, because its client may ask for the
        // outcome.
        let is_taken = |phase: &LoadPhase| match phase {
            LoadPhase::InLine(append) => !append.leave(),
            LoadPhase::Committed(_) => true,
            _ => false,
        };
        if inbox.is_closed() && !is_taken(&self.phase) {
            return Step::Abandon(mem::replace(&mut self.phase, LoadPhase::Taken));
        }
        let step = match mem::replace(&mut self.phase, LoadPhase::Taken) {
            LoadPhase::New(message) => Step::Begin(message),
            LoadPhase::Open(mut open) => match open.take_step(inbox, self.in_hand) {
                Some(step) => {
                    self.phase = LoadPhase::Open(open);
                    step
                }
                None => Step::Commit(open),
            },
            LoadPhase::Behind(open, profile_wait) if profile_wait.profile.is_settled() => {
                drop(profile_wait);
                Step::Commit(open)
            }
            LoadPhase::Behind(open, profile_wait) => {
                self.phase = LoadPhase::Behind(open, profile_wait.clone());
                Step::KeepUp(profile_wait)
            }
            LoadPhase::InLine(append) => {
                self.phase = LoadPhase::InLine(append.clone());
                Step::Append(append)
            }
            LoadPhase::Committed(durable) => {
                let outcome = durable.lock().take();
                match outcome {
                    Some(outcome) => Step::Answer(outcome),
                    None => {
                        self.phase = LoadPhase::Committed(durable);
                        Step::Nothing
                    }
                }
            }
            LoadPhase::Again(again) => {
                self.phase = LoadPhase::Again(again.clone());
                Step::Repeat(again)
            }
            LoadPhase::Taken => Step::Nothing,
        };
        if matches!(step, Step::Begin(_) | Step::Decode(..) | Step::Encode(_)) {
            self.in_hand += 1;
        }
        step
    }
}

impl OpenLoad {
    /// Returns the next step, given that `in_hand` other steps are in progress; `None` if the load can be committed.
    fn take_step(&mut self, inbox: &Inbox, in_hand: usize) -> Option<Step> {
        // Encoding comes first, because it frees the memory of rows before more are decoded.
        if let Some(piece) = self.load.next_piece() {
            return Some(Step::Encode(Box::new(piece)));
        }
        if let Some(message) = self.unread.take_if(|_| inbox.has_memory()) {
            return Some(Step::Decode(message, self.schema.clone()));
        }
        if self.is_decoding {
            return Some(Step::Nothing);
        }
        match inbox.take() {
            InboxItem::Rows(message) => {
                self.is_decoding = true;
                Some(Step::Decode(message, self.schema.clone()))
            }
            InboxItem::Complete if !self.is_complete => {
                self.is_complete = true;
                self.load.complete();
                self.take_step(inbox, in_hand)
            }
            InboxItem::Complete if in_hand == 0 && !self.load.seal() => None,
            InboxItem::Complete | InboxItem::Nothing | InboxItem::Gone => Some(Step::Nothing),
        }
    }
}

#[cfg(test)]
mod tests;
