//! The serving threads: the threads that serve connections of the Redis protocol, one per processor. A connection stays
//! on the thread that it is assigned to. So a request wakes no other thread, and the memory of a connection stays in
//! one processor's cache.

use super::connection::{Connection, LaneContext};
use super::fair::LaneTurns;
use super::long::LongCommands;
use super::tenants::Tenants;
use crate::Node;
use crate::accept::{Listener, Unauthenticated};
use farpool_keystore::ProgressRelay;
use farpool_model::Error;
use farpool_model::limits::{GREETINGS_MAX, RESP_CONNECTIONS_MAX};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Maximum time that connections get to end at a shutdown.
const ENDING: Duration = Duration::from_secs(2);

/// Maximum number of turns of connections between two checks of all sockets. A turn takes 100 µs, a check less than 1
/// µs. Reason for 4: with 31 turns, a request of a tenant with one connection waited 3 ms next to 50 busy connections
/// of another tenant.
const TURNS: u32 = 4;

/// An accepted connection on its way to the serving thread that it is assigned to.
struct Arrival<L: Listener> {
    socket: L::Arrival,
    number: u64,
}

pub(super) struct Lanes<L: Listener>(Vec<Lane<L>>);

struct Lane<L: Listener> {
    arrivals: mpsc::UnboundedSender<Arrival<L>>,
    /// Number of connections that the thread serves.
    open: Arc<AtomicUsize>,
    ended: oneshot::Receiver<()>,
}

impl<L: Listener + 'static> Lanes<L> {
    /// Starts `threads` serving threads, but at least one.
    ///
    /// # Errors
    /// `OverLimit` when the system has no more threads.
    #[expect(clippy::disallowed_methods, reason = "the node is where threads come from")]
    pub fn start(
        node: &Arc<Node>,
        threads: usize,
        unauthenticated: &Arc<Unauthenticated>,
        is_ending: &watch::Receiver<bool>,
        (long, tenants): (&Arc<LongCommands>, &Arc<Tenants>),
    ) -> farpool_model::Result<Self> {
        let refused = |error| Error::over_limit(format!("cannot start threads for connections: {error}"));
        let start = |number| {
            let runtime =
                Builder::new_current_thread().enable_all().event_interval(TURNS).build().map_err(refused)?;
            let (arrivals, arriving) = mpsc::unbounded_channel();
            let (end, ended) = oneshot::channel();
            let open = Arc::new(AtomicUsize::new(0));
            let (of_lane, node, unauthenticated) =
                (Arc::clone(node), Arc::clone(node), Arc::clone(unauthenticated));
            let (long, tenants) = (Arc::clone(long), Arc::clone(tenants));
            let shared = LaneContext { turns: Arc::<LaneTurns>::default(), long, tenants };
            let serving =
                serve(node, unauthenticated, arriving, Arc::clone(&open), is_ending.clone(), shared);
            let run = move || {
                of_lane.precedence().answer();
                drop(of_lane);
                runtime.block_on(serving);
                drop(end);
            };
            thread::Builder::new().name(format!("farpool-resp-{number}")).spawn(run).map_err(refused)?;
            Ok(Lane { arrivals, open, ended })
        };
        Ok(Lanes((0..threads.max(1)).map(start).collect::<farpool_model::Result<_>>()?))
    }

    /// Assigns a connection to the thread with the fewest connections; returns it as an error if there are too many. A
    /// connection is counted until its socket is closed, also before its first turn and before authentication.
    pub fn serve(&self, socket: L::Arrival, number: u64) -> Result<(), L::Arrival> {
        let counts = self.0.iter().map(|lane| lane.open.load(Ordering::Relaxed));
        if counts.sum::<usize>() >= RESP_CONNECTIONS_MAX + GREETINGS_MAX {
            return Err(socket);
        }
        let Some(lane) = self.0.iter().min_by_key(|lane| lane.open.load(Ordering::Relaxed)) else {
            return Err(socket);
        };
        lane.open.fetch_add(1, Ordering::Relaxed);
        // Sending cannot fail, because the serving thread ends only after this sender is dropped.
        drop(lane.arrivals.send(Arrival { socket, number }));
        Ok(())
    }

    /// Waits until all threads have ended, that is, until all connections have ended.
    pub async fn end(self) {
        for Lane { arrivals, ended, .. } in self.0 {
            drop(arrivals);
            drop(ended.await);
        }
    }
}

async fn serve<L: Listener>(
    node: Arc<Node>,
    unauthenticated: Arc<Unauthenticated>,
    mut arriving: mpsc::UnboundedReceiver<Arrival<L>>,
    open: Arc<AtomicUsize>,
    is_ending: watch::Receiver<bool>,
    shared: LaneContext,
) {
    let (mut connections, mut telling) = (JoinSet::new(), JoinSet::new());
    let log = node.keyspaces().log().map(|log| log.relay());
    if let Some(log) = &log {
        telling.spawn(log.clone().tell());
    }
    loop {
        tokio::select! {
            Some(_) = connections.join_next(), if !connections.is_empty() => {
                open.fetch_sub(1, Ordering::Relaxed);
            }
            arrival = arriving.recv() => {
                let Some(Arrival { socket, number }) = arrival else { break };
                match L::open(socket) {
                    Ok(socket) => {
                        let log = log.as_ref().map(ProgressRelay::follow);
                        let connection = Connection::new(&node, socket, number, log, shared.clone());
                        connections.spawn(connection.serve(Arc::clone(&unauthenticated), is_ending.clone()));
                    }
                    Err(error) => {
                        open.fetch_sub(1, Ordering::Relaxed);
                        tracing::debug!(%error, "a connection ended at once");
                    }
                }
            }
        }
    }
    let ended = async { while connections.join_next().await.is_some() {} };
    drop(timeout(ENDING, ended).await);
    connections.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeConfig;
    use farpool_wire::Socket;
    use farpool_wire::socket::pipe;

    #[tokio::test]
    async fn connections_are_counted_before_they_are_looked_at() {
        let config = NodeConfig { memory_bytes: 64 << 20, ..NodeConfig::default() };
        let node = Node::start(config).unwrap();
        let (_ending, is_ending) = watch::channel(false);
        let long = LongCommands::start().unwrap();
        type Sockets = mpsc::UnboundedReceiver<Arc<dyn Socket>>;
        let lanes =
            Lanes::<Sockets>::start(&node, 1, &Arc::default(), &is_ending, (&long, &Arc::default())).unwrap();
        let (client, socket) = pipe(1024);
        lanes.0[0].open.store(RESP_CONNECTIONS_MAX + GREETINGS_MAX - 1, Ordering::Relaxed);
        assert!(lanes.serve(Arc::new(socket), 1).is_ok());
        let refused = lanes.serve(Arc::new(pipe(1024).1), 2);
        assert!(refused.is_err());
        drop(client);
        lanes.end().await;
        long.end();
    }
}
