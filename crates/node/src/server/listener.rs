//! Sources of connections: TCP, or a channel of sockets for tests and simulations.

use farpool_wire::Socket;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// Pause before accepting again when the system has no more sockets.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A source of connections.
pub trait Listener: Send {
    /// Waits for the next connection. Dropping the future loses none.
    ///
    /// # Errors
    /// When no connection can be accepted at the moment; the next call may succeed.
    fn next(&mut self) -> impl Future<Output = io::Result<Arc<dyn Socket>>> + Send;
}

impl Listener for TcpListener {
    async fn next(&mut self) -> io::Result<Arc<dyn Socket>> {
        loop {
            let (socket, peer) = self.accept().await?;
            // Otherwise a small answer would wait for the acknowledgement of the previous one.
            match socket.set_nodelay(true) {
                Ok(()) => return Ok(Arc::new(socket)),
                Err(error) => tracing::debug!(%peer, %error, "a connection ended at once"),
            }
        }
    }
}

/// When all senders are dropped, no more connections come; those that are open go on.
impl Listener for mpsc::UnboundedReceiver<Arc<dyn Socket>> {
    async fn next(&mut self) -> io::Result<Arc<dyn Socket>> {
        match self.recv().await {
            Some(socket) => Ok(socket),
            None => std::future::pending().await,
        }
    }
}

/// Waits for the next connection; calls `on_failure` each time that accepting fails.
pub(crate) async fn accept(listener: &mut impl Listener, on_failure: impl Fn()) -> Arc<dyn Socket> {
    loop {
        match listener.next().await {
            Ok(socket) => return socket,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                on_failure();
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
