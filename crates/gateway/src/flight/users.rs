//! Users, and what they have beyond one request: prepared statements, sessions, and statements that run or are about to.
//!
//! Invariants: a handle is a random number of 128 bits, and is looked up among those of the user who presents it, so
//! that nobody reaches what belongs to another. The number of handles and their bytes are bounded, and one that nobody
//! uses is forgotten after a while, since clients that vanish do not close theirs.

use super::options::Options;
use super::prepared::Prepared;
use super::running::Executions;
use crate::engines::Engine;
use farpool_datafusion::Session;
use farpool_model::{Error, Result, limits};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Time after which something that nobody uses is forgotten.
const IDLE: Duration = Duration::from_millis(limits::FLIGHT_IDLE_MS_MAX);

/// Time after which it is forgotten if there is too much.
const IDLE_MIN: Duration = Duration::from_millis(limits::FLIGHT_IDLE_MS_MIN);

/// The users of a server.
#[derive(Debug, Default)]
pub(super) struct Users(Mutex<Vec<Arc<User>>>);

impl Users {
    /// Returns the user of an engine.
    pub fn of(&self, engine: Arc<Engine>) -> Arc<User> {
        let mut users = self.0.lock();
        if let Some(known) = users.iter().find(|user| Arc::ptr_eq(&user.engine, &engine)) {
            return Arc::clone(known);
        }
        let user = Arc::new(User::new(engine));
        users.push(Arc::clone(&user));
        user
    }

    /// Forgets what nobody uses any more, and users without a connection who have nothing left.
    pub fn forget_unused(&self) {
        self.0.lock().retain(|user| {
            let has_something = user.forget_unused();
            // Requests and connections hold the user, too.
            has_something || Arc::strong_count(user) > 1
        });
    }
}

/// A user.
#[derive(Debug)]
pub(super) struct User {
    /// The engine that runs the user's statements.
    pub engine: Arc<Engine>,
    /// The statements that are running.
    pub executions: Executions,
    statements: Mutex<Kept<Prepared>>,
    sessions: Mutex<Kept<Mutex<Options>>>,
    /// Tickets for statements that change something, each of which runs once.
    commands: Mutex<Kept<()>>,
    /// Places for streams of rows that are read.
    uploads: Arc<Semaphore>,
    /// Engines in which names without a schema are those of another schema than `public`.
    in_schemas: Mutex<HashMap<String, Session>>,
}

/// Things by their handles.
#[derive(Debug)]
struct Kept<T> {
    entries: HashMap<u128, Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    value: Arc<T>,
    used: Instant,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Kept { entries: HashMap::new() }
    }
}

impl<T> Kept<T> {
    fn get(&mut self, handle: u128) -> Option<Arc<T>> {
        let entry = self.entries.get_mut(&handle)?;
        entry.used = Instant::now();
        Some(Arc::clone(&entry.value))
    }

    fn insert(&mut self, handle: u128, value: T) -> Arc<T> {
        let value = Arc::new(value);
        self.entries.insert(handle, Entry { value: Arc::clone(&value), used: Instant::now() });
        value
    }

    fn forget_older(&mut self, than: Duration) {
        self.entries.retain(|_, entry| entry.used.elapsed() < than);
    }
}

impl User {
    fn new(engine: Arc<Engine>) -> Self {
        let (executions, statements, sessions, commands, in_schemas) = Default::default();
        let uploads = Arc::new(Semaphore::new(limits::FLIGHT_UPLOADS_MAX));
        User { engine, executions, statements, sessions, commands, uploads, in_schemas }
    }

    /// Forgets what was not used for long; returns whether anything is left.
    fn forget_unused(&self) -> bool {
        let (mut statements, mut sessions) = (self.statements.lock(), self.sessions.lock());
        let mut commands = self.commands.lock();
        statements.forget_older(IDLE);
        sessions.forget_older(IDLE);
        commands.forget_older(IDLE);
        !(statements.entries.is_empty() && sessions.entries.is_empty() && commands.entries.is_empty())
    }

    /// Waits for a place for a stream of rows.
    ///
    /// # Errors
    /// The places are never closed, so that none is returned.
    pub async fn upload(&self) -> std::result::Result<OwnedSemaphorePermit, AcquireError> {
        Arc::clone(&self.uploads).acquire_owned().await
    }

    /// Keeps a prepared statement; returns its handle.
    ///
    /// # Errors
    /// `OverLimit` if there are too many.
    pub fn keep_statement(&self, prepared: Prepared) -> Result<u128> {
        let mut statements = self.statements.lock();
        let is_full = |statements: &Kept<Prepared>| {
            let bytes: usize = statements.entries.values().map(|entry| entry.value.bytes()).sum();
            statements.entries.len() >= limits::FLIGHT_STATEMENTS_MAX
                || bytes.saturating_add(prepared.bytes()) > limits::FLIGHT_STATEMENT_BYTES_MAX
        };
        if is_full(&statements) {
            statements.forget_older(IDLE_MIN);
        }
        if is_full(&statements) {
            return Err(Error::over_limit(format!(
                "a user may have {} prepared statements, with {} bytes of texts and values",
                limits::FLIGHT_STATEMENTS_MAX,
                limits::FLIGHT_STATEMENT_BYTES_MAX
            ))
            .advise("close those that are not needed any more"));
        }
        let handle = rand::random();
        statements.insert(handle, prepared);
        Ok(handle)
    }

    /// Returns whether a prepared statement may take `more` bytes.
    pub fn has_room(&self, more: usize) -> bool {
        let statements = self.statements.lock();
        let bytes: usize = statements.entries.values().map(|entry| entry.value.bytes()).sum();
        bytes.saturating_add(more) <= limits::FLIGHT_STATEMENT_BYTES_MAX
    }

    /// Returns a prepared statement.
    ///
    /// # Errors
    /// `NotFound` if the handle is unknown.
    pub fn statement(&self, handle: u128) -> Result<Arc<Prepared>> {
        self.statements.lock().get(handle).ok_or_else(|| {
            Error::not_found("there is no such prepared statement")
                .advise("it was closed, or not used for long: prepare it again")
        })
    }

    /// Forgets a prepared statement, if it is known.
    pub fn close_statement(&self, handle: u128) {
        self.statements.lock().entries.remove(&handle);
    }

    /// Begins a session; returns its handle.
    ///
    /// # Errors
    /// `OverLimit` if there are too many.
    pub fn open_session(&self) -> Result<(u128, Arc<Mutex<Options>>)> {
        let mut sessions = self.sessions.lock();
        if sessions.entries.len() >= limits::FLIGHT_SESSIONS_MAX {
            sessions.forget_older(IDLE_MIN);
        }
        if sessions.entries.len() >= limits::FLIGHT_SESSIONS_MAX {
            let most = limits::FLIGHT_SESSIONS_MAX;
            return Err(Error::over_limit(format!("a user may have {most} sessions"))
                .advise("close those that are not needed any more"));
        }
        let handle = rand::random();
        Ok((handle, sessions.insert(handle, Mutex::default())))
    }

    /// Returns the options of a session.
    ///
    /// # Errors
    /// `NotFound` if the handle is unknown: without its options, statements could mean something else.
    pub fn session(&self, handle: u128) -> Result<Arc<Mutex<Options>>> {
        self.sessions.lock().get(handle).ok_or_else(|| {
            Error::not_found("the session has ended: it was closed, or not used for long")
                .advise("connect again, and set its options again")
        })
    }

    /// Ends a session; returns whether there was one.
    pub fn close_session(&self, handle: u128) -> bool {
        self.sessions.lock().entries.remove(&handle).is_some()
    }

    /// Allows an execution of a statement that changes something to run once.
    pub fn allow_command(&self, id: u128) {
        let mut commands = self.commands.lock();
        if commands.entries.len() >= limits::FLIGHT_COMMANDS_MAX {
            let oldest = commands.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(id, _)| *id);
            if let Some(oldest) = oldest {
                commands.entries.remove(&oldest);
            }
        }
        commands.insert(id, ());
    }

    /// Takes the permission for an execution; returns whether there was one.
    pub fn take_command(&self, id: u128) -> bool {
        self.commands.lock().entries.remove(&id).is_some()
    }

    /// Returns the engine's session in which names without a schema are those of `schema`, or of `public`.
    pub fn session_in(&self, schema: Option<&str>) -> Session {
        let Some(schema) = schema else { return self.engine.session.clone() };
        let mut known = self.in_schemas.lock();
        if let Some(session) = known.get(schema) {
            return session.clone();
        }
        if known.len() >= limits::FLIGHT_SCHEMAS_MAX {
            known.clear();
        }
        let session = self.engine.session.in_schema(schema);
        known.insert(schema.to_string(), session.clone());
        session
    }
}
