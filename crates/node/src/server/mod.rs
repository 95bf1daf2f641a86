//! The node's socket.

use crate::Node;
use farpool_model::Result;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Serves clients until `shutdown` resolves, then lets what is running finish.
pub async fn serve(
    _node: Arc<Node>,
    _listener: TcpListener,
    _shutdown: impl Future<Output = ()>,
) -> Result<()> {
    todo!()
}
