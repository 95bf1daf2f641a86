//! Connectors: open a socket to a node, over TCP or by any other source of a [`Socket`].

use crate::PoolUrl;
use async_trait::async_trait;
use farpool_model::limits;
use farpool_wire::Socket;
use farpool_wire::socket::prepare_tcp;
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
        // A dead node is noticed while the connection is idle, before the next request uses it.
        prepare_tcp(&socket, Duration::from_millis(limits::PING_AFTER_MS))?;
        Ok(Arc::new(socket))
    }
}
