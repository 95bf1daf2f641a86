//! Sources of incoming connections for the servers of all protocols: a TCP listener, or a channel of sockets for tests
//! and simulations.

use farpool_model::limits;
use farpool_wire::Socket;
use farpool_wire::socket::prepare_tcp;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::sleep;

/// Pause before accepting again when the system has no more sockets.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A source of incoming connections.
pub trait Listener: Send {
    /// A connection that no runtime serves yet.
    type Arrival: Send + 'static;

    /// Waits for the next connection. Dropping the future loses none.
    ///
    /// # Errors
    /// When no connection can be accepted at the moment; the next call may succeed.
    fn next(&mut self) -> impl Future<Output = io::Result<Self::Arrival>> + Send;

    /// Returns the connection, which the runtime that this is called in serves from now on.
    ///
    /// # Errors
    /// The connection has ended before it was served.
    fn open(arrival: Self::Arrival) -> io::Result<Arc<dyn Socket>>;
}

impl Listener for TcpListener {
    type Arrival = std::net::TcpStream;

    async fn next(&mut self) -> io::Result<std::net::TcpStream> {
        self.accept().await?.0.into_std()
    }

    fn open(arrival: std::net::TcpStream) -> io::Result<Arc<dyn Socket>> {
        let socket = TcpStream::from_std(arrival)?;
        prepare_tcp(&socket, Duration::from_millis(limits::CLIENT_PING_AFTER_MS))?;
        Ok(Arc::new(socket))
    }
}

/// A channel of sockets as the source of connections, for tests. After all senders are dropped, no more connections
/// arrive; open ones continue.
impl Listener for mpsc::UnboundedReceiver<Arc<dyn Socket>> {
    type Arrival = Arc<dyn Socket>;

    async fn next(&mut self) -> io::Result<Arc<dyn Socket>> {
        match self.recv().await {
            Some(socket) => Ok(socket),
            None => std::future::pending().await,
        }
    }

    fn open(arrival: Arc<dyn Socket>) -> io::Result<Arc<dyn Socket>> {
        Ok(arrival)
    }
}

/// Waits for the next connection; calls `on_failure` each time that accepting fails.
pub async fn accept<L: Listener>(listener: &mut L, on_failure: impl Fn()) -> L::Arrival {
    loop {
        match listener.next().await {
            Ok(arrival) => return arrival,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                on_failure();
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
