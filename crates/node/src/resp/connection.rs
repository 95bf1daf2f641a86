//! A client of the Redis protocol, from its first byte to its last.

use super::batch::Batch;
use super::clients::Buffers;
use super::host::{Client, TOO_MANY};
use crate::Node;
use crate::key_log::Follower;
use crate::server::lobby::Lobby;
use bytes::{Buf, BytesMut};
use farpool_kv::resp::Replies;
use farpool_kv::{Moment, Session};
use farpool_model::{ErrorKind, limits};
use farpool_wire::{Socket, Tls};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// Bytes per read.
const READ_BYTES: usize = 16 << 10;

/// Bytes of a buffer that are kept while nothing is in it.
const KEPT_BYTES: usize = 64 << 10;

/// Work that is done for one client before others of its thread have their turn.
const TURN_NS: u64 = 100_000;

/// Work is charged when so much of it has been done: each time costs a lock of the scheduler.
const CHARGED_NS: u64 = 200_000;

/// How long a client that does not read its replies is waited for.
const UNREAD: Duration = Duration::from_millis(limits::UNREAD_MS_MAX);

/// How long a peer may take to authenticate itself.
const HANDSHAKE: Duration = Duration::from_millis(limits::HANDSHAKE_MS_MAX);

pub(super) struct Connection {
    node: Arc<Node>,
    socket: Arc<dyn Socket>,
    client: Client,
    session: Session,
    received: BytesMut,
    /// The requests at the beginning of `received`.
    batch: Batch,
    /// Replies that have not been sent.
    replies: Vec<u8>,
    /// Where random numbers come from.
    random: u64,
    /// Waits for the log of keys, where they have one.
    log: Option<Follower>,
    /// Nanoseconds of work that have not been charged to the client's share.
    unpaid_ns: u64,
    /// And since others of the thread had their turn.
    turn_ns: u64,
    /// Whether the next command waits for the end of a pause.
    is_paused: bool,
}

impl Connection {
    pub fn new(node: &Arc<Node>, socket: Arc<dyn Socket>, number: u64, log: Option<Follower>) -> Self {
        Connection {
            client: Client::new(node, number, (socket.peer(), socket.local())),
            node: Arc::clone(node),
            socket,
            session: Session::default(),
            received: BytesMut::new(),
            batch: Batch::default(),
            replies: Vec::new(),
            random: RandomState::new().hash_one(number) | 1,
            log,
            unpaid_ns: 0,
            turn_ns: 0,
            is_paused: false,
        }
    }

    /// Serves the client until one side ends the connection.
    pub async fn serve(mut self, lobby: Arc<Lobby>, mut is_ending: watch::Receiver<bool>) {
        let peer = self.socket.peer();
        let seen = Arc::clone(self.client.seen());
        let ended = tokio::select! {
            biased;
            _ = is_ending.wait_for(|is_ending| *is_ending) => Ok(()),
            () = seen.ended() => Ok(()),
            ended = self.converse(&lobby) => ended,
        };
        if let Err(error) = ended {
            tracing::debug!(peer, %error, "a client of the Redis protocol is gone");
        }
        if let Some(keys) = self.client.keys() {
            self.session.reset(&keys);
        }
    }

    async fn converse(&mut self, lobby: &Arc<Lobby>) -> io::Result<()> {
        // Only now: of many that come at once, those whose turn has not come would seem to be silent.
        let seat = lobby.enter();
        if let Some(tls) = self.node.tls() {
            let accepting = Tls::accept(self.socket.clone(), BytesMut::new(), &tls);
            match timeout(HANDSHAKE, accepting).await {
                Ok(Ok(tls)) => self.socket = Arc::new(tls),
                Ok(Err(error)) => return Err(io::Error::other(error.message)),
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        match self.client.admit(None) {
            Err(error) if error.kind == ErrorKind::OverLimit => {
                self.error(TOO_MANY);
                return self.send().await;
            }
            // A client that needs a token shows it now.
            _ => {}
        }
        let greeted = tokio::select! {
            biased;
            () = seat.evicted() => return Ok(()),
            greeted = timeout(HANDSHAKE, self.greet()) => greeted,
        };
        drop(seat);
        match greeted {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return Ok(()),
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
        loop {
            let pass = self.client.take_pass();
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
                    self.error(&format!("NOAUTH {}", error.message));
                    return self.send().await;
                }
                None => self.client.return_pass(pass),
            }
        }
    }

    /// Waits until the client has shown who it is; returns whether it stays.
    async fn greet(&mut self) -> io::Result<bool> {
        while !self.client.is_admitted() {
            if !self.exchange().await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads what has come, carries it out and sends the replies; returns whether the client stays.
    async fn exchange(&mut self) -> io::Result<bool> {
        if std::mem::take(&mut self.is_paused) {
            self.client.unpaused().await;
        }
        // What has come already goes first.
        loop {
            if let Some(log) = &mut self.log {
                log.keep_up().await;
            }
            let began_ns = self.node.clock().now_ns();
            let progress = self.carry_out();
            let worked_ns = self.node.clock().now_ns().saturating_sub(began_ns);
            (self.unpaid_ns, self.turn_ns) = (self.unpaid_ns + worked_ns, self.turn_ns + worked_ns);
            if self.unpaid_ns >= CHARGED_NS {
                self.client.charge_time(std::mem::take(&mut self.unpaid_ns));
            }
            self.note_buffers();
            self.client.settle(&self.session);
            let stays = match progress {
                Progress::Waits => break,
                Progress::HasMore => true,
                Progress::Paused => {
                    self.is_paused = true;
                    self.send().await?;
                    return Ok(true);
                }
                Progress::Leaves => false,
            };
            self.send().await?;
            if !stays {
                self.socket.end_writing()?;
                return Ok(false);
            }
            self.give_way().await;
        }
        self.send().await?;
        self.give_way().await;
        if self.client.has_new_pass() {
            // From now on the connection lasts for as long as this one does.
            return Ok(true);
        }
        self.received.reserve(READ_BYTES);
        if let Err(error) = self.client.charge(self.bytes_held()) {
            self.error(&format!("OOM {}", error.message));
            self.send().await?;
            return Ok(false);
        }
        Ok(self.socket.read(&mut self.received).await? > 0)
    }

    /// Lets others of the thread have their turn, if it is time: a client that always has more to do does not keep them waiting.
    async fn give_way(&mut self) {
        if self.turn_ns >= TURN_NS {
            self.turn_ns = 0;
            tokio::task::yield_now().await;
        }
    }

    fn error(&mut self, text: &str) {
        Replies::new(&mut self.replies, self.client.protocol()).error(text);
    }

    fn note_buffers(&mut self) {
        self.client.note_buffers(Buffers {
            received: self.received.len(),
            free: self.received.capacity() - self.received.len(),
            replies: self.replies.capacity(),
        });
    }

    fn bytes_held(&self) -> usize {
        let buffers = self.received.capacity() + self.replies.capacity() + self.batch.bytes_held();
        buffers + self.session.bytes() + self.socket.bytes_held()
    }

    /// Carries out the commands that have come whole, as long as their replies are not many.
    fn carry_out(&mut self) -> Progress {
        self.note_buffers();
        let Connection { node, client, session, batch, received, replies, random, .. } = self;
        // One reading of a clock for each command tells when it began and how long the one before took.
        let (began_ms, began_ns) = (node.keyspaces().time().now_ms(), node.clock().now_ns());
        let (mut now_ms, mut now_ns) = (began_ms, began_ns);
        let mut replies_max = client.room().min(limits::RESP_OUTPUT_BYTES_MAX);
        let mut keys = client.keys();
        while replies.len() < limits::RESP_REPLIES_BYTES_MAX {
            if batch.is_done() {
                received.advance(batch.clear());
                match batch.fill(received, keys.as_deref(), session.space()) {
                    Ok(true) => {}
                    Ok(false) => return Progress::Waits,
                    Err(error) => {
                        if let Some(text) = error.reply() {
                            Replies::new(replies, client.protocol()).error(text);
                        }
                        return Progress::Leaves;
                    }
                }
            }
            let Some((args, ahead)) = batch.take(received) else { continue };
            if client.must_wait(session, &args) {
                batch.put_back();
                return Progress::Paused;
            }
            *random = next_random(*random);
            let moment = Moment { now: now_ms, random: *random };
            let mut to = Replies::new(replies, client.protocol()).within(replies_max);
            client.execute(keys.as_deref(), session, (&args, ahead), moment, &mut to);
            let ended_ns = node.clock().now_ns();
            let took_ns = ended_ns.saturating_sub(now_ns);
            (now_ns, now_ms) = (ended_ns, began_ms + ended_ns.saturating_sub(began_ns) / 1_000_000);
            client.took(&args, took_ns, now_ms);
            if client.is_leaving() {
                return Progress::Leaves;
            }
            // It may be somebody else now, with other keys.
            if !ahead.is_of_keys() && !client.has_keys(keys.as_ref()) {
                keys = client.keys();
                replies_max = client.room().min(limits::RESP_OUTPUT_BYTES_MAX);
                if let Some(keys) = &keys {
                    batch.look_ahead(received, keys, session.space());
                }
            }
        }
        Progress::HasMore
    }

    /// Sends the replies once what they acknowledge is as durable as it is to be. Where it cannot be made so, an error goes
    /// in their place, and the client with it.
    async fn send(&mut self) -> io::Result<()> {
        if let (Some(number), Some(log)) = (self.session.take_recorded(), &mut self.log)
            && let Err(error) = log.durable(number).await
        {
            self.replies.clear();
            self.error(&format!("MISCONF the log of keys cannot be written: {}", error.message));
            self.write().await?;
            return Err(io::Error::other(error.message));
        }
        self.write().await
    }

    async fn write(&mut self) -> io::Result<()> {
        if !self.replies.is_empty() {
            match timeout(UNREAD, self.socket.write_all(&self.replies)).await {
                Ok(sent) => sent?,
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        self.replies.clear();
        self.replies.shrink_to(KEPT_BYTES);
        if self.received.is_empty() && self.received.capacity() > KEPT_BYTES {
            self.received = BytesMut::new();
        }
        Ok(())
    }
}

/// What [`Connection::carry_out`] has left.
enum Progress {
    /// The rest of a command has not come yet.
    Waits,
    /// There may be more commands.
    HasMore,
    /// The next command waits for the end of a pause.
    Paused,
    /// The connection ends.
    Leaves,
}

/// Returns the next number of a sequence (Marsaglia, "Xorshift RNGs", Journal of Statistical Software, 2003).
fn next_random(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ state << 17
}
