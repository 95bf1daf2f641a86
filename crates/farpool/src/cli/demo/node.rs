//! A memory node on a free loopback port, on separate threads, that stops when it is dropped.

use crate::cli::stop::{Outcome, Stop, reason};
use farpool::Error;
use farpool::node::{Node, NodeConfig, native};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// The node and the thread that serves it.
pub struct LocalNode {
    /// URL at which the node listens.
    pub url: String,
    stop: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<()>>,
}

impl LocalNode {
    /// Starts a node that may use `memory_bytes`.
    pub fn start(memory_bytes: usize) -> Outcome<Self> {
        let node = Node::start(NodeConfig {
            memory_bytes,
            workers: farpool::processors(),
            ..NodeConfig::default()
        })?;
        let (stop, stopped) = oneshot::channel();
        let (ready, address) = std::sync::mpsc::channel();
        let server = std::thread::Builder::new()
            .name("farpool-demo-node".to_string())
            .spawn(move || serve(node, &ready, stopped))
            .map_err(|error| Error::over_limit(format!("cannot start a thread: {}", reason(&error))))?;
        let address = address.recv().map_err(|_| Error::internal("the node did not start"))??;
        Ok(LocalNode { url: format!("farpool://{address}"), stop: Some(stop), server: Some(server) })
    }
}

impl Drop for LocalNode {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The channel is closed if the server has already stopped.
            let _ = stop.send(());
        }
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

type Ready = std::sync::mpsc::Sender<Result<SocketAddr, Error>>;

fn serve(node: Arc<Node>, ready: &Ready, stopped: oneshot::Receiver<()>) {
    let runtime = match crate::cli::runtime() {
        Ok(runtime) => runtime,
        Err(Stop::Failed(error)) => return ready.send(Err(error)).unwrap_or(()),
        Err(_) => return,
    };
    runtime.block_on(async {
        let bound = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = bound.and_then(|listener| Ok((listener.local_addr()?, listener)));
        match listener {
            Ok((address, listener)) => {
                ready.send(Ok(address)).unwrap_or(());
                let stop = async move { stopped.await.unwrap_or(()) };
                if let Err(error) = native::serve(node, listener, stop).await {
                    eprintln!("error: the node ended: {error}");
                }
            }
            Err(error) => {
                let message = format!("cannot listen on 127.0.0.1: {}", reason(&error));
                ready.send(Err(Error::unavailable(message))).unwrap_or(());
            }
        }
    });
}
