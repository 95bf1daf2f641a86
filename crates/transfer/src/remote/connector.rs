//! Connectors: open a socket to a node, over TCP or by any other source of a [`Socket`].

use crate::PoolUrl;
use async_trait::async_trait;
use farpool_model::limits;
use farpool_wire::Socket;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// Opens connections to one node.
#[async_trait]
pub trait Connector: Send + Sync {
    /// Opens a new connection. The caller drops the future if it takes too long.
    ///
    /// # Errors
    /// Fails if the node cannot be reached.
    async fn connect(&self) -> io::Result<Arc<dyn Socket>>;
}

/// A connector that opens TCP connections to the address of a pool.
pub(super) struct Tcp(pub PoolUrl);

#[async_trait]
impl Connector for Tcp {
    async fn connect(&self) -> io::Result<Arc<dyn Socket>> {
        let socket = TcpStream::connect((self.0.host(), self.0.port())).await?;
        prepare(&socket)?;
        Ok(Arc::new(socket))
    }
}

/// Disables the delaying of small packets (Nagle's algorithm), and enables TCP keepalive, so that a dead node is
/// noticed while the connection is idle, before the next request uses it.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    let idle = Duration::from_millis(limits::PING_AFTER_MS);
    let keepalive = TcpKeepalive::new().with_time(idle).with_interval(idle).with_retries(2);
    socket.set_nodelay(true)?;
    SockRef::from(socket).set_tcp_keepalive(&keepalive)
}
