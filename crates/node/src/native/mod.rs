//! The server of the native protocol: accepts and authenticates connections, and ends them in order at a shutdown.
//!
//! Each connection is an async task that reads, writes and checks timeouts. Its requests are executed by the node's
//! worker threads, so that no request blocks the threads that serve connections.

mod backups;
mod changes;
mod connection;
mod delivery;
mod greeting;
mod inbox;
mod lanes;
mod load;
mod meter;
mod outbox;
mod packing;
mod plans;
mod programs;
mod refusals;
mod requests;
mod sink;
mod timeouts;
mod turn;

use crate::Node;
use crate::accept::{Listener, Slot, Unauthenticated, accept};
use crate::node::AccessPass;
use bytes::BytesMut;
use connection::Connection;
use farpool_model::{Error, Result};
use farpool_wire::Socket;
use greeting::{Client, Greeting};
use refusals::Refusals;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// Maximum time that requests in progress get to finish at a shutdown.
const DRAIN: Duration = Duration::from_secs(5);

/// Interval at which a closing connection checks whether its last request has been answered.
const IDLE_CHECK: Duration = Duration::from_millis(10);

/// The phases of a server's shutdown, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ShutdownPhase {
    Serving,
    /// First phase: each connection closes as soon as no request is in progress on it.
    Draining,
    /// Second phase: all connections close, also those with requests in progress.
    Ending,
}

/// Serves clients until `shutdown` resolves. Then accepts no new connections, gives requests in progress up to
/// some seconds to finish, and ends all connections. The node itself is not shut down.
///
/// # Errors
/// None at present: an error of one connection ends that connection.
pub async fn serve(
    node: Arc<Node>,
    listener: impl Listener,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    serve_ticking(node, listener, shutdown, Duration::from_millis(timeouts::TICK_MS)).await
}

/// Does the same as [`serve`] with ticks of length `tick`, which are the unit of all timeouts. For tests, which use
/// short ticks.
///
/// # Errors
/// Errors of [`serve`].
#[doc(hidden)]
pub async fn serve_ticking<L: Listener>(
    node: Arc<Node>,
    mut listener: L,
    shutdown: impl Future<Output = ()>,
    tick: Duration,
) -> Result<()> {
    let (phase, phases) = watch::channel(ShutdownPhase::Serving);
    let unauthenticated = Arc::new(Unauthenticated::default());
    let refusals = Arc::new(Refusals::default());
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    let mut ticks = interval(tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            _ = ticks.tick() => node.forget_old(),
            // If accepting fails because the system has no sockets left, the oldest unauthenticated connection is
            // closed.
            arrival = accept(&mut listener, || unauthenticated.evict_oldest()) => {
                let (node, refusals) = (node.clone(), refusals.clone());
                match L::open(arrival) {
                    Ok(socket) => {
                        connections.spawn(handle(node, socket, unauthenticated.enter(), refusals, phases.clone(), tick));
                    }
                    Err(error) => tracing::debug!(%error, "a connection ended at once"),
                }
            }
        }
    }
    drop(listener);
    for (next, patience) in
        [(ShutdownPhase::Draining, DRAIN), (ShutdownPhase::Ending, 2 * greeting::FAREWELL)]
    {
        phase.send_replace(next);
        let ended = async { while connections.join_next().await.is_some() {} };
        drop(timeout(patience, ended).await);
    }
    connections.shutdown().await;
    Ok(())
}

async fn handle(
    node: Arc<Node>,
    socket: Arc<dyn Socket>,
    slot: Slot,
    refusals: Arc<Refusals>,
    mut phases: watch::Receiver<ShutdownPhase>,
    tick: Duration,
) {
    let peer = socket.peer();
    let greeted = tokio::select! {
        biased;
        () = slot.evicted() => return,
        () = reached(&mut phases, ShutdownPhase::Draining) => return,
        greeted = greeting::greet(socket, &node) => greeted,
    };
    match greeted {
        Greeting::Gone => {}
        Greeting::Refused(socket, bytes, error) => {
            refusals.log(&peer, &error.message, node.clock().now_ns());
            tokio::select! {
                biased;
                () = slot.evicted() => {}
                () = greeting::part(&*socket, &bytes) => {}
            }
        }
        Greeting::Welcome(client) => {
            let Client { socket, caller, mut pass, received, guard: _guard } = *client;
            drop(slot);
            let open = OpenConnection(Connection::new(caller, socket));
            if let Some(error) = converse(&open.0, &mut pass, received, phases, tick).await {
                tracing::info!(peer, error = ?error.message, "a connection is closed");
                drop(timeout(greeting::FAREWELL, say_why(&open.0, error)).await);
            }
        }
    }
}

/// Serves an authenticated client; returns the error that ends the connection, or `None` if the client closed it.
async fn converse(
    connection: &Arc<Connection>,
    pass: &mut AccessPass,
    received: BytesMut,
    mut phases: watch::Receiver<ShutdownPhase>,
    tick: Duration,
) -> Option<Error> {
    let mut ending = phases.clone();
    tokio::select! {
        biased;
        () = reached(&mut ending, ShutdownPhase::Ending) => {
            Some(Error::unavailable("the pool is shutting down").advise("try again later"))
        }
        () = drained(connection, &mut phases) => None,
        ended = pass.ended() => Some(ended),
        gone = timeouts::watch_over(connection, tick) => Some(gone),
        () = timeouts::end_late_requests(connection) => None,
        _ = connection.outbox.run() => None,
        served = connection.serve(received) => served.err(),
    }
}

/// Sends the error to the client, and waits for the client to close the connection. Reason: closing a socket with
/// unread input can discard the bytes sent last.
async fn say_why(connection: &Connection, error: Error) {
    connection.close(Some(error));
    while connection.outbox.write_all().await.is_ok() {
        if connection.outbox.is_idle() {
            connection.ignore_the_rest().await;
            return;
        }
        // Waits for a worker that is the writer; it stops when the socket is full.
        sleep(IDLE_CHECK).await;
    }
}

/// Waits until the server's shutdown has reached `phase`.
async fn reached(phases: &mut watch::Receiver<ShutdownPhase>, phase: ShutdownPhase) {
    drop(phases.wait_for(|now| *now >= phase).await);
}

/// Waits until the server is shutting down and no request is in progress on the connection.
async fn drained(connection: &Connection, phases: &mut watch::Receiver<ShutdownPhase>) {
    reached(phases, ShutdownPhase::Draining).await;
    while !connection.outbox.is_idle() {
        sleep(IDLE_CHECK).await;
    }
}

/// A guard that stops all work of a connection when it is dropped, however the connection ends.
struct OpenConnection(Arc<Connection>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.close(None);
    }
}
