//! A connection of the Redis protocol, from its first byte to its last.

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

/// Bytes per read.
const READ_BYTES: usize = 16 << 10;

/// Capacity of an empty buffer that is kept, in bytes.
const KEPT_BYTES: usize = 64 << 10;

/// Nanoseconds of work that are charged together, because each charge takes a lock of the scheduler.
const CHARGED_NS: u64 = 200_000;

/// Time after which a client that does not read its replies is closed.
const UNREAD: Duration = Duration::from_millis(limits::UNREAD_MS_MAX);

/// Time that a client that has sent too much gets to read the error; what it sends meanwhile is dropped.
const PARTING: Duration = Duration::from_secs(1);

/// Bytes of read-ahead after which the client is charged again.
const CHARGED_BYTES: usize = 1 << 20;

/// Time that a peer gets to authenticate.
const HANDSHAKE: Duration = Duration::from_millis(limits::HANDSHAKE_MS_MAX);

/// State that the connections of a thread share.
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
    /// The state that requests are executed on; absent while a long command has it.
    executor: Option<Box<RequestExecutor>>,
    /// The long command that is queued or running.
    submitted: Option<SubmittedCommand>,
    /// Bytes that arrived while the connection waited for something else.
    ahead: ReadAhead,
    /// Follower of the log of keys, if there is one.
    log: Option<Follower>,
    /// Nanoseconds of work not yet charged to the client's share.
    unpaid_ns: u64,
    /// Nanoseconds of work since other connections of the thread had their turn.
    turn_ns: u64,
    /// Whether the next command waits for the end of a pause.
    is_paused: bool,
}

/// The executor of a connection whose next command is long, until that command begins.
type WaitingExecutor = Arc<Mutex<Option<Box<RequestExecutor>>>>;

/// A long command in the queue of its tenant.
struct SubmittedCommand {
    tenant: TenantName,
    place: Option<QueuePosition>,
    executor: WaitingExecutor,
}

impl SubmittedCommand {
    /// Removes the command from the queue and returns its executor; `None` if it has begun.
    fn withdraw(self, long: &LongCommands) -> Option<Box<RequestExecutor>> {
        let executor = self.executor.lock().take()?;
        self.place.into_iter().for_each(|place| long.withdraw(&self.tenant, place));
        Some(executor)
    }
}

/// Marks the client as disconnected on drop.
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
        // A command that is running cleans up after itself.
        let submitted = self.submitted.take();
        let executor = self.executor.take().or_else(|| submitted?.withdraw(&self.shared.long));
        // The descriptor is freed before the connection's place is.
        drop(self.socket);
        if let Some(executor) = executor {
            executor.part(&self.shared.long);
        }
    }

    /// # Errors
    /// When a long command has the executor, and the connection has not waited for it.
    fn executor(&mut self) -> io::Result<&mut RequestExecutor> {
        self.executor.as_deref_mut().ok_or_else(|| io::Error::other("a long command was left"))
    }

    async fn converse(&mut self, unauthenticated: &Arc<Unauthenticated>) -> io::Result<()> {
        // The handshake timeout starts here: when many connections arrive at once, waiting for this task's turn must
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
            // A client that needs a token sends it now.
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

    /// Waits until the client is authenticated; returns whether the connection stays open.
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
        // Requests received earlier come first.
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
            // From here on, the connection lasts until the client's pass ends.
            return Ok(true);
        }
        if self.executor()?.received.len() > looked_at {
            // Requests came while the replies were sent: the client may wait for theirs and send nothing more.
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

    /// Waits for a turn and executes requests for its duration.
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

    /// Passes the next command to a thread for long commands and waits for it.
    async fn carry_out_long(&mut self) -> io::Result<ExecutorProgress> {
        let Some(executor) = self.executor.take() else { return Ok(ExecutorProgress::Leaves) };
        let Some(tenant) = executor.client.tenant().cloned() else {
            // Before authentication no command is long.
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

    /// Waits until a long command of the tenant has released shards.
    async fn released(&mut self, releases: u64) -> io::Result<()> {
        let Some(keys) = self.executor()?.client.keys() else { return Ok(()) };
        self.while_there(poll_fn(|context| keys.poll_released(releases, context))).await
    }

    /// Waits for `waited` while the client stays connected.
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

    /// Sends replies once the changes they acknowledge are as durable as `--fsync` asks for. If they cannot become
    /// durable, an error is sent instead and the connection is closed: a client that got `OK` for `SET a 1` under
    /// `always`, followed by a loss of power, would find `a` missing.
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

/// Returns the work of a long command, which sends back the executor and the progress; does nothing if the executor was
/// withdrawn.
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
        // Commands that have waited get a moment before the next long command.
        if keys.is_some_and(|keys| keys.take_waited()) {
            #[expect(
                clippy::disallowed_methods,
                reason = "a thread of long commands, which serves nobody else"
            )]
            std::thread::sleep(BREATH);
        }
    }
}

/// Pause between two long commands while other commands wait for the shards.
const BREATH: Duration = Duration::from_micros(500);

/// Writes replies and reads requests meanwhile, because a client may write a whole pipeline before it reads. Without
/// that, both sides could block on full socket buffers.
///
/// # Errors
/// When the client has sent more than the limit, or the connection is broken.
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
        // A client whose bytes are not read may lose the last bytes sent to it.
        let (sent, _) = tokio::join!(last, drop_what_comes(socket));
        sent
    };
    tokio::select! {
        sent = parting => sent?,
        () = sleep(PARTING) => {}
    }
    Err(io::Error::other(refusal))
}

/// Reads and discards until the client closes.
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
