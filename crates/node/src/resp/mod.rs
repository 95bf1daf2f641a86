//! The server of the Redis protocol: keys and values for the clients that people already have.
//!
//! Each connection is an async task of one thread (`lanes.rs`). What has arrived is carried out there, command by command,
//! and the replies of a batch leave together. Tenants share the thread fairly (`fair.rs`). A command that takes longer than a
//! step is carried out elsewhere (`long.rs`), while the thread serves others; it never waits for a shard that such a command
//! has.

mod ahead;
mod batch;
mod client;
mod clients;
mod config;
mod connection;
mod desk;
mod fair;
mod host;
mod info;
mod introspect;
mod lanes;
mod long;
mod slow;

pub(crate) use clients::Clients;
pub(crate) use slow::SlowLog;

use crate::Node;
use crate::server::Listener;
use crate::server::listener::accept;
use crate::server::unauthenticated::Unauthenticated;
use farpool_model::Result;
use lanes::Lanes;
use long::LongCommands;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// How often keys that have expired are looked for.
const TIDY: Duration = Duration::from_millis(100);

/// Steps of tidying up at a time. One takes some microseconds for each shard.
const TIDY_STEPS: usize = 64;

/// What a client is told where there are too many connections, whoever it is.
const REFUSED: &str = "-ERR max number of clients reached\r\n";

/// How long one that is turned away may take to be told.
const FAREWELL: Duration = Duration::from_millis(100);

/// Counts connections, for `CLIENT ID`.
#[derive(Debug, Default)]
struct Numbers(AtomicU64);

impl Numbers {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Threads that are ready to serve clients of the Redis protocol.
pub struct Server<L: Listener> {
    node: Arc<Node>,
    unauthenticated: Arc<Unauthenticated>,
    long: Arc<LongCommands>,
    lanes: Lanes<L>,
    ending: watch::Sender<bool>,
}

impl<L: Listener + 'static> Server<L> {
    /// Starts so many threads that serve connections.
    ///
    /// # Errors
    /// `OverLimit` when the system gives no threads, or no descriptors for them.
    pub fn start(node: &Arc<Node>, threads: usize) -> Result<Self> {
        let (ending, is_ending) = watch::channel(false);
        let (unauthenticated, long) = (Arc::new(Unauthenticated::default()), LongCommands::start()?);
        let lanes = Lanes::<L>::start(node, threads, &unauthenticated, &is_ending, &long)
            .inspect_err(|_| long.end())?;
        Ok(Server { node: Arc::clone(node), unauthenticated, long, lanes, ending })
    }

    /// Serves clients until `shutdown` resolves. An error of one connection ends that connection.
    pub async fn serve(self, mut listener: L, shutdown: impl Future<Output = ()>) {
        let Server { node, unauthenticated, long, lanes, ending } = self;
        let numbers = Numbers::default();
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
                        let node = Arc::clone(&node);
                        tidying = Some(spawn_blocking(move || tidy(&node)));
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

/// Serves clients of the Redis protocol until `shutdown` resolves, on so many threads.
///
/// # Errors
/// Those of [`Server::start`].
pub async fn serve<L: Listener + 'static>(
    node: Arc<Node>,
    listener: L,
    threads: usize,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    Server::start(&node, threads)?.serve(listener, shutdown).await;
    Ok(())
}

/// Tells a client that there are too many. A socket that has just been accepted has room for that; in the clear, as whoever
/// is turned away costs no handshake.
fn turn_away<L: Listener>(arrival: L::Arrival) {
    let Ok(socket) = L::open(arrival) else { return };
    tokio::spawn(async move {
        let told = socket.write_all(REFUSED.as_bytes());
        drop(timeout(FAREWELL, told).await);
    });
}

/// Removes keys that have expired. It waits for nobody who may have keys for long.
fn tidy(node: &Node) {
    let now = node.keyspaces().time().now_ms();
    node.keyspaces().all_clients().iter().for_each(|clients| clients.sample(now));
    for keys in node.keyspaces().all() {
        for _ in 0..TIDY_STEPS {
            if !keys.tidy(now) {
                break;
            }
        }
    }
}
