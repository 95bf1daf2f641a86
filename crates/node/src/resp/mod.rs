//! The server of the Redis protocol: keys and values for the clients that people already have.
//!
//! Each connection is an async task. What has arrived is carried out on the thread that has read it, command by command,
//! and the replies of a batch leave together; nobody else waits, as a command has its shards for microseconds.

mod config;
mod connection;
mod host;
mod slow;

pub(crate) use slow::SlowLog;

use crate::Node;
use crate::server::Listener;
use crate::server::listener::accept;
use crate::server::lobby::Lobby;
use connection::Connection;
use farpool_model::Result;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// How often keys that have expired are looked for.
const TIDY: Duration = Duration::from_millis(100);

/// Steps of tidying up at a time. One takes some microseconds for each shard.
const TIDY_STEPS: usize = 64;

/// How long connections may take to end at a shutdown.
const ENDING: Duration = Duration::from_secs(2);

/// Counts connections, for `CLIENT ID`.
#[derive(Debug, Default)]
struct Numbers(AtomicU64);

impl Numbers {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Serves clients of the Redis protocol until `shutdown` resolves.
///
/// # Errors
/// None at present: an error of one connection ends that connection.
pub async fn serve(
    node: Arc<Node>,
    mut listener: impl Listener,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let (ending, is_ending) = watch::channel(false);
    let lobby = Arc::new(Lobby::default());
    let numbers = Numbers::default();
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    let mut ticks = interval(TIDY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            _ = ticks.tick() => tidy(&node),
            socket = accept(&mut listener, || lobby.evict_oldest()) => {
                let connection = Connection::new(&node, socket, numbers.next());
                connections.spawn(connection.serve(lobby.enter(), is_ending.clone()));
            }
        }
    }
    drop(listener);
    ending.send_replace(true);
    let ended = async { while connections.join_next().await.is_some() {} };
    drop(timeout(ENDING, ended).await);
    connections.shutdown().await;
    Ok(())
}

/// Removes keys that have expired.
fn tidy(node: &Node) {
    let now = node.clock().unix_ms();
    for keys in node.keyspaces().all() {
        for _ in 0..TIDY_STEPS {
            if !keys.tidy(now) {
                break;
            }
        }
    }
}
