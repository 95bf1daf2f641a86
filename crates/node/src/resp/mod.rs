//! The server of the Redis protocol: keys and values for the clients that people already have.
//!
//! Each connection is an async task of one thread (`lanes.rs`). What has arrived is carried out there, command by command,
//! and the replies of a batch leave together; nobody else waits, as a command has its shards for microseconds.

mod batch;
mod client;
mod clients;
mod config;
mod connection;
mod host;
mod info;
mod introspect;
mod lanes;
mod slow;

pub(crate) use clients::Clients;
pub(crate) use slow::SlowLog;

use crate::Node;
use crate::server::Listener;
use crate::server::listener::accept;
use crate::server::lobby::Lobby;
use farpool_model::Result;
use lanes::Lanes;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

/// How often keys that have expired are looked for.
const TIDY: Duration = Duration::from_millis(100);

/// Steps of tidying up at a time. One takes some microseconds for each shard.
const TIDY_STEPS: usize = 64;

/// Counts connections, for `CLIENT ID`.
#[derive(Debug, Default)]
struct Numbers(AtomicU64);

impl Numbers {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Serves clients of the Redis protocol until `shutdown` resolves, on so many threads.
///
/// # Errors
/// `OverLimit` when the system gives no threads. An error of one connection ends that connection.
pub async fn serve<L: Listener + 'static>(
    node: Arc<Node>,
    mut listener: L,
    threads: usize,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let (ending, is_ending) = watch::channel(false);
    let lobby = Arc::new(Lobby::default());
    let lanes = Lanes::<L>::start(&node, threads, &lobby, &is_ending)?;
    let numbers = Numbers::default();
    let mut shutdown = pin!(shutdown);
    let mut ticks = interval(TIDY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            _ = ticks.tick() => tidy(&node),
            socket = accept(&mut listener, || lobby.evict_oldest()) => {
                lanes.serve(socket, numbers.next());
            }
        }
    }
    drop(listener);
    ending.send_replace(true);
    lanes.end().await;
    Ok(())
}

/// Removes keys that have expired.
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
