//! A node that is reached through pipes in memory, with a clock on which minutes pass in a moment.

use super::Raw;
use farpool_model::Result;
use farpool_node::{Node, NodeConfig, native};
use farpool_wire::Socket;
use farpool_wire::socket::pipe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Capacity of a pipe in each direction: less than a window, like a socket of the system.
const PIPE_BYTES: usize = 256 << 10;

/// Length of a tick where minutes pass in a moment. In single-threaded tests no tick comes while a client has
/// work to do, however slow the machine is.
const FAST_TICK: Duration = Duration::from_millis(5);

/// A node that serves pipes.
pub struct Local {
    pub node: Arc<Node>,
    pub serving: JoinHandle<Result<()>>,
    pub stop: Option<oneshot::Sender<()>>,
    sockets: UnboundedSender<Arc<dyn Socket>>,
}

impl Local {
    pub fn start() -> Self {
        Local::ticking(Duration::from_secs(5))
    }

    /// Starts a node for single-threaded tests: ten minutes pass in less than a second.
    pub fn fast() -> Self {
        Local::ticking(FAST_TICK)
    }

    fn ticking(tick: Duration) -> Self {
        let node =
            Node::start(NodeConfig { memory_bytes: 256 << 20, workers: 2, ..NodeConfig::default() }).unwrap();
        Local::of(node, tick)
    }

    /// Starts serving `node`.
    pub fn of(node: Arc<Node>, tick: Duration) -> Self {
        let (sockets, listener) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async { drop(stopped.await) };
        let serving = tokio::spawn(native::serve_ticking(node.clone(), listener, stopped, tick));
        Local { node, serving, stop: Some(stop), sockets }
    }

    /// Returns the client's end of a new connection, on which nothing has been sent.
    pub fn dial(&self) -> Arc<dyn Socket> {
        let (client, node) = pipe(PIPE_BYTES);
        self.sockets.send(Arc::new(node)).unwrap();
        Arc::new(client)
    }

    pub async fn connect(&self) -> Raw {
        Raw::over(self.dial()).await
    }

    pub fn programs_running(&self) -> u64 {
        self.node.status().programs_running
    }

    pub fn connections(&self) -> u64 {
        self.node.status().connections
    }
}
