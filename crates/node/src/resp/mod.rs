//! The server of the Redis protocol.
//!
//! Each connection is an async task of one *serving thread* (`lanes.rs`), which executes the received requests one
//! after the other and sends the replies to a batch of them together. Tenants share the thread fairly (`fair.rs`). A
//! *long command*, one that takes longer than a step (some ten microseconds; see `KV_STEP_WORK_MAX`), is executed by
//! another thread (`long.rs`) while the serving thread serves other clients. A serving thread never blocks on a shard
//! (a part of a tenant's keys with one lock) that a long command holds.

mod ahead;
mod batch;
mod client;
mod clients;
mod config;
mod connection;
mod executor;
mod fair;
mod host;
mod info;
mod introspect;
mod lanes;
mod long;
mod slow;
mod tenants;

use crate::Node;
use crate::accept::{Listener, Unauthenticated, accept};
use farpool_model::Result;
use lanes::Lanes;
use long::LongCommands;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenants::Tenants;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Interval of background maintenance, such as removing expired keys.
const TIDY: Duration = Duration::from_millis(100);

/// Maximum number of maintenance steps of a keyspace per interval; a step takes some microseconds per shard.
const TIDY_STEPS: usize = 64;

/// Reply to a connection that is refused because there are too many; as in Redis.
const REFUSED: &str = "-ERR max number of clients reached\r\n";

/// Maximum time for sending the reply to a refused connection.
const FAREWELL: Duration = Duration::from_millis(100);

/// A generator of connection ids, which `CLIENT ID` replies with.
#[derive(Debug, Default)]
struct ConnectionNumbers(AtomicU64);

impl ConnectionNumbers {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// A server of the Redis protocol, whose threads are ready to serve connections.
pub struct Server<L: Listener> {
    node: Arc<Node>,
    unauthenticated: Arc<Unauthenticated>,
    long: Arc<LongCommands>,
    tenants: Arc<Tenants>,
    lanes: Lanes<L>,
    ending: watch::Sender<bool>,
}

impl<L: Listener + 'static> Server<L> {
    /// Starts a server with `threads` threads that serve connections, but at least one.
    ///
    /// # Errors
    /// `OverLimit` when the system has no more threads or descriptors.
    pub fn start(node: &Arc<Node>, threads: usize) -> Result<Self> {
        let (ending, is_ending) = watch::channel(false);
        let (unauthenticated, long) = (Arc::new(Unauthenticated::default()), LongCommands::start()?);
        let tenants = Arc::default();
        let lanes = Lanes::<L>::start(node, threads, &unauthenticated, &is_ending, (&long, &tenants))
            .inspect_err(|_| long.end())?;
        Ok(Server { node: Arc::clone(node), unauthenticated, long, tenants, lanes, ending })
    }

    /// Accepts and serves connections until `shutdown` resolves, then ends all connections. An error of one connection
    /// ends only that connection.
    pub async fn serve(self, mut listener: L, shutdown: impl Future<Output = ()>) {
        let Server { node, unauthenticated, long, tenants, lanes, ending } = self;
        let numbers = ConnectionNumbers::default();
        let mut shutdown = pin!(shutdown);
        let mut ticks = interval(TIDY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut tidying: Option<JoinHandle<()>> = None;
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                _ = ticks.tick() => {
                    if tidying.as_ref().is_none_or(JoinHandle::is_finished) {
                        let (node, tenants) = (Arc::clone(&node), Arc::clone(&tenants));
                        tidying = Some(spawn_blocking(move || tidy(&node, &tenants)));
                    }
                }
                socket = accept(&mut listener, || unauthenticated.evict_oldest()) => {
                    if let Err(socket) = lanes.serve(socket, numbers.next()) {
                        turn_away::<L>(socket);
                    }
                }
            }
        }
        drop(listener);
        ending.send_replace(true);
        lanes.end().await;
        long.end();
    }
}

/// Starts a server with `threads` threads and serves clients of the Redis protocol until `shutdown` resolves.
///
/// # Errors
/// Errors of [`Server::start`].
pub async fn serve<L: Listener + 'static>(
    node: Arc<Node>,
    listener: L,
    threads: usize,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    Server::start(&node, threads)?.serve(listener, shutdown).await;
    Ok(())
}

/// Refuses a new connection because there are too many connections: sends an error reply and closes it. The reply is
/// unencrypted, so that a refused client costs no TLS handshake. A task of its own sends it, with a timeout, so that the
/// caller, which accepts connections, never waits for it.
fn turn_away<L: Listener>(arrival: L::Arrival) {
    let Ok(socket) = L::open(arrival) else { return };
    tokio::spawn(async move {
        let told = socket.write_all(REFUSED.as_bytes());
        drop(timeout(FAREWELL, told).await);
    });
}

/// Does background maintenance of all keyspaces. Does not block on shards that long commands hold.
fn tidy(node: &Node, tenants: &Tenants) {
    let now = node.keyspaces().time().now_ms();
    tenants.clients().iter().for_each(|clients| clients.sample(now));
    for keys in node.keyspaces().all() {
        for _ in 0..TIDY_STEPS {
            if !keys.tidy(now) {
                break;
            }
        }
    }
}
