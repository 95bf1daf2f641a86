//! A node for tests that clients reach through pipes in memory instead of TCP, optionally with a clock on which minutes
//! pass within milliseconds, to test timeouts.

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

/// Bytes that a pipe holds in each direction: fewer than a window (the initial credit of a stream), like the buffers of
/// a real socket.
const PIPE_BYTES: usize = 256 << 10;

/// Real time between two ticks of the accelerated clock. In single-threaded tests no tick comes while a client has work
/// to do, however slow the machine is, because client and clock share the thread.
const FAST_TICK: Duration = Duration::from_millis(5);

/// A node that serves clients over pipes.
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

    /// Starts a node with an accelerated clock (ten minutes pass in less than a second), for single-threaded tests.
    pub fn fast() -> Self {
        Local::ticking(FAST_TICK)
    }

    fn ticking(tick: Duration) -> Self {
        let node =
            Node::start(NodeConfig { memory_bytes: 256 << 20, workers: 2, ..NodeConfig::default() }).unwrap();
        Local::of(node, tick)
    }

    /// Starts serving `node`, with this real time between ticks.
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
