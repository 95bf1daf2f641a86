//! A connection of a client of the Redis protocol: reads requests, has them executed, sends the replies, and waits: for
//! its turn on the serving thread, for the end of a *long command* (one that takes longer than a step of some ten
//! microseconds and is executed by another thread), for shards (locked parts of the keys), or for the log.

use super::ahead::ReadAhead;
use super::executor::{ExecutorProgress, RequestExecutor, TURN_NS};
use super::fair::LaneTurns;
use super::host::{Client, TOO_MANY};
use super::long::{LongCommands, QueuePosition};
use super::tenants::Tenants;
use crate::Node;
use crate::accept::Unauthenticated;
use bytes::BytesMut;
use farpool_keystore::Follower;
use farpool_model::{Clock, ErrorKind, TenantName, limits};
use farpool_wire::{Socket, Tls};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

/// Maximum bytes per read of the socket.
const READ_BYTES: usize = 16 << 10;

/// Maximum capacity in bytes of an empty buffer that is kept for later use.
const KEPT_BYTES: usize = 64 << 10;

/// Nanoseconds of work after which the tenant is charged for them. Not for each command, because charging takes a lock
/// of the scheduler.
const CHARGED_NS: u64 = 200_000;

/// Time after which the connection of a client that does not read its replies is closed.
const UNREAD: Duration = Duration::from_millis(limits::UNREAD_MS_MAX);

/// Maximum time that a client which has sent too much gets to read the error. What it sends in this time is dropped.
const PARTING: Duration = Duration::from_secs(1);

/// Bytes of read-ahead after which the memory reservation of the client is updated.
const CHARGED_BYTES: usize = 1 << 20;

/// Maximum time that a peer gets to authenticate.
const HANDSHAKE: Duration = Duration::from_millis(limits::HANDSHAKE_MS_MAX);

/// The state that all connections of a serving thread share.
#[derive(Clone)]
pub(super) struct LaneContext {
    pub turns: Arc<LaneTurns>,
    pub long: Arc<LongCommands>,
    pub tenants: Arc<Tenants>,
}

pub(super) struct Connection {
    node: Arc<Node>,
    socket: Arc<dyn Socket>,
    shared: LaneContext,
    /// The state without the socket, which executes requests; `None` while a thread for long commands has it.
    executor: Option<Box<RequestExecutor>>,
    /// The long command of this connection that is queued or running, if there is one.
    submitted: Option<SubmittedCommand>,
    /// Bytes that were received while the connection waited for something other than its client.
    ahead: ReadAhead,
    /// Waits for the log of keys, if there is one.
    log: Option<Follower>,
    /// Nanoseconds of work not yet charged to the client's share.
    unpaid_ns: u64,
    /// Nanoseconds of work since the connection's turn began.
    turn_ns: u64,
    /// Whether the next command waits for the end of a pause.
    is_paused: bool,
}

/// The executor of a connection whose next command is long; `None` after the command has begun or was withdrawn.
type WaitingExecutor = Arc<Mutex<Option<Box<RequestExecutor>>>>;

/// A long command that was submitted to the queue of its tenant.
struct SubmittedCommand {
    tenant: TenantName,
    place: Option<QueuePosition>,
    executor: WaitingExecutor,
}

impl SubmittedCommand {
    /// Removes the command from the queue and returns the executor; `None` if the command has begun.
    fn withdraw(self, long: &LongCommands) -> Option<Box<RequestExecutor>> {
        let executor = self.executor.lock().take()?;
        self.place.into_iter().for_each(|place| long.withdraw(&self.tenant, place));
        Some(executor)
    }
}

/// Marks the client as disconnected when this is dropped, so that a running command that only reads stops.
struct DisconnectMark(Option<Arc<AtomicBool>>);

impl Drop for DisconnectMark {
    fn drop(&mut self) {
        self.0.iter().for_each(|gone| gone.store(true, Ordering::Relaxed));
    }
}

impl Connection {
    pub fn new(
        node: &Arc<Node>,
        socket: Arc<dyn Socket>,
        number: u64,
        log: Option<Follower>,
        shared: LaneContext,
    ) -> Self {
        let client = Client::new(node, &shared.tenants, number, (socket.peer(), socket.local()));
        Connection {
            executor: Some(Box::new(RequestExecutor::new(node, client, number))),
            node: Arc::clone(node),
            socket,
            shared,
            submitted: None,
            ahead: ReadAhead::default(),
            log,
            unpaid_ns: 0,
            turn_ns: 0,
            is_paused: false,
        }
    }

    /// Serves the client until one side closes the connection.
    pub async fn serve(
        mut self,
        unauthenticated: Arc<Unauthenticated>,
        mut is_ending: watch::Receiver<bool>,
    ) {
        let peer = self.socket.peer();
        let Some(record) = self.executor.as_ref().map(|executor| Arc::clone(executor.client.record())) else {
            return;
        };
        let ended = tokio::select! {
            biased;
            _ = is_ending.wait_for(|is_ending| *is_ending) => Ok(()),
            () = record.ended() => Ok(()),
            ended = self.converse(&unauthenticated) => ended,
        };
        if let Err(error) = ended {
            tracing::debug!(peer, %error, "a client of the Redis protocol is gone");
        }
        // If the long command is running, its thread cleans up.
        let submitted = self.submitted.take();
        let executor = self.executor.take().or_else(|| submitted?.withdraw(&self.shared.long));
        // The file descriptor is freed before the connection is no longer counted.
        drop(self.socket);
        if let Some(executor) = executor {
            executor.part(&self.shared.long);
        }
    }

    /// # Errors
    /// An internal error if the executor has been moved to a thread for long commands.
    fn executor(&mut self) -> io::Result<&mut RequestExecutor> {
        self.executor.as_deref_mut().ok_or_else(|| io::Error::other("a long command was left"))
    }

    async fn converse(&mut self, unauthenticated: &Arc<Unauthenticated>) -> io::Result<()> {
        // The timeout of the handshake starts here, because the time in which this task waited for its first turn must
        // not count as silence.
        let slot = unauthenticated.enter();
        if let Some(tls) = self.node.tls() {
            let accepting = Tls::accept(self.socket.clone(), BytesMut::new(), &tls);
            match timeout(HANDSHAKE, accepting).await {
                Ok(Ok(tls)) => self.socket = Arc::new(tls),
                Ok(Err(error)) => return Err(io::Error::other(error.message)),
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        match self.executor()?.client.admit(None) {
            Err(error) if error.kind == ErrorKind::OverLimit => {
                self.executor()?.error(TOO_MANY);
                return self.send().await;
            }
            // The node requires a token, which the client must send by `AUTH` or `HELLO` as its next command.
            _ => {}
        }
        let greeted = tokio::select! {
            biased;
            () = slot.evicted() => return Ok(()),
            greeted = timeout(HANDSHAKE, self.greet()) => greeted,
        };
        drop(slot);
        match greeted {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return Ok(()),
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
        loop {
            let pass = self.executor()?.client.take_pass();
            let Some(mut pass) = pass else { return Ok(()) };
            let ended = tokio::select! {
                biased;
                ended = pass.ended() => Some(ended),
                more = self.exchange() => match more? {
                    true => None,
                    false => return Ok(()),
                },
            };
            match ended {
                Some(error) => {
                    self.executor()?.error(&format!("NOAUTH {}", error.message));
                    return self.send().await;
                }
                None => self.executor()?.client.return_pass(pass),
            }
        }
    }

    /// Serves the client until it is authenticated; returns whether the connection stays open.
    async fn greet(&mut self) -> io::Result<bool> {
        while !self.executor()?.client.is_admitted() {
            if !self.exchange().await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads requests, executes them and sends replies; returns whether the connection stays open.
    async fn exchange(&mut self) -> io::Result<bool> {
        if std::mem::take(&mut self.is_paused) {
            let unpaused = self.executor()?.client.unpaused();
            self.while_there(unpaused).await?;
        }
        // Executes requests received earlier before it reads more.
        loop {
            if let Some(log) = &mut self.log {
                log.keep_up().await;
            }
            let mut progress = self.take_turn().await?;
            if let ExecutorProgress::Long = progress {
                self.send().await?;
                progress = self.carry_out_long().await?;
            }
            match progress {
                ExecutorProgress::Waits => break,
                ExecutorProgress::HasMore | ExecutorProgress::Long => self.send().await?,
                ExecutorProgress::Paused => {
                    self.is_paused = true;
                    self.send().await?;
                    return Ok(true);
                }
                ExecutorProgress::Held(releases) => {
                    self.send().await?;
                    self.released(releases).await?;
                }
                ExecutorProgress::Leaves => {
                    self.send().await?;
                    self.socket.end_writing()?;
                    return Ok(false);
                }
            }
        }
        let looked_at = self.executor()?.received.len();
        self.send().await?;
        if self.executor()?.client.has_new_pass() {
            // From now on, the connection ends when the client's token is no longer valid.
            return Ok(true);
        }
        if self.executor()?.received.len() > looked_at {
            // Does not read, because requests arrived while the replies were sent, and the client may send nothing more
            // before it gets the replies to them.
            return Ok(true);
        }
        let held = self.socket.bytes_held();
        let executor = self.executor()?;
        executor.received.reserve(READ_BYTES);
        if let Err(error) = executor.client.charge(executor.bytes_held() + held) {
            executor.error(&format!("OOM {}", error.message));
            self.send().await?;
            return Ok(false);
        }
        let Some(executor) = self.executor.as_deref_mut() else { return Ok(false) };
        Ok(self.socket.read(&mut executor.received).await? > 0)
    }

    /// Waits for a turn of the thread and executes requests for the duration of the turn.
    async fn take_turn(&mut self) -> io::Result<ExecutorProgress> {
        let rests = self.turn_ns >= TURN_NS;
        if rests {
            self.turn_ns = 0;
        }
        let key = self.executor()?.client.tenant_key();
        self.shared.turns.turn(key, rests).await;
        let Some(executor) = self.executor.as_deref_mut() else { return Ok(ExecutorProgress::Leaves) };
        let began_ns = self.node.clock().now_ns();
        let progress = executor.carry_out();
        let worked_ns = self.node.clock().now_ns().saturating_sub(began_ns);
        executor.settle();
        self.shared.turns.spent(key, worked_ns);
        (self.unpaid_ns, self.turn_ns) = (self.unpaid_ns + worked_ns, self.turn_ns + worked_ns);
        if self.unpaid_ns >= CHARGED_NS {
            executor.client.charge_time(std::mem::take(&mut self.unpaid_ns));
        }
        Ok(progress)
    }

    /// Submits the next command, which is long, to the threads for long commands and waits for its end.
    async fn carry_out_long(&mut self) -> io::Result<ExecutorProgress> {
        let Some(executor) = self.executor.take() else { return Ok(ExecutorProgress::Leaves) };
        let Some(tenant) = executor.client.tenant().cloned() else {
            // Clients that are not authenticated have no long commands.
            self.executor = Some(executor);
            return Ok(ExecutorProgress::Leaves);
        };
        let mut gone = DisconnectMark(Some(executor.client.gone()));
        let (tell, told) = oneshot::channel();
        let executor = Arc::new(Mutex::new(Some(executor)));
        let work = long_work(Arc::clone(&executor), Arc::clone(self.node.clock()), tell);
        let place = self.shared.long.submit(&tenant, Box::new(work));
        self.ahead.charge_to(self.node.account(&tenant));
        self.submitted = Some(SubmittedCommand { tenant, place, executor });
        let told = self.ahead.while_there(&*self.socket, told).await?;
        self.submitted = None;
        let (executor, progress) =
            told.map_err(|_| io::Error::other("a long command was not carried out"))?;
        let executor = self.executor.insert(executor);
        self.ahead.give_to(&mut executor.received);
        gone.0 = None;
        Ok(progress)
    }

    /// Waits until a long command of the tenant has released shards since `releases` was read.
    async fn released(&mut self, releases: u64) -> io::Result<()> {
        let Some(keys) = self.executor()?.client.keys() else { return Ok(()) };
        self.while_there(poll_fn(|context| keys.poll_released(releases, context))).await
    }

    /// Waits for `waited`, and reads ahead to notice if the client disconnects.
    async fn while_there(&mut self, waited: impl Future<Output = ()>) -> io::Result<()> {
        let executor =
            self.executor.as_deref_mut().ok_or_else(|| io::Error::other("a long command was left"))?;
        if let Some(tenant) = executor.client.tenant() {
            self.ahead.charge_to(self.node.account(tenant));
        }
        self.ahead.while_there(&*self.socket, waited).await?;
        self.ahead.give_to(&mut executor.received);
        Ok(())
    }

    /// Sends the replies when the log records that they depend on are as durable as `--fsync` requires. If the records
    /// cannot become durable, sends an error instead and closes the connection. Otherwise a client could get `OK` for
    /// `SET a 1` under `always` and find `a` missing after a loss of power.
    async fn send(&mut self) -> io::Result<()> {
        let Some(executor) = self.executor.as_deref_mut() else { return Ok(()) };
        if let (Some(number), Some(log)) = (executor.session.take_recorded(), &mut self.log)
            && let Err(error) = log.committed(number).await
        {
            executor.replies.clear();
            executor.error(&format!("MISCONF the log of keys cannot be written: {}", error.message));
            self.write().await?;
            return Err(io::Error::other(error.message));
        }
        self.write().await
    }

    async fn write(&mut self) -> io::Result<()> {
        let Some(executor) = self.executor.as_deref_mut() else { return Ok(()) };
        if !executor.replies.is_empty() {
            match timeout(UNREAD, write_and_read(&*self.socket, executor)).await {
                Ok(sent) => sent?,
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        executor.replies.clear();
        executor.replies.shrink_to(KEPT_BYTES);
        if executor.received.is_empty() && executor.received.capacity() > KEPT_BYTES {
            executor.received = BytesMut::new();
        }
        Ok(())
    }
}

/// Returns the function with which a thread executes the long command and sends back the executor and the progress. The
/// function does nothing if the command was withdrawn.
fn long_work(
    waiting: WaitingExecutor,
    clock: Arc<dyn Clock>,
    tell: oneshot::Sender<(Box<RequestExecutor>, ExecutorProgress)>,
) -> impl FnOnce() + Send {
    move || {
        let Some(mut executor) = waiting.lock().take() else { return };
        let began_ns = clock.now_ns();
        let progress = executor.carry_out_long();
        executor.settle();
        executor.client.charge_time(clock.now_ns().saturating_sub(began_ns));
        let keys = executor.client.keys();
        if let Err((mut executor, _)) = tell.send((executor, progress)) {
            executor.end();
        }
        // If commands have waited for shards, they get a moment to be executed before the next long command.
        if keys.is_some_and(|keys| keys.take_waited()) {
            #[expect(
                clippy::disallowed_methods,
                reason = "a thread of long commands, which serves nobody else"
            )]
            std::thread::sleep(BREATH);
        }
    }
}

/// Pause between two long commands of a tenant if other commands wait for its shards.
const BREATH: Duration = Duration::from_micros(500);

/// Writes replies and reads requests at the same time, because a client may write a whole pipeline of requests before
/// it reads; otherwise both sides could block on full socket buffers.
///
/// # Errors
/// An error if the client has sent more than the limit, or the connection is broken.
async fn write_and_read(socket: &dyn Socket, executor: &mut RequestExecutor) -> io::Result<()> {
    let RequestExecutor { client, received, replies, session, .. } = executor;
    let mut writing = pin!(socket.write_all(replies));
    let held = session.bytes() + replies.capacity();
    let (mut has_ended, mut charged) = (false, received.capacity());
    let refusal = loop {
        received.reserve(READ_BYTES);
        if received.len() > limits::RESP_AHEAD_BYTES_MAX {
            let most = limits::RESP_AHEAD_BYTES_MAX >> 20;
            break format!(
                "ERR more than {most} MiB of requests came while replies were not read: read replies meanwhile"
            );
        }
        if received.capacity() >= charged + CHARGED_BYTES {
            charged = received.capacity();
            if let Err(error) = client.charge(held + charged + socket.bytes_held()) {
                break format!("OOM {} for requests that came while replies were not read", error.message);
            }
        }
        tokio::select! {
            biased;
            sent = &mut writing => return sent,
            read = socket.read(received), if !has_ended => has_ended = read? == 0,
        }
    };
    let (peer, bytes) = (socket.peer(), received.len());
    tracing::warn!(peer, bytes, "a client of the Redis protocol is disconnected: {refusal}");
    *received = BytesMut::new();
    let parting = async {
        let last = async {
            writing.await?;
            socket.write_all(format!("-{refusal}\r\n").as_bytes()).await?;
            socket.end_writing()
        };
        // Reads and drops what the client sends, because closing a socket with unread input can discard the bytes sent
        // last.
        let (sent, _) = tokio::join!(last, drop_what_comes(socket));
        sent
    };
    tokio::select! {
        sent = parting => sent?,
        () = sleep(PARTING) => {}
    }
    Err(io::Error::other(refusal))
}

/// Reads and discards bytes until the client closes the connection.
async fn drop_what_comes(socket: &dyn Socket) -> io::Result<()> {
    let mut dropped = BytesMut::with_capacity(READ_BYTES);
    while socket.read(&mut dropped).await? > 0 {
        dropped.clear();
        dropped.reserve(READ_BYTES);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
